"""Checks of boxes: one finding per picture about its worst box, or one per annotation file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from audit.checking.check import QueryCheck, asked
from audit.records import Evidence, Finding, Severity
from audit.run.store import Store

Row = Mapping[str, Any]
Rows = Sequence[Row]
MEMBERS = 1000  # samples named by one finding about a file
SOUND = "width > 0 AND height > 0 AND NOT crowd"  # boxes whose size and place can be compared
_PLACE = ("x", "y", "width", "height", "file", "entry", "line", "byte", "annotation_id")
# One row per picture: of the rows of `hits` (a box and its `amount`) the one of most amount.
_PER_PICTURE = """
    WITH worst AS (
        SELECT *, count(*) OVER same AS n FROM ({hits}) WHERE sample_id IS NOT NULL
        WINDOW same AS (PARTITION BY sample_id)
        QUALIFY row_number() OVER (same ORDER BY amount DESC, file, entry) = 1
    )
    SELECT w.*, i.subject FROM worst w JOIN images i ON i.id = w.sample_id ORDER BY sample_id
"""


class BoxCheck(QueryCheck):
    """A check of annotations; it does not apply where no annotation file was read.

    `hits`, in place of `sql`: boxes with an `amount`, of which the worst of a picture is reported.
    `message`, without a full stop, may hold `{box}`. `judged`: boxes that the check examined.
    """

    tables = ("annotation_files",)
    hits: ClassVar[str] = ""
    judged: ClassVar[str] = "TRUE"
    how: ClassVar[str] = ""

    def find(self, store: Store, params: Any) -> Iterator[Finding]:
        """Yield one finding a picture, or a row of `sql`."""
        yield from self.worst(store, params) if self.hits else super().find(store, params)

    def worst(self, store: Store, params: Any, **more: Any) -> Iterator[Finding]:
        """Yield one finding a picture, about the worst of its `hits`; `more` are values of `$`."""
        per_picture = _PER_PICTURE.format(hits=self.hits)
        for row in asked(store, per_picture, params, **more).iter_rows(named=True):
            yield self.about_box(row, self.said(row, params), self.kept(row, params))

    def said(self, row: Row, params: Any) -> str:
        """Return the message of a row, with the words for its box and its place."""
        used = {name: tell(row) for name, tell in _WORDS.items() if f"{{{name}}}" in self.message}
        return self.message.format(**row, params=params, **used)

    def completeness(self, store: Store, params: Any) -> str:
        """Say how many boxes were judged, where nothing else is counted."""
        if self.counts:
            return super().completeness(store, params)
        n = f"count(*) FILTER (WHERE sample_id IS NOT NULL AND ({self.judged}))"
        found = asked(store, f"SELECT {n}, count(*) FROM boxes", params).row(0)
        return "{:,} of {:,} boxes were checked{}.".format(*found, self.how.format(params=params))

    def about_box(self, row: Row, message: str, evidence: Evidence) -> Finding:
        """Return the finding about a picture; `message` is about its worst box, others count."""
        more = row["n"] - 1
        boxes = "box" if more == 1 else "boxes"
        also = f" {more:,} more {boxes} in this image." if more else ""
        place = {name: row[name] for name in _PLACE if row.get(name) is not None}
        return self.finding(
            row["subject"],
            f"{message} ({entry_place(row)}).{also}",
            {**evidence, **place, "boxes": row["n"]},
            (row["sample_id"],),
        )

    def about_file(
        self,
        file: str,
        topic: str,
        message: str,
        evidence: Evidence,
        samples: Sequence[str] = (),
        severity: Severity | None = None,
    ) -> Finding:
        """Return a finding about an annotation file; `topic` tells it from others about it."""
        return self.finding(
            f"dataset:{file}/{topic}" if topic else f"dataset:{file}",
            message,
            {"file": file, **evidence},
            sorted(set(samples))[:MEMBERS],
            severity=severity,
        )


def entry_place(row: Row) -> str:
    """Return where an entry is, in words: file, number of the entry, line and byte if known."""
    parts = [str(row["file"])]
    key = row.get("image_key")
    if key and "/" not in str(row["file"]).rpartition(".")[2] and row.get("byte") is None:
        parts.append(str(key))
    named = ((name, row.get(name)) for name in ("entry", "line", "byte"))
    return ", ".join(parts + [f"{name} {at:,}" for name, at in named if at is not None])


def box_text(row: Row) -> str:
    """Return a box in words: class, size and place in px."""
    size = f"{px(row['width'])} x {px(row['height'])} px"
    return f"{class_text(row)}, {size} at ({px(row['x'])}, {px(row['y'])})"


def class_text(row: Row) -> str:
    """Return the class of a box in words: its name, or its number where it has none."""
    return str(row.get("label") or f"class {row.get('category_key')}")


def px(value: float | None) -> str:
    """Return a number of px, with a digit behind the point where that matters."""
    if value is None:
        return "?"
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


_WORDS = {"box": box_text, "place": entry_place}
