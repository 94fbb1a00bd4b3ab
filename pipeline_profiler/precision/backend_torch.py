"""torch as a backend: which precisions a device has, and the flags that make each what it is named.

FP32 here means IEEE single throughout: TF32 is off for matrix products *and* convolutions, which
is not torch's default (it leaves TF32 on for convolutions); TF32 has a row of its own. The flags
are global to the process, so they are set around each piece of work and put back after it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline_profiler.checking.user_training import Training
from pipeline_profiler.precision.batches import Batch, split_batch
from pipeline_profiler.precision.cell import PRECISIONS, Cell, Recipe
from pipeline_profiler.precision.own_step import OwnStep, OwnStepTrainer, new_own_trainer
from pipeline_profiler.precision.trainer import Flags, MakeModel
from pipeline_profiler.precision.trainer_torch import TorchTrainer, import_torch
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

GIB = 1 << 30
AMPERE = (8, 0)  # compute capability; the first generation with TF32 and BF16


class TorchBackend:
    """torch on the GPU where there is one, else on the CPU."""

    name = "torch"

    def __init__(self, device: str | None = None, clock: Clock = time.perf_counter_ns) -> None:
        """`device` "cuda" or "cpu"; the clock (ns) is what CPU steps are timed with."""
        torch = import_torch()
        if device == "cuda" and not torch.cuda.is_available():
            raise ProfileError("torch sees no GPU: leave --device out, or give --device cpu.")
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.clock = clock
        self.device_name = torch.cuda.get_device_name() if self.device == "cuda" else "CPU"

    def refusal(self, precision: str) -> str:
        """Why this device does not have the precision; '' when it has it."""
        torch = import_torch()
        names = ", ".join(PRECISIONS)
        if precision not in PRECISIONS:
            return f"there is no precision '{precision}': choose from {names}."
        if self.device == "cpu":
            return "" if precision != "tf32" else "a CPU has no TF32: leave tf32 out, or use a GPU."
        if precision == "tf32" and torch.cuda.get_device_capability() < AMPERE:
            return f"{self.device_name} is older than Ampere and has no TF32: leave tf32 out."
        if precision == "bf16" and torch.cuda.get_device_capability() < AMPERE:
            return f"{self.device_name} is older than Ampere and has no BF16: use fp16."
        return ""

    @contextmanager
    def using(self, precision: str) -> Iterator[None]:
        """Set what the precision means, and put the old flags back."""
        torch = import_torch()
        cudnn = torch.backends.cudnn
        before = torch.get_float32_matmul_precision(), cudnn.allow_tf32
        allowed = precision == "tf32"
        # two switches: the first covers matrix products only, convolutions follow cuDNN's own
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        cudnn.allow_tf32 = allowed
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            cudnn.allow_tf32 = before[1]

    def flags(self, precision: str) -> Flags:
        """The flags as they are set during steps of this precision."""
        torch = import_torch()
        with self.using(precision):
            return {
                "matmul_precision": torch.get_float32_matmul_precision(),
                "tf32_matmul": torch.get_float32_matmul_precision() != "highest",
                "tf32_convolution": bool(torch.backends.cudnn.allow_tf32),
                "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
                "deterministic": torch.are_deterministic_algorithms_enabled(),
                "autocast": {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "off"),
                "threads": torch.get_num_threads(),
            }

    def new_trainer(
        self, make_model: MakeModel, cell: Cell, recipe: Recipe
    ) -> TorchTrainer | OwnStepTrainer:
        """A new model from the recipe's seed."""
        torch = import_torch()
        torch.manual_seed(recipe.seed)
        if self.device == "cuda":
            # the peak belongs to this cell, not to the hungriest one before it
            torch.cuda.reset_peak_memory_stats()
        made = make_model()
        if isinstance(made, OwnStep | Training):
            return new_own_trainer(made, cell, recipe, self.device, self.clock)
        return TorchTrainer(made, cell, recipe, self.device, self.clock)

    def resized(self, batch: Batch, size: int) -> Batch:
        """The batch with its samples repeated up to `size`."""
        inputs, targets = split_batch(batch)
        order = import_torch().arange(size) % len(inputs)
        return inputs.cpu()[order], targets.cpu()[order]

    def limit_memory(self, limit_bytes: int) -> str:
        """Cap torch's allocator on the GPU; a CPU has nothing to cap."""
        if self.device != "cuda":
            return "--memory-limit does nothing on a CPU, which has no memory of its own to limit."
        cuda = import_torch().cuda
        total = int(cuda.get_device_properties(cuda.current_device()).total_memory)
        if limit_bytes > total:
            raise ProfileError(
                f"--memory-limit {limit_bytes / GIB:.1f} GiB is more than {self.device_name} has "
                f"({total / GIB:.1f} GiB): give less."
            )
        cuda.set_per_process_memory_fraction(limit_bytes / total)
        return (
            f"memory limited to {limit_bytes / GIB:.1f} of {total / GIB:.1f} GiB: rows above it "
            "are out of memory. The limit holds for torch's allocator; CUDA's own context, some "
            "hundred MiB, comes on top."
        )

    def release(self) -> None:
        """Return cached blocks, so that the next cell starts from an empty device."""
        if self.device == "cuda":
            # a model in a reference cycle keeps its memory until the collector finds it
            gc.collect()
            import_torch().cuda.empty_cache()
