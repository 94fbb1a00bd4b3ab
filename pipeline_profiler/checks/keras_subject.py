"""A training of Keras under examination, with the interface of a training of torch."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from pipeline_profiler.checks.batches import (
    Array,
    as_array,
    batch_size,
    inputs_and_targets,
    main_tensor,
    map_nested,
)
from pipeline_profiler.checks.check import Answer
from pipeline_profiler.checks.loss_alone import KerasLossAlone, Task, read_task
from pipeline_profiler.checks.training_subject import TrainingSubject
from pipeline_profiler.checks.user_code import (
    UsersError,
    batches_of,
    call_with,
    seed_everything,
    users_code,
)
from pipeline_profiler.checks.user_training import (
    Batch,
    ExaminedTraining,
    Training,
    is_keras,
    made_from,
)

ENOUGH_EXAMPLES, MOST_BATCHES, ARRAY_BATCH = 256, 16, 32


@dataclass
class KerasSubject(ExaminedTraining):
    """What the checks on a Keras training examine; `make()` returns a new Training."""

    framework: ClassVar[str] = "keras"

    def fresh(self, seed: int | None = None) -> Training:
        """The training at its start: with a seed made anew, else with its first values put back."""
        made, values = self._first
        if seed is not None:
            made = self._built(self._made(seed))
            made.model.run_eagerly = True
            return made
        for variable, value in values:
            variable.assign(value)
        seed_everything(self.seed)
        return made

    def held(self, ramp: int = 0) -> Training:
        """The training at its start: Keras keeps its schedules in the optimizer."""
        return self.fresh()

    def _made(self, seed: int) -> Training:
        import keras

        keras.utils.set_random_seed(seed)
        return self.make()

    def _built(self, made: Training) -> Training:
        """The training with a compiled model; UsersError where loss or optimizer are missing."""
        import keras

        model = made.model
        if keras.backend.backend() != "tensorflow":
            raise UsersError(
                f"Keras runs on {keras.backend.backend()}: check examines Keras on "
                "TensorFlow only (KERAS_BACKEND=tensorflow)."
            )
        if made.loss is not None and made.optimizer is not None:
            with users_code("compile()"):
                model.compile(optimizer=made.optimizer, loss=made.loss)
        if getattr(model, "optimizer", None) is None or getattr(model, "loss", None) is None:
            raise UsersError(
                "The Keras model is not compiled: call model.compile(optimizer=..., loss=...), or "
                "return loss and optimizer as well."
            )
        self._forward(made, self.batches[0][1], mode=False)
        model.optimizer.build(model.trainable_variables)
        model.jit_compile = False  # compiling costs more than the steps of a check
        return dataclasses.replace(made, loss=model.loss, optimizer=model.optimizer)

    @cached_property
    def _own(self) -> Training:
        return self._made(self.seed)

    @cached_property
    def _first(self) -> tuple[Training, list[tuple[Any, Any]]]:
        made = self._built(self._own)
        held = [*made.model.variables, *made.optimizer.variables]
        return made, [(v, v.numpy().copy()) for v in held]

    @cached_property
    def settings(self) -> Training:
        """A training to look at, never to train."""
        return self._first[0]

    @cached_property
    def batches(self) -> list[Batch]:
        """The first batches as arrays: (weights of examples or None, inputs, targets)."""
        made = self._own
        seed_everything(self.seed)
        taken: list[Batch] = []
        loader = made.loader if isinstance(made.loader, list) else as_loader(made.loader)
        for raw in itertools.islice(batches_of(loader), MOST_BATCHES):
            arrays = as_arrays(raw)
            inputs, targets = inputs_and_targets(arrays, made.split_batch)
            weights = arrays[2] if isinstance(arrays, tuple) and len(arrays) > 2 else None
            taken.append((weights, inputs, targets))
            if len(taken) >= 4 and sum(batch_size(x) for _, x, _ in taken) >= ENOUGH_EXAMPLES:
                break
        if not taken:
            raise UsersError("The loader gives no batch: is the dataset empty?")
        return taken

    def with_adam(self) -> Training:
        """A training made anew with our step and Adam at 0.001."""
        import keras

        made = self.fresh(self.seed)
        made.train_step, made.model.run_eagerly = None, False
        made.model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=made.loss)
        return made

    @property
    def small_labels(self) -> Array:
        """The classes of the small batch."""
        return self.targets[: batch_size(self.small[1])]

    def _forward(self, training: Training, inputs: Any, mode: bool) -> Any:
        with users_code("The model's forward pass"):
            return training.model(inputs, training=mode)

    def outputs(self, training: Training, inputs: Any, mode: bool = False) -> Array:
        """The main output as an array; `mode`: in train mode."""
        found = as_array(main_tensor(self._forward(training, inputs, mode)))
        if found is None:
            raise UsersError("The model's output is no tensor.")
        return found

    def loss_of(self, training: Training, outputs: Any, batch: Batch) -> Any:
        """The loss as the model was compiled with it, as a scalar tensor."""
        with users_code("The loss"):
            return training.model.compute_loss(
                x=batch[1], y=batch[2], y_pred=outputs, sample_weight=batch[0]
            )

    def measured(self, training: Training, batch: Batch, mode: bool = False) -> float:
        """The loss of a batch without training; `mode`: in train mode."""
        return float(self.loss_of(training, self._forward(training, batch[1], mode), batch))

    def step(self, training: Training, batch: Batch) -> float:
        """One step of training: the user's own, or that of the compiled model."""
        weights, inputs, targets = batch
        if training.train_step is not None:
            offers = {name: getattr(training, name) for name in ("model", "loss", "optimizer")}
            offers |= {"batch": (inputs, targets), "x": inputs, "y": targets}
            offers |= {"inputs": inputs, "targets": targets}
            value = call_with(training.train_step, offers, "train_step()")
            return self.measured(training, batch, True) if value is None else float(value)
        training.model.reset_metrics()
        with users_code("train_on_batch()"):
            value = training.model.train_on_batch(inputs, targets, weights, return_dict=True)
        return float(value["loss"])

    def step_with_gradients(
        self, training: Training, batch: Batch
    ) -> tuple[float, dict[str, float]]:
        """A step: its loss, and the sum of each trained weight's absolute gradient before it."""
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = self.loss_of(training, self._forward(training, batch[1], True), batch)
        weights = training.model.trainable_variables
        gradients = tape.gradient(loss, [w.value for w in weights])
        sums = {
            w.path: float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(g))))
            for w, g in zip(weights, gradients, strict=True)
            if g is not None
        }
        sizes = {name: s if math.isfinite(s) else math.inf for name, s in sums.items()}
        return self.step(training, batch), sizes

    def weights(self, training: Training) -> dict[str, Array]:
        """Copies of the trained weights, by path."""
        return {w.path: w.numpy().copy() for w in training.model.trainable_variables}

    def state(self, training: Training) -> dict[str, Array]:
        """Copies of all weights and statistics, by path."""
        return {w.path: w.numpy().copy() for w in training.model.weights}

    def weighed(self, answer: Answer) -> Answer:
        """`answer`: what else a step of Keras minimises is not looked for."""
        return answer

    @cached_property
    def first_outputs(self) -> Array:
        """The outputs for the first batch at initialisation."""
        return self.outputs(self.fresh(), self.batches[0][1])

    @cached_property
    def takes_tensor(self) -> bool:
        """Whether the loss gets one tensor."""
        return hasattr(self.settings.model(self.batches[0][1], training=False), "shape")

    @cached_property
    def targets(self) -> Array:
        """The targets of the first batch; classes as whole numbers, one-hot rows as their place."""
        found = as_array(main_tensor(self.batches[0][2]))
        if found is None:
            raise UsersError("The targets of the first batch are no array.")
        loss = self.settings.loss
        name = loss if isinstance(loss, str) else getattr(loss, "name", None) or type(loss).__name__
        return as_labels(found, self.first_outputs, str(getattr(loss, "__name__", name)).lower())

    @cached_property
    def task(self) -> Task:
        """Read from the output's shape, the targets and the name of the loss."""
        return read_task(self.first_outputs, self.targets)

    @cached_property
    def loss_alone(self) -> KerasLossAlone:
        def loss(outputs: Any) -> Any:
            return self.loss_of(self.settings, outputs, self.batches[0])

        return KerasLossAlone(loss, self.first_outputs, self.targets, self.task)

    @property
    def small_alone(self) -> KerasLossAlone:
        """That of the first batch: the small one is its beginning."""
        return self.loss_alone


