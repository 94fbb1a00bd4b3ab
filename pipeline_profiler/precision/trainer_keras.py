"""The training step in Keras on TensorFlow, on the same definitions as in torch.

Precision is the global dtype policy while the model is made: float32, mixed_float16 with a
LossScaleOptimizer, mixed_bfloat16. TensorFlow turns TF32 on by default; here it is off for FP32
and on for TF32, or a comparison with torch would be unfair. TensorFlow has no events to time
single steps on a GPU: there the window is timed from edge to edge and quantiles are n/a.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from pipeline_profiler.precision.image_data import Data, default_workers
from pipeline_profiler.precision.trainer import DYNAMIC, PRECISIONS, Cell, Recipe, pair
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

POLICIES = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "mixed_float16",
    "bf16": "mixed_bfloat16",
}
INITIAL_SCALE = 2.0**15  # LossScaleOptimizer's own default; torch starts at 2^16
NEVER = 2**31 - 1
OPTIMIZERS = ("sgd", "adam", "adamw")


class KerasBackend:
    """Keras on TensorFlow, on the GPU where there is one, else on the CPU."""

    name = "keras"

    def __init__(self, device: str | None = None, clock: Clock = time.perf_counter_ns) -> None:
        """`device` "cuda" or "cpu"; the clock (ns) is the host's."""
        tf = _tensorflow()
        gpus = tf.config.list_physical_devices("GPU")
        if device == "cuda" and not gpus:
            raise ProfileError("TensorFlow sees no GPU: leave --device out, or give --device cpu.")
        self.device = device or ("cuda" if gpus else "cpu")
        self.clock = clock
        details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
        gpu_name = str(details.get("device_name", "GPU"))
        self.device_name = gpu_name if self.device == "cuda" else "CPU"

    def refusal(self, precision: str) -> str:
        """Why this device has no such precision; '' when it has."""
        if precision not in PRECISIONS:
            return f"there is no precision '{precision}': choose from {', '.join(PRECISIONS)}."
        if precision == "tf32" and self.device == "cpu":
            return "a CPU has no TF32: leave tf32 out, or use a GPU."
        return ""

    @contextmanager
    def using(self, precision: str) -> Iterator[None]:
        """Set policy and TF32, and put the old ones back."""
        import keras

        experimental = _tensorflow().config.experimental
        before = keras.mixed_precision.dtype_policy()
        allowed = experimental.tensor_float_32_execution_enabled()
        keras.mixed_precision.set_dtype_policy(POLICIES.get(precision, "float32"))
        experimental.enable_tensor_float_32_execution(precision == "tf32")
        try:
            yield
        finally:
            keras.mixed_precision.set_dtype_policy(before)
            experimental.enable_tensor_float_32_execution(allowed)

    def flags(self, precision: str) -> dict[str, Any]:
        """The flags as they are set during steps of this precision."""
        experimental = _tensorflow().config.experimental
        with self.using(precision):
            return {
                "policy": POLICIES[precision],
                "tf32": bool(experimental.tensor_float_32_execution_enabled()),
            }

    def trainer(self, make_model: Callable[[], Any], cell: Cell, recipe: Recipe) -> KerasTrainer:
        """A new model from the recipe's seed, under the policy that is set."""
        import keras

        keras.utils.set_random_seed(recipe.seed)
        if self.device == "cuda":
            _tensorflow().config.experimental.reset_memory_stats("GPU:0")
        return KerasTrainer(make_model(), cell, recipe, self.device, self.clock)

    def resized(self, batch: Any, size: int) -> Any:
        """The batch with its samples repeated up to `size`."""
        tf = _tensorflow()
        inputs, targets = pair(batch)
        order = tf.range(size) % inputs.shape[0]
        return tf.gather(inputs, order), tf.gather(targets, order)

    def release(self) -> None:
        """Drop Keras's own references to the last model."""
        import keras

        keras.utils.clear_session(free_memory=False)
        gc.collect()


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow
    except ImportError:
        raise ProfileError(
            "TensorFlow is not installed: pip install 'dataset-preflight[tf]'."
        ) from None
    return tensorflow


