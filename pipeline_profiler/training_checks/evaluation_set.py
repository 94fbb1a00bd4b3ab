"""TRAIN029: an evaluation that leaves examples out, counts some twice, or is a random draw."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_calls import users_code

MOST_INDICES = 2_000_000
FEW = 100


class EvaluationSet(Check):
    """What your evaluation loader gives: all examples once, and how much that can tell.

    ## What it does
    Collects the indices of one pass over `eval_loader`, counts what is missing and what comes
    twice, and computes the bias of a mean over batches, of padding, and the interval of a metric.

    ## Why is this bad
    A metric of a part, or of a random draw, moves from run to run by more than most changes do.
    Examples of padding count twice.

    ## How it decides
    Fails where examples are left out (drop_last, a part) or drawn with replacement. Padding of a
    sampler for ranks is "cannot tell", with the bias it has at most. Counting has no false alarms.
    Printed: the 95 % interval of a share of one half, 1.96 sqrt(1/4n), and the bias of a mean over
    batches, |1/batches - r/n| of the difference between the last batch and the rest.

    ## What to do
    drop_last=False, no sampler that draws; sum over examples, divide once; evaluate with at least
    the batch of the training (there are no gradients to keep).

    ## Limits
    Needs `eval_loader` over a dataset with indices. Metrics other than shares have intervals of
    their own.
    """

    code = "TRAIN029"
    name = "evaluation-set"

    def run(self, subject: TrainingSubject) -> Answer:
        """Count."""
        loader = subject.settings.eval_loader
        if loader is None:
            return unclear("There is no eval_loader of yours.")
        if getattr(loader, "_dataset_kind", None) != 0:
            return unclear("The examples of the evaluation loader have no indices to count.")
        with users_code("The evaluation loader's sampler"):
            batches = [_listed(entry) for entry in loader.batch_sampler or loader.sampler]
            total = len(loader.dataset)
        indices = list(chain(*batches))[:MOST_INDICES]
        if not indices:
            return wrong(
                f"The evaluation loader gives none of {total} examples.",
                ["drop_last=True, and fewer examples than a batch"],
                "Set drop_last=False.",
            )
        return _judge(indices, [len(b) for b in batches], total, loader, _trained_size(subject))

    @staticmethod
    def _evaluated(count: int, **options: Any) -> Any:
        made: Any = ToyImages(count)
        return toy_training(eval_loader=toy_loader(made, **{"shuffle": False} | options))

    @staticmethod
    def _drawn() -> Any:
        from torch.utils.data import RandomSampler

        made: Any = ToyImages(90)
        sampler = RandomSampler(made, replacement=True)
        return toy_training(eval_loader=toy_loader(made, sampler=sampler))

    PLANTED = (
        Example("drop_last", lambda: EvaluationSet._evaluated(90, drop_last=True)),
        Example("a draw with replacement", _drawn),
    )
    HEALTHY = (
        Example("all of them", lambda: EvaluationSet._evaluated(90)),
        Example("shuffled", lambda: EvaluationSet._evaluated(90, shuffle=True)),
        Example("none", toy_training),
    )


def _listed(entry: Any) -> list[Any]:
    return list(entry) if isinstance(entry, list | tuple) else [entry]


def _trained_size(subject: TrainingSubject) -> int:
    return int(getattr(subject.settings.loader, "batch_size", None) or 0)


def _judge(indices: list[Any], sizes: list[int], total: int, loader: Any, trained: int) -> Answer:
    unique = len(set(map(str, indices)))
    missing, twice = total - unique, len(indices) - unique
    ranks = int(getattr(loader.sampler, "num_replicas", 1) or 1)
    width = 1.96 * math.sqrt(0.25 / unique)
    bias = abs(1 / len(sizes) - sizes[-1] / len(indices))
    numbers = {"examples": total, "missing": missing, "twice": twice, "interval": round(width, 4)}
    numbers |= {"bias_of_a_mean_over_batches": round(bias, 6)}
    if ranks > 1:
        padding = -total % ranks
        share = padding / (total + padding)
        return unclear(
            f"The evaluation loader is one of {ranks} ranks: {padding} of {total} examples come "
            f"twice, which moves a metric by {share:.2%} of the difference at most.",
            "Gather the outputs of all ranks and cut them to the dataset's length.",
            **numbers,
        )
    if missing or twice:
        return wrong(
            f"An evaluation leaves out {missing} of {total} examples, and {twice} come twice.",
            ["drop_last=True" if getattr(loader, "drop_last", False) else "a sampler that draws"],
            "Give each example once: no sampler, drop_last=False.",
            **numbers,
        )
    size = f"{sizes[0]}, the last of {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
    small = f" Batches smaller than the training's {trained} only cost time." * (sizes[0] < trained)
    few = f" {total} examples are few." * (total < FEW)
    return passed(
        f"All {total} examples come once, in batches of {size}: a share near one half is known to "
        f"+-{width:.1%}; a mean over batches is off by {bias:.2%} of the difference between the "
        f"last batch and the rest.{few}{small}",
        **numbers,
    )
