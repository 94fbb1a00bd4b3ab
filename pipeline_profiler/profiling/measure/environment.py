"""What a figure depends on beside the pipeline: machine, load, versions, numeric flags.

Frameworks are read from sys.modules, never imported here. Missing is None, never 0.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dataset_preflight.foundation.cores import usable_cores
from pipeline_profiler.profiling.record.stage_hooks import network_mounts
from pipeline_profiler.profiling.record.stages import THREAD, Counters

LEAK_BYTES, LEAK_WINDOWS = 16_384, 3  # a step, and windows in a row, from which memory grows
PACKAGES = {"numpy": "numpy", "PIL": "pillow", "cv2": "opencv", "torchvision": "torchvision"}
FIELDS, STEAL, IDLE = 8, 7, (3, 4)  # of the first line of /proc/stat
MAJOR_FAULTS = 9  # of /proc/PID/stat behind the name
BLOCK_BYTES = 512  # in which ended children's reads are counted


def describe(gpu: bool = False) -> dict[str, Any]:
    """The environment as plain data; `gpu`: with torch's GPU, although nothing has used it yet."""
    mounted = sorted(set(network_mounts().values()))
    return {
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "packages": packages(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu_model": _cpu_model(),
        "cores": usable_cores(),
        "cores_of_machine": os.cpu_count(),
        "memory_bytes": _told(lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "load": _told(lambda: os.getloadavg()[0]),
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        **({"network_file_systems": mounted} if mounted else {}),
        **_frameworks(gpu),
    }


def _cpu_model() -> str | None:
    """Return the name of the processor; None where the system does not give it."""
    found = re.search(r"^model name\s*: (.+)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    return found[1] if found else None


def _told(ask: Callable[[], float]) -> float | None:
    """What the system tells; None where it does not."""
    try:
        return ask()
    except (OSError, IndexError, ValueError):
        return None


MIN_THREAD = 0.01  # of the window: CPU time of a thread that is counted by itself


class Meter:
    """Totals of the machine over a run, in ns, beside its steps.

    CPU time of this process, its threads and its children; their time in the run queue; cores
    taken by other programs and the host; bytes and page faults from the block device;
    growth of this process; cores of its workers. Unknown values are absent.
    """

    def __init__(self) -> None:
        self._counters = Counters()
        self._threads = _threads_cpu_ns()
        self._before = self._read()

    def taken(self) -> dict[str, int]:
        """What was taken since the meter was made."""
        after = self._read()
        taken = {k: after[k] - self._before[k] for k in after.keys() & self._before.keys()}
        threads, least = _threads_cpu_ns(), MIN_THREAD * taken["window_ns"]
        used = {name: ns - self._threads.get(name, 0) for name, ns in threads.items()}
        taken |= {name: ns for name, ns in used.items() if ns >= least}
        if "busy_ns" in taken:
            own = taken["own_cpu_ns"] + taken["children_cpu_ns"]
            taken["others_ns"] = max(0, taken.pop("busy_ns") - own)
        return taken | _workers_cores()

    def _read(self) -> dict[str, int]:
        read = {
            "window_ns": time.perf_counter_ns(),
            "own_cpu_ns": time.process_time_ns(),
            "main_cpu_ns": time.thread_time_ns(),
            "own_queued_ns": _queued_ns(),
            **_children(),
        }
        own = resource.getrusage(resource.RUSAGE_SELF)
        own_bytes = self._counters.io()[0]
        read["device_bytes"] += max(0, own_bytes)
        if own_bytes < 0:
            del read["device_bytes"]  # not told: nothing read is another thing
        read["major_faults"] += own.ru_majflt
        read["resident_bytes"] = resident_bytes()
        if (queued := self._counters.queued_ns()) >= 0:
            read["main_queued_ns"] = queued
        # user, nice, system, idle, iowait, irq, softirq, steal of all cores, in clock ticks
        jiffies = [int(word) for word in _read(Path("/proc/stat")).partition("\n")[0].split()[1:]]
        if len(jiffies) >= FIELDS:
            tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
            read["cores_ns"] = sum(jiffies[:FIELDS]) * tick
            read["steal_ns"] = jiffies[STEAL] * tick
            read["idle_ns"] = sum(jiffies[i] for i in IDLE) * tick
            read["busy_ns"] = sum(jiffies[i] for i in range(STEAL) if i not in IDLE) * tick
        return read


def resident_bytes() -> int:
    """Memory that this process holds; 0 where the system does not tell."""
    pages = _read(Path("/proc/self/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0


def growth_notes(grown: Sequence[float]) -> list[str]:
    """Return a sentence if the training process grew in each step (bytes) of each last window."""
    last = grown[-LEAK_WINDOWS:]
    if len(last) < LEAK_WINDOWS or min(last) < max(LEAK_BYTES, max(last) / 4):
        return []
    each = sum(last) / len(last)
    return [
        f"The training process grows by {each / 1e6:.2f} MB in each step, {each / 1e2:,.0f} MB in "
        "10,000 steps: look for what is kept from step to step (losses with their graph, lists, "
        "a cache of samples)."
    ]


def shares_of_cores(taken: Mapping[str, int]) -> dict[str, float]:
    """Other programs', other virtual machines' and idle share of the cores; nothing if unknown."""
    names = {"others_cpu": "others_ns", "steal": "steal_ns", "idle": "idle_ns"}
    whole = taken.get("cores_ns", 0)
    return {k: round(taken[name] / whole, 3) for k, name in names.items()} if whole else {}


def _children() -> dict[str, int]:
    """Return CPU time and reads of the living and the ended children."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, faults = int((ended.ru_utime + ended.ru_stime) * 1e9), ended.ru_majflt
    read_bytes = ended.ru_inblock * BLOCK_BYTES
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in _read(listed).split():
            place = Path("/proc", child)
            cpu += sum(map(_scheduled_ns, place.glob("task/*/schedstat")))
            io = re.search(r"^read_bytes: (\d+)", _read(place / "io"), re.MULTILINE)
            read_bytes += int(io[1]) if io else 0
            stat = _read(place / "stat").rpartition(")")[2].split()
            faults += int(stat[MAJOR_FAULTS]) if len(stat) > MAJOR_FAULTS else 0
    return {"children_cpu_ns": cpu, "device_bytes": read_bytes, "major_faults": faults}


def _workers_cores() -> dict[str, int]:
    """On how many cores this process's workers may run together; {} without any, or unknown."""
    cores: set[int] = set()
    for worker in multiprocessing.active_children():
        with suppress(OSError, AttributeError):
            cores |= os.sched_getaffinity(worker.pid or 0)
    return {"workers_cores": len(cores)} if cores else {}


def _read(path: Path) -> str:
    """The text of a file of /proc; '' where it is gone or hidden."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _scheduled_ns(schedstat: Path) -> int:
    fields = _read(schedstat).split()
    return int(fields[0]) if fields else 0


def _queued_ns() -> int:
    """Return the nanoseconds that the threads of this process waited for a core."""
    fields = (_read(path).split() for path in Path("/proc/self/task").glob("*/schedstat"))
    return sum(int(row[1]) for row in fields if len(row) > 1)


def _threads_cpu_ns() -> dict[str, int]:
    """Return the CPU time of each thread of this process but its main thread."""
    found = {path.parent.name: path for path in Path("/proc/self/task").glob("*/schedstat")}
    found.pop(str(os.getpid()), None)
    return {f"{THREAD}{name}": _scheduled_ns(path) for name, path in found.items()}


def packages() -> dict[str, str]:
    """Versions of what decodes and computes, as far as this process has loaded it."""
    loaded = {name: sys.modules.get(module) for module, name in PACKAGES.items()}
    versions = {name: getattr(module, "__version__", None) for name, module in loaded.items()}
    return {name: str(version) for name, version in versions.items() if version is not None}


def _frameworks(gpu: bool) -> dict[str, Any]:
    versions: dict[str, Any] = {}
    torch = sys.modules.get("torch")
    if torch is not None:
        cuda = gpu or has_cuda()
        versions["torch"] = {
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name() if cuda else "cpu",
            "matmul_tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn_tf32": torch.backends.cudnn.allow_tf32,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            **(_gpu(torch) if cuda else {}),
        }
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        versions["tensorflow"] = {"version": tensorflow.__version__}
    return versions


def _gpu(torch: Any) -> dict[str, Any]:
    free, total = torch.cuda.mem_get_info()
    built, capability = torch.cuda.get_arch_list(), torch.cuda.get_device_capability()
    return {
        "driver": driver_version(),
        "memory_free_bytes": int(free),
        "memory_total_bytes": int(total),
        "capability": ".".join(map(str, capability)),
        "architectures": list(built),
        "architecture_problem": architecture_problem(capability, built),
    }


def driver_version(told: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """NVIDIA's driver, as its kernel module or NVML tells it; None without one."""
    with suppress(OSError):
        if found := re.search(r"\b(\d{3,}\.\d+(?:\.\d+)*)\b", told.read_text()):
            return found[1]
    with suppress(Exception):  # no NVML, or one without a driver
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    return None


def architecture_problem(capability: tuple[int, int], built: Sequence[str]) -> str:
    """Return why this build has no code for a GPU of that compute capability; '' if it has.

    Machine code (sm_) runs on its major version from its minor version on; `a` or `f` binds it to
    that chip or family. PTX (compute_) is compiled for later ones.
    """
    if not built:
        return ""
    for name in built:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if found is None:
            return ""  # another vendor's names: nothing can be said
        kind, has, bound = found[1], (int(found[2]), int(found[3])), found[4]
        same = has == capability if bound == "a" else has <= capability
        if same and (has[0] == capability[0] or (kind == "compute" and not bound)):
            return ""
    return (
        f"this torch has no code for the GPU's architecture, sm_{capability[0]}{capability[1]} "
        f"(only {', '.join(built)}): install a build of torch for it."
    )


def has_cuda() -> bool:
    """True where torch has begun to use a GPU: one that the user's code leaves alone is none."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()
