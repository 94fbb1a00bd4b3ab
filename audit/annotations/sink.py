"""Where readers put rows: buffered by table, appended to the store some ten thousand at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from audit.annotations.problems import ProblemLog
from audit.records import arrow_schema, arrow_table
from audit.run.annotation_tables import ANNOTATION_TABLES
from audit.run.store import Store

ROWS = 50_000


class Sink:
    """Appends rows and frames to the tables of annotations."""

    def __init__(self, store: Store) -> None:
        """Start with nothing waiting."""
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
        """Take all that the `with` block adds, or nothing where it raises.

        In one transaction, which also costs a third: outside of one, each chunk goes to the log
        before it goes to its table.
        """
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
            schema = arrow_schema(ANNOTATION_TABLES[table])
            self._store.append(table, arrow_table(rows, schema))
