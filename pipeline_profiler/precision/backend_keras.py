"""Keras on TensorFlow as a backend: the dtype policy and TF32 that make each precision.

Precision is the global dtype policy while the model is made: float32, mixed_float16 or
mixed_bfloat16. TensorFlow turns TF32 on by default; here it is off for FP32 and on for TF32, or a
comparison with torch would be unfair. Both are put back after each piece of work.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline_profiler.precision.batches import Batch, split_batch
from pipeline_profiler.precision.cell import PRECISIONS, Cell, Recipe
from pipeline_profiler.precision.trainer import Flags, MakeModel
from pipeline_profiler.precision.trainer_keras import KerasTrainer, import_tensorflow
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

POLICIES = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "mixed_float16",
    "bf16": "mixed_bfloat16",
}


class KerasBackend:
    """Keras on TensorFlow, on the GPU where there is one, else on the CPU."""

    name = "keras"

    def __init__(self, device: str | None = None, clock: Clock = time.perf_counter_ns) -> None:
        """`device` "cuda" or "cpu"; the clock (ns) is the host's."""
        tf = import_tensorflow()
        gpus = tf.config.list_physical_devices("GPU")
        if device == "cuda" and not gpus:
            raise ProfileError("TensorFlow sees no GPU: leave --device out, or give --device cpu.")
        self.device = device or ("cuda" if gpus else "cpu")
        self.clock = clock
        details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
        gpu_name = str(details.get("device_name", "GPU"))
        self.device_name = gpu_name if self.device == "cuda" else "CPU"

    def refusal(self, precision: str) -> str:
        """Why this device does not have the precision; '' when it has it."""
        if precision not in PRECISIONS:
            return f"there is no precision '{precision}': choose from {', '.join(PRECISIONS)}."
        if precision == "tf32" and self.device == "cpu":
            return "a CPU has no TF32: leave tf32 out, or use a GPU."
        return ""

    @contextmanager
    def using(self, precision: str) -> Iterator[None]:
        """Set policy and TF32, and put the old ones back."""
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
        """The flags as they are set during steps of this precision."""
        experimental = import_tensorflow().config.experimental
        with self.using(precision):
            return {
                "policy": POLICIES[precision],
                "tf32": bool(experimental.tensor_float_32_execution_enabled()),
            }

    def new_trainer(self, make_model: MakeModel, cell: Cell, recipe: Recipe) -> KerasTrainer:
        """A new model from the recipe's seed, under the policy that is set."""
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

    def limit_memory(self, limit_bytes: int) -> str:
        """Refused: TensorFlow takes a limit only before its first operation."""
        raise ProfileError("--memory-limit is for torch: leave it out with --framework keras.")

    def release(self) -> None:
        """Drop Keras's own references to the last model."""
        import keras

        # free_memory=False: clear_session would run the collector, which the next line does anyway
        keras.utils.clear_session(free_memory=False)
        gc.collect()
