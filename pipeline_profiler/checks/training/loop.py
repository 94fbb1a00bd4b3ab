"""Checks of the facts of a loop: epochs, clipping, checkpoints, graphs, ranks."""

from __future__ import annotations

import math

from pipeline_profiler.checks.check import Answer, Check, absent, passed, skipped, unclear, wrong
from pipeline_profiler.checks.loop_facts import LoopFacts, RankFacts
from pipeline_profiler.checks.training_subject import TrainingSubject

NO_LOOP = "Neither a script nor a train_step of yours is given."
SCRIPT = "Run `pipeline-profiler check -- train.py`, or add train_step to your file."


class _Loop(Check):
    """A check of recorded facts."""

    recorded = True
    torch_only = "fit of Keras does it by itself"

    def run(self, subject: TrainingSubject) -> Answer:
        facts = subject.loop
        if facts is None:
            return skipped(NO_LOOP, SCRIPT)
        return self.judged(facts)

    def judged(self, facts: LoopFacts) -> Answer:
        raise TypeError(f"{type(self).__name__} does not define judged()")


class EpochNotTold(_Loop):
    """Epochs in one order: a seed in each of them, or a distributed sampler without its epoch.

    ## What it does
    Reads the epoch of the training loader's sampler, and the state of torch's generator, at each
    iteration of your script.

    ## Why is this bad
    `DistributedSampler` derives its order from seed and epoch. Without `set_epoch`, each epoch
    repeats the order and the shards of the first epoch. So does a seed that is set in each epoch.

    ## How it decides
    Fails if a shuffling sampler with `set_epoch` is iterated twice with one epoch, or if a shuffled
    loader starts twice from one state, or if the dataset changes and persistent workers keep it as
    it was. Not applicable without such a sampler, inconclusive without
    a second epoch. Exact.

    ## Limits
    Needs `check -- train.py`, with a sampler for several ranks.
    """

    code = "TRAIN038"
    name = "epoch-not-told"
    causes = ("sampler.set_epoch(epoch) is missing in the loop",)
    next_step = "Call loader.sampler.set_epoch(epoch) at the head of each epoch."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.repeated:
            return wrong(
                "Two epochs start from one state of torch's generator: their order is one.",
                ["a seed is set in each epoch"],
                "Set the seed once, before the loop.",
                place=facts.repeated,
            )
        if facts.stale is not None:
            name, place = facts.stale
            return wrong(
                f"dataset.{name} changed between two epochs, and persistent workers keep the value "
                "of the first.",
                ["persistent_workers=True: workers hold copies of the dataset"],
                "Make the loader anew, or set persistent_workers=False.",
                place=place,
            )
        if not facts.told:
            return absent("No sampler of the training loader takes an epoch.")
        if len(facts.told) < 2:
            return unclear("The run did not reach a second epoch.")
        if facts.told[0] == facts.told[1]:
            return self.failed(
                f"The sampler had epoch {facts.told[0]} in both first epochs: their order is one.",
                place=facts.places.get("loader", ""),
            )
        return passed(f"The sampler was set to epochs {facts.told[0]} and {facts.told[1]}.")


class ClippedLate(_Loop):
    """Gradients that are clipped after the step that used them.

    ## What it does
    Records whether `clip_grad_norm_` and `clip_grad_value_` run between backward() and the
    optimizer's step, or after it.

    ## Why is this bad
    Clipping after the step has no effect: the first large gradient changes the weights.

    ## How it decides
    Fails if gradients are clipped only after the step. Not applicable if these functions are not
    called. Exact.

    ## Limits
    Needs `check -- train.py`. Custom clipping is not seen.
    """

    code = "TRAIN039"
    name = "clipped-late"
    causes = ("clip_grad_norm_ stands after optimizer.step()",)
    next_step = "Clip between backward() and step()."

    def judged(self, facts: LoopFacts) -> Answer:
        before, after = facts.clipped
        if after > before:  # the first step of a next training comes before it is known
            return self.failed(
                f"Gradients were clipped {after} times after the step that used them.",
                place=facts.places.get("clip late", ""),
            )
        if not before:
            return absent("Gradients are not clipped by torch's functions.")
        return passed(f"Gradients were clipped before the step, {before} times.")


