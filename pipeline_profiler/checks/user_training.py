"""From the user's functions to a `Training`: model, loader, loss, optimizer and other parts."""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import CellType, FunctionType
from typing import Any

from pipeline_profiler.checks.batches import batch_size, cut_batch
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.user_code import UsersError, call_with, plain_augmentation

ENOUGH_EXAMPLES, MOST_BATCHES = 256, 24
OWN = ("train_step", "evaluate", "split_batch", "reference")  # functions that make no part
ALIASES = {  # of parameters
    "loss": ("loss_fn", "criterion"),
    "optimizer": ("optim",),
    "schedule": ("scheduler",),
    "inputs": ("x",),
    "targets": ("y",),
    "loader": ("eval_loader", "val_loader", "dataloader"),
}


@dataclass
class Training:
    """What a training is made of; only the first four are needed (two of a compiled Keras model).

    schedule: steps after each optimizer step. train_step, evaluate: called by `call_own`.
    split_batch(batch): (inputs, targets). reference(model, example): output by a plain loop.
    loop: facts of a script. clip(parameters): between backward and step.
    """

    model: Any
    loader: Any
    loss: Any = None
    optimizer: Any = None
    schedule: Any = None
    eval_loader: Any = None
    train_step: Any = None
    evaluate: Any = None
    split_batch: Any = None
    reference: Any = None
    loop: LoopFacts | None = None
    clip: Any = None


def call_own(training: Training, name: str, **values: Any) -> Any:
    """Return what the user's train_step or evaluate returns for these values and the parts."""
    parts = {part: getattr(training, part) for part in ("model", "loss", "optimizer", "schedule")}
    offers = {
        alias: value
        for part, value in (parts | values).items()
        for alias in (part, *ALIASES.get(part, ()))
    }
    return call_with(getattr(training, name), offers, f"{name}()")


def call_evaluate(training: Training, loader: Any) -> Any:
    """Return what the user's own evaluation returns for a loader."""
    return call_own(training, "evaluate", loader=loader)


def learning_rate(training: Training) -> float:
    """The largest rate of the optimizer's groups."""
    return max(float(group["lr"]) for group in training.optimizer.param_groups)


def step_schedule(training: Training, count: int) -> list[float]:
    """The rate after each of so many counts of the schedule alone; fewer where it ends before."""
    rates: list[float] = []
    with warnings.catch_warnings(), contextlib.suppress(ValueError, RuntimeError):
        warnings.simplefilter("ignore")  # torch wants a step of the optimizer first
        for _ in range(count):  # OneCycleLR raises after its own number of steps
            training.schedule.step()
            rates.append(learning_rate(training))
    return rates


def batch_norms(model: Any) -> dict[str, Any]:
    """The batch norms of torch, of any dimension or number of replicas, by their name."""
    kind = torch.nn.modules.batchnorm._BatchNorm
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def learned_by_loss(training: Training) -> dict[str, Any]:
    """Parameters with requires_grad of a loss that is a module, by `loss.` and their name."""
    named = getattr(training.loss, "named_parameters", None)
    found = named(prefix="loss") if callable(named) else ()
    return {name: p for name, p in found if p.requires_grad}


def is_keras(model: Any) -> bool:
    """Whether it is a model of Keras; nothing is imported to find out."""
    bases = type(model).__mro__
    return any(b.__module__.startswith("keras.") and b.__name__ == "Model" for b in bases)


def check_model(model: Any) -> None:
    """UsersError for what is neither a module of torch nor a model of Keras."""
    of_torch = "torch" in sys.modules and isinstance(model, torch.nn.Module)
    if not of_torch and not is_keras(model):
        kind = type(model).__name__
        raise UsersError(f"The model is of type {kind}, no torch.nn.Module and no keras.Model.")


def checked(made: Any) -> Training:
    """The training of torch as a Training; UsersError for what cannot be one."""
    training = as_training(made)
    check_model(training.model)
    if not callable(training.loss):
        raise UsersError("The loss cannot be called: make a function of (outputs, targets).")
    if not hasattr(training.optimizer, "param_groups"):
        kind = type(training.optimizer).__name__
        raise UsersError(f"The optimizer is a {kind}: make one of torch.optim.")
    return training


