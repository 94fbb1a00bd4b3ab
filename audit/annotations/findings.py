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


# ---- what a detector contradicts ----

_DOUBTS = """
    WITH hits AS (
        SELECT * FROM box_doubts WHERE kind = ? AND probability >= ? AND score <= ?
    ), ranked AS (
        SELECT *, count(*) OVER (PARTITION BY sample_id) AS n, row_number() OVER (
            PARTITION BY sample_id ORDER BY score, probability DESC, predicted_x, entry) AS place
        FROM hits
    )
    SELECT r.*, i.subject, b.line, b.byte, b.annotation_id,
        row_number() OVER (ORDER BY score, probability DESC, sample_id) AS rank
    FROM ranked r JOIN images i ON i.id = r.sample_id
    LEFT JOIN (SELECT DISTINCT ON (file, image_key, entry) file, image_key, entry, line, byte,
        annotation_id FROM boxes SEMI JOIN hits USING (file, image_key, entry)) b
        ON b.file = r.file AND b.image_key = r.image_key AND b.entry = r.entry
    WHERE place = 1 ORDER BY rank
"""


def doubtful_pictures(
    store: Store, kind: str, min_probability: float, max_score: float
) -> Iterator[Row]:
    """Yield one row per picture with doubts of a kind, the most doubtful first: `rank` from 1."""
    yield from store.query(_DOUBTS, [kind, min_probability, max_score]).iter_rows(named=True)


def doubt_finding(code: str, severity: Severity, row: Row, message: str) -> Finding:
    """Return the finding about a picture whose annotations a detector contradicts."""
    more = row["n"] - 1
    also = f" {more:,} more of this picture likewise." if more else ""
    place = entry_place(row) if row["entry"] is not None else str(row["file"])
    names = (
        "rank", "score", "probability", "iou", "label", "predicted_label", "predicted_x",
        "predicted_y", "predicted_width", "predicted_height", "x", "y", "width", "height", "file",
        "entry", "annotation_id",
    )  # fmt: skip
    evidence = {name: row[name] for name in names if row.get(name) is not None}
    return Finding(
        code, severity, (row["sample_id"],), f"{message} ({place}).{also}",
        {**evidence, "boxes": row["n"]}, Action.REVIEW, row["subject"],
    )  # fmt: skip


def placed_text(row: Row, whose: str = "") -> str:
    """Return where a box lies and its size: of the annotation, or of the prediction."""
    x, y, w, h = (px(row[f"{whose}{side}"]) for side in ("x", "y", "width", "height"))
    return f"at ({x}, {y}), {w} x {h} px"


def compared(store: Store, kind: str, min_probability: float) -> str:
    """Return the sentence of how many predictions there were to compare with."""
    facts = dict(store.query("SELECT key, value FROM prediction_facts").iter_rows())
    if not facts:
        return "0 predicted boxes were given (`audit scan --predictions`)."
    rows = store.query(
        "SELECT count(*), count(*) FILTER (WHERE probability >= ?) FROM box_doubts WHERE kind = ?",
        [min_probability, kind],
    ).row(0)
    n, unknown = int(facts["predictions"]), int(facts.get("unknown", 0))
    said = f"{n:,} predicted boxes of {int(facts['pictures']):,} pictures compared"
    said += f", {unknown:,} of pictures that are not listed left out" if unknown else ""
    return f"{said}; {rows[0]:,} disagree in this way, {rows[1]:,} of them with confidence."