class LoadedNothing(_Loop):
    """Checkpoint weights that were not loaded because the names differ.

    ## What it does
    Records which weights `load_state_dict(..., strict=False)` left unchanged, and which checkpoint
    keys it ignored.

    ## Why is this bad
    With `strict=False`, a prefix (`module.`, `model.`) prevents loading without an error. The
    pretrained model then starts at random.

    ## How it decides
    Fails if a load finds none of the model's weights. Fails if half of them are in the checkpoint
    with the same shape and another prefix. A new head without weights passes. Exact.

    ## Limits
    Needs `check -- train.py`. Weights that your code copies itself are not seen.
    """

    code = "TRAIN042"
    name = "checkpoint-not-loaded"
    causes = (
        "the checkpoint was saved from a wrapped model (`module.`), or from a part of this one",
        "the checkpoint is of another model",
    )
    next_step = "Rename the keys, and look at missing_keys and unexpected_keys of load_state_dict."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.loaded is None:
            return absent("No state was loaded into a module.")
        found, asked, moved = facts.loaded
        if not found or 2 * moved >= asked:
            names = f", {moved} stand there under another name" if moved else ""
            return self.failed(
                f"Of {asked} weights of the model, load_state_dict finds {found} in the checkpoint"
                f"{names}: the others stay as they were drawn.",
                place=facts.places.get("loaded", ""),
            )
        return passed(f"load_state_dict finds {found} of {asked} weights.", found=found)


class BestWeightsLive(_Loop):
    """Best weights that are kept by reference, so that later steps change them.

    ## What it does
    Follows the results of `model.state_dict()` between steps of your script: read (copied, saved),
    released, or still held in the next epoch.

    ## Why is this bad
    `state_dict()` returns references. `best = model.state_dict()` holds the last epoch at the end,
    so early stopping restores nothing.

    ## How it decides
    Fails if a state is held after a later step, shares memory with the model, and was never read.
    Fails if a condition such as `acc < best_acc` keeps the worst value. Exact.

    ## Limits
    Needs `check -- train.py` and a second epoch. A held state without use fails too.
    """

    code = "TRAIN043"
    name = "best-weights-live"
    causes = ("best = model.state_dict() without copy.deepcopy",)
    next_step = "Keep copy.deepcopy(model.state_dict()), or save the state to a file."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.best_reversed is not None:
            condition, place = facts.best_reversed
            return wrong(
                f"`{condition}` keeps the worst value of the metric.",
                ["the comparison is the wrong way round"],
                "Turn the comparison round, and start from the worst value.",
                place=place,
            )
        taken, live = facts.weights_kept
        if live:
            return self.failed(
                f"The state that is kept of the model is its live weights, not a copy ({live} of "
                f"{taken} states that were taken): each further step changes it.",
                place=facts.places.get("kept", ""),
            )
        if not taken:
            return absent("Your loop took no state of the model.")
        if not facts.after_evaluation:
            return unclear("The run did not reach a step after the state was taken.")
        return passed(f"{taken} states of the model were copied, saved or let go.")


class PlateauTurned(_Loop):
    """A plateau schedule in mode 'min' that receives an accuracy.

    ## What it does
    Compares the value given to `ReduceLROnPlateau.step` with the accuracy of the evaluation before
    it.

    ## Why is this bad
    In the default mode 'min', each evaluation without a falling accuracy counts as bad. The rate is
    reduced while the model improves.

    ## How it decides
    Fails if the value is the accuracy (0..1 or in per cent, to five digits) and the mode is 'min'.
    Exact.

    ## Limits
    Needs `check -- train.py`, and one predicted class per sample. Other scores are inconclusive.
    """

    code = "TRAIN044"
    name = "plateau-turned"
    causes = ("ReduceLROnPlateau has mode 'min' by default, and is given an accuracy",)
    next_step = "Make the schedule with mode='max'."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.plateau is None:
            return absent("No schedule waits for a plateau of what was evaluated.")
        mode, value, score = facts.plateau
        if not score:
            return unclear(
                f"The schedule is given {value:.4g}, which is not the share of right answers."
            )
        if mode == "min":
            return self.failed(
                f"The schedule is given the share of right answers ({value:.4g}) in mode 'min': it "
                "reduces the rate while the score rises.",
                place=facts.places.get("plateau", ""),
            )
        return passed(f"The schedule is given the share of right answers, in mode '{mode}'.")


MOST_LEFT = 0.7


