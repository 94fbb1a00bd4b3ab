"""TRAIN025: batch norm with too few examples, or statistics that do not follow."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.nested_batches import batch_size
from pipeline_profiler.checking.toy_trainings import toy_net, toy_regression, toy_training
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.training_subject import TrainingSubject

FEWEST, WANTED, MOST_MOMENTUM = 4, 64, 0.5


class BatchStatistics(Check):
    """What batch norm gets to estimate its statistics from.

    ## What it does
    Counts examples a batch and reads momentum and eps of every batch norm.

    ## Why is this bad
    A mean of two examples is noise; a momentum of 0.99 (which in torch is the weight of the *new*
    batch) makes evaluation use the statistics of the last batch alone.

    ## How it decides
    Fails with fewer than 4 examples a batch, with a momentum of 0 or above 0.5, or an eps above
    0.1. From 4 to 15 examples it cannot tell; about 64 are wanted.

    ## What to do
    Larger batches, group or layer norm, or statistics over all replicas (SyncBatchNorm). The
    momentum of 0.99 of other frameworks is 0.01 here.

    ## Limits
    Several replicas are not seen: their statistics must be synchronised before each evaluation and
    checkpoint. momentum=None (a cumulative mean) passes.
    """

    code = "TRAIN025"
    name = "batch-norm-statistics"

    def run(self, subject: TrainingSubject) -> Answer:
        """Read the modules."""
        from torch.nn.modules.batchnorm import _BatchNorm

        norms = {
            n: m for n, m in subject.settings.model.named_modules() if isinstance(m, _BatchNorm)
        }
        if not norms:
            return passed("The model has no batch norm.")
        whole = subject.whole_batches
        size = min(batch_size(batch[1]) for batch in whole[:-1] or whole)
        odd = {
            n: m.momentum
            for n, m in norms.items()
            if m.momentum is not None and not 0 < m.momentum <= MOST_MOMENTUM
        }
        wide = [n for n, m in norms.items() if m.eps > 0.1]
        numbers: dict[str, Any] = {"norms": len(norms), "examples": size, "momentum": odd}
        if odd:
            name, momentum = next(iter(odd.items()))
            return _failed(
                f"The momentum of {name} is {momentum:g}: the weight of the newest "
                "batch in the running statistics.",
                "the convention of another framework (there 1 - momentum)",
                numbers,
            )
        if wide:
            return _failed(
                f"The eps of {wide[0]} is larger than 0.1.", "eps and momentum exchanged", numbers
            )
        if size < FEWEST and any(m.training for m in norms.values()):
            return _failed(
                f"Batch norm estimates its statistics from {size} examples.",
                "batches too small for batch norm",
                numbers,
            )
        if size < 16:
            return unclear(
                f"Batch norm has {size} examples a batch; about {WANTED} are wanted.",
                "Take larger batches, or group norm.",
                **numbers,
            )
        return passed(
            f"{len(norms)} batch norms have {size} examples a batch (about {WANTED} are wanted).",
            **numbers,
        )

    @staticmethod
    def _momentum(value: float) -> Any:
        model = toy_net()
        model[1].momentum = value
        return toy_training(model)

    PLANTED = (
        Example("momentum 0.99", lambda: BatchStatistics._momentum(0.99)),
        Example("two examples", lambda: toy_training(loader=toy_loader(ToyImages(), batch_size=2))),
    )
    HEALTHY = (Example("batches of 16", toy_training), Example("no batch norm", toy_regression))


def _failed(text: str, cause: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [cause],
        "Set momentum=0.1 and eps=1e-5, batches of 32 or more, or use group norm.",
        **numbers,
    )
