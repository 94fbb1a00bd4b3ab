"""What each of two ranks does in its first steps: weights, random numbers, statistics, files.

One run of both ranks answers all checks of ranks: it is kept by the subject. The user's own
`evaluate` is called after the steps where there is one.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline_profiler.checking.rank_processes import (
    Functions,
    ask_ranks,
    grouped,
    has_ranks,
    launches_itself,
    read_anew,
    source_of,
)
from pipeline_profiler.checking.redirected_writes import redirect_writes
from pipeline_profiler.checking.synchronised_norms import synchronise_on_cpu
from pipeline_profiler.checking.user_training import Training, call_evaluate, checked, made_from
from pipeline_profiler.record.errors import ProfileError

STEPS = 3
WRAPS = re.compile(r"DistributedDataParallel|\bDDP\b|\bFSDP\b|FullySharded|fully_shard")
Means = Mapping[str, tuple[float, ...]]  # running means of batch norms, by module


@dataclass
class RankSteps:
    """One rank. Digests of weights by name; the state of torch's generator around a step.

    drawn: states before and after the first step. means: after the steps, and as the first
    evaluation saw them. written: files that were opened to be written, or given to torch.save.
    """

    start: dict[str, str]
    end: dict[str, str] = field(default_factory=dict)
    drawn: tuple[str, str] = ("", "")
    wrapped: bool = False  # in DistributedDataParallel or FSDP
    means: dict[str, tuple[float, ...]] = field(default_factory=dict)
    evaluated: dict[str, tuple[float, ...]] = field(default_factory=dict)
    written: tuple[str, ...] = ()


def step_ranks(subject: Any) -> list[RankSteps]:
    """Both ranks of a TrainingSubject; ProfileError where ranks are nothing of the user's."""
    functions: Functions = subject.functions or {"make_training": subject.make}
    asked = list(functions.values())
    if not has_ranks(asked):
        raise ProfileError("Nothing of the training speaks of ranks: it is one of one process.")
    if launches_itself(asked):
        raise ProfileError("A library is named that launches ranks by itself.")
    if WRAPS.search(source_of(asked)):
        importlib.import_module("torch._dynamo")  # 2 s that each rank would pay for itself
    seconds = max(5.0, min(40.0, subject.time_left() / 4))
    return ask_ranks(lambda rank: _stepped(subject, functions), subject.seed, seconds)


def _stepped(subject: Any, functions: Functions) -> RankSteps:
    written: list[str] = []
    synchronise_on_cpu()
    with redirect_writes(written):
        make = made_from(read_anew(functions)) if subject.functions else subject.make
        training = grouped(lambda: checked(make()))
        own = type(subject)(lambda: training, subject.seed)
        own.__dict__["_pristine"] = training  # made once: a group is opened once
        found = RankSteps(_digests(training.model), wrapped=_is_wrapped(training.model))
        batches = own.whole_batches
        for number in range(STEPS):
            before = _random_state()
            own.step(training, batches[number % len(batches)])
            if not number:
                found.drawn = before, _random_state()
        found.end, found.means = _digests(training.model), _means(training.model)
        found.evaluated = _evaluated(training)
    found.written = tuple(dict.fromkeys(written))
    return found


def _is_wrapped(model: Any) -> bool:
    names = {type(module).__name__ for module in model.modules()}
    return bool(names & {"DistributedDataParallel", "FullyShardedDataParallel"})


def _digests(model: Any) -> dict[str, str]:
    return {
        name: hashlib.blake2b(p.detach().cpu().float().numpy().tobytes()).hexdigest()
        for name, p in model.named_parameters()
    }


def _random_state() -> str:
    import torch

    return hashlib.blake2b(torch.get_rng_state().numpy().tobytes()).hexdigest()


def _norms(model: Any) -> dict[str, Any]:
    from torch.nn.modules.batchnorm import _BatchNorm

    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }


def _mean_of(norm: Any) -> tuple[float, ...]:
    """The running mean in deviations."""
    scaled = norm.running_mean / (norm.running_var + norm.eps).sqrt()
    return tuple(scaled.detach().double().cpu().tolist())


def _means(model: Any) -> dict[str, tuple[float, ...]]:
    return {name: _mean_of(norm) for name, norm in _norms(model).items()}


def _evaluated(training: Training) -> dict[str, tuple[float, ...]]:
    """The running means that the user's own evaluation uses first; empty without one."""
    seen: dict[str, tuple[float, ...]] = {}
    if training.evaluate is None:
        return seen

    def look(name: str) -> Callable[..., None]:
        def hook(norm: Any, inputs: Any) -> None:
            if not norm.training:
                seen.setdefault(name, _mean_of(norm))

        return hook

    for name, norm in _norms(training.model).items():
        norm.register_forward_pre_hook(look(name))
    loader = training.eval_loader if training.eval_loader is not None else training.loader
    call_evaluate(training, list(itertools.islice(loader, STEPS)))
    return seen