class AverageLate(_Loop):
    """An evaluated average of weights that still holds the initial weights.

    ## What it does
    Measures how far an evaluated copy of the model (exponential moving average) has followed the
    weights at its first evaluation. Derives the steps that it needs to forget the start.

    ## Why is this bad
    A decay of 0.9999 needs 10,000 steps. In a run of 2,000 steps, four fifths of the average are
    initial weights.

    ## How it decides
    Fails if the initial weights keep a share above 0.7 at the end: exp(-steps / H), H = n / (2 x
    the share followed in n steps). Inconclusive if the schedule does not give the length of the
    run. Not applicable without such a copy.

    ## Limits
    Needs `check -- train.py`. Lengths are read from OneCycleLR and CosineAnnealingLR. Weights that
    move slower at first up to double H.
    """

    code = "TRAIN047"
    name = "average-late"
    causes = ("the decay is that of a far longer run, and is not warmed up",)
    next_step = "Let the decay grow: min(decay, (1 + n) / (10 + n)) after n steps."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.average is None:
            return absent("No average of the weights is evaluated.")
        steps, share = facts.average
        forgets = steps / (2 * max(share, 1e-9))
        said = (
            f"After {steps} steps the evaluated copy of the model has gone {share:.2%} of their way"
        )
        if share > 0.1:
            return passed(f"{said}.", share=share)
        if share < 1e-9:
            return unclear(f"{said}: a reference, or an average that is never updated.")
        if not facts.run_steps:
            return unclear(f"{said}: right for a run of far more than {forgets:.0f} steps.")
        left = math.exp(-facts.run_steps / forgets)
        if left > MOST_LEFT:
            return self.failed(
                f"{said}: at the end of the run ({facts.run_steps} steps) about {left:.0%} of it "
                "are the weights of the start.",
                place=facts.places.get("evaluation", ""),
                share=share,
                left=left,
            )
        return passed(f"{said}; the run has {facts.run_steps}.", share=share)


class GraphsKept(_Loop):
    """Graphs of earlier batches that stay in memory.

    ## What it does
    Marks the graph of each output of your model. Counts the marks that outlive the next optimizer
    step, or in eval mode the next batch.

    ## Why is this bad
    Each batch adds to the memory until it is full.

    ## How it decides
    Fails if the number of graphs grows four times in sequence. Exact.

    ## Limits
    Needs `check -- train.py`. The MB count tensors that the graphs hold, and 1 kB a node.
    """

    code = "TRAIN056"
    name = "graphs-kept"
    causes = ("a tensor is appended or added up with its graph",)
    next_step = "Keep a number, loss.item(), or a tensor without graph, loss.detach()."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.graphs is not None:
            count, name, size, place = facts.graphs
            said = f"{name} keeps the graphs of {count} batches, {size:.2g} MB each."
            return self.failed(said, place=place)
        if facts.steps < 5:
            return unclear(f"Only {facts.steps} steps of your loop were seen.")
        return passed(f"Over {facts.steps} steps the graph of each batch was freed.")


class WrongArguments(_Loop):
    """Arguments that a loss or an attention does not admit.

    ## What it does
    Reads the arguments of torch's loss functions, and masks of attention, in the first steps of
    your script.

    ## Why is this bad
    The loss falls, and it is the loss of another task, or of padding.

    ## How it decides
    Fails on any of these (exact):

    - kl_div or ctc_loss gets numbers that are no log-probabilities.
    - Targets of ctc_loss hold the blank.
    - A target that must be 1 or -1 is 0, or one that must lie in 0..1 does not.
    - Distributions for cross_entropy do not sum to 1.
    - The positive of a triplet is the anchor.
    - A mask hides all tokens of the batch, and keeps what fills the ends of its rows.

    ## Limits
    Needs `check -- train.py`. Losses with reduction="none" are not judged, as a mask may follow.
    """

    code = "TRAIN057"
    name = "wrong-arguments"
    causes = ("the function wants another form of this argument",)
    next_step = "Give the argument the form that torch documents."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.argument is not None:
            said, place = facts.argument
            return self.failed(said, place=place)
        if facts.steps < 2:
            return unclear(f"Only {facts.steps} steps of your loop were seen.")
        return passed("The arguments of losses and masks have the form that torch documents.")


class FoldTrained(_Loop):
    """An evaluation of samples that the model was trained on before.

    ## What it does
    Follows the loaders that train a model since its weights were last set. Compares 40 samples of
    each evaluation with those of earlier training loaders.

    ## Why is this bad
    A model that goes on from fold to fold has seen the samples that are to measure it.

    ## How it decides
    Fails if an earlier loader holds half of the samples, and the current one none. Exact.

    ## Limits
    Needs `check -- train.py`. Samples that are augmented at random are not recognised.
    """

    code = "TRAIN058"
    name = "fold-trained"
    causes = ("the model is made once, outside of the loop over folds",)
    next_step = "Make the model and its optimizer anew for each fold."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.folded:
            return self.failed(
                "The samples of this evaluation trained the same weights before, in another fold.",
                place=facts.folded,
            )
        if not facts.evaluations:
            return unclear("The run did not reach an evaluation.")
        return passed("No evaluated sample was in an earlier training loader of the model.")


