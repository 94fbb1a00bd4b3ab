"""TRAIN021: padding that counts in the loss."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.nested_batches import main_tensor
from pipeline_profiler.checking.toy_trainings import toy_language, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

LEAST_ROWS, LEAST_SHARE = 4, 0.25


class PaddingCounted(Check):
    """A loss that averages over padded places.

    ## What it does
    Looks for a value that fills the ends of rows in the targets and stands nowhere else, and asks
    whether the loss has a gradient there.

    ## Why is this bad
    The model learns to predict padding, which is easy: the loss looks low, and depends on how much
    padding a batch has.

    ## How it decides
    Padding is a value that, in at least four rows and a quarter of all, fills the end of the row
    and never precedes another value. Fails where the loss has a gradient at such places. Real
    sequences that all end in runs of one value of their own do not occur by chance.

    ## What to do
    `ignore_index=pad`, or multiply by a mask and divide by its sum.

    ## Limits
    Targets of whole numbers by place. An end token that is predicted once is not padding.
    """

    code = "TRAIN021"
    name = "padding-counted"

    def run(self, subject: TrainingSubject) -> Answer:
        """Find the padding, then its gradient."""
        import torch

        targets = main_tensor(subject.batches[0][2])
        if targets is None or targets.ndim != 2 or torch.is_floating_point(targets):
            return unclear("The targets are no rows of whole numbers.")
        found = _padding(targets)
        if found is None:
            return unclear("No value fills the ends of rows: there is no padding to see.")
        value, places = found
        if not subject.takes_tensor or subject.task.kind != "classes":
            return unclear(
                f"The value {value} looks like padding; the loss does not take one tensor."
            )
        outputs = torch.randn_like(subject.first_outputs.float()).requires_grad_()
        with torch.enable_grad():
            subject.loss_of(subject.settings, outputs, subject.batches[0][2]).backward()
        size = outputs.grad.abs().sum(subject.task.axis) if outputs.grad is not None else places * 0
        share = float((size[places] > 0).float().mean())
        numbers = {"value": value, "padded": float(places.float().mean()), "counted": share}
        if share > 0:
            return wrong(
                f"The value {value} fills the ends of rows ({numbers['padded']:.0%} of all "
                f"places), and {share:.0%} of these places count in the loss.",
                ["ignore_index is missing", "the mask is not applied, or only to the sum"],
                f"Set ignore_index={value}, or mask the loss and divide by the sum of the mask.",
                **numbers,
            )
        return passed(
            f"Padding ({value}, {numbers['padded']:.0%} of all places) does not count.", **numbers
        )

    PLANTED = (Example("no ignore_index", lambda: toy_language(ignore=False)),)
    HEALTHY = (Example("ignored", toy_language), Example("no sequences", toy_training))


def _padding(targets: Any) -> tuple[int, Any] | None:
    """(value, places) of what fills the ends of rows and is nowhere else."""
    import torch

    ends = targets[:, -1]
    for value in ends.unique().tolist():
        places = targets == value
        trailing = places.flip(1).cumprod(1).flip(1).bool()
        long = int((trailing.sum(1) > 1).sum())
        many = long >= max(LEAST_ROWS, LEAST_SHARE * len(targets))
        if many and torch.equal(places, trailing) and not bool(places.all()):
            return int(value), places
    return None
