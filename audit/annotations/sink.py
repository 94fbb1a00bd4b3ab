"""What every reader of annotations uses: rows, problems, counts, reading ahead.

Rows are appended some ten thousand at a time; problems are rows, some of each kind, or counted.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
        self._waiting.setdefault(table, []).append(row)
        if len(self._waiting[table]) >= ROWS:
            self._flush(table)

    def add_frame(self, table: str, frame: pl.DataFrame) -> None:
        """Append a frame whose columns are columns of the table."""
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

    def finish(self) -> None:
        """Append whatever waits."""
        for table in list(self._waiting):
            self._flush(table)

    def _flush(self, table: str) -> None:
        rows = rows_frame(self._waiting.pop(table), ANNOTATION_TABLES[table])
        self._store.append(table, rows)


MOST = 200  # rows of one kind in one file


class ProblemLog:
    """Problems of one file or group of small files, in order of appearance."""

    def __init__(self, file: str) -> None:
        self.file, self.rows, self._counts = file, list[dict[str, Any]](), Counter[str]()

    def note(
        self, kind: str, detail: str, place: str = "", image_key: str | None = None, count: int = 1
    ) -> None:
        """Add a problem; `count` is how many it stands for."""
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


class Reading(ProblemLog):
    """A group of files while it is read: where rows and problems go, and what was counted."""

    def __init__(self, group: AnnotationGroup, sink: Sink) -> None:
        super().__init__(group.file)
        self.group, self.sink = group, sink
        self.form = "unknown"
        """What the four numbers of a box are, such as `xywh px`."""
        self.objects, self.complete = 0, True
        self.not_read = self.remark = ""

    def add_problems(self) -> None:
        """Append the problems as rows of the file."""
        for row in self.finished():
            self.sink.add("annotation_problems", row)

    def add(self, table: str, **row: Any) -> None:
        """Append one row of the file; a column that is absent becomes null."""
        self.sink.add(table, {"file": self.file, **row})

    def add_frame(self, table: str, frame: pl.DataFrame) -> None:
        """Append rows of the file, a frame whose columns are columns of the table."""
        self.sink.add_frame(table, frame.with_columns(file=pl.lit(self.file)))

    def add_class(
        self, entry: int, key: str | None, label: str | None, *, declared: bool,
        keypoints: Sequence[str] | None = None, parent: str | None = None,
    ) -> None:  # fmt: skip
        """Append a class: whether a file `declared` it, names of keypoints, the class above it."""
        self.add(
            "categories", category_key=key, label=label, entry=entry, parent=parent,
            declared=declared, keypoints=json.dumps(keypoints) if keypoints else None,
        )  # fmt: skip


Item = TypeVar("Item")
Result = TypeVar("Result")


def look_ahead(
    items: Iterable[Item], work: Callable[[Item], Result]
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with `work(item)`, in order, while a thread works on the next item."""
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(1) as thread:
        for item in items:
            waiting.append((item, thread.submit(work, item)))
            if len(waiting) > 1:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()
