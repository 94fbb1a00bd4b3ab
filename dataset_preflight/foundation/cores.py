"""Number of usable CPU cores, for both programs."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores() -> int:
    """Return the whole cores this process may use: affinity and CPU quota, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))
