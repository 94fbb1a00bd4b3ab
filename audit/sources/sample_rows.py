"""Samples as columns: what a listing of millions of files yields, without an object for each.

A walk fills the columns folder by folder; a `Sample` is made only for those who ask for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from audit.records import Sample

FIELDS = tuple(one.name for one in fields(Sample))


@dataclass(slots=True)
class SampleRows:
    """Columns of equal length, with the names and in the order of the fields of `Sample`."""

    id: list[str] = field(default_factory=list)
    uri: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    split: list[str | None] = field(default_factory=list)
    label: list[str | None] = field(default_factory=list)
    group: list[str | None] = field(default_factory=list)
    n_bytes: list[int] = field(default_factory=list)
    mtime_ns: list[int] = field(default_factory=list)
    ctime_ns: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> SampleRows:
        """Return samples as columns."""
        return cls(*([getattr(sample, name) for sample in samples] for name in FIELDS))

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.id)

    def columns(self) -> list[list[Any]]:
        """Return the columns in order."""
        return [getattr(self, name) for name in FIELDS]

    def samples(self) -> Iterator[Sample]:
        """Yield the samples one by one."""
        return map(Sample, *self.columns())

    def extend(self, more: SampleRows) -> None:
        """Add the samples of another at the end."""
        for mine, theirs in zip(self.columns(), more.columns(), strict=True):
            mine += theirs


def in_rows(samples: Iterable[Sample], size: int = 1000) -> Iterator[SampleRows]:
    """Yield samples that come one by one as columns, `size` at a time."""
    coming = iter(samples)
    while batch := list(islice(coming, size)):
        yield SampleRows.of(batch)
