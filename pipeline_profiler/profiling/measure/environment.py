"""What a figure depends on beside the pipeline: machine, load, versions, numeric flags.

Frameworks are read from sys.modules, never imported here. Missing is None, never 0.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline_profiler.profiling.record.stage_hooks import network_mounts
from preflight.cores import usable_cores

PACKAGES = {"numpy": "numpy", "PIL": "pillow", "cv2": "opencv", "torchvision": "torchvision"}
FIELDS, STEAL, IDLE = 8, 7, (3, 4)  # of the first line of /proc/stat


def describe() -> dict[str, Any]:
    """The environment as plain data."""
    mounted = sorted(set(network_mounts().values()))
    return {
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "packages": packages(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": usable_cores(),
        "cores_of_machine": os.cpu_count(),
        "memory_bytes": _told(lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "load": _told(lambda: os.getloadavg()[0]),
        "cpu_pressure": _told(_pressure),
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        **({"network_file_systems": mounted} if mounted else {}),
        **_frameworks(),
    }


def _told(ask: Callable[[], float]) -> float | None:
    """What the system tells; None where it does not."""
    try:
        return ask()
    except (OSError, IndexError, ValueError):
        return None


def _pressure() -> float:
    """Share of the last 10 s in which something waited for a core (Linux PSI)."""
    line = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
    return float(line.split("avg10=")[1].split()[0]) / 100


class Neighbours:
    """What other programs, and the host behind a virtual machine, take of the cores meanwhile."""

    def __init__(self) -> None:
        self._begin = _jiffies(), _own_ticks()

    def taken(self) -> dict[str, float]:
        """Shares of the machine's cores since the beginning; nothing where Linux does not tell."""
        (before, own_before), after, own = self._begin, _jiffies(), _own_ticks()
        if len(before) < FIELDS or len(after) < FIELDS:
            return {}
        spent = [b - a for a, b in zip(before, after, strict=False)][:FIELDS]
        total, steal = max(1, sum(spent)), spent[STEAL]
        busy = sum(spent[i] for i in range(STEAL) if i not in IDLE)
        others = max(0.0, busy - (own - own_before)) / total
        idle = sum(spent[i] for i in IDLE) / total
        shares = {"others_cpu": others, "steal": steal / total, "idle": idle}
        return {name: round(share, 3) for name, share in shares.items()}


def _jiffies() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all cores, in clock ticks."""
    try:
        return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return []


def _own_ticks() -> float:
    """CPU time of this process, its living children and those that have ended, in clock ticks."""
    ticks = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            ticks += sum(_ticks_of(int(child)) for child in task.read_text().split())
    return ticks


def _ticks_of(pid: int) -> int:
    """CPU time of a child and of what it has waited for, in clock ticks; 0 when it is gone."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, after_name[11:15]))
    except (OSError, ValueError):
        return 0


def packages() -> dict[str, str]:
    """Versions of what decodes and computes, as far as this process has loaded it."""
    loaded = {name: sys.modules.get(module) for module, name in PACKAGES.items()}
    versions = {name: getattr(module, "__version__", None) for name, module in loaded.items()}
    return {name: str(version) for name, version in versions.items() if version is not None}


def _frameworks() -> dict[str, Any]:
    versions: dict[str, Any] = {}
    torch = sys.modules.get("torch")
    if torch is not None:
        cuda = torch.cuda.is_available()
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
    """The card, its driver and its memory now, and whether torch was built for it."""
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
    """Why this build has no code for a GPU of that compute capability; '' where it has.

    Machine code (sm_) runs on its own major version from its minor version on; an `a` or `f` at its
    end binds it to that very chip or family. PTX (compute_) is compiled for any later one.
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
    """True where torch is loaded and sees a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())