def as_training(made: Any, loader: Any = None) -> Training:
    """Return a Training of what `make_training()` returned: a Training, dict, tuple or object."""
    if isinstance(made, Training):
        return made
    names = list(Training.__dataclass_fields__)
    if isinstance(made, tuple | list):
        made = dict(zip(names, made, strict=False))
    given = made if isinstance(made, Mapping) else {n: getattr(made, n, None) for n in names}
    parts = {name: given[name] for name in names if given.get(name) is not None}
    if loader is not None:
        parts.setdefault("loader", loader)
    needed = names[:2] if is_keras(parts.get("model")) else names[:4]
    if missing := [name for name in needed if name not in parts]:
        raise UsersError(
            f"make_training() gave no {', '.join(missing)}: it must return {{'model', 'loader', "
            "'loss', 'optimizer'}, or functions make_model, make_loader, ... must return each."
        )
    return Training(**parts)


def made_from(functions: Mapping[str, Callable[..., Any]]) -> Callable[[], Training]:
    """Return a maker of trainings from `make_training`, or from `make_loader` and others.

    The loader is made once, without augmentation if it takes `augment`; other parts are made again.
    """
    own: dict[str, Any] = {name: functions[name] for name in OWN if name in functions}
    loaders: dict[str, Any] = {}

    def part(name: str, **offers: Any) -> Any:
        if (function := functions.get(f"make_{name}")) is None:
            return None
        made = call_with(function, offers, f"make_{name}()")
        if made is None:
            raise UsersError(f"make_{name}() returned None: it must return what it makes.")
        return made

    def make() -> Training:
        if "make_training" in functions:
            made = part("training")
            made = {"model": made, "loader": part("loader")} if is_keras(made) else made
            training = as_training(made)
            missing = {n: f for n, f in own.items() if getattr(training, n) is None}
            return replace(training, **missing)
        if not loaders:
            plain = plain_augmentation(functions.get("make_loader"))
            loaders.update(loader=part("loader", **plain), eval_loader=part("eval_loader"))
        model = part("model")
        check_model(model)
        weights = [] if is_keras(model) else list(model.parameters())
        loss = part("loss", model=model)
        optimizer = part("optimizer", model=model, params=weights, parameters=weights)
        schedule = part("schedule", optimizer=optimizer, model=model)
        made = {"model": model, "loss": loss, "optimizer": optimizer, "schedule": schedule}
        return as_training({**made, **loaders, **own})

    return make


def _copy_function(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """Copy a function of a model so that the modules in its closure are those of the copy."""
    cells = function.__closure__ or ()
    with contextlib.suppress(ValueError):  # a cell without a value
        if any(hasattr(cell.cell_contents, "named_parameters") for cell in cells):
            closure = tuple(CellType(copy.deepcopy(c.cell_contents, memo)) for c in cells)
            parts = (function.__code__, function.__globals__, function.__name__)
            return FunctionType(*parts, function.__defaults__, closure)
    return function


def deep_copied(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """Copy as copy.deepcopy() does, but functions over parts of a model with these parts."""
    table = copy._deepcopy_dispatch  # type: ignore[attr-defined]
    plain, table[FunctionType] = table[FunctionType], _copy_function
    try:
        return copy.deepcopy(value, memo)
    finally:
        table[FunctionType] = plain


Batch = tuple[Any, Any, Any]  # (as the loader gave it, or weights of examples; inputs; targets)
FROM_ZERO = 0.1  # of the loss of the best constant output
SMALL_BATCH = 16


def cut(batch: Batch, start: int, end: int) -> Batch:
    """Examples from start to end, or to the last one, of every part of a batch."""
    size = batch_size(batch[1])
    raw, inputs, targets = (cut_batch(part, size, slice(start, min(end, size))) for part in batch)
    return raw, inputs, targets


@dataclass
class ExaminedTraining:
    """`make()` returns a new Training; deadline: of time.monotonic(); notes are for the user.

    A subclass has `batches`, `loss_alone` and `step(training, batch)`, which returns the loss.
    """

    make: Callable[[], Training]
    seed: int = 0
    deadline: float = field(default=float("inf"))
    notes: list[str] = field(default_factory=list)
    unseeded: str = ""

    @property
    def one_start(self) -> bool:
        """Whether the seed changes nothing although no checkpoint is known to be loaded."""
        return False

    @cached_property
    def small(self: Any) -> Batch:
        """The first batch, cut to at most 16 examples."""
        return cut(self.batches[0], 0, SMALL_BATCH)

    def steps(self: Any, training: Training, count: int) -> list[float]:
        """The losses of so many steps, from the first batch on."""
        batches = itertools.islice(itertools.cycle(self.batches), count)
        return [self.step(training, batch) for batch in batches]

    def time_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    @property
    def is_likelihood(self: Any) -> bool:
        """Whether the least loss is far from 0, as that of counts or densities is, and no error."""
        alone = self.loss_alone
        return bool(abs(alone.best_outputs[0]) > FROM_ZERO * abs(alone.constant))
