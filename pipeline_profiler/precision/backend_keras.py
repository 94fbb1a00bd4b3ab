"""Keras on TensorFlow as a backend: the dtype policy and TF32 that make each precision.

TF32 is off for FP32, unlike TensorFlow's default, so that frameworks compare. Policy and TF32 are
put back after each piece of work.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from pipeline_profiler.precision.trainer import (
    DYNAMIC,
    LEAD_IN,
    Backend,
    Batch,
    Cell,
    Flags,
    MakeModel,
    Mark,
    PeakMemory,
    Recipe,
    Tensor,
    Trainer,
    import_framework,
    split_batch,
)
from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.profiling.record.stages import Clock

if TYPE_CHECKING:
    import keras

Loss: TypeAlias = "Callable[[Tensor, Tensor], Tensor] | None"

MEMORY_CUDA = "peak of TensorFlow's GPU allocator over the first steps"
INITIAL_SCALE = 2.0**15  # LossScaleOptimizer's own default; torch starts at 2^16
NEVER = 2**31 - 1  # steps: a static scale must not grow


def import_tensorflow() -> ModuleType:
    """TensorFlow, or ProfileError with the command that installs it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return import_framework("TensorFlow", "tf")


class KerasTrainer(Trainer):
    """A Keras model with its optimizer, stepped by one traced function."""

    def __init__(
        self, model: object, cell: Cell, recipe: Recipe, device: str, clock: Clock
    ) -> None:
        """`model` is a model, or (model, loss) with loss(targets, outputs)."""
        import keras

        super().__init__(device, clock)
        # without marks of the device a window is timed from one synchronise to the next
        self.lead_in = 0 if device == "cuda" else LEAD_IN
        self.model: keras.Model
        self.loss: Loss
        self.model, self.loss = model if isinstance(model, tuple) else (model, None)
        if not isinstance(self.model, keras.Model):
            raise ProfileError(
                f"make_model returned {type(self.model).__name__}: return a Keras model, or "
                "(model, loss)."
            )
        self.static = None if cell.loss_scale in ("", DYNAMIC) else float(cell.loss_scale)
        self.scaled = cell.precision == "fp16"
        momentum = {"momentum": 0.9} if recipe.optimizer == "sgd" else {}
        kinds = keras.optimizers
        known = {"sgd": kinds.SGD, "adam": kinds.Adam, "adamw": kinds.AdamW}
        self.optimizer = known[recipe.optimizer](recipe.lr, **momentum)
        if self.scaled:
            self.optimizer = keras.mixed_precision.LossScaleOptimizer(
                self.optimizer,
                initial_scale=self.static or INITIAL_SCALE,
                dynamic_growth_steps=NEVER if self.static else 2000,
            )
        last = getattr(self.model.layers[-1], "activation", None) if self.model.layers else None
        logits = getattr(last, "__name__", "") != "softmax"
        self._cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
        self._traced = import_tensorflow().function(
            self._step, jit_compile=recipe.compile, autograph=False
        )
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
        tf = import_tensorflow()
        inputs, targets = split_batch(batch)
        with tf.device("GPU:0" if self.device == "cuda" else "CPU:0"):
            return tf.identity(inputs), tf.identity(targets)

    def step(self, batch: Batch) -> None:
        self._build()
        loss, applied = self._traced(*split_batch(batch))
        self._losses.append(loss)
        self._applied.append(applied)

    def _build(self) -> None:
        """Create the optimizer's variables before the step is traced."""
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)

    def outputs(self, batch: Batch) -> tuple[int, ...] | None:
        """Shape of the outputs in inference; no weight and no statistic changes."""
        if self.loss is not None:
            return None
        outputs = self.model(split_batch(batch)[0], training=False)
        return tuple(int(side) for side in getattr(outputs, "shape", ()))

    def synchronise(self) -> None:
        if self.device == "cuda":
            import_tensorflow().test.experimental.sync_devices()

    def periods_ms(self, marks: Sequence[Mark]) -> list[float]:
        """Host periods on the CPU, where a call returns when it is done; [] on a GPU."""
        # on a GPU the host's marks would time the enqueueing: better none than wrong ones
        return [] if self.device == "cuda" else super().periods_ms(marks)

    def skipped(self) -> list[int]:
        return [i for i, applied in enumerate(self._applied) if not bool(applied)]

    def forget(self) -> None:
        super().forget()
        self._applied.clear()

    def scale(self) -> float | None:
        return float(self.optimizer.dynamic_scale) if self.scaled else None

    def start_at(self, scale: float) -> None:
        if self.scaled and self.static is None:
            self._build()
            self.optimizer.dynamic_scale.assign(scale)

    def peak_memory(self, batch: Batch) -> PeakMemory:
        """Peak of TensorFlow's GPU allocator; a CPU has no such figure."""
        if self.device != "cuda":
            return PeakMemory(None, "not measured: TensorFlow counts no peak on a CPU")
        info = import_tensorflow().config.experimental.get_memory_info("GPU:0")
        return PeakMemory(int(info["peak"]), MEMORY_CUDA)


