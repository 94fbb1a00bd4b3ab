"""TRAIN025: batch norm with too few examples, or statistics that do not follow."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
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
    Fails with fewer than 4 examples a batch, with a momentum of 0 or above 0.5, an eps above 0.1,
    or a ghost batch (`virtual_batch_size` of the module) that is no proper part of the device
    batch. From 4 to 15 examples it cannot tell; about 64 are wanted. Where the loader's sampler has
    several ranks and norms are not synchronised, it cannot tell.

    ## What to do
    Larger batches, group or layer norm, or statistics over all replicas (SyncBatchNorm). The
    momentum of 0.99 of other frameworks is 0.01 here.

    ## Limits
    Ranks are seen in the loader's sampler only; whether their statistics are averaged before an
    evaluation: TRAIN034. momentum=None (a cumulative mean) passes.
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
        ghost = _ghost_batch(norms)
        if ghost and (ghost >= size or size % ghost):
            return _failed(
                f"The ghost batch is {ghost}, and a device gets {size} examples: it must be a "
                "proper part of the device batch.",
                "ghost batch and device batch exchanged",
                numbers | {"ghost": ghost},
            )
        ranks = _ranks(subject.settings.loader)
        synced = all("Sync" in type(m).__name__ for m in norms.values())
        if ranks > 1 and not synced:
            return unclear(
                f"Each of {ranks} ranks keeps statistics of its own from {ghost or size} examples "
                "a batch (about 64 are wanted), and a checkpoint of rank 0 holds rank 0's alone.",
                "Average running statistics over ranks before each evaluation and checkpoint, or "
                "SyncBatchNorm.convert_sync_batchnorm(model).",
                **numbers | {"ranks": ranks},
            )
        size = (ghost or size) * (ranks if synced else 1)
        return _judge_size(size, len(norms), any(m.training for m in norms.values()), numbers)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Read the layers; here momentum is the share of what was."""
        layers = [
            x for x in subject.settings.model._flatten_layers() if "BatchNorm" in type(x).__name__
        ]
        if not layers:
            return passed("The model has no batch norm.")
        size = min(batch_size(batch[0]) for batch in subject.batches[:-1] or subject.batches)
        numbers: dict[str, Any] = {"norms": len(layers), "examples": size}
        odd = [x for x in layers if not MOST_MOMENTUM <= x.momentum < 1]
        if odd:
            return wrong(
                f"The momentum of {odd[0].name} is {odd[0].momentum:g}: the share of the running "
                "statistics that each batch leaves as it was.",
                ["the convention of torch (there 1 - momentum)"],
                "Set momentum=0.99 or 0.9.",
                **numbers,
            )
        if any(x.epsilon > 0.1 for x in layers):
            return _failed("An epsilon is larger than 0.1.", "epsilon and momentum", numbers)
        return _judge_size(size, len(layers), any(x.trainable for x in layers), numbers)

    @staticmethod
    def _momentum(value: float) -> Any:
        model = toy_net()
        model[1].momentum = value
        return toy_training(model)

    @staticmethod
    def _ghost(size: int) -> Any:
        model = toy_net()
        model[1].virtual_batch_size = size
        return toy_training(model)

    @staticmethod
    def _of_ranks() -> Any:
        from torch.utils.data.distributed import DistributedSampler

        made: Any = ToyImages()
        return toy_training(loader=toy_loader(made, sampler=DistributedSampler(made, 2, 0)))

    PLANTED = (
        Example("a ghost batch of 64 in batches of 16", lambda: BatchStatistics._ghost(64)),
        Example("momentum 0.99", lambda: BatchStatistics._momentum(0.99)),
        Example("two examples", lambda: toy_training(loader=toy_loader(ToyImages(), batch_size=2))),
    )
    HEALTHY = (
        Example("batches of 16", toy_training),
        Example("no batch norm", toy_regression),
        Example("a ghost batch of 8", lambda: BatchStatistics._ghost(8)),
        Example("two ranks", _of_ranks),
    )


def _ghost_batch(norms: dict[str, Any]) -> int:
    """The sub-batch that a ghost batch norm says it takes; 0 without one."""
    names = ("virtual_batch_size", "ghost_batch_size", "nominal_batch_size")
    sizes = [int(getattr(m, n, 0) or 0) for m in norms.values() for n in names]
    return max(sizes, default=0)


def _ranks(loader: Any) -> int:
    sampler = getattr(loader, "sampler", None)
    names = ("num_replicas", "world_size", "num_shards")
    return max((int(getattr(sampler, name, 1) or 1) for name in names), default=1)


def _failed(text: str, cause: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [cause],
        "Set momentum=0.1 and eps=1e-5, batches of 32 or more, or use group norm.",
        **numbers,
    )


def _judge_size(size: int, norms: int, trained: bool, numbers: dict[str, Any]) -> Answer:
    if size < FEWEST and trained:
        return _failed(
            f"Batch norm estimates its statistics from {size} examples.",
            "batches too small for batch norm",
            numbers,
        )
    if size < 16:
        return unclear(
            f"Batch norm has {size} examples a batch; about {WANTED} are wanted.",
            "Take larger batches; where they do not fit, group or layer norm needs none.",
            **numbers,
        )
    return passed(
        f"{norms} batch norms have {size} examples a batch (about {WANTED} are wanted).", **numbers
    )
