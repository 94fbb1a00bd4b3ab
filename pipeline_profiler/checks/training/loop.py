"""What only the user's own loop shows: epochs, clipping, checkpoints, what a plateau is told."""

from __future__ import annotations

import math

from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.training_subject import TrainingSubject

NOT_SEEN = "Your loop was not seen: `pipeline-profiler check -- train.py` runs and watches it."


class _Loop(Check):
    """A check of recorded facts."""

    recorded = True
    torch_only = "fit of Keras does it by itself"

    def run(self, subject: TrainingSubject) -> Answer:
        facts = subject.settings.loop
        if facts is None:
            return unclear(NOT_SEEN)
        return self.judged(facts)

    def judged(self, facts: LoopFacts) -> Answer:
        """The answer for what was recorded."""
        raise TypeError(f"{type(self).__name__} does not define judged()")


class EpochNotTold(_Loop):
    """A sampler for several ranks that is never told its epoch.

    ## What it does
    Reads, while your script runs, the epoch of the training loader's sampler each time the loader
    is iterated.

    ## Why is this bad
    `DistributedSampler` draws its order from seed and epoch: without `set_epoch` each epoch has
    the order, and each rank the samples, of the first.

    ## How it decides
    Fails where a sampler that has `set_epoch` and shuffles was iterated twice with one epoch.
    "Cannot tell" where there is no such sampler or no second epoch. Exact.

    ## Limits
    Needs `check -- train.py`.
    """

    code = "TRAIN038"
    name = "epoch-not-told"
    causes = ("sampler.set_epoch(epoch) is missing in the loop",)
    next_step = "Call loader.sampler.set_epoch(epoch) at the head of each epoch."

    def judged(self, facts: LoopFacts) -> Answer:
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
    Sees, while your script runs, whether `clip_grad_norm_` and `clip_grad_value_` come between
    backward() and the optimizer's step, or after it.

    ## Why is this bad
    Clipping after the step clips nothing: the first large gradient goes into the weights.

    ## How it decides
    Fails where gradients are clipped only after the step. "Cannot tell" where nothing is clipped by
    these functions. Exact.

    ## Limits
    Needs `check -- train.py`. Clipping by code of your own is not seen.
    """

    code = "TRAIN039"
    name = "clipped-late"
    causes = ("clip_grad_norm_ stands after optimizer.step()",)
    next_step = "Clip between backward() and step()."

    def judged(self, facts: LoopFacts) -> Answer:
        before, after = facts.clipped
        if after and not before:
            return self.failed(
                f"Gradients were clipped {after} times, each time after the step that used them.",
                place=facts.places.get("clip late", ""),
            )
        if not before:
            return absent("Gradients are not clipped by torch's functions.")
        return passed(f"Gradients were clipped before the step, {before} times.")


class LoadedNothing(_Loop):
    """Weights of a checkpoint that were not loaded: none of its names is the model's.

    ## What it does
    Sees, while your script runs, which weights `load_state_dict(..., strict=False)` left as they
    were, and which of the checkpoint's it had no place for.

    ## Why is this bad
    With `strict=False` a prefix (`module.`, `model.`) is enough for nothing to be loaded, without
    a word: the pretrained model starts at random.

    ## How it decides
    Fails where a load finds none of the model's weights, or where half of them or more stand in the
    checkpoint with the same shape under a name that differs in its first part only. Exact. A new
    head that is left out passes.

    ## Limits
    Needs `check -- train.py`. Weights that are copied by code of your own are not seen.
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
    """The best weights are kept as the live ones: each further step changes them.

    ## What it does
    Follows, while your script runs, what `model.state_dict()` returned between steps: whether it
    is read (copied, saved), let go, or still held when the next epoch trains.

    ## Why is this bad
    `state_dict()` returns references. `best = model.state_dict()` is the last epoch's model at the
    end, whichever epoch was best, and early stopping restores nothing.

    ## How it decides
    Fails where a state that was taken after a step is still held after a later one, shares its
    memory with the model, and no function of torch has read it. Exact.

    ## Limits
    Needs `check -- train.py`, and a second epoch. A state that is held but never used
    is reported as well.
    """

    code = "TRAIN043"
    name = "best-weights-live"
    causes = ("best = model.state_dict() without copy.deepcopy",)
    next_step = "Keep copy.deepcopy(model.state_dict()), or save the state to a file."

    def judged(self, facts: LoopFacts) -> Answer:
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
    """A schedule that waits for a score to stop falling.

    ## What it does
    Compares, while your script runs, what `ReduceLROnPlateau.step` is given with the share of right
    answers in the evaluation before it.

    ## Why is this bad
    The default mode is 'min': each evaluation in which the accuracy does not fall counts as bad,
    and the rate is reduced while the model learns.

    ## How it decides
    Fails where the value is the share of right answers (0..1 or in per cent, to five digits) and
    the mode is 'min'. Exact.

    ## Limits
    Needs `check -- train.py`, and outputs of one class for each example. Other scores are
    "inconclusive".
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
    """An evaluated average of weights that is still the model of the start.

    ## What it does
    Where your script evaluates a copy of the trained model (an exponential moving average), takes
    how far the copy has followed the weights by its first evaluation, and so how many steps it
    needs to forget the start.

    ## Why is this bad
    A decay of 0.9999 needs 10,000 steps: in a run of 2,000, four fifths of what is evaluated and
    saved are random weights, however well the model has learned.

    ## How it decides
    In n steps an average that forgets in H has gone n / 2H of a steady way. Fails where the run's
    length is known by its schedule and the weights of the start keep more than 0.7 in it,
    exp(-steps / H); weights that move slower at first double H at most. "Cannot tell" where
    the length is not known.

    ## Limits
    Needs `check -- train.py`. Lengths are read of OneCycleLR and CosineAnnealingLR.
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


class MomentumUnwritten(_Loop):
    """A fused SGD whose first step overflows, and that goes on with a momentum nobody wrote.

    ## What it does
    Reads, at the first step of your script's optimizer, whether it is an SGD with `fused=True` and
    momentum behind a `GradScaler`, and whether that step overflowed.

    ## Why is this bad
    torch makes the momentum in the first step, and where the scaler found infinities the fused
    kernel leaves it unwritten (torch 2.11 and 2.13): the second step adds whatever lay in memory to
    the weights. The loss becomes NaN, or the training starts somewhere else each time.

    ## How it decides
    Fails where the first step overflowed, which at the usual first scale of 65,536 is common.
    Exact.

    ## What to do
    `fused=False` (or `foreach=True`), or Adam and AdamW, whose fused kernels start from zeros; or
    zeros as `optimizer.state[p]["momentum_buffer"]` before the first step.

    ## Limits
    Needs `check -- train.py`, on a machine where its scaler works. A first step that does
    not overflow here may elsewhere.
    """

    code = "TRAIN048"
    name = "momentum-unwritten"
    causes = ("torch's fused SGD leaves its momentum unwritten where the first step overflows",)
    next_step = "Make the optimizer with fused=False."

    def judged(self, facts: LoopFacts) -> Answer:
        if facts.overflowed is None:
            return absent("No fused SGD with momentum is stepped by a GradScaler.")
        if facts.overflowed:
            return self.failed(
                "The first step overflows: the fused SGD goes on with a momentum nobody wrote.",
                place=facts.places.get("optimizer", ""),
            )
        return passed("The first step of the fused SGD does not overflow.")
