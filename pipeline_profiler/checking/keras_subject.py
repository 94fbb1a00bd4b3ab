"""A training of Keras under examination, with what the checks ask of a training of torch.

One compiled model is kept; a fresh training is this model with its first values put back, so that
the graph of its step is traced once. Batches are arrays. TensorFlow is imported inside functions
only; other backends of Keras are answered with a sentence.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from pipeline_profiler.checking.batch_parts import Array, as_array, inputs_and_targets
from pipeline_profiler.checking.examined_training import ExaminedTraining
from pipeline_profiler.checking.keras_loss import KerasLossAlone
from pipeline_profiler.checking.nested_batches import (
    batch_size,
    cut_batch,
    main_tensor,
    map_nested,
)
from pipeline_profiler.checking.tasks import Task, read_task
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.user_calls import UsersError, call_with, users_code
from pipeline_profiler.checking.user_training import Training

ENOUGH_EXAMPLES, MOST_BATCHES, ARRAY_BATCH = 256, 16, 32
SMALL_BATCH = 16
Batch = tuple[Any, Any, Any]  # (inputs, targets, weights of examples or None)


@dataclass
class KerasSubject(ExaminedTraining):
    """What the checks on a Keras training examine; `make()` returns a new Training."""

    framework: ClassVar[str] = "keras"

    # ---- trainings ----

    def fresh(self, seed: int | None = None) -> Training:
        """The training at its start: with a seed made anew, else with its first values put back."""
        if seed is not None:
            return self._made(seed, eager=True)
        made, values = self._first
        for variable, value in values:
            variable.assign(value)
        seed_everything(self.seed)
        return made

    @cached_property
    def _first(self) -> tuple[Training, list[tuple[Any, Any]]]:
        made = self._made(self.seed, eager=False)
        held = [*made.model.variables, *made.optimizer.variables]
        return made, [(v, v.numpy().copy()) for v in held]

    def _made(self, seed: int, eager: bool) -> Training:
        import keras

        keras.utils.set_random_seed(seed)
        made = compiled(self.make())
        with users_code("The model's forward pass"):
            called(made.model, self.batches[0][0], False)
        made.optimizer.build(made.model.trainable_variables)
        made.model.jit_compile = False  # compiling costs more than the steps of a check
        if eager:
            made.model.run_eagerly = True
        return made

    @cached_property
    def settings(self) -> Training:
        """A training to look at, never to train."""
        return self._first[0]

    # ---- batches ----

    @cached_property
    def batches(self) -> list[Batch]:
        """The first batches, as arrays."""
        seed_everything(self.seed)
        made = self.make()
        taken: list[Batch] = []
        examples = 0
        for raw in itertools.islice(_iterated(made.loader), MOST_BATCHES):
            arrays = as_arrays(raw)
            inputs, targets = inputs_and_targets(arrays, made.split_batch)
            weights = arrays[2] if isinstance(arrays, tuple) and len(arrays) > 2 else None
            taken.append((inputs, targets, weights))
            examples += batch_size(inputs)
            if examples >= ENOUGH_EXAMPLES and len(taken) >= 4:
                break
        if not taken:
            raise UsersError("The loader gives no batch: is the dataset empty?")
        return taken

    @cached_property
    def small(self) -> Batch:
        """The first batch, cut to at most 16 examples."""
        size = batch_size(self.batches[0][0])
        inputs, targets, weights = (
            cut_batch(part, size, 0, min(SMALL_BATCH, size)) for part in self.batches[0]
        )
        return inputs, targets, weights

    # ---- one pass ----

    def outputs(self, training: Training, inputs: Any, mode: bool = False) -> Array:
        """The main output as an array; `mode`: in train mode."""
        with users_code("The model's forward pass"):
            found = as_array(main_tensor(called(training.model, inputs, mode)))
        if found is None:
            raise UsersError("The model's output is no tensor.")
        return found

    def loss_of(self, training: Training, outputs: Any, batch: Batch) -> Any:
        """The loss as the model was compiled with it, as a scalar tensor."""
        with users_code("The loss"):
            return training.model.compute_loss(
                x=batch[0], y=batch[1], y_pred=outputs, sample_weight=batch[2]
            )

    def measured(self, training: Training, batch: Batch, mode: bool = False) -> float:
        """The loss of a batch without training; `mode`: in train mode."""
        with users_code("The model's forward pass"):
            outputs = called(training.model, batch[0], mode)
        return float(self.loss_of(training, outputs, batch))

    def step(self, training: Training, batch: Batch) -> float:
        """One step of training: the user's own, or that of the compiled model."""
        inputs, targets, weights = batch
        if training.train_step is not None:
            offers = {
                "model": training.model,
                "batch": (inputs, targets),
                "loss": training.loss,
                "optimizer": training.optimizer,
                "inputs": inputs,
                "targets": targets,
                "x": inputs,
                "y": targets,
            }
            value = call_with(training.train_step, offers, "train_step()")
            return self.measured(training, batch, True) if value is None else float(value)
        training.model.reset_metrics()
        with users_code("train_on_batch()"):
            value = training.model.train_on_batch(inputs, targets, weights, return_dict=True)
        return float(value["loss"])

    def gradients(self, training: Training, batch: Batch) -> dict[str, float | None]:
        """The sum of each trained weight's absolute gradient; None where there is none."""
        import tensorflow as tf

        with users_code("The model's forward pass"), tf.GradientTape() as tape:
            outputs = called(training.model, batch[0], True)
            loss = self.loss_of(training, outputs, batch)
        weights = training.model.trainable_variables
        found = tape.gradient(loss, [w.value for w in weights])
        return {
            w.path: None if g is None else float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(g))))
            for w, g in zip(weights, found, strict=True)
        }

    def weights(self, training: Training) -> dict[str, Array]:
        """Copies of the trained weights, by path."""
        return {w.path: w.numpy().copy() for w in training.model.trainable_variables}

    def state(self, training: Training) -> dict[str, Array]:
        """Copies of all weights and statistics, by path."""
        return {w.path: w.numpy().copy() for w in training.model.weights}

    # ---- what is learned ----

    @cached_property
    def first_outputs(self) -> Array:
        """The outputs for the first batch at initialisation."""
        return self.outputs(self.fresh(), self.batches[0][0])

    @cached_property
    def takes_tensor(self) -> bool:
        """Whether the loss gets one tensor."""
        made = self.settings
        return hasattr(called(made.model, self.batches[0][0], False), "shape")

    @cached_property
    def targets(self) -> Array:
        """The targets of the first batch; classes as whole numbers, one-hot rows as their place."""
        found = as_array(main_tensor(self.batches[0][1]))
        if found is None:
            raise UsersError("The targets of the first batch are no array.")
        return as_labels(found, self.first_outputs, _loss_name(self.settings))

    @cached_property
    def task(self) -> Task:
        """Read from the output's shape, the targets and the name of the loss."""
        return read_task(self.first_outputs, self.targets)

    @cached_property
    def loss_alone(self) -> KerasLossAlone:
        """The loss of free outputs for the first batch."""
        batch = self.batches[0]
        return KerasLossAlone(
            lambda outputs: self.loss_of(self.settings, outputs, batch),
            self.first_outputs,
            self.targets,
            self.task,
        )


