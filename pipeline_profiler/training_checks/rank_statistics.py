"""TRAIN034: an evaluation with batch-norm statistics of one rank alone."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    Nearness,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.rank_toys import ranked_training
from pipeline_profiler.checking.rank_trainings import RankSteps
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.record.errors import ProfileError

SAME = 1e-4  # of a deviation: rounding of the averages is a thousand times smaller


class RankStatistics(Check):
    """Running statistics of batch norm that are not those of all ranks when they are used.

    ## What it does
    Lets two ranks make three steps with gloo, calls your evaluate, and compares the running means
    that the first evaluated batch meets with the mean over both ranks after the steps.

    ## Why is this bad
    Each rank's averages saw its own shard only. The metric belongs to one rank's statistics, and
    the checkpoint holds them: the more ranks, the fewer examples are behind them.

    ## How it decides
    Fails where a running mean differs from the mean over the ranks by more than 1e-4 deviations of
    its layer. Averages of the same numbers agree to 1e-6.

    ## What to do
    SyncBatchNorm, or all_reduce the running means and variances and divide by the number of ranks
    before each evaluation and each checkpoint. Layer norm needs none of it.

    ## Limits
    A file that speaks of ranks, with an `evaluate`; without one it cannot tell. On a CPU, which
    torch's SyncBatchNorm does not run on, its arithmetic is done by the check.
    """

    code = "TRAIN034"
    name = "rank-statistics"
    nearness = Nearness.EFFECT

    def run(self, subject: TrainingSubject) -> Answer:
        """Compare what is evaluated with the mean over the ranks."""
        found = subject.ranks
        if isinstance(found, ProfileError):
            raise found
        if not found[0].means:
            return passed("The model has no batch norm with statistics of one rank.")
        if not any(rank.evaluated for rank in found):
            return unclear(
                "No evaluate of yours ran a batch norm: when statistics are averaged is not seen.",
                "Write evaluate(model, loader).",
            )
        apart = max(_distance(rank, found) for rank in found if rank.evaluated)
        numbers = {"deviations": apart, "norms": len(found[0].means)}
        if apart <= SAME:
            return passed(
                f"The statistics of {len(found[0].means)} batch norms are those of both ranks "
                "when the evaluation uses them.",
                **numbers,
            )
        return wrong(
            f"The evaluation meets running means that lie {apart:.2g} deviations from the mean "
            "over two ranks: it uses the statistics of one rank.",
            [
                "DistributedDataParallel hands out the statistics of rank 0, it averages nothing",
                "nothing is averaged before the evaluation and the checkpoint",
            ],
            "Average the running statistics over the ranks before evaluating and saving.",
            **numbers,
        )

    @staticmethod
    def _evaluating(averaged: bool, synchronised: bool = False) -> Any:
        import torch
        import torch.distributed as dist

        def evaluate(model: Any, loader: Any) -> float:
            for name, value in model.named_buffers() if averaged else ():
                if "running" in name:
                    dist.all_reduce(value)
                    value /= dist.get_world_size()
            model.eval()
            with torch.no_grad():
                hits = [(model(x).argmax(1) == y).float() for x, y in loader]
            model.train()
            return float(torch.cat(hits).mean())

        return ranked_training(evaluate=evaluate, synchronised=synchronised)

    @staticmethod
    def _rank_by_rank() -> Any:
        """DistributedDataParallel, nothing averaged."""
        return RankStatistics._evaluating(False)

    @staticmethod
    def _averaged() -> Any:
        """DistributedDataParallel, statistics averaged."""
        return RankStatistics._evaluating(True)

    @staticmethod
    def _synchronised() -> Any:
        """DistributedDataParallel with SyncBatchNorm, nothing averaged."""
        return RankStatistics._evaluating(False, synchronised=True)

    PLANTED = (Example("statistics of rank 0", _rank_by_rank),)
    HEALTHY = (
        Example("averaged over the ranks", _averaged),
        Example("SyncBatchNorm", _synchronised),
        Example("one process", toy_training),
    )


def _distance(rank: RankSteps, ranks: list[RankSteps]) -> float:
    """The largest distance of an evaluated running mean from the mean over the ranks."""
    largest = 0.0
    for name, seen in rank.evaluated.items():
        means = [other.means[name] for other in ranks]
        middle = [sum(column) / len(means) for column in zip(*means, strict=True)]
        largest = max(largest, *(abs(a - b) for a, b in zip(seen, middle, strict=True)))
    return largest
