"""A row of the table of runs. Without sqlite3, which some Pythons lack."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

VARIABLE = "PIPELINE_PROFILER_RUNS"


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
