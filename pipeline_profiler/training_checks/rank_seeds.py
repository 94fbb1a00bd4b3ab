"""TRAIN033: ranks that start apart or drift apart, or that drop the same units."""

from __future__ import annotations

import os
import re
from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.rank_processes import source_of
from pipeline_profiler.checking.rank_toys import ranked_training
from pipeline_profiler.checking.rank_trainings import STEPS, WRAPS, RankSteps
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.record.errors import ProfileError

SEEDED_BY_RANK = re.compile(r"seed\w*\([^)]*rank", re.IGNORECASE)


class RankSeeds(Check):
    """Seeds that are unlike where ranks must be alike (weights), or alike where not (dropout).

    ## What it does
    Starts two ranks as processes with gloo, each seeded with a number of its own, and lets both
    make three steps. Compares the weights before and after, and torch's generator around a step.

    ## Why is this bad
    Ranks with other weights average gradients of different networks: the loss falls on none of
    them. Ranks with the same dropout masks have one mask where there should be many.

    ## How it decides
    Fails where weights differ between the ranks after the steps: they started apart and nothing
    brought them together, or gradients are not averaged. Fails where a step draws random numbers
    from the same state on both ranks. Bit for bit, so nothing fails by chance.

    ## What to do
    Wrap the model in DistributedDataParallel and call it, not `model.module`; seed with one number
    before the model is made, and with `seed + rank` after it.

    ## Limits
    A file that speaks of ranks is needed, and a machine on which it runs without a GPU. A model
    that is wrapped outside of the functions, or a seed by rank that is set there, cannot be seen:
    where the source names one, this check cannot tell.
    """

    code = "TRAIN033"
    name = "rank-seeds"

    def run(self, subject: TrainingSubject) -> Answer:
        """Compare two ranks."""
        found = subject.ranks
        if isinstance(found, ProfileError):
            raise found
        source = source_of(list(subject.functions.values()) or [subject.make])
        started, ended = (_unlike(found, part) for part in ("start", "end"))
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
            return wrong(
                "Two ranks make their first step from the same state of torch's generator: "
                "dropout and other noise are alike on all ranks.",
                ["all ranks are seeded with one number, and not anew after the initialisation"],
                "After the model is made, seed with seed + rank.",
                **numbers,
            )
        return passed(
            f"Two ranks have the same weights after {STEPS} steps and draw other random numbers.",
            **numbers,
        )

    @staticmethod
    def _dropout(seed: int) -> Any:
        import torch
        from torch import nn

        torch.manual_seed(seed)
        return ranked_training(nn.Dropout(0.3))

    @staticmethod
    def _one_seed() -> Any:
        assert "RANK" in os.environ
        return RankSeeds._dropout(0)

    @staticmethod
    def _own_seed() -> Any:
        return RankSeeds._dropout(int(os.environ["RANK"]))

    @staticmethod
    def _bypassed() -> Any:
        """A step past DistributedDataParallel."""

        def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model.module(x), y)
            value.backward()
            optimizer.step()
            return value

        return ranked_training(train_step=train_step)

    @staticmethod
    def _averaged(broadcast: bool = False) -> Any:
        """Gradients averaged by hand; `broadcast`: all have the weights of rank 0."""
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo")

        def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
            optimizer.step()
            return value

        training = ranked_training(wrap=False, train_step=train_step)
        for p in training.model.parameters() if broadcast else ():
            dist.broadcast(p.data, 0)
        return training

    @staticmethod
    def _broadcast() -> Any:
        assert os.environ["WORLD_SIZE"] == "2"
        return RankSeeds._averaged(broadcast=True)

    PLANTED = (
        Example("one seed and dropout", _one_seed),
        Example("model.module is called", _bypassed),
        Example("weights of their own", _averaged),
    )
    HEALTHY = (
        Example("a seed by rank", _own_seed),
        Example("averaged by hand", _broadcast),
        Example("one process", toy_training),
    )


def _unlike(found: list[RankSteps], part: str) -> list[str]:
    one, two = (getattr(rank, part) for rank in found)
    return sorted(name for name in one if one[name] != two.get(name))


def _apart(started: list[str], ended: list[str], count: int, numbers: dict[str, Any]) -> Answer:
    named = ", ".join(ended[:3])
    if started:
        return wrong(
            f"Two ranks start with other values in {len(started)} of {count} parameters, and after "
            f"{STEPS} steps {len(ended)} differ ({named}).",
            ["weights are drawn from a seed of each process, and not broadcast from rank 0"],
            "Seed all ranks with one number before the model is made, or broadcast its weights.",
            **numbers,
        )
    return wrong(
        f"Two ranks start with the same weights, and after {STEPS} steps {len(ended)} of {count} "
        f"parameters differ ({named}): their gradients are not averaged.",
        [
            "the step calls model.module, past DistributedDataParallel",
            "there is no all_reduce of the gradients",
        ],
        "Call the wrapped model, so that backward() averages over the ranks.",
        **numbers,
    )
