"""From the user's functions to a `Training`: model, loader, loss, optimizer and other parts."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import CellType, FunctionType
from typing import Any

from pipeline_profiler.checks.batches import batch_size, cut_batch
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.loss_alone import KerasLossAlone, LossAlone
from pipeline_profiler.checks.user_code import UsersError, call_with, plain_augmentation

ENOUGH_EXAMPLES, MOST_BATCHES = 256, 24


@dataclass
class Training:
    """What a training is made of; only the first four are needed (two of a compiled Keras model).

    schedule: steps after each optimizer step. train_step(model, batch, loss, optimizer);
    evaluate(model, loader); split_batch(batch): (inputs, targets). reference(model, example):
    output by a plain loop. loop: facts of a script. clip(parameters): between backward and step.
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


def call_evaluate(training: Training, loader: Any) -> Any:
    """Return what the user's own evaluation returns for a loader."""
    loaders = dict.fromkeys(("loader", "eval_loader", "val_loader", "dataloader"), loader)
    losses = dict.fromkeys(("loss", "criterion", "loss_fn"), training.loss)
    return call_with(
        training.evaluate, {"model": training.model, **loaders, **losses}, "evaluate()"
    )


def learning_rate(training: Training) -> float:
    """The largest rate of the optimizer's groups."""
    return max(float(group["lr"]) for group in training.optimizer.param_groups)


def step_schedule(training: Training, count: int) -> list[float]:
    """The rate after each of so many counts of the schedule alone; fewer where it ends before."""
    rates: list[float] = []
    for _ in range(count):
        try:
            training.schedule.step()
        except (ValueError, RuntimeError):  # OneCycleLR ends after its own number of steps
            break
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


def checked(made: Any) -> Training:
    """The training as a Training; UsersError for what cannot be one."""
    training = as_training(made)
    check_model(training.model)
    if not callable(training.loss):
        raise UsersError(
            "The loss cannot be called: make_loss() must return a function or a "
            "module that takes (outputs, targets)."
        )
    if not hasattr(training.optimizer, "param_groups"):
        kind = type(training.optimizer).__name__
        raise UsersError(
            f"The optimizer is a {kind}: make_optimizer(model) must return a torch.optim.Optimizer."
        )
    return training


def is_keras(model: Any) -> bool:
    """Whether it is a model of Keras; nothing is imported to find out."""
    bases = type(model).__mro__
    return any(b.__module__.startswith("keras.") and b.__name__ == "Model" for b in bases)


def check_model(model: Any) -> None:
    """UsersError for what is neither a module of torch nor a model of Keras."""
    if is_keras(model):
        return
    if "keras" in sys.modules and "torch" not in sys.modules:
        raise UsersError(
            f"The model is of type {type(model).__name__}: check needs a keras.Model "
            "or a torch.nn.Module."
        )
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise UsersError(f"The model is of type {kind}: check needs a torch.nn.Module.")


def as_training(made: Any, loader: Any = None) -> Training:
    """Return a Training of what `make_training()` returned: a Training, dict, tuple or object."""
    if isinstance(made, Training):
        return made
    names = list(Training.__dataclass_fields__)
    if isinstance(made, Mapping):
        parts = {name: made[name] for name in names if name in made}
    elif isinstance(made, tuple | list):
        parts = dict(zip(names, made, strict=False))
    else:
        parts = {name: getattr(made, name) for name in names if hasattr(made, name)}
    if parts.get("loader") is None:
        parts["loader"] = loader
    needed = names[:2] if is_keras(parts.get("model")) else names[:4]
    missing = [name for name in needed if parts.get(name) is None]
    if missing:
        raise UsersError(
            f"make_training() gave no {', '.join(missing)}: it must return "
            "{'model', 'loader', 'loss', 'optimizer'} or a tuple in this order."
        )
    return Training(**parts)


def made_from(functions: Mapping[str, Callable[..., Any]]) -> Callable[[], Training]:
    """Return a maker of trainings from `make_training`, or from `make_loader` and others.

    The loader is made once, without augmentation if it takes `augment`; other parts are made again.
    """
    kept: dict[str, Any] = {}
    hooks = ("train_step", "evaluate", "split_batch", "reference")
    own: dict[str, Any] = {name: functions[name] for name in hooks if name in functions}

    def make() -> Training:
        if "make_training" in functions:
            made = call_with(functions["make_training"], {}, "make_training()")
            if is_keras(made):
                made = {"model": made, "loader": _call(functions, "make_loader", {})}
            training = as_training(made)
            return replace(
                training, **{n: f for n, f in own.items() if getattr(training, n) is None}
            )
        if not kept:
            make_loader = functions.get("make_loader")
            plain = plain_augmentation(make_loader) if make_loader is not None else {}
            kept["loader"] = _call(functions, "make_loader", plain)
            kept["eval_loader"] = _call(functions, "make_eval_loader", {})
        model = _call(functions, "make_model", {})
        check_model(model)
        without = [name for name in ("make_loss", "make_optimizer") if name not in functions]
        if without and not is_keras(model):
            raise UsersError(
                f"There is no {' and no '.join(without)}: a training of torch needs loss and "
                "optimizer."
            )
        loss = _call(functions, "make_loss", {"model": model})
        offers = {"model": model}
        if not is_keras(model):
            offers |= {"params": model.parameters(), "parameters": model.parameters()}
        optimizer = _call(functions, "make_optimizer", offers)
        schedule = _call(functions, "make_schedule", {"optimizer": optimizer, "model": model})
        return Training(
            model=model, loss=loss, optimizer=optimizer, schedule=schedule, **kept, **own
        )

    return make


def _call(functions: Mapping[str, Callable[..., Any]], name: str, offers: dict[str, Any]) -> Any:
    if name not in functions:
        return None
    made = call_with(functions[name], offers, f"{name}()")
    if made is None:
        raise UsersError(f"{name}() returned None: it must return what it makes.")
    return made


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
class ExaminedTraining(ABC):
    """`make()` returns a new Training; deadline: of time.monotonic(); notes are for the user."""

    make: Callable[[], Training]
    seed: int = 0
    deadline: float = field(default=float("inf"))
    notes: list[str] = field(default_factory=list)
    unseeded: str = ""

    @property
    def one_start(self) -> bool:
        """Whether the seed changes nothing although no checkpoint is known to be loaded."""
        return False

    @property
    @abstractmethod
    def loss_alone(self) -> LossAlone | KerasLossAlone:
        """The loss of free outputs for the first batch."""

    @property
    @abstractmethod
    def batches(self) -> list[Batch]:
        """The first batches of the loader."""

    @cached_property
    def small(self) -> Batch:
        """The first batch, cut to at most 16 examples."""
        return cut(self.batches[0], 0, SMALL_BATCH)

    @abstractmethod
    def step(self, training: Training, batch: Batch) -> float:
        """One step of training; returns the loss."""

    def steps(self, training: Training, count: int) -> list[float]:
        """The losses of so many steps, from the first batch on."""
        batches = self.batches
        return [self.step(training, batches[number % len(batches)]) for number in range(count)]

    def time_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    @property
    def is_likelihood(self) -> bool:
        """Whether the least loss is far from 0, as that of counts or densities is, and no error."""
        return abs(self.loss_alone.best_outputs[0]) > FROM_ZERO * abs(self.loss_alone.constant)
