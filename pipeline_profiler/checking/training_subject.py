"""The training under examination: made by the user's factories as often as checks need it anew.

A check never sees the user's own objects: each gets a fresh training (same seed, same weights) and
may train it to pieces. Batches are taken once and kept, so that all checks look at the same data
and loading is paid once. torch is imported inside functions only.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from pipeline_profiler.checking.batch_parts import inputs_and_targets
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.user_calls import UsersError, call_with, users_code

ENOUGH_EXAMPLES, MOST_BATCHES = 256, 24
SMALL_BATCH = 16
SLOW_STEP_S, SLOW_BATCHES, FEWEST = 0.3, 4, 8  # above this time a step is tried on fewer examples


@dataclass
class Training:
    """What a training is made of; only the first four are needed.

    schedule: steps after each optimizer step. train_step(model, batch, loss, optimizer): the
    user's own step. evaluate(model, loader): the user's own evaluation. split_batch(batch):
    (inputs, targets). reference(model, example): the output for one example by a plain loop.
    """

    model: Any
    loader: Any
    loss: Any
    optimizer: Any
    schedule: Any = None
    eval_loader: Any = None
    train_step: Any = None
    evaluate: Any = None
    split_batch: Any = None
    reference: Any = None


class Task(NamedTuple):
    """What is learned: 'classes', 'binary', 'regression' or 'unknown', read from the tensors."""

    kind: str
    classes: int = 0
    axis: int = 1  # of the outputs, where the classes are


@dataclass
class TrainingSubject:
    """What the checks on a training examine; `make()` returns a new Training."""

    make: Callable[[], Training]
    seed: int = 0
    deadline: float = field(default=float("inf"))
    notes: list[str] = field(default_factory=list)

    # ---- trainings ----

    def fresh(self, seed: int | None = None) -> Training:
        """A new training, made after seeding everything; with the first seed a copy will do."""
        if seed is None and self._copies:
            made = self._pristine
            try:
                parts = (made.model, made.optimizer, made.schedule, made.loss)
                model, optimizer, schedule, loss = copy.deepcopy(parts)
            except Exception:  # noqa: BLE001 - not everything can be copied: make it again
                return self._made(self.seed)
            seed_everything(self.seed)
            return Training(
                model,
                made.loader,
                loss,
                optimizer,
                schedule,
                made.eval_loader,
                split_batch=made.split_batch,
                reference=made.reference,
            )
        return self._made(self.seed if seed is None else seed)

    def _made(self, seed: int) -> Training:
        seed_everything(seed)
        return checked(self.make())

    @cached_property
    def _pristine(self) -> Training:
        return self._made(self.seed)

    @cached_property
    def _copies(self) -> bool:
        """Functions of the user's may hold the model in a closure, so these are made anew."""
        made = self._pristine
        return made.train_step is None and made.evaluate is None

    @cached_property
    def settings(self) -> Training:
        """A training to look at, never to train."""
        return self._pristine

    def time_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    # ---- batches ----

    @cached_property
    def batches(self) -> list[tuple[Any, Any, Any]]:
        """(raw, inputs, targets) of the first batches, on the model's device.

        Where a step takes long, batches are cut so that all checks have their steps; `notes` says.
        """
        whole = self.whole_batches
        size, seconds = batch_size(whole[0][1]), self._seconds_a_step(whole[0])
        keep = max(FEWEST, int(size * SLOW_STEP_S / max(seconds, 1e-9)))
        if seconds <= SLOW_STEP_S or keep >= size:
            return whole
        self.notes.append(
            f"A step on {size} examples takes {seconds:.1f} s: the checks use "
            f"{min(len(whole), SLOW_BATCHES)} batches of {keep}."
        )
        return [
            tuple(cut_batch(part, batch_size(b[1]), 0, keep) for part in b)
            for b in whole[:SLOW_BATCHES]
        ]

    def _seconds_a_step(self, batch: tuple[Any, Any, Any]) -> float:
        training, times = self.fresh(), []
        for _ in range(2):  # the first one warms up
            start = time.monotonic()
            try:
                self.step(training, batch)
            except UsersError:  # whoever needs a step will say so
                return 0.0
            times.append(time.monotonic() - start)
            if times[0] > 20 * SLOW_STEP_S:
                break
        return min(times)

    @cached_property
    def whole_batches(self) -> list[tuple[Any, Any, Any]]:
        """The batches as the loader gives them."""
        return list(self._taken(self.settings.loader, MOST_BATCHES))

    def _taken(self, loader: Any, most: int) -> Iterator[tuple[Any, Any, Any]]:
        device, taken, examples = self.device, 0, 0
        with users_code("The loader"):
            iterator = iter(loader)
        while taken < most and (examples < ENOUGH_EXAMPLES or taken < 4):
            with users_code("The loader"):
                raw = next(iterator, None)
            if raw is None:
                break
            raw = moved(as_tensors(raw), device)
            inputs, targets = inputs_and_targets(raw, self.settings.split_batch)
            yield raw, inputs, targets
            taken += 1
            examples += batch_size(inputs)
        if not taken:
            raise UsersError(
                "The loader gives no batch: is the dataset empty, or smaller than a "
                "batch with drop_last=True?"
            )

    @cached_property
    def device(self) -> Any:
        """Where the model's parameters are."""
        import torch

        first = next(iter(self.settings.model.parameters()), None)
        return torch.device("cpu") if first is None else first.device

    @cached_property
    def small(self) -> tuple[Any, Any, Any]:
        """The first batch, cut to at most 16 examples."""
        raw, inputs, targets = self.batches[0]
        size = batch_size(inputs)
        cut = min(SMALL_BATCH, size)
        return (
            cut_batch(raw, size, 0, cut),
            cut_batch(inputs, size, 0, cut),
            cut_batch(targets, size, 0, cut),
        )

    # ---- one pass ----

    def forward(self, training: Training, inputs: Any) -> Any:
        """The model's output as it is; what it raises becomes a sentence."""
        with users_code("The model's forward pass"):
            if isinstance(inputs, Mapping):
                return training.model(**inputs)
            if isinstance(inputs, tuple | list):
                return training.model(*inputs)
            return training.model(inputs)

    def output(self, training: Training, inputs: Any) -> Any:
        """The main tensor of the output."""
        return main_tensor(self.forward(training, inputs))

    def loss_of(self, training: Training, outputs: Any, targets: Any) -> Any:
        """The loss as a scalar tensor."""
        with users_code("The loss"):
            value = training.loss(outputs, targets)
        if not hasattr(value, "backward"):
            raise UsersError(
                f"The loss returned {type(value).__name__}: it must return a tensor "
                "that backward() can start from."
            )
        if value.numel() != 1:
            raise UsersError(
                f"The loss has the shape {tuple(value.shape)}: take its mean, so that "
                "it is one number."
            )
        return value.reshape(())

    def objective(self, training: Training, batch: tuple[Any, Any, Any]) -> Any:
        """The loss of a batch, with its graph."""
        return self.loss_of(training, self.forward(training, batch[1]), batch[2])

    def step(self, training: Training, batch: tuple[Any, Any, Any]) -> float:
        """One step of training, the user's own where there is one; returns the loss."""
        if training.train_step is not None:
            return self._own_step(training, batch)
        training.model.train()
        training.optimizer.zero_grad()
        loss = self.objective(training, batch)
        if loss.requires_grad:
            with users_code("backward()"):
                loss.backward()
        with users_code("optimizer.step()"):
            training.optimizer.step()
        if training.schedule is not None:
            training.schedule.step()
        return float(loss.detach())

    def _own_step(self, training: Training, batch: tuple[Any, Any, Any]) -> float:
        import torch

        raw, inputs, targets = batch
        offers = {
            "model": training.model,
            "batch": raw,
            "loss": training.loss,
            "optimizer": training.optimizer,
            "schedule": training.schedule,
            "inputs": inputs,
            "targets": targets,
            "scheduler": training.schedule,
            "loss_fn": training.loss,
            "criterion": training.loss,
            "x": inputs,
            "y": targets,
            "optim": training.optimizer,
        }
        training.model.train()
        value = call_with(training.train_step, offers, "train_step()")
        if isinstance(value, tuple | list) and value:
            value = value[0]
        if value is None:
            with torch.no_grad():
                value = self.objective(training, batch)
        return float(value.detach() if hasattr(value, "detach") else value)

    def measured(
        self, training: Training, batch: tuple[Any, Any, Any], mode: bool = False
    ) -> float:
        """The loss of a batch without training; `mode`: in train mode."""
        import torch

        before = training.model.training
        training.model.train(mode)
        with torch.no_grad():
            value = float(self.objective(training, batch))
        training.model.train(before)
        return value

    # ---- what is learned ----

    @cached_property
    def task(self) -> Task:
        """Read from the output's shape and the targets' type."""
        import torch

        training = self.fresh()
        training.model.eval()
        with torch.no_grad():
            outputs = self.output(training, self.batches[0][1])
        return read_task(outputs, self.batches[0][2])

    @cached_property
    def first_outputs(self) -> Any:
        """The outputs for the first batch at initialisation, in eval mode, without a graph."""
        import torch

        training = self.fresh()
        training.model.eval()
        with torch.no_grad():
            return self.output(training, self.batches[0][1])

    @cached_property
    def takes_tensor(self) -> bool:
        """Whether the loss gets one tensor and not a tuple or an object."""
        import torch

        training = self.fresh()
        training.model.eval()
        with torch.no_grad():
            return isinstance(self.forward(training, self.batches[0][1]), torch.Tensor)

    @cached_property
    def form(self) -> str:
        """What the loss takes: '' for any numbers, 'log', 'sum' or 'unit' for probabilities.

        'log': log-probabilities; 'sum': probabilities that sum to 1; 'unit': numbers in 0..1, which
        a loss insists on.
        """
        import torch

        outputs, task = self.first_outputs.float(), self.task
        if task.kind == "classes":
            ones = torch.ones_like(outputs.sum(task.axis))
            if torch.allclose(outputs.exp().sum(task.axis), ones, atol=1e-4):
                return "log"
            if bool((outputs >= 0).all()) and torch.allclose(
                outputs.sum(task.axis), ones, atol=1e-4
            ):
                return "sum"
        if task.kind == "binary" and bool(((outputs >= 0) & (outputs <= 1)).all()):
            try:
                beyond = self.loss_of(self.settings, outputs - 2, self.batches[0][2])
            except UsersError:
                return "unit"
            return "" if bool(torch.isfinite(beyond)) else "unit"
        return ""

    def formed(self, free: Any) -> Any:
        """Free numbers as the loss takes them."""
        if self.form == "log":
            return free.log_softmax(self.task.axis)
        if self.form == "sum":
            return free.softmax(self.task.axis)
        return free.sigmoid() if self.form == "unit" else free

    @cached_property
    def uniform_loss(self) -> float:
        """The loss of outputs that are all zero: all classes alike, or the value 0."""
        import torch

        with torch.no_grad():
            zeros = self.formed(torch.zeros_like(self.first_outputs))
            return float(self.loss_of(self.settings, zeros, self.batches[0][2]))

    @cached_property
    def constant_loss(self) -> float:
        """The least loss of an output that is the same for all examples of the first batch."""
        return self.best_outputs(shared=True)[0]

    def best_outputs(self, shared: bool = False, steps: int = 200) -> tuple[float, Any]:
        """(least loss, outputs) over free outputs for the first batch, by Adam on the outputs.

        shared: one output for all examples. No model is involved, so this shows what the loss
        itself asks for.
        """
        import torch

        shape = self.first_outputs
        start = (
            shape.detach().float().mean(0, keepdim=True)
            if shared
            else torch.zeros_like(shape, dtype=torch.float32)
        )
        free = (start * 0).requires_grad_()
        scale = self._target_scale()
        best, kept = math.inf, free.detach().clone()
        with torch.enable_grad():
            optimizer = torch.optim.Adam([free], lr=0.1 * scale)
            for number in range(steps):
                for group in optimizer.param_groups:
                    group["lr"] = 0.3 * scale * (1 - number / steps) + 1e-4 * scale
                outputs = self.formed(free.expand_as(shape) if shared else free * 1.0)
                loss = self.loss_of(self.settings, outputs, self.batches[0][2])
                if not loss.requires_grad or not torch.isfinite(loss):
                    break
                if float(loss.detach()) < best:
                    best, kept = float(loss.detach()), outputs.detach().clone()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return best, kept

    def _target_scale(self) -> float:
        import torch

        targets = main_tensor(self.batches[0][2])
        if targets is None or not torch.is_floating_point(targets):
            return 1.0
        return max(1.0, float(targets.abs().mean()))


class FewBatches:
    """Some batches as a loader: iterable, with a length and a dataset that has one."""

    def __init__(self, batches: Sequence[Any]) -> None:
        """Hold the batches."""
        self.batches = list(batches)
        self.dataset = range(sum(batch_size(b) for b in self.batches))

    def __iter__(self) -> Iterator[Any]:
        """The batches in order."""
        return iter(self.batches)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.batches)


# ---- nested batches ----


def as_tensors(value: Any) -> Any:
    """Arrays of numpy as tensors, in the same nesting."""
    import numpy as np
    import torch

    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(np.ascontiguousarray(value))
    return _mapped(value, as_tensors)


def moved(value: Any, device: Any) -> Any:
    """Tensors on a device, in the same nesting."""
    if hasattr(value, "to") and hasattr(value, "dtype"):
        return value.to(device)
    return _mapped(value, lambda part: moved(part, device))


def cut_batch(value: Any, size: int, start: int, end: int) -> Any:
    """Examples start to end of every part whose first axis is the batch."""
    if hasattr(value, "shape"):
        return value[start:end] if value.ndim and value.shape[0] == size else value
    if isinstance(value, list) and len(value) == size and not hasattr(value[0], "shape"):
        return value[start:end]
    return _mapped(value, lambda part: cut_batch(part, size, start, end))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: change(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(change(part) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(change(part) for part in value)
    return value


def main_tensor(value: Any) -> Any:
    """The first tensor of a nested output: `logits` of an object, else in order; None without."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return value
    if hasattr(value, "logits"):
        return value.logits
    if isinstance(value, Mapping):
        value = [value["logits"]] if "logits" in value else list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            found = main_tensor(part)
            if found is not None:
                return found
    return None


def batch_size(inputs: Any) -> int:
    """Examples in a batch."""
    tensor = main_tensor(inputs)
    return int(tensor.shape[0]) if tensor is not None and tensor.ndim else 1


def read_task(outputs: Any, targets: Any) -> Task:
    """What the shapes and types say is learned."""
    import torch

    targets = main_tensor(targets)
    if outputs is None or targets is None or not torch.is_floating_point(outputs):
        return Task("unknown")
    whole = not torch.is_floating_point(targets) and targets.dtype is not torch.bool
    if whole and outputs.ndim == targets.ndim + 1:
        if outputs.shape[:-1] == targets.shape:
            return Task("classes", outputs.shape[-1], outputs.ndim - 1)
        if outputs.shape[0] == targets.shape[0] and outputs.shape[2:] == targets.shape[1:]:
            return Task("classes", outputs.shape[1], 1)
    if outputs.numel() == targets.numel():
        values = set(targets.unique().tolist()[:3])
        if values <= {0.0, 1.0}:
            return Task("binary", 2)
        if not whole:
            return Task("regression")
    return Task("unknown")


# ---- from the user's functions to a Training ----


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


def check_model(model: Any) -> None:
    """UsersError for what is no module of torch."""
    import torch

    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise UsersError(f"The model is of type {kind}: check-training needs a torch.nn.Module.")


def as_training(made: Any) -> Training:
    """A Training from what `make_training()` returned: one, a dict, a tuple or an object."""
    if isinstance(made, Training):
        return made
    names = list(Training.__dataclass_fields__)
    if isinstance(made, Mapping):
        parts = {name: made[name] for name in names if name in made}
    elif isinstance(made, tuple | list):
        parts = dict(zip(names, made, strict=False))
    else:
        parts = {name: getattr(made, name) for name in names if hasattr(made, name)}
    missing = [name for name in names[:4] if parts.get(name) is None]
    if missing:
        raise UsersError(
            f"make_training() gave no {', '.join(missing)}: it must return "
            "{'model', 'loader', 'loss', 'optimizer'} or a tuple in this order."
        )
    return Training(**parts)


def made_from(functions: Mapping[str, Callable[..., Any]]) -> Callable[[], Training]:
    """A maker of trainings from `make_training`, or from `make_loader`, `make_model` and so on.

    The loader is made once: the other parts are made again each time.
    """
    kept: dict[str, Any] = {}
    hooks = ("train_step", "evaluate", "split_batch", "reference")
    own = {name: functions[name] for name in hooks if name in functions}

    def make() -> Training:
        if "make_training" in functions:
            training = as_training(call_with(functions["make_training"], {}, "make_training()"))
            for name, function in own.items():
                if getattr(training, name) is None:
                    setattr(training, name, function)
            return training
        if "loader" not in kept:
            kept["loader"] = _call(functions, "make_loader", {})
            kept["eval"] = _call(functions, "make_eval_loader", {})
        model = _call(functions, "make_model", {})
        check_model(model)
        loss = _call(functions, "make_loss", {"model": model})
        offers = {"model": model, "params": model.parameters(), "parameters": model.parameters()}
        optimizer = _call(functions, "make_optimizer", offers)
        schedule = _call(functions, "make_schedule", {"optimizer": optimizer, "model": model})
        parts = dict(
            zip(
                ("model", "loader", "loss", "optimizer"),
                (model, kept["loader"], loss, optimizer),
                strict=True,
            )
        )
        return Training(**parts, schedule=schedule, eval_loader=kept["eval"], **own)

    return make


def _call(functions: Mapping[str, Callable[..., Any]], name: str, offers: dict[str, Any]) -> Any:
    if name not in functions:
        return None
    made = call_with(functions[name], offers, f"{name}()")
    if made is None:
        raise UsersError(f"{name}() returned None: it must return what it makes.")
    return made
