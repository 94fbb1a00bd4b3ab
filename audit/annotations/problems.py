"""What was wrong while annotations were read: kept as rows, some of each kind, the rest counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MOST = 200  # rows of one kind in one file


@dataclass(slots=True)
class ProblemLog:
    """Problems of one file or group of small files, in order of appearance."""

    file: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def add(
        self, kind: str, detail: str, place: str = "", image_key: str | None = None, count: int = 1
    ) -> None:
        """Keep one problem; `count` is how many it stands for."""
        self._counts[kind] += count
        if self._counts[kind] <= MOST or not any(row["kind"] == kind for row in self.rows):
            self.rows.append(
                {
                    "kind": kind, "file": self.file, "image_key": image_key, "place": place,
                    "detail": detail, "more": count - 1,
                }
            )  # fmt: skip

    def finished(self) -> list[dict[str, Any]]:
        """Return the rows; the last of each kind counts those that were left out."""
        last = {row["kind"]: row for row in self.rows}
        for kind, row in last.items():
            listed = sum(1 + r["more"] for r in self.rows if r["kind"] == kind)
            row["more"] += self._counts[kind] - listed
        return self.rows
