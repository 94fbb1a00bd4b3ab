"""Findings about boxes: one per picture, speaking of its worst box, with the place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.records import Action, Evidence, Finding, Severity
from audit.run.store import Store

Row = Mapping[str, Any]
MEMBERS = 1000  # samples named by one finding about a file
# One row per picture: of the rows of `hits` (a box and its `amount`) the one of most amount.
_PER_PICTURE = """
    WITH hits AS ({hits}), ranked AS (
        SELECT *, count(*) OVER (PARTITION BY sample_id) AS n, row_number() OVER (
            PARTITION BY sample_id ORDER BY amount DESC, file, entry) AS place
        FROM hits WHERE sample_id IS NOT NULL
    )
    SELECT r.*, i.subject FROM ranked r JOIN images i ON i.id = r.sample_id
    WHERE place = 1 ORDER BY sample_id
"""


def worst_by_picture(store: Store, hits: str, params: Sequence[Any] = ()) -> Iterator[Row]:
    """Yield one row per picture from SQL that gives boxes with an `amount`: `n`, and the worst."""
    yield from store.query(_PER_PICTURE.format(hits=hits), params).iter_rows(named=True)


def box_finding(
    code: str,
    severity: Severity,
    row: Row,
    message: str,
    evidence: Evidence,
    action: Action = Action.REVIEW,
) -> Finding:
    """Return the finding about a picture; `message` is about its worst box, others are counted."""
    more = row["n"] - 1
    also = (
        f" {more:,} more {'box' if more == 1 else 'boxes'} of this picture likewise."
        if more
        else ""
    )
    return Finding(
        code,
        severity,
        (row["sample_id"],),
        f"{message} ({entry_place(row)}).{also}",
        {**evidence, **_evidence(row), "boxes": row["n"]},
        action,
        row["subject"],
    )


def _evidence(row: Row) -> dict[str, float | int | str]:
    names = ("x", "y", "width", "height", "file", "entry", "line", "byte", "annotation_id")
    return {name: row[name] for name in names if row.get(name) is not None}


def entry_place(row: Row) -> str:
    """Return where an entry is, in words: file, number of the entry, line and byte if known."""
    parts = [str(row["file"])]
    key = row.get("image_key")
    if key and "/" not in str(row["file"]).rpartition(".")[2] and row.get("byte") is None:
        parts.append(str(key))
    if row.get("entry") is not None:
        parts.append(f"entry {row['entry']:,}")
    if row.get("line") is not None:
        parts.append(f"line {row['line']:,}")
    if row.get("byte") is not None:
        parts.append(f"byte {row['byte']:,}")
    return ", ".join(parts)


def box_text(row: Row) -> str:
    """Return a box in words: class, size and place in px."""
    label = row.get("label") or f"class {row.get('category_key')}"
    size = f"{px(row['width'])} x {px(row['height'])} px"
    return f"{label}, {size} at ({px(row['x'])}, {px(row['y'])})"


def px(value: float | None) -> str:
    """Return a number of px, with a digit behind the point where that matters."""
    if value is None:
        return "?"
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def file_finding(
    code: str,
    severity: Severity,
    file: str,
    topic: str,
    message: str,
    evidence: Evidence,
    samples: Sequence[str] = (),
) -> Finding:
    """Return a finding about an annotation file; `topic` tells it from others about the file."""
    return Finding(
        code,
        severity,
        tuple(sorted(set(samples))[:MEMBERS]),
        message,
        {"file": file, **evidence},
        Action.REVIEW,
        f"dataset:{file}/{topic}" if topic else f"dataset:{file}",
    )


def examined(store: Store, judged: str = "TRUE", what: str = "") -> str:
    """Return the sentence of how many boxes were judged; '' where no annotation was read."""
    n_files = store.scalar("SELECT count(*) FROM annotation_files")
    if not n_files:
        return "The source has 0 annotation files that are read."
    total = store.scalar("SELECT count(*) FROM boxes")
    n = store.scalar(f"SELECT count(*) FROM boxes WHERE sample_id IS NOT NULL AND ({judged})")
    return f"{n:,} of {total:,} boxes judged{what}."