class KerasTrainer:
    """A Keras model with its optimizer, stepped by one traced function."""

    def __init__(self, made: Any, cell: Cell, recipe: Recipe, device: str, clock: Clock) -> None:
        """`made` is a model, or (model, loss) with loss(targets, outputs)."""
        import keras

        self.model, self.loss = made if isinstance(made, tuple) else (made, None)
        if not isinstance(self.model, keras.Model):
            raise ProfileError(
                f"make_model returned {type(self.model).__name__}: return a Keras model, or "
                "(model, loss)."
            )
        self.device, self.clock = device, clock
        self.static = None if cell.loss_scale in ("", DYNAMIC) else float(cell.loss_scale)
        self.scaled = cell.precision == "fp16"
        self.optimizer = make_optimizer(recipe)
        if self.scaled:
            self.optimizer = keras.mixed_precision.LossScaleOptimizer(
                self.optimizer,
                initial_scale=self.static or INITIAL_SCALE,
                dynamic_growth_steps=NEVER if self.static else 2000,
            )
        logits = not _ends_in_softmax(self.model)
        self._cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
        self._traced = _tensorflow().function(
            self._step, jit_compile=recipe.compile, autograph=False
        )
        self._losses: list[Any] = []
        self._applied: list[Any] = []

    def _step(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        """Traced once a shape: (loss, whether the update was applied)."""
        tf = _tensorflow()
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            outputs = tf.cast(self.model(inputs, training=True), tf.float32)
            judge = self.loss or self._cross_entropy
            loss = tf.reduce_mean(judge(targets, outputs))
            enlarged = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(enlarged, variables)
        if not self.scaled:
            self.optimizer.apply(gradients, variables)
            return loss, tf.constant(True)
        before = tf.identity(self.optimizer.inner_optimizer.iterations)
        self.optimizer.apply(gradients, variables)
        applied = self.optimizer.inner_optimizer.iterations.value > before
        if self.static:  # a static scale stays what it is, after a skip too
            self.optimizer.dynamic_scale.assign(self.static)
        return loss, applied

    def place(self, batch: Any) -> tuple[Any, Any]:
        """Both tensors on the device."""
        tf = _tensorflow()
        inputs, targets = pair(batch)
        with tf.device("GPU:0" if self.device == "cuda" else "CPU:0"):
            return tf.identity(inputs), tf.identity(targets)

    def step(self, batch: Any) -> None:
        """One training step."""
        self._build()
        loss, applied = self._traced(*pair(batch))
        self._losses.append(loss)
        self._applied.append(applied)

    def _build(self) -> None:
        """The optimizer's variables must exist before the step is traced."""
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)

    def outputs(self, batch: Any) -> tuple[int, ...] | None:
        """Shape of the outputs in inference; no weight and no statistic changes."""
        if self.loss is not None:
            return None
        made = self.model(pair(batch)[0], training=False)
        return tuple(int(side) for side in getattr(made, "shape", ()))

    def mark(self) -> int:
        """The host's clock."""
        return self.clock()

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            _tensorflow().test.experimental.sync_devices()

    def periods_ms(self, marks: list[Any]) -> list[float]:
        """Host periods on the CPU, where a call returns when it is done; [] on a GPU."""
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
        """Start losses and skipped steps anew."""
        self._losses, self._applied = [], []

    def nudge(self, share: float) -> None:
        """Change every weight by about this share of itself."""
        tf = _tensorflow()
        for weight in self.model.trainable_variables:
            noise = tf.random.stateless_normal(weight.shape, seed=(1, 2), dtype=weight.dtype)
            weight.assign(weight * (1 + share * noise))

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

    def peak_bytes(self, batch: Any) -> tuple[int | None, str]:
        """Peak of TensorFlow's GPU allocator; a CPU has no such figure."""
        if self.device != "cuda":
            return None, "n/a: TensorFlow counts no peak on a CPU"
        info = _tensorflow().config.experimental.get_memory_info("GPU:0")
        return int(info["peak"]), "peak of TensorFlow's GPU allocator over the first steps"


def _ends_in_softmax(model: Any) -> bool:
    last = model.layers[-1] if model.layers else None
    return getattr(getattr(last, "activation", None), "__name__", "") == "softmax"


def make_optimizer(recipe: Recipe) -> Any:
    """SGD with momentum, Adam or AdamW."""
    import keras

    if recipe.optimizer == "sgd":
        return keras.optimizers.SGD(recipe.lr, momentum=0.9)
    if recipe.optimizer == "adam":
        return keras.optimizers.Adam(recipe.lr)
    if recipe.optimizer == "adamw":
        return keras.optimizers.AdamW(recipe.lr)
    known = ", ".join(OPTIMIZERS)
    raise ProfileError(f"No optimizer '{recipe.optimizer}': choose from {known}.")


def keras_loader(data: Data, batch_size: int, workers: int | None) -> Any:
    """A tf.data pipeline over the dataset: shuffled, loaded in parallel, channels last."""
    tf = _tensorflow()
    dataset, side = data.dataset, data.dataset.side

    def load(number: Any) -> tuple[Any, Any]:
        image, label = dataset[int(number)]
        return image.transpose(1, 2, 0), label

    def sample(number: Any) -> tuple[Any, Any]:
        image, label = tf.numpy_function(load, [number], [tf.float32, tf.int64])
        return tf.ensure_shape(image, (side, side, 3)), tf.ensure_shape(label, ())

    plain = tf.autograph.experimental.do_not_convert(sample)
    numbers = tf.data.Dataset.range(len(dataset)).shuffle(len(dataset), seed=0)
    loaded = numbers.map(plain, num_parallel_calls=workers or default_workers())
    return loaded.batch(batch_size, drop_remainder=True).prefetch(2)
