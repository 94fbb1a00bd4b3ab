"""What a reader met besides samples: files left out, class folders, notes for the user.

Memory stays flat: left-out files are counted by reason and extension with one example each, and
notes of one kind stop at a limit and end with how many more there were.
"""

from __future__ import annotations

from collections import Counter

from audit.records import SkippedFiles, sample_id

NOTES_PER_KIND = 1000
Note = tuple[str, str | None, str]


class ReadLog:
    """Counts and notes of one pass over a source."""

    def __init__(self) -> None:
        """Start at zero."""
        self._skipped: dict[tuple[str, str], int] = {}
        self._examples: dict[tuple[str, str], str] = {}
        self._notes: list[Note] = []
        self._kinds: Counter[str] = Counter()
        self._classes: dict[tuple[str | None, str], None] = {}

    def skip(self, reason: str, extension: str, relative: str, source: str = "") -> None:
        """Count one file that is not a sample; the first of its kind is the example."""
        key = (reason, extension)
        self._skipped[key] = self._skipped.get(key, 0) + 1
        if key not in self._examples:
            self._examples[key] = sample_id(relative, source)

    def note(self, kind: str, sample: str | None, message: str) -> None:
        """Keep a note, one sentence; beyond 1,000 of a kind only their number."""
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
        return [
            SkippedFiles(reason, extension, count, self._examples[reason, extension])
            for (reason, extension), count in ordered
        ]

    @property
    def declared_classes(self) -> list[tuple[str | None, str]]:
        """(split, label) of every class folder, in order of appearance."""
        return list(self._classes)

    @property
    def notes(self) -> list[Note]:
        """(kind, sample id, message), in order of appearance, then how many exceeded the limit."""
        more = [
            (
                kind,
                None,
                f"{count - NOTES_PER_KIND:,} more notes of the kind {kind} are not listed.",
            )
            for kind, count in self._kinds.items()
            if count > NOTES_PER_KIND
        ]
        return [*self._notes, *more]
