"""What every reader of annotations uses: rows, problems, counts, reading ahead.

Rows are buffered by table and appended to the store some ten thousand at a time; problems are kept
as rows, some of each kind, the rest counted.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from audit.annotations.discovery import AnnotationGroup
from audit.records import rows_frame
from audit.run.annotation_tables import ANNOTATION_TABLES
from audit.run.store import Store

ROWS = 50_000


class Sink:
    """Appends rows and frames to the tables of annotations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[Mapping[str, Any]]] = {}

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """Append one row; a column that is absent becomes null."""
        rows = self._waiting.setdefault(table, [])
        rows.append(row)
        if len(rows) >= ROWS:
            self._flush(table)

    def add_frame(self, table: str, frame: pl.DataFrame) -> None:
        """Append a frame whose columns are columns of the table."""
        if frame.height:
            self._store.append(table, frame)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Take all that the `with` block adds, or nothing where it raises."""
        self.finish()
        try:
            with self._store.transaction():
                yield
                self.finish()
        except BaseException:
            self._waiting.clear()
            raise

    def add_problems(self, log: ProblemLog) -> None:
        """Append the problems of a file."""
        for row in log.finished():
            self.add("annotation_problems", row)

    def finish(self) -> None:
        """Append whatever waits."""
        for table in list(self._waiting):
            self._flush(table)

    def _flush(self, table: str) -> None:
        rows: Sequence[Mapping[str, Any]] = self._waiting.pop(table, [])
        if rows:
            self._store.append(table, rows_frame(rows, ANNOTATION_TABLES[table]))


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


@dataclass(slots=True)
class Reading:
    """A group of files while it is read: where rows and problems go, and what was counted.

    `form` says what its four numbers are, such as `xywh px`.
    """

    group: AnnotationGroup
    sink: Sink
    form: str = "unknown"
    objects: int = 0
    not_read: str = ""
    remark: str = ""
    complete: bool = True
    problems: ProblemLog = field(init=False)

    def __post_init__(self) -> None:
        self.problems = ProblemLog(self.group.file)

    def note(
        self, kind: str, detail: str, place: str = "", image_key: str | None = None, count: int = 1
    ) -> None:
        """Keep one problem; `count` is how many it stands for."""
        self.problems.add(kind, detail, place, image_key, count)

    def add(self, table: str, **row: Any) -> None:
        """Append one row of the file; a column that is absent becomes null."""
        self.sink.add(table, {"file": self.group.file, **row})

    def add_frame(self, table: str, frame: pl.DataFrame) -> None:
        """Append rows of the file."""
        self.sink.add_frame(table, frame.with_columns(file=pl.lit(self.group.file)))

    def add_class(
        self, entry: int, key: str | None, label: str | None, *, declared: bool,
        keypoints: Sequence[str] | None = None, parent: str | None = None,
    ) -> None:  # fmt: skip
        """Append a class: whether a file `declared` it, names of keypoints, the class above it."""
        points = json.dumps(keypoints) if keypoints else None
        self.add(
            "categories", category_key=key, label=label, entry=entry, parent=parent,
            declared=declared, keypoints=points,
        )  # fmt: skip


Item = TypeVar("Item")
Result = TypeVar("Result")


def look_ahead(
    items: Iterable[Item], work: Callable[[Item], Result]
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with what `work` makes of it, in order; a thread works on the next one.

    What `work` raises is raised here. It pays where `work` lets go of Python's lock.
    """
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(1) as thread:
        for item in items:
            waiting.append((item, thread.submit(work, item)))
            if len(waiting) > 1:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()
