"""Two ranks of a training: seeds, batch-norm statistics, files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pipeline_profiler.checks.check import (
    Answer,
    Check,
    Nearness,
    absent,
    passed,
    skipped,
    unclear,
    wrong,
)
from pipeline_profiler.checks.keras_subject import KerasSubject
from pipeline_profiler.checks.ranks import STEPS, WRAPS, RankSteps, source_of
from pipeline_profiler.checks.training_subject import TrainingSubject

SEEDED_BY_RANK = re.compile(r"seed\w*\([^)]*rank", re.IGNORECASE)


class _OfRanks(Check):
    """What several processes do."""

    def run_keras(self, subject: KerasSubject) -> Answer:
        if subject.settings.model.distribute_strategy.num_replicas_in_sync == 1:
            return absent("One process trains.")
        return super().run_keras(subject)


class RankSeeds(_OfRanks):
    """Seeds that differ for weights, or agree for dropout, across ranks.

    ## What it does
    Starts two ranks as processes with gloo and different seeds, and runs three steps. Compares the
    weights before and after, and torch's generator around a step.

    ## Why is this bad
    Ranks with different weights average gradients of different networks. Ranks with equal dropout
    masks use one mask instead of many.

    ## How it decides
    Fails if weights differ between the ranks after the steps: they started differently, or
    gradients are not averaged. Fails if a step draws random numbers from the same state on both
    ranks. Exact.

    ## What to do
    Wrap the model in DistributedDataParallel and call the wrapper, not `model.module`. Use one seed
    before you create the model, and `seed + rank` after it.

    ## Limits
    Needs a file that uses ranks and runs without a GPU. A wrapper or seed by rank outside of the
    functions is not seen. If the source names one, the result is inconclusive.
    """

    code = "TRAIN033"
    name = "rank-seeds"
    causes = ("all ranks are seeded with one number, and not anew after the initialisation",)
    next_step = "After the model is made, seed with seed + rank."

    def run(self, subject: TrainingSubject) -> Answer:
        found = subject.ranks
        source = source_of(list(subject.functions.values()) or [subject.make])
        started, ended = (
            sorted(name for name in one if one[name] != two.get(name))
            for one, two in ([rank.start for rank in found], [rank.end for rank in found])
        )
        numbers = {"unlike_at_start": len(started), "unlike_after": len(ended)}
        later = not found[0].wrapped and WRAPS.search(source)
        if ended and later:
            return unclear("The model is wrapped for ranks after it was made: not seen here.")
        if ended:
            return _apart(started, ended, len(found[0].end), numbers)
        drawn = found[0].drawn
        if drawn[0] == drawn[1]:
            return passed(f"Two ranks have the same weights after {STEPS} steps.", **numbers)
        if drawn[0] == found[1].drawn[0]:
            if SEEDED_BY_RANK.search(source):
                return unclear("A seed by rank is named in the source, and not set by a function.")
            return self.failed(
                "Two ranks make their first step from the same state of torch's generator: "
                "dropout and other noise are alike on all ranks.",
                **numbers,
            )
        return passed(
            f"Two ranks have the same weights after {STEPS} steps and draw other random numbers.",
            **numbers,
        )


def _apart(started: list[str], ended: list[str], count: int, numbers: dict[str, Any]) -> Answer:
    differ = f"after {STEPS} steps {len(ended)} differ ({', '.join(ended[:3])})"
    said = f"Of {count} parameters, two ranks start with other values in {len(started)}, and "
    if started:
        causes = ["weights are drawn from a seed of each process, and not broadcast from rank 0"]
        step = "Seed all ranks with one number before the model is made, or broadcast its weights."
        return wrong(f"{said}{differ}.", causes, step, **numbers)
    causes = ["the step calls model.module, past DistributedDataParallel, or all_reduce is missing"]
    step = "Call the wrapped model, so that backward() averages over the ranks."
    said = f"Two ranks start with the same {count} parameters, and {differ}: "
    return wrong(f"{said}their gradients are not averaged.", causes, step, **numbers)


SAME = 1e-4  # of a deviation: rounding of the averages is a thousand times smaller


class RankStatistics(_OfRanks):
    """Running statistics of batch norm that are not averaged over the ranks.

    ## What it does
    Runs three steps on two ranks with gloo, then your evaluate. Compares the running means at the
    first evaluated batch with the mean over both ranks.

    ## Why is this bad
    The statistics of a rank cover its own shard. The metric and the checkpoint then depend on one
    rank, with fewer samples for more ranks.

    ## How it decides
    Fails if a running mean differs from the mean over the ranks by more than 1e-4 deviations of its
    layer.

    ## What to do
    Use SyncBatchNorm, or average the running means and variances over the ranks (all_reduce) before
    each evaluation and checkpoint. Layer norm needs neither.

    ## Limits
    Needs a file that uses ranks and has `evaluate`. Without `evaluate`, the result is inconclusive.
    torch's SyncBatchNorm needs a GPU, so the check computes it on the CPU.
    """

    code = "TRAIN034"
    name = "rank-statistics"
    nearness = Nearness.EFFECT
    causes = (
        "DistributedDataParallel hands out the statistics of rank 0, it averages nothing",
        "nothing is averaged before the evaluation and the checkpoint",
    )
    next_step = "Average the running statistics over the ranks before evaluating and saving."

    def run(self, subject: TrainingSubject) -> Answer:
        found = subject.ranks
        if not found[0].means:
            return passed("The model has no batch norm with statistics of one rank.")
        if not any(rank.evaluated for rank in found):
            return skipped(
                "No evaluate of yours ran a batch norm: when statistics are averaged is not seen.",
                "Add evaluate(model, loader) to the file.",
            )
        apart = max(_distance(rank, found) for rank in found if rank.evaluated)
        numbers = {"deviations": apart, "norms": len(found[0].means)}
        if apart <= SAME:
            return passed(
                f"The statistics of {len(found[0].means)} batch norms are those of both ranks "
                "when the evaluation uses them.",
                **numbers,
            )
        return self.failed(
            f"The evaluation meets running means that lie {apart:.2g} deviations from the mean "
            "over two ranks: it uses the statistics of one rank.",
            **numbers,
        )


def _distance(rank: RankSteps, ranks: list[RankSteps]) -> float:
    """The largest distance of an evaluated running mean from the mean over the ranks."""
    largest = 0.0
    for name, seen in rank.evaluated.items():
        means = [other.means[name] for other in ranks]
        middle = [sum(column) / len(means) for column in zip(*means, strict=True)]
        largest = max(largest, *(abs(a - b) for a, b in zip(seen, middle, strict=True)))
    return largest


class RankWrites(_OfRanks):
    """One file that several ranks write: a log, a table of metrics, a checkpoint.

    ## What it does
    Runs three steps and your evaluate on two ranks. Records the files that each rank opens for
    writing or passes to torch.save. A scratch folder receives the files and is removed.

    ## Why is this bad
    Ranks that write one file overwrite each other. A mixed checkpoint does not load, and a log
    repeats each line per rank.

    ## How it decides
    Fails if both ranks write the same path. Files of one rank, and one file per rank, pass.

    ## Limits
    Covers your functions for three steps and one evaluation. Files written by the loop around them,
    or by compiled code, are not seen.
    """

    code = "TRAIN035"
    name = "rank-writes"
    causes = ("the log or the checkpoint is written by all ranks, and not by rank 0 alone",)
    next_step = "Write where rank == 0, or put the rank into the name."

    def run(self, subject: TrainingSubject) -> Answer:
        one, two = (set(rank.written) for rank in subject.ranks)
        if not one | two:
            return unclear("Nothing is written in three steps and one evaluation.")
        both = sorted(one & two)
        if not both:
            return passed(
                f"Rank 0 writes {len(one)} files and rank 1 {len(two)}, none of them the same."
            )
        names = ", ".join(Path(path).name for path in both[:3])
        return self.failed(f"Two ranks write the same {len(both)} files: {names}.", files=both[:20])