ALONE = "The program names no ranks: it trains in a single process."
AVERAGED, SENT = "all_reduce", ("broadcast", "broadcast_object_list")


class _OfRanks(_Loop):
    """A check of a program that is one of several ranks."""

    def judged(self, facts: LoopFacts) -> Answer:
        return absent(ALONE) if facts.ranks is None else self.judge_rank(facts.ranks)

    def judge_rank(self, facts: RankFacts) -> Answer:
        raise TypeError(f"{type(self).__name__} does not define judge_rank()")


class RankSeeds(_OfRanks):
    """Seeds that differ for weights, or agree for random numbers of a step, across ranks.

    ## What it does
    Records the seeds of a script, the random numbers of its first step, and the calls that average
    gradients and weights.

    ## Why is this bad
    Ranks with different weights average gradients of different networks. Ranks with equal dropout
    masks use one mask instead of many.

    ## How it decides
    Fails on any of these (exact):

    - The step calls the module inside DistributedDataParallel: gradients are not averaged.
    - Gradients are averaged by hand, weights are drawn by each rank, and none are broadcast.
    - The first step draws random numbers, and every seed is the same on all ranks.

    ## What to do
    Wrap the model in DistributedDataParallel and call the wrapper. Use one seed before you create
    the model, and `seed + rank` after it.

    ## Limits
    Needs a program that names ranks. A seed depends on the rank if its line or function names both.
    Not applicable if a library launches and seeds the ranks.
    """

    code = "TRAIN033"
    name = "rank-seeds"
    next_step = "After the model is made, seed with seed + rank."

    def judge_rank(self, facts: RankFacts) -> Answer:
        if facts.bypassed:
            return wrong(
                "The step calls the module inside DistributedDataParallel, so the gradients of the "
                "ranks are not averaged.",
                ["the step calls model.module"],
                "Call the wrapped model.",
                place=facts.bypassed,
            )
        by_rank = any(depends for _, depends in facts.seeded)
        by_hand = AVERAGED in facts.collectives and not facts.wrapped
        if by_hand and not {*SENT} & {*facts.collectives} and (by_rank or not facts.seeded):
            return wrong(
                "Each rank draws its own weights, and no rank sends its weights to the others.",
                ["the weights of rank 0 are not broadcast"],
                "Seed all ranks alike before the model is made, or broadcast its weights.",
            )
        if facts.drawn and facts.seeded and not by_rank:
            return self.failed(
                "Every seed is the same on all ranks, so dropout and other noise of a step are "
                "alike on all ranks.",
                "all ranks are seeded with one number, and not anew after the initialisation",
                place=facts.seeded[-1][0],
            )
        noise = "differs" if facts.drawn else "is not drawn in the first step"
        return passed(f"The weights of the ranks agree, and random noise of a step {noise}.")


class RankWrites(_OfRanks):
    """A file that every rank writes: a log, a table of metrics, a checkpoint.

    ## What it does
    Records the files that your code opens for writing or passes to torch.save, with their lines.

    ## Why is this bad
    Ranks that write one file overwrite each other. A mixed checkpoint does not load, and a log
    repeats each line per rank.

    ## How it decides
    Fails if neither the line, nor a condition around it, nor a caller names a rank (or `is_main`,
    `master`).

    ## Limits
    Files that compiled code opens are not seen. A condition in a helper function is not seen.
    """

    code = "TRAIN035"
    name = "rank-writes"
    causes = ("the log or the checkpoint is written by all ranks, and not by rank 0 alone",)
    next_step = "Write where rank == 0, or put the rank into the name."

    def judge_rank(self, facts: RankFacts) -> Answer:
        if not facts.written:
            return unclear("The run wrote no file.")
        places = {name: place for place, name, guarded in facts.written if not guarded}
        if not places:
            return passed(f"All {len(facts.written)} writes depend on the rank.")
        names = ", ".join([*places][:3])
        place = next(iter(places.values()))
        return self.failed(f"Each rank writes {names}.", place=place, files=[*places])
