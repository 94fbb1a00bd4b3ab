"""One row of the table of runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class RunOutcome:
    """What a command found: the part of a row that depends on the command.

    trials: settings, cells or checks that were tried; `metric` names `value` with its unit.
    """

    verdict: str
    sentence: str = ""
    trials: int | None = None
    metric: str = ""
    value: float | None = None
    file: str = ""  # of the session or the document


@dataclass(frozen=True)
class RunRow:
    """A recorded run; texts are empty and numbers None where nothing is known.

    `id` is 0 until the row is written; `time` is ISO 8601 in UTC, of the start. A list of rows
    has the number of lines of each diff, one row alone has the diff itself.
    """

    time: str
    command: str
    study: str = ""
    verdict: str = ""
    metric: str = ""
    value: float | None = None
    trials: int | None = None
    note: str = ""
    sentence: str = ""
    file: str = ""
    config: str = ""
    command_line: str = ""
    folder: str = ""
    git_commit: str = ""
    git_branch: str = ""
    git_diff: str = ""
    tracker_run: str = ""
    seconds: float | None = None
    exit_code: int | None = None
    version: str = ""
    id: int = 0
    git_diff_lines: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, the id first."""
        data = asdict(self)
        return {"id": data.pop("id"), **data}
