"""The loss of a Keras training without the model: what it asks for, found on free numbers.

The counterpart of `loss_alone` for Keras on TensorFlow; in and out are arrays. TensorFlow is
imported inside functions only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline_profiler.checking.batch_parts import Array
from pipeline_profiler.checking.free_outputs import FreeOutputs
from pipeline_profiler.checking.tasks import Task

STEPS = 150


@dataclass
class KerasLossAlone(FreeOutputs):
    """`loss` of output tensors for one batch; `outputs` as the model gives them at first."""

    loss: Callable[[Any], Any]
    outputs: Array
    targets: Array
    task: Task

    @cached_property
    def form(self) -> str:
        """'sum': probabilities of classes; 'unit': in 0..1; 'positive': above 0; '': any numbers.

        'positive' where the loss insists on it, as that of Poisson does.
        """
        outputs, kind = self.outputs, self.task.kind
        if (
            not outputs.size
            or (outputs < 0).any()
            or kind not in ("classes", "binary", "regression")
        ):
            return ""
        axis = self.task.axis if kind == "classes" else -1
        several = outputs.ndim > 1 and outputs.shape[axis] > 1
        if several and np.allclose(outputs.sum(axis=axis), 1, atol=1e-4):
            return "sum"
        if kind == "binary":
            return "unit" if (outputs <= 1).all() else ""
        insists = kind == "regression" and not math.isfinite(self.of(outputs - outputs.max() - 1))
        return "positive" if insists else ""

    def formed(self, free: Any) -> Any:
        """Free numbers as the loss takes them."""
        import tensorflow as tf

        if self.form == "sum":
            return tf.nn.softmax(free, axis=self.task.axis if self.task.kind == "classes" else -1)
        if self.form == "positive":
            return tf.nn.softplus(free)
        return tf.sigmoid(free) if self.form == "unit" else free

    def of(self, outputs: Array) -> float:
        """The loss of these outputs, taken as they are."""
        import tensorflow as tf

        return float(self.loss(tf.constant(outputs, tf.float32)))

    @cached_property
    def uniform(self) -> float:
        """The loss of outputs that are all zero before softmax or sigmoid."""
        import tensorflow as tf

        return float(self.loss(self.formed(tf.zeros(self.outputs.shape))))

    def _descended(self, shared: bool, scale: float) -> tuple[float, Array]:
        shape = (1, *self.outputs.shape[1:]) if shared else self.outputs.shape
        free, first, second = (np.zeros(shape) for _ in range(3))
        best, kept = math.inf, np.zeros(self.outputs.shape)
        for number in range(1, STEPS + 1):
            loss, outputs, gradient = self._with_gradient(free)
            if gradient is None or not math.isfinite(loss):
                break
            if loss < best:
                best, kept = loss, outputs
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            rate = 0.4 * scale * (1 - number / (STEPS + 1)) + 1e-4 * scale
            step = first / (1 - 0.9**number)
            free -= rate * step / (np.sqrt(second / (1 - 0.999**number)) + 1e-12)
        return best, kept

    def _with_gradient(self, free: Array) -> tuple[float, Array, Array | None]:
        import tensorflow as tf

        numbers = tf.constant(free, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(numbers)
            outputs = self.formed(tf.broadcast_to(numbers, self.outputs.shape))
            loss = self.loss(outputs)
        gradient = tape.gradient(loss, numbers)
        found = None if gradient is None else gradient.numpy().astype(np.float64)
        return float(loss), outputs.numpy(), found

    def _target_scale(self) -> float:
        if self.targets.dtype.kind != "f":
            return 1.0
        return max(1.0, float(np.abs(self.targets).mean()))
