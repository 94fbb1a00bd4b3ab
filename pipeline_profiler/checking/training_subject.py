"""The training under examination: made by the user's factories as often as checks need it anew.

A check never sees the user's own objects: each gets a fresh training (same seed, same weights) and
may train it to pieces. Batches are taken once and kept, so that all checks look at the same data
and loading is paid once. torch is imported inside functions only.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipeline_profiler.checking.batch_parts import inputs_and_targets
from pipeline_profiler.checking.check import Answer, Judgement, unclear
from pipeline_profiler.checking.compared_examples import only_compares
from pipeline_profiler.checking.examined_training import ExaminedTraining
from pipeline_profiler.checking.loss_alone import LossAlone
from pipeline_profiler.checking.nested_batches import (
    as_tensors,
    batch_size,
    cut_batch,
    main_tensor,
    moved,
)
from pipeline_profiler.checking.own_step import find_other_objective
from pipeline_profiler.checking.rank_trainings import RankSteps, step_ranks
from pipeline_profiler.checking.tasks import Task, read_task
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.user_calls import UsersError, call_with, users_code
from pipeline_profiler.checking.user_training import Training, checked
from pipeline_profiler.record.errors import ProfileError

ENOUGH_EXAMPLES, MOST_BATCHES = 256, 24
SMALL_BATCH = 16
LONG_STEP_S = 0.1  # above this time a batch comes in parts: no example is lost
SLOW_STEP_S, SLOW_BATCHES, FEWEST = 0.3, 4, 8  # above this time a step is tried on fewer examples


@dataclass
class TrainingSubject(ExaminedTraining):
    """What the checks on a training examine; `make()` returns a new Training.

    functions: the user's own by name, for processes that import their file anew.
    """

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

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
        return made.train_step is None and made.evaluate is None and not _holds_module(made.loss)

    @cached_property
    def settings(self) -> Training:
        """A training to look at, never to train."""
        return self._pristine

    # ---- batches ----

    @cached_property
    def batches(self) -> list[tuple[Any, Any, Any]]:
        """(raw, inputs, targets) of the first batches, on the model's device.

        Where a step takes long, batches come in parts, or are cut, so that all checks have their
        steps; `notes` says.
        """
        whole = self.whole_batches
        size, seconds = batch_size(whole[0][1]), self._seconds_a_step(whole[0])
        parts = min(math.ceil(seconds / LONG_STEP_S), size // SMALL_BATCH)
        if parts > 1 and seconds <= SLOW_STEP_S:
            self.notes.append(
                f"A step on {size} examples takes {seconds:.1f} s: each batch comes in {parts} "
                "parts."
            )
            return [part for batch in whole for part in _parts_of(batch, parts)]
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
            start, used = time.monotonic(), time.process_time()
            try:
                self.step(training, batch)
            except UsersError:  # whoever needs a step will say so
                return 0.0
            # on a busy machine the clock counts what others do, and CPU time what threads share
            times.append(min(time.monotonic() - start, time.process_time() - used))
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
        value = first_number(value)
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

    @cached_property
    def other_objective(self) -> str:
        """What your own step minimises beside the loss of the outputs; empty where it is that."""
        return find_other_objective(self) if self.settings.train_step is not None else ""

    def weighed(self, answer: Answer) -> Answer:
        """`answer`; "cannot tell" where it fails a loss that is not what your step minimises."""
        if answer.judgement is not Judgement.FAIL or not self.other_objective:
            return answer
        said = f"{answer.sentence} Your train_step {self.other_objective}."
        return unclear(f"{said[:-1]}: it minimises something else.", "", **answer.evidence)

    @cached_property
    def ranks(self) -> list[RankSteps] | ProfileError:
        """What two ranks do in their first steps, or why there are none."""
        try:
            return step_ranks(self)
        except ProfileError as error:
            return error

    # ---- what is learned ----

    @cached_property
    def task(self) -> Task:
        """Read from the output's shape and the targets' type."""
        task, targets = read_task(self.first_outputs, self.batches[0][2]), self.batches[0][2]
        if task.kind == "classes" and self.takes_tensor:
            made = self.settings
            if only_compares(lambda o, t: self.loss_of(made, o, t), self.first_outputs, targets):
                return Task("unknown")  # outputs are embeddings
        return task

    @cached_property
    def first_outputs(self) -> Any:
        """The outputs for the first batch at initialisation, in eval mode, without a graph."""
        return self._evaluated_output(self.fresh())

    def _evaluated_output(self, training: Training) -> Any:
        import torch

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

    # ---- the loss without the model ----

    @cached_property
    def loss_alone(self) -> LossAlone:
        """The loss of free outputs for the first batch."""
        targets = self.batches[0][2]
        if not self._copies:  # the loss may read what the model kept of its last pass
            self._evaluated_output(self.settings)
        return LossAlone(
            lambda outputs: self.loss_of(self.settings, outputs, targets),
            self.first_outputs,
            targets,
            self.task,
        )

    @cached_property
    def small_alone(self) -> LossAlone:
        """The loss of free outputs for the small batch, whose least may be another."""
        import torch

        training, targets = self.fresh(), self.small[2]
        training.model.eval()
        with torch.no_grad():
            outputs = self.output(training, self.small[1])
        return LossAlone(
            lambda free: self.loss_of(training, free, targets), outputs, targets, self.task
        )

    @property
    def form(self) -> str:
        """What the loss takes: see `LossAlone.form`."""
        return self.loss_alone.form

    def formed(self, free: Any) -> Any:
        """Free numbers as the loss takes them."""
        return self.loss_alone.formed(free)


def _parts_of(batch: tuple[Any, Any, Any], parts: int) -> list[tuple[Any, Any, Any]]:
    size = batch_size(batch[1])
    ends = [size * number // parts for number in range(parts + 1)]
    return [
        (cut_batch(batch[0], size, a, b), cut_batch(batch[1], size, a, b),
         cut_batch(batch[2], size, a, b))
        for a, b in itertools.pairwise(ends)
        if b > a
    ]  # fmt: skip


def _holds_module(function: Any) -> bool:
    """Whether a plain function reaches a module by its closure or a global name."""
    import torch

    code = getattr(function, "__code__", None)
    if code is None:
        return False
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    held += [function.__globals__.get(name) for name in code.co_names]
    return any(isinstance(value, torch.nn.Module) for value in held)


def first_number(value: Any) -> Any:
    """What a step returned: the entry 'loss' of a dict, the first of a tuple, or itself."""
    if isinstance(value, Mapping):
        value = value.get("loss", next(iter(value.values()), None))
    if isinstance(value, tuple | list):
        value = value[0] if value else None
    return value if hasattr(value, "__float__") else None
