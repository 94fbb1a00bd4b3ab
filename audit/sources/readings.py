"""What a reader gives: samples as columns, and what it met besides them.

A listing of millions of files fills columns; a `Sample` is made only on request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

from audit.records import Sample, SkippedFiles, sample_id


@dataclass(frozen=True, slots=True)
class Given:
    """A root as the user gave it: where it is, how it is read, and what below it is left out.

    `split` is a fixed split for all of it, over those of its folders if `split_wins`; `exclude` are
    globs; `ignore` are folders of no dataset; `roots` maps old prefixes of paths to new ones.
    """

    path: str
    name: str = ""
    split: str | None = None
    split_wins: bool = True
    layout: str | None = None
    exclude: Sequence[str] = ()
    ignore: Sequence[Path] = ()
    roots: Mapping[str, str] = field(default_factory=dict)
    one_hot: str = ""


NOTES_PER_KIND = 1000
Note = tuple[str, str | None, str]


class ReadLog:
    """Counts and notes of one pass over a source."""

    def __init__(self) -> None:
        self._skipped = Counter[tuple[str, str]]()
        self._examples: dict[tuple[str, str], str] = {}
        self._notes: list[Note] = []
        self._kinds: Counter[str] = Counter()
        self._classes: dict[tuple[str | None, str], None] = {}

    def skip(self, reason: str, extension: str, relative: str, source: str = "") -> None:
        """Count one file that is not a sample; the first of its kind is the example."""
        key = (reason, extension)
        self._skipped[key] += 1
        if key not in self._examples:
            self._examples[key] = sample_id(relative, source)

    def note(self, kind: str, message: str, sample: str | None = None) -> None:
        """Add a note, a sentence; beyond 1,000 of a kind only their number."""
        self._kinds[kind] += 1
        if self._kinds[kind] <= NOTES_PER_KIND:
            self._notes.append((kind, sample, message))

    def declare(self, split: str | None, label: str) -> None:
        """Remember that a class exists in a split, with or without images."""
        self._classes[(split, label)] = None

    @property
    def skipped(self) -> list[SkippedFiles]:
        """Files left out, by reason and extension, the most frequent first."""
        ordered = sorted(self._skipped.items(), key=lambda item: (-item[1], item[0]))
        return [SkippedFiles(*key, count, self._examples[key]) for key, count in ordered]

    @property
    def declared_classes(self) -> list[tuple[str | None, str]]:
        """(split, label) of every class folder, in order of appearance."""
        return list(self._classes)

    @property
    def notes(self) -> list[Note]:
        """(kind, sample id, message), in order of appearance, then how many exceeded the limit."""
        over = {kind: n - NOTES_PER_KIND for kind, n in self._kinds.items() if n > NOTES_PER_KIND}
        sentence = "{:,} more notes of the kind {} are not listed."
        return [*self._notes, *((kind, None, sentence.format(n, kind)) for kind, n in over.items())]


FIELDS = tuple(column.name for column in fields(Sample))


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


class ReadingError(Exception):
    """A picture whose bytes cannot be had: `kind` is an error kind of the table `features`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
