"""The training step in Keras on TensorFlow, on the same definitions as in torch.

The dtype policy that is set while the model is made decides the precision; FP16 wraps the optimizer
in a LossScaleOptimizer. The step is one traced function. TensorFlow has no events to time single
steps on a GPU: there the window is timed from edge to edge and quantiles are n/a.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from pipeline_profiler.precision.batches import Batch, Tensor, split_batch
from pipeline_profiler.precision.cell import DYNAMIC, Cell, Recipe
from pipeline_profiler.precision.trainer import Mark, PeakMemory
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

if TYPE_CHECKING:
    import keras

Loss: TypeAlias = "Callable[[Tensor, Tensor], Tensor] | None"

INITIAL_SCALE = 2.0**15  # LossScaleOptimizer's own default; torch starts at 2^16
NEVER = 2**31 - 1  # steps: a static scale must not grow
OPTIMIZERS = ("sgd", "adam", "adamw")


def import_tensorflow() -> ModuleType:
    """TensorFlow, or ProfileError with the command that installs it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow
    except ImportError:
        raise ProfileError(
            "TensorFlow is not installed: pip install 'dataset-preflight[tf]'."
        ) from None
    module: ModuleType = tensorflow
    return module


class KerasTrainer:
    """A Keras model with its optimizer, stepped by one traced function."""

    def __init__(
        self, model: object, cell: Cell, recipe: Recipe, device: str, clock: Clock
    ) -> None:
        """`model` is a model, or (model, loss) with loss(targets, outputs)."""
        import keras

        self.model: keras.Model
        self.loss: Loss
        self.model, self.loss = model if isinstance(model, tuple) else (model, None)
        if not isinstance(self.model, keras.Model):
            raise ProfileError(
                f"make_model returned {type(self.model).__name__}: return a Keras model, or "
                "(model, loss)."
            )
        self.device, self.clock = device, clock
        self.static = None if cell.loss_scale in ("", DYNAMIC) else float(cell.loss_scale)
        self.scaled = cell.precision == "fp16"
        self.optimizer = make_keras_optimizer(recipe)
        if self.scaled:
            self.optimizer = keras.mixed_precision.LossScaleOptimizer(
                self.optimizer,
                initial_scale=self.static or INITIAL_SCALE,
                dynamic_growth_steps=NEVER if self.static else 2000,
            )
        logits = not _ends_in_softmax(self.model)
        self._cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
        self._traced = import_tensorflow().function(
            self._step, jit_compile=recipe.compile, autograph=False
        )
        self._losses: list[Tensor] = []
        self._applied: list[Tensor] = []

    def _step(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Traced once a shape: (loss, whether the update was applied)."""
        tf = import_tensorflow()
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            outputs = tf.cast(self.model(inputs, training=True), tf.float32)
            loss_of = self.loss or self._cross_entropy
            loss = tf.reduce_mean(loss_of(targets, outputs))
            # small gradients underflow in FP16: the loss is enlarged before the tape is read, and
            # the LossScaleOptimizer divides the gradients again
            enlarged = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(enlarged, variables)
        if not self.scaled:
            self.optimizer.apply(gradients, variables)
            return loss, tf.constant(True)
        # Keras does not say whether it skipped; the inner optimizer counts only updates it applied.
        # A copy, because the variable itself would be read after the update.
        before = tf.identity(self.optimizer.inner_optimizer.iterations)
        self.optimizer.apply(gradients, variables)
        applied = self.optimizer.inner_optimizer.iterations.value > before
        if self.static:  # a static scale stays what it is, after a skip too
            self.optimizer.dynamic_scale.assign(self.static)
        return loss, applied

    def place(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Both tensors on the device."""
        tf = import_tensorflow()
        inputs, targets = split_batch(batch)
        with tf.device("GPU:0" if self.device == "cuda" else "CPU:0"):
            return tf.identity(inputs), tf.identity(targets)

    def step(self, batch: Batch) -> None:
        """One training step."""
        self._build()
        loss, applied = self._traced(*split_batch(batch))
        self._losses.append(loss)
        self._applied.append(applied)

    def _build(self) -> None:
        """The optimizer's variables must exist before the step is traced.

        A traced function may create variables in its first call only, and a second shape is traced
        again.
        """
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)

    def outputs(self, batch: Batch) -> tuple[int, ...] | None:
        """Shape of the outputs in inference; no weight and no statistic changes."""
        if self.loss is not None:
            return None
        outputs = self.model(split_batch(batch)[0], training=False)
        return tuple(int(side) for side in getattr(outputs, "shape", ()))

    def mark(self) -> Mark:
        """The host's clock."""
        return self.clock()

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            import_tensorflow().test.experimental.sync_devices()

    def periods_ms(self, marks: Sequence[Mark]) -> list[float]:
        """Host periods on the CPU, where a call returns when it is done; [] on a GPU."""
        # on a GPU the host's marks would time the enqueueing: better none than wrong ones
        if self.device == "cuda":
            return []
        return [(b - a) / 1e6 for a, b in pairwise(marks)]

    def losses(self) -> list[float]:
        """Losses since `forget`."""
        return [float(loss) for loss in self._losses]

    def skipped(self) -> list[int]:
        """Steps since `forget` that the LossScaleOptimizer dropped."""
        return [i for i, applied in enumerate(self._applied) if not bool(applied)]

    def forget(self) -> None:
        """Clear losses and skipped steps."""
        self._losses, self._applied = [], []

    def nudge(self, share: float) -> bool:
        """Change every weight by about this share of itself."""
        tf = import_tensorflow()
        for weight in self.model.trainable_variables:
            noise = tf.random.stateless_normal(weight.shape, seed=(1, 2), dtype=weight.dtype)
            weight.assign(weight * (1 + share * noise))
        return True

    def scale(self) -> float | None:
        """The loss scale; None without one."""
        return float(self.optimizer.dynamic_scale) if self.scaled else None

    def start_at(self, scale: float) -> None:
        """Begin with this scale where it is a dynamic one."""
        if self.scaled and self.static is None:
            self._build()
            self.optimizer.dynamic_scale.assign(scale)

    def graphs(self) -> int:
        """Times the step was traced."""
        return int(self._traced.experimental_get_tracing_count())

    def count_correct(self) -> None:
        """Nothing: the traced step returns the loss alone."""

    def accuracies(self) -> list[float]:
        """None are kept."""
        return []

    def peak_memory(self, batch: Batch) -> PeakMemory:
        """Peak of TensorFlow's GPU allocator; a CPU has no such figure."""
        if self.device != "cuda":
            return PeakMemory(None, "n/a: TensorFlow counts no peak on a CPU")
        info = import_tensorflow().config.experimental.get_memory_info("GPU:0")
        return PeakMemory(
            int(info["peak"]), "peak of TensorFlow's GPU allocator over the first steps"
        )


def _ends_in_softmax(model: keras.Model) -> bool:
    last = model.layers[-1] if model.layers else None
    return getattr(getattr(last, "activation", None), "__name__", "") == "softmax"


def make_keras_optimizer(recipe: Recipe) -> keras.optimizers.Optimizer:
    """SGD with momentum, Adam or AdamW."""
    import keras

    if recipe.optimizer == "sgd":
        return keras.optimizers.SGD(recipe.lr, momentum=0.9)
    if recipe.optimizer == "adam":
        return keras.optimizers.Adam(recipe.lr)
    if recipe.optimizer == "adamw":
        return keras.optimizers.AdamW(recipe.lr)
    names = ", ".join(OPTIMIZERS)
    raise ProfileError(f"No optimizer '{recipe.optimizer}': choose from {names}.")
