"""One row of the table of runs, and where the table lies.

`[record] file`, else PIPELINE_PROFILER_RUNS (or `off`), else the user data folder: one table for
all projects, and none in theirs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class RunOutcome:
    """The part of a row that depends on the command; `trials`: settings, cells or checks tried."""

    verdict: str
    trials: int | None = None
    metric: str = ""
    value: float | None = None
    file: str = ""  # of the session or the document


@dataclass(frozen=True)
class RunRow:
    """A recorded run; unknown texts are empty and unknown numbers None.

    `id` is 0 until written; `time`: ISO 8601 in UTC. Lists have the number of diff lines alone.
    """

    time: str
    command: str
    study: str = ""
    verdict: str = ""
    metric: str = ""
    value: float | None = None
    trials: int | None = None
    note: str = ""
    file: str = ""
    config: str = ""
    git_commit: str = ""
    git_diff: str = ""
    id: int = 0
    git_diff_lines: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, the id first."""
        data = asdict(self)
        return {"id": data.pop("id"), **data}
