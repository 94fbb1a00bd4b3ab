"""Peak GPU memory of a training step, estimated on a machine without that GPU.

The step runs on torch's fake tensors, which have shapes and no data, and storages are counted
while they are alive. cuDNN's own workspace is not simulated: without tensor cores (FP32, TF32 off)
it is up to 40% of the peak. `benchmarks/precision_memory.py` prints the error of each row.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_profiler.precision.backend_torch import TorchTrainer, import_torch
from pipeline_profiler.precision.plan import ModelJob, SweepOptions
from pipeline_profiler.precision.trainer import Batch, Cell, MakeModel, Recipe, split_batch
from pipeline_profiler.profiling.record.session import ProfileError

MIB = 1 << 20
# name -> memory in MiB as nvidia-smi reports it, compute capability
GPUS = {
    "a100": (40960, 8.0), "a100-80gb": (81920, 8.0), "h100": (81559, 9.0), "h200": (143771, 9.0),
    "l4": (23034, 8.9), "l40s": (46068, 8.9), "t4": (15360, 7.5), "v100": (16384, 7.0),
    "v100-32gb": (32768, 7.0), "rtx3090": (24576, 8.6), "rtx4090": (24564, 8.9),
}  # fmt: skip
AMPERE, HOPPER = 8.0, 9.0
CONTEXT_BYTES = 1250 * MIB  # of CUDA and its libraries, outside torch's allocator
USABLE = 0.95  # of the rest: gaps between the tensors are lost
FAR = 64  # times the batch: a line between the two gives the largest, at no cost for fake tensors
OPTIMIZER_STATES = {"sgd": 1, "adam": 2, "adamw": 2}  # tensors a parameter
# cuBLAS workspaces of the threads of the forward and the backward pass (CublasHandlePool.cpp)
CUBLAS_BYTES, CUBLAS_HOPPER_BYTES = 2 * 8320 << 10, 2 * 32 * MIB
# tensor cores compute in NHWC, so the tensors of a convolution, its first arguments, are copied
CONVOLUTIONS = {"convolution": 2, "convolution_backward": 3}
# what autocast runs in FP32 on a GPU, but not on a CPU, whose rules the fake step follows
FP32_NAMES = {"layer_norm", "group_norm", "softmax", "log_softmax", "cross_entropy", "pow", "exp"}


@dataclass(frozen=True)
class MemoryRow:
    """The estimates of one precision: bytes by batch size, and the largest batch that fits."""

    model: str
    precision: str
    peak_bytes: dict[int, int]
    largest_batch: int


def memory_room(gpu: str | None, limit: int | None) -> int:
    """Return the bytes that tensors can take on a GPU, and below a limit of torch's allocator."""
    if gpu is not None and gpu not in GPUS:
        raise ProfileError(f"--gpu is one of {', '.join(GPUS)}, not '{gpu}'.")
    bounds = [GPUS[gpu][0] * MIB - CONTEXT_BYTES] if gpu else []
    return int(USABLE * min(bounds + ([limit] if limit else [])))


def estimate_table(
    job: ModelJob, options: SweepOptions, sample: Batch, room: int, gpu: str = "h100"
) -> list[MemoryRow]:
    """Return a row for each precision that the GPU has: TF32 and BF16 need Ampere."""
    rows, sizes = [], sorted(options.batch_sizes)
    last, far = sizes[-1], FAR * sizes[-1]
    for precision in options.precisions:
        if GPUS[gpu][1] >= AMPERE or precision not in ("tf32", "bf16"):
            cells = [Cell(job.name, size, precision) for size in (*sizes, far)]
            make, recipe = job.make_model, options.recipe
            *peaks, beyond = [estimate_peak(make, cell, recipe, sample, gpu) for cell in cells]
            largest = last + (room - peaks[-1]) * (far - last) // (beyond - peaks[-1])
            by_size = dict(zip(sizes, peaks, strict=True))
            rows.append(MemoryRow(job.name, precision, by_size, max(0, largest)))
    return rows


def format_rows(rows: Sequence[MemoryRow], room: int) -> str:
    """Return the estimates as text, a line for each model and precision."""
    lines = ["Peak memory of a step: an estimate without cuDNN's workspace (FP32: up to 65% more)."]
    for row in rows:
        peaks = (f"batch {size:,} {peak / 1e9:.2f} GB{' (does not fit)' * (peak > room)}"
                 for size, peak in row.peak_bytes.items())  # fmt: skip
        name = Cell(row.model, 0, row.precision).name
        lines.append(f"{row.model} {name}: {', '.join(peaks)}; largest batch {row.largest_batch:,}")
    return "\n".join(lines)


def estimate_peak(
    make_model: MakeModel, cell: Cell, recipe: Recipe, sample_batch: Batch, gpu: str = "h100"
) -> int:
    """Return the most bytes that a training step allocates; of the sample only shapes are used."""
    torch = import_torch()
    fake, counted, autocast = _modes(cell.precision != "fp32" and not recipe.channels_last)
    try:
        trainer = TorchTrainer(make_model(), cell, recipe, "cpu", time.perf_counter_ns)
        with fake, counted, autocast:
            for part in trainer.model.modules():
                for own in (part._parameters, part._buffers):
                    own.update({k: t if t is None else fake.from_tensor(t) for k, t in own.items()})
            weights = list(trainer.model.parameters())
            states = [torch.empty_like(weight) for weight in weights if weight.requires_grad
                      for _ in range(OPTIMIZER_STATES[recipe.optimizer])]  # fmt: skip
            batch = [torch.empty(cell.batch_size, *part.shape[1:], dtype=part.dtype)
                     for part in split_batch(sample_batch)]  # fmt: skip
            counted.add([*weights, *trainer.model.buffers(), *states])
            trainer.forward(*batch).backward()
    except ProfileError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        text = f"Cannot estimate the memory of {cell.label} ({reason}): measure it on a GPU."
        raise ProfileError(text) from error
    return int(counted.peak) + (CUBLAS_HOPPER_BYTES if GPUS[gpu][1] >= HOPPER else CUBLAS_BYTES)


def _modes(copies: bool) -> tuple[Any, Any, Any]:
    """Return the modes of a fake step: fake tensors, counted allocations, autocast of a GPU."""
    torch = import_torch()
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    alive: dict[int, int] = {}  # bytes by storage

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        peak = 0

        def add(self, tensors: Sequence[Any], copied: Sequence[Any] = ()) -> None:
            for storage in (tensor.untyped_storage() for tensor in tensors):
                if storage._cdata not in alive:
                    alive[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, alive.pop, storage._cdata)
            temporary = sum(tensor.untyped_storage().nbytes() for tensor in copied)
            self.peak = max(self.peak, sum(alive.values()) + temporary)

        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
            made = [leaf for leaf in tree_leaves(result) if torch.is_tensor(leaf)]
            copied = args[: CONVOLUTIONS.get(name, 0)] if copies else ()
            self.add(made, [*copied, *(made if copied and name == "convolution" else [])])
            return result

    class GpuAutocast(TorchFunctionMode):
        def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") in FP32_NAMES and torch.is_autocast_enabled("cpu"):
                args = tree_map_only(
                    torch.Tensor, lambda t: t.float() if t.itemsize == 2 else t, args
                )
            return func(*args, **(kwargs or {}))

    counting = Counting()  # type: ignore[no-untyped-call]
    return FakeTensorMode(allow_non_fake_inputs=True), counting, GpuAutocast()
