"""Rows chosen, sorted and written: the table of `pipeline-profiler runs`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline_profiler.record.errors import ProfileError
from pipeline_profiler.run_table.row import RunRow

RUNS_SCHEMA = "runs/1"
SORTS = ("time", "study", "command", "verdict", "value", "trials", "seconds")
SHOWN = ("id", "time", "study", "command", "verdict", "trials", "best", "note", "file")
WIDEST = {"study": 18, "verdict": 20, "best": 30, "note": 32, "file": 32}
EMPTY = "No run is recorded yet: each measurement and run of checks adds a row."


@dataclass(frozen=True)
class Filter:
    """Which rows: texts compare without case, and a part of the verdict is enough."""

    study: str = ""
    command: str = ""
    verdict: str = ""

    def keeps(self, row: RunRow) -> bool:
        """Whether a row is wanted."""
        fits = (
            not self.study or row.study.lower() == self.study.lower(),
            not self.command or row.command.lower() == self.command.lower(),
            self.verdict.lower() in row.verdict.lower(),
        )
        return all(fits)


def sort_rows(rows: Iterable[RunRow], by: str = "time", reverse: bool = False) -> list[RunRow]:
    """Sorted by a column, rows without a value last; ProfileError for an unknown column."""
    if by not in SORTS:
        raise ProfileError(f"--sort takes one of {', '.join(SORTS)}, not '{by}'.")
    rows = list(rows)
    known = [row for row in rows if getattr(row, by) not in (None, "")]
    known.sort(key=lambda row: (getattr(row, by), row.id), reverse=reverse)
    return known + [row for row in rows if getattr(row, by) in (None, "")]


def rows_json(rows: Sequence[RunRow], file: str) -> str:
    """The document `runs/1`; diffs are left out (a single row has its own)."""
    document = {
        "schema": RUNS_SCHEMA,
        "generator": "pipeline-profiler",
        "file": file,
        "runs": [without_diff(row) for row in rows],
    }
    return json.dumps(document, indent=1, allow_nan=False)


def without_diff(row: RunRow) -> dict[str, object]:
    """A row as plain data, with the number of lines of its diff."""
    data = row.as_dict()
    del data["git_diff"]
    return data


def rows_text(rows: Sequence[RunRow]) -> str:
    """A table for a terminal."""
    if not rows:
        return EMPTY
    cells = [SHOWN, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(SHOWN))]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _cells(row: RunRow) -> tuple[str, ...]:
    trials = "" if row.trials is None else str(row.trials)
    short = row.time[:16].replace("T", " ")
    texts = (
        str(row.id), short, row.study, row.command, row.verdict, trials, best_figure(row),
        row.note, row.file,
    )  # fmt: skip
    return tuple(_cell(column, text) for column, text in zip(SHOWN, texts, strict=True))


def best_figure(row: RunRow) -> str:
    """`metric value`, such as `stall share 0.31`."""
    return "" if row.value is None else f"{row.metric} {row.value:.4g}".strip()


def _cell(column: str, text: str) -> str:
    """One line; long paths lose their head, other texts their tail."""
    text, most = " ".join(text.split()), WIDEST.get(column, 1000)
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if column == "file" else f"{text[: most - 1]}…"


def row_text(row: RunRow) -> str:
    """Everything of one row, its diff at the end."""
    data = row.as_dict()
    diff = str(data.pop("git_diff"))
    rows = [(name, value) for name, value in data.items() if value not in ("", None)]
    width = max(len(name) for name, _ in rows)
    lines = [
        f"{name.replace('_', ' '):<{width}}  " + str(value).replace("\n", "\n" + " " * (width + 2))
        for name, value in rows
    ]
    return "\n".join([*lines, "", diff.rstrip() or "No uncommitted changes are recorded."])
