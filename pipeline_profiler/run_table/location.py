"""Where the table of runs lies: `--runs FILE`, else the variable, else the folder for user data.

Never in the folder of the user's project by itself: nothing of theirs changes, and one table holds
the studies of all projects side by side. The variable PIPELINE_PROFILER_RUNS names another file, or
is `off`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "PIPELINE_PROFILER_RUNS"
OFF = ("off", "none", "0")


def default_file(environment: Mapping[str, str]) -> Path | None:
    """Where rows go; None where recording is switched off."""
    asked = environment.get(VARIABLE, "").strip()
    if asked.lower() in OFF:
        return None
    if asked:
        return Path(asked)
    home = environment.get("XDG_DATA_HOME", "").strip()
    if not home and os.name == "nt":
        home = environment.get("LOCALAPPDATA", "").strip()
    folder = Path(home) if home else Path(os.path.expanduser("~")) / ".local" / "share"
    return folder / "pipeline-profiler" / "runs.sqlite"
