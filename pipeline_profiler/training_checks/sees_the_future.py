"""TRAIN022: a next-token model that sees the next token."""

from __future__ import annotations

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.nested_batches import main_tensor
from pipeline_profiler.checking.toy_trainings import toy_language, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

MOST = 1e-3


class SeesTheFuture(Check):
    """Outputs at a place that depend on later places, although these are the targets.

    ## What it does
    Where targets are the inputs moved by one place, changes the inputs in the second half of each
    row and compares the outputs of the first half.

    ## Why is this bad
    The answer stands in the input: the loss falls to zero, and the model cannot write a word.

    ## How it decides
    Runs only where at least 90 % of the targets equal the next input. Fails where an output of the
    first half moves by more than a thousandth of the deviation of outputs.

    ## What to do
    A causal mask (`is_causal=True`, or -inf above the diagonal), and no bidirectional recurrence.

    ## Limits
    Models whose targets are shifted inside the loss are not recognised.
    """

    code = "TRAIN022"
    name = "sees-the-future"

    def run(self, subject: TrainingSubject) -> Answer:
        """Change what comes later."""
        import torch

        inputs, targets = subject.batches[0][1], main_tensor(subject.batches[0][2])
        if not isinstance(inputs, torch.Tensor) or targets is None or inputs.shape != targets.shape:
            return unclear("Inputs and targets are not rows of one shape.")
        if inputs.ndim < 2 or inputs.shape[1] < 4 or torch.is_floating_point(inputs):
            return unclear("The inputs are no rows of four or more tokens.")
        next_ = float((inputs[:, 1:] == targets[:, :-1]).float().mean())
        if next_ < 0.9:
            return unclear(
                f"Only {next_:.0%} of the targets are the next input: this is no "
                "prediction of the next token."
            )
        half = inputs.shape[1] // 2
        training = subject.fresh()
        training.model.eval()
        other = inputs.clone()
        other[:, half:] = inputs.roll(1, 0)[:, half:].flip(1)
        with torch.no_grad():
            one, two = subject.output(training, inputs), subject.output(training, other)
        axis = 1 if one.shape[1] == inputs.shape[1] else 2
        if one.ndim <= axis or one.shape[axis] != inputs.shape[1]:
            return unclear(
                f"The output has the shape {tuple(one.shape)}, without an axis of places."
            )
        moved = (one - two).abs().narrow(axis, 0, half).max() / (one.float().std() + 1e-12)
        share = float(moved)
        if share > MOST:
            return wrong(
                f"Outputs of the first {half} places move by {share:.0%} of their deviation when "
                "later places change, and the targets are the next inputs.",
                [
                    "the causal mask is missing or transposed",
                    "a bidirectional recurrence",
                    "a norm or mean over places",
                ],
                "Give attention a causal mask.",
                moved=share,
            )
        return passed(f"Outputs do not depend on later places (to {share:.0e}).", moved=share)

    PLANTED = (Example("no mask", lambda: toy_language(causal=False)),)
    HEALTHY = (Example("a causal mask", toy_language), Example("pictures", toy_training))
