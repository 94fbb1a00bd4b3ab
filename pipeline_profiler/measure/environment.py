"""What a figure depends on beside the pipeline: machine, load, versions, numeric flags.

Frameworks are read from sys.modules, never imported here. Missing is None, never 0.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

from pipeline_profiler.record.cores import usable_cores


def describe() -> dict[str, Any]:
    """The environment as plain data."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": usable_cores(),
        "cores_of_machine": os.cpu_count(),
        "memory_bytes": _memory(),
        "load": _load(),
        "cpu_pressure": _pressure(),
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        **_frameworks(),
    }


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _pressure() -> float | None:
    """Share of the last 10 s in which something waited for a core (Linux PSI)."""
    try:
        line = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
        return float(line.split("avg10=")[1].split()[0]) / 100
    except (OSError, IndexError, ValueError):
        return None


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
        }
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        versions["tensorflow"] = {"version": tensorflow.__version__}
    return versions


def has_cuda() -> bool:
    """True where torch is loaded and sees a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())