POLICIES = {"fp16": "mixed_float16", "bf16": "mixed_bfloat16"}  # else float32


class KerasBackend(Backend):
    """Keras on TensorFlow, on the GPU where there is one, else on the CPU."""

    name = "keras"

    def __init__(self, device: str | None = None) -> None:
        tf = import_tensorflow()
        gpus = tf.config.list_physical_devices("GPU")
        if device == "cuda" and not gpus:
            raise ProfileError("TensorFlow sees no GPU: leave --device out, or give --device cpu.")
        self.device = device or ("cuda" if gpus else "cpu")
        details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
        gpu_name = str(details.get("device_name", "GPU"))
        self.device_name = gpu_name if self.device == "cuda" else "CPU"

    @contextmanager
    def using(self, precision: str) -> Iterator[None]:
        import keras

        experimental = import_tensorflow().config.experimental
        # the policy is read when layers are made and TF32 when kernels run: both must be set
        before = keras.mixed_precision.dtype_policy()
        allowed = experimental.tensor_float_32_execution_enabled()
        keras.mixed_precision.set_dtype_policy(POLICIES.get(precision, "float32"))
        experimental.enable_tensor_float_32_execution(precision == "tf32")
        try:
            yield
        finally:
            keras.mixed_precision.set_dtype_policy(before)
            experimental.enable_tensor_float_32_execution(allowed)

    def flags(self, precision: str) -> Flags:
        experimental = import_tensorflow().config.experimental
        with self.using(precision):
            return {
                "policy": POLICIES.get(precision, "float32"),
                "tf32": bool(experimental.tensor_float_32_execution_enabled()),
            }

    def new_trainer(self, make_model: MakeModel, cell: Cell, recipe: Recipe) -> KerasTrainer:
        import keras

        keras.utils.set_random_seed(recipe.seed)
        if self.device == "cuda":
            import_tensorflow().config.experimental.reset_memory_stats("GPU:0")
        return KerasTrainer(make_model(), cell, recipe, self.device, self.clock)

    def resized(self, batch: Batch, size: int) -> Batch:
        """The batch with its samples repeated up to `size`."""
        tf = import_tensorflow()
        inputs, targets = split_batch(batch)
        order = tf.range(size) % inputs.shape[0]
        return tf.gather(inputs, order), tf.gather(targets, order)

    def release(self) -> None:
        """Drop Keras's own references to the last model."""
        import keras

        # free_memory=False: clear_session would run the collector, which the next line does anyway
        keras.utils.clear_session(free_memory=False)
        gc.collect()


def keras_resnet18(classes: int = 10, side: int = 32) -> keras.Model:
    """Return ResNet-18 as in models.py: (B, side, side, 3) to (B, classes) logits in float32."""
    import keras

    layers = keras.layers

    def convolution(x: Tensor, width: int, kernel: int, stride: int) -> Tensor:
        x = layers.Conv2D(width, kernel, stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)

    inputs = keras.Input((side, side, 3))
    x = layers.ReLU()(convolution(inputs, 64, 3, 1))
    for width in (64, 128, 256, 512):
        for stride in (1 if width == 64 else 2, 1):
            body = layers.ReLU()(convolution(x, width, 3, stride))
            body = convolution(body, width, 3, 1)
            if stride != 1 or x.shape[-1] != width:
                x = convolution(x, width, 1, stride)
            x = layers.ReLU()(layers.Add()([body, x]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, dtype="float32")(x), name="resnet18")
