"""Checks that read recorded facts of a loop: one row each, a function of the facts.

The docstring of a row's function is its page.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from pipeline_profiler.checks.check import (
    Answer,
    CheckTable,
    absent,
    fault,
    passed,
    skipped,
    unclear,
)
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.training_subject import TrainingSubject

ROWS = CheckTable()


def row(code: str, name: str) -> Callable[[Callable[[LoopFacts], Answer]], Any]:
    """Return a decorator that adds a function of the facts to the table."""

    def add(judge: Callable[[LoopFacts], Answer]) -> Any:
        @wraps(judge)
        def of_subject(subject: TrainingSubject) -> Answer:
            if subject.loop is not None:
                return judge(subject.loop)
            return skipped(
                "Neither a script nor a train_step of yours is given.",
                "Run `pipeline-profiler check -- train.py`, or add train_step to your file.",
            )

        by_itself = "fit of Keras does it by itself"
        return ROWS.row(code, name, recorded=True, torch_only=by_itself)(of_subject)

    return add


@row("TRAIN038", "epoch-not-set")
def judge_order(facts: LoopFacts) -> Answer:
    """Epochs that repeat the order of the first epoch.

    ## How it decides
    Fails if a sampler with `set_epoch` is iterated twice with one epoch, or if a shuffled loader
    starts twice from one state of torch's generator. Fails if persistent workers keep an old copy
    of a changed dataset. Exact.
    """
    if facts.repeated:
        text = "Two epochs start from one state of torch's generator."
        return fault(text, "a seed in each epoch", "Set the seed before the loop.", facts.repeated)
    if facts.stale is not None:
        name, place = facts.stale
        text = f"dataset.{name} changed between two epochs, and persistent workers keep its first"
        cause = "persistent_workers=True: workers hold copies of the dataset"
        return fault(f"{text} value.", cause, "Make the loader anew in each epoch.", place)
    if not facts.sampler_epochs:
        return absent("No sampler of the training loader takes an epoch.")
    if len(facts.sampler_epochs) < 2:
        return unclear("The run did not reach a second epoch.")
    first, second = facts.sampler_epochs[:2]
    if first == second:
        text = f"The sampler had epoch {first} in both first epochs, so their order is the same."
        cause = "sampler.set_epoch(epoch) is missing in the loop"
        action = "Call loader.sampler.set_epoch(epoch) at the head of each epoch."
        return fault(text, cause, action, facts.places.get("loader", ""))
    return passed(f"The sampler was set to epochs {first} and {second}.")


@row("TRAIN039", "wrong-clipping")
def judge_clipping(facts: LoopFacts) -> Answer:
    """Gradients that are clipped after their step, or while a scaler enlarges them.

    ## How it decides
    Fails if `clip_grad_norm_` or `clip_grad_value_` runs only after the optimizer's step, or before
    `unscale_` of a GradScaler. Exact. Custom clipping is not seen.
    """
    before, after = facts.clipped
    if after > before:  # the first step of a next training comes before it is known
        text = f"Gradients were clipped {after} times after the step that used them."
        place = facts.places.get("clip late", "")
        return fault(text, "clip_grad_norm_ after step()", "Clip before step().", place)
    if facts.clip_scale > 1:
        text = f"Gradients are clipped while they are {facts.clip_scale:,.0f} times as large."
        cause, place = "scaler.unscale_(optimizer) is missing", facts.places.get("clip", "")
        return fault(text, cause, "Call it before the gradients are clipped.", place)
    if not before:
        return absent("Gradients are not clipped by torch's functions.")
    return passed(f"Gradients were clipped before the step, {before} times.")


@row("TRAIN042", "checkpoint-not-loaded")
def judge_loading(facts: LoopFacts) -> Answer:
    """Checkpoint weights that were not loaded because the names differ.

    ## How it decides
    Fails if `load_state_dict(..., strict=False)` matches none of the model's weights, or if half of
    them have another prefix in the checkpoint. A new head passes. Exact.
    """
    if facts.loaded is None:
        return absent("No state was loaded into a module.")
    found, total, renamed = facts.loaded
    text = f"load_state_dict finds {found} of {total} weights"
    if found and 2 * renamed < total:
        return passed(f"{text}.")
    names = f", {renamed} are there under another name" if renamed else ""
    cause = "the checkpoint has a prefix (`module.`), or is of another model"
    action = "Rename the keys, and look at missing_keys and unexpected_keys of load_state_dict."
    place = facts.places.get("loaded", "")
    return fault(f"{text}{names}; the rest stays initial.", cause, action, place)


@row("TRAIN043", "best-weights-live")
def judge_best_weights(facts: LoopFacts) -> Answer:
    """Best weights that later steps change, or that are the worst weights.

    ## How it decides
    Fails if a state of `state_dict()`, which returns references, is held after a later step and was
    never read. Fails if a condition such as `acc < best_acc` keeps the worst value. Exact.
    """
    if facts.best_reversed is not None:
        condition, place = facts.best_reversed
        text = f"`{condition}` keeps the worst value of the metric."
        return fault(text, "the comparison is reversed", "Reverse it.", place)
    taken, live = facts.weights_kept
    if live:
        text = f"{live} of {taken} states of the model are live weights: each step changes them."
        action, place = "Keep copy.deepcopy(model.state_dict()).", facts.places.get("kept", "")
        return fault(text, "state_dict() without a copy", action, place)
    if not taken:
        return absent("Your loop took no state of the model.")
    if not facts.after_evaluation:
        return unclear("The run did not reach a step after the state was taken.")
    return passed(f"{taken} states of the model were copied, saved or released.")


@row("TRAIN044", "plateau-mode")
def judge_plateau(facts: LoopFacts) -> Answer:
    """A plateau schedule in mode 'min' that receives an accuracy.

    ## How it decides
    Fails if the value given to `ReduceLROnPlateau.step` is the accuracy of the evaluation before it
    (to five digits, or in percent) and the mode is 'min'. Exact.
    """
    if facts.plateau is None:
        return absent("No schedule waits for a plateau of an evaluation.")
    mode, value, is_accuracy = facts.plateau
    if not is_accuracy:
        return unclear(f"The schedule receives {value:.4g}, which is not the accuracy.")
    if mode == "min":
        text = f"The schedule waits for a smaller value ('min'), and gets the accuracy ({value:.4g}"
        action, place = "Make the schedule with mode='max'.", facts.places.get("plateau", "")
        return fault(f"{text}).", "'min' is the default mode", action, place)
    return passed(f"The schedule receives the accuracy, in mode '{mode}'.")


MAX_INITIAL_SHARE = 0.7


@row("TRAIN047", "average-late")
def judge_average(facts: LoopFacts) -> Answer:
    """An evaluated average of weights that still holds the initial weights.

    ## How it decides
    Measures how far the average has followed the weights at its first evaluation. Fails if the
    initial weights keep a share above 0.7 at the end of the run: exp(-steps / H), H = n / (2 x
    the share after n steps). The steps of the run are those of OneCycleLR or CosineAnnealingLR.
    """
    if facts.average is None:
        return absent("No average of the weights is evaluated.")
    steps, share = facts.average
    text = f"After {steps} steps the evaluated average has followed the weights by {share:.2%}"
    if share > 0.1:
        return passed(f"{text}.")
    if share < 1e-9:
        return unclear(f"{text}: a reference, or an average that is never updated.")
    horizon = steps / (2 * share)
    if not facts.run_steps:
        return unclear(f"{text}: right for a run of far more than {horizon:.0f} steps.")
    left = math.exp(-facts.run_steps / horizon)
    if left > MAX_INITIAL_SHARE:
        text += f": after all {facts.run_steps} steps {left:.0%} of it are initial weights."
        cause = "the decay is that of a far longer run, and is not warmed up"
        action = "Let the decay grow: min(decay, (1 + n) / (10 + n)) after n steps."
        return fault(text, cause, action, facts.places.get("evaluation", ""))
    return passed(f"{text}; the run has {facts.run_steps}.")


@row("TRAIN049", "graph-in-evaluation")
def judge_graph(facts: LoopFacts) -> Answer:
    """An evaluation that builds a graph for gradients without use.

    ## How it decides
    Fails if forward passes of the evaluation build a graph, and no gradient goes through any.
    Saliency maps and adversarial examples pass. A script must call model.eval(). Exact.
    """
    return facts.answers.get("TRAIN049") or unclear("The run reached no evaluation.")


@row("TRAIN056", "graphs-kept")
def judge_graphs(facts: LoopFacts) -> Answer:
    """Graphs of earlier batches that stay in memory.

    ## How it decides
    Fails if the number of graphs that outlive the next step grows four times in sequence. In eval
    mode the next batch replaces the step. Exact.
    """
    if facts.graphs is not None:
        count, name, size, place = facts.graphs
        text = f"{name} keeps the graphs of {count} batches, {size:.2g} MB each."
        cause = "a tensor is appended or added up with its graph"
        return fault(text, cause, "Keep loss.item() or loss.detach().", place)
    if facts.steps < 5:
        return unclear(f"Only {facts.steps} steps of your loop were seen.")
    return passed(f"Over {facts.steps} steps the graph of each batch was freed.")


@row("TRAIN057", "wrong-arguments")
def judge_arguments(facts: LoopFacts) -> Answer:
    """Arguments that a loss function or an attention does not admit.

    ## How it decides
    Fails if kl_div or ctc_loss gets no log-probabilities, or ctc_loss a target of blanks. Fails if
    a target is 0 that must be 1 or -1, or lies outside 0..1, or if distributions do not sum to 1.
    Fails if the positive of a triplet is the anchor, or if a mask hides all tokens. Exact. Losses
    with reduction="none" are not judged, as a mask may follow.
    """
    if facts.argument is not None:
        sentence, place = facts.argument
        cause = "the function requires another form of this argument"
        return fault(sentence, cause, "Give it the form that torch documents.", place)
    if facts.steps < 2:
        return unclear(f"Only {facts.steps} steps of your loop were seen.")
    return passed("The arguments of losses and masks have the form that torch documents.")


@row("TRAIN058", "fold-trained")
def judge_folds(facts: LoopFacts) -> Answer:
    """An evaluation of samples that the model was trained on before.

    ## How it decides
    Compares 40 samples with the loaders that trained the model since its weights were last set.
    Fails if an earlier loader holds half of them, and the current loader none. Exact.
    """
    if facts.folded:
        text = "The samples of this evaluation trained the same weights before, in another fold."
        cause = "the model is made once, outside of the loop over folds"
        return fault(text, cause, "Make the model in each fold.", facts.folded)
    if not facts.evaluations:
        return unclear("The run did not reach an evaluation.")
    return passed("No evaluated sample was in an earlier training loader of the model.")


SINGLE = "The program names no ranks: it trains in a single process."


@row("TRAIN033", "rank-seeds")
def judge_rank_seeds(facts: LoopFacts) -> Answer:
    """Ranks with different weights, or with the same noise in a step.

    ## How it decides
    Fails if the step calls the module inside DistributedDataParallel. Fails if gradients are
    averaged by hand, each rank draws its weights, and none are broadcast. Fails if the first step
    draws random numbers, and no seed depends on the rank (in its line or function). Not applicable
    if the program names no ranks, or if a library launches and seeds them.
    """
    if (ranks := facts.ranks) is None:
        return absent(SINGLE)
    if ranks.bypassed:
        text = "The step calls the module inside DistributedDataParallel: no gradient is averaged."
        return fault(text, "a call of model.module", "Call the wrapped model.", ranks.bypassed)
    by_rank = any(depends for _, depends in ranks.seeded)
    by_hand = "all_reduce" in ranks.collectives and not ranks.wrapped
    sent = {"broadcast", "broadcast_object_list"} & {*ranks.collectives}
    if by_hand and not sent and (by_rank or not ranks.seeded):
        text = "Each rank draws its own weights, and no rank sends its weights to the others."
        action = "Seed all ranks alike before the model is made, or broadcast its weights."
        return fault(text, "the weights of rank 0 are not broadcast", action)
    if ranks.drawn and ranks.seeded and not by_rank:
        text = "Every seed, and so dropout and other noise of a step, is the same on all ranks."
        cause = "all ranks are seeded with one number, and not anew after the initialisation"
        action = "After the model is made, seed with seed + rank."
        return fault(text, cause, action, ranks.seeded[-1][0])
    noise = "differs" if ranks.drawn else "is not drawn in the first step"
    return passed(f"The weights of the ranks agree, and random noise of a step {noise}.")


@row("TRAIN035", "rank-writes")
def judge_rank_writes(facts: LoopFacts) -> Answer:
    """A file that every rank writes: a log, a table of metrics, a checkpoint.

    ## How it decides
    Reads the files that your code opens for writing or passes to torch.save. Fails if neither the
    line, nor a condition around it, nor a caller names a rank (or `is_main`, `master`).
    """
    if facts.ranks is None:
        return absent(SINGLE)
    if not facts.ranks.written:
        return unclear("The run wrote no file.")
    unguarded = {name: place for place, name, guarded in facts.ranks.written if not guarded}
    if not unguarded:
        return passed(f"All {len(facts.ranks.written)} writes depend on the rank.")
    text, place = f"Each rank writes {', '.join([*unguarded][:3])}.", next(iter(unguarded.values()))
    cause = "the log or the checkpoint is written by all ranks, and not by rank 0 alone"
    return fault(text, cause, "Write where rank == 0, or put the rank into the name.", place)