# ---- parts ----


def compiled(training: Training) -> Training:
    """The training with a compiled model; UsersError where loss or optimizer are missing."""
    import keras

    model, loss, optimizer = training.model, training.loss, training.optimizer
    if keras.backend.backend() != "tensorflow":
        raise UsersError(
            f"Keras runs on {keras.backend.backend()}: check-training examines Keras on "
            "TensorFlow only (KERAS_BACKEND=tensorflow)."
        )
    if loss is not None and optimizer is not None:
        with users_code("compile()"):
            model.compile(optimizer=optimizer, loss=loss)
    if getattr(model, "optimizer", None) is None or getattr(model, "loss", None) is None:
        raise UsersError(
            "The Keras model is not compiled: call model.compile(optimizer=..., loss=...), or "
            "return loss and optimizer as well."
        )
    return dataclasses.replace(training, loss=model.loss, optimizer=model.optimizer)


def called(model: Any, inputs: Any, mode: bool) -> Any:
    """The model's output for inputs of any nesting."""
    return model(inputs, training=mode)


def as_arrays(value: Any) -> Any:
    """Tensors of any framework as arrays, in the same nesting."""
    if hasattr(value, "numpy") or hasattr(value, "detach"):
        return as_array(value)
    return value if isinstance(value, np.ndarray) else map_nested(value, as_arrays)


def as_labels(targets: Array, outputs: Array, loss: str) -> Array:
    """Rows of one-hot targets as classes, (B, 1) whole numbers as (B,), all else as it is."""
    wide = outputs.ndim == targets.ndim and outputs.shape[-1] > 1
    if wide and targets.shape[-1] == 1 and "sparse" in loss:
        targets = targets[..., 0]
    if "sparse" in loss and np.array_equal(targets, np.round(targets)):
        return targets.astype(np.int64)
    if wide and targets.shape == outputs.shape and "categorical" in loss:
        found: Array = np.argmax(targets, axis=-1)
        return found
    return targets


def _loss_name(training: Training) -> str:
    loss = training.loss
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or type(loss).__name__
    return str(getattr(loss, "__name__", name)).lower()


def _iterated(loader: Any) -> Iterator[Any]:
    """Batches of a dataset, a PyDataset, a pair of arrays, or any iterable."""
    if isinstance(loader, tuple) and all(isinstance(part, np.ndarray) for part in loader):
        for start in range(0, len(loader[0]), ARRAY_BATCH):
            yield tuple(part[start : start + ARRAY_BATCH] for part in loader)
        return
    indexed = hasattr(loader, "__getitem__") and hasattr(loader, "__len__")
    with users_code("The loader"):
        if indexed and not isinstance(loader, Mapping):
            iterator = (loader[i] for i in range(len(loader)))
        else:
            iterator = iter(loader)
    while True:
        with users_code("The loader"):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch
