"""Peak memory of a training step in torch: the device's own count, or the CPU allocator's events.

CUDA counts its peak itself. On a CPU nothing does, so one step runs under torch's profiler, which
reports every allocation and every release; that step is slow and never timed.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline_profiler.precision.trainer import PeakMemory

MEMORY_CUDA = "torch.cuda.max_memory_allocated over the first steps"
MEMORY_CPU = (
    "most bytes alive in torch's CPU allocator in one step, by its profiler; oneDNN's scratch "
    "space and the loader are not in it"
)


def peak_on_gpu() -> PeakMemory:
    """Most that training allocated and reserved since the last reset, and what is occupied now."""
    import torch

    torch.cuda.synchronize()
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return PeakMemory(int(allocated), MEMORY_CUDA, int(reserved), _occupied_bytes())


def _occupied_bytes() -> int:
    """Bytes in use on the GPU by all programs: NVML's count, without it the CUDA driver's."""
    import torch

    try:
        return int(torch.cuda.device_memory_used())
    except Exception:  # noqa: BLE001 - no NVML, or one that does not know this device (MIG)
        free, total = torch.cuda.mem_get_info()
        return int(total - free)


def allocated_in(work: Callable[[], None]) -> int | None:
    """Most bytes alive above the start while `work` ran, by torch's allocation events."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    events = getattr(getattr(recorded, "profiler", None), "kineto_results", None)
    if events is None:
        return None
    # Sorted by time, because threads report separately; the number keeps the order of events with
    # the same nanosecond, where a release and the next allocation must not change places.
    changes = sorted(
        (event.start_ns(), number, event.nbytes())
        for number, event in enumerate(events.events())
        if event.name() == "[memory]"
    )
    # The peak is the highest running sum, not the sum of allocations: buffers are reused.
    alive = most = 0
    for _, _, grown in changes:
        alive += grown
        most = max(most, alive)
    return most if changes else None