Examined = TrainingSubject | KerasSubject


def as_arrays(value: Any) -> Any:
    """Tensors of any framework as arrays, in the same nesting."""
    if hasattr(value, "numpy") or hasattr(value, "detach"):
        return as_array(value)
    return value if isinstance(value, np.ndarray) else map_nested(value, as_arrays)


def as_labels(targets: Array, outputs: Array, loss: str) -> Array:
    """Rows of one-hot targets as classes, (B, 1) whole numbers as (B,), all else as it is."""
    wide = outputs.ndim == targets.ndim and outputs.shape[-1] > 1
    if "sparse" in loss:
        targets = targets[..., 0] if wide and targets.shape[-1] == 1 else targets
        whole = np.array_equal(targets, np.round(targets))
        return targets.astype(np.int64) if whole else targets
    one_hot = wide and targets.shape == outputs.shape and "categorical" in loss
    return np.asarray(np.argmax(targets, axis=-1)) if one_hot else targets


class ArrayRows(list[Any]):
    """The samples of arrays of fit, by index."""

    augments = False


class FitBatches:
    """Batches of arrays or of a PyDataset, each time they are iterated; shuffled as fit does."""

    def __init__(self, parts: Any, size: int, shuffled: bool) -> None:
        self.parts, self.size, self.shuffled = parts, size, shuffled

    def __len__(self) -> int:
        return len(self.parts) if self.size == 0 else -(-length_of(self.parts) // self.size)

    @cached_property
    def indexed_rows(self) -> ArrayRows | None:
        """The samples by index; None of a PyDataset."""
        count = length_of(self.parts) if self.size else 0
        return ArrayRows(rows_at(self.parts, i) for i in range(count)) if self.size else None

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(length_of(self.parts) if self.size else len(self.parts))
        if self.shuffled:
            np.random.shuffle(order)  # seeded with everything else
        if self.size == 0:
            yield from (self.parts[int(number)] for number in order)
            getattr(self.parts, "on_epoch_end", lambda: None)()
            return
        for start in range(0, len(order), self.size):
            yield rows_at(self.parts, order[start : start + self.size])


def rows_at(value: Any, rows: Any) -> Any:
    """Return these rows of each array."""
    if hasattr(value, "shape"):
        return np.asarray(value)[rows]
    return map_nested(value, lambda part: rows_at(part, rows))


def length_of(value: Any) -> int:
    """Return how many rows the arrays have."""
    return int(main_tensor(value).shape[0])


def as_loader(value: Any, size: int = ARRAY_BATCH, shuffled: bool = False) -> Any:
    """Any form of data of fit as something that can be iterated again."""
    if isinstance(value, tuple | list | dict) or hasattr(value, "shape"):
        return FitBatches(value, size, shuffled)
    if hasattr(value, "__getitem__") and hasattr(value, "__len__"):  # a PyDataset
        return FitBatches(value, 0, shuffled)
    if inspect.isgenerator(value) or hasattr(value, "__next__"):
        return list(itertools.islice(value, MOST_BATCHES))
    return value


def choose_subject(functions: Mapping[str, Callable[..., Any]], seed: int = 0) -> Examined:
    """Where Keras is imported, the training is made once to see of which kind its model is."""
    make = made_from(functions)
    if "keras" not in sys.modules:
        return TrainingSubject(make, seed, functions=functions)
    try:
        keras = is_keras(make().model)
    except UsersError:  # each check will say it
        keras = "torch" not in sys.modules
    return KerasSubject(make, seed) if keras else TrainingSubject(make, seed, functions=functions)
