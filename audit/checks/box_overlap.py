"""BOX004, BOX006, BOX010: pairs of boxes that cover one object, or lie inside each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from audit.annotations.box_pairs import MOST_NEXT, MOST_PAIRS, sweep
from audit.checking.boxes import SOUND, BoxCheck, Row, box_text, px
from audit.records import Finding, Severity
from audit.run.store import Store

_WIDE = "(least(a.x + a.width, b.x + b.width) - greatest(a.x, b.x))"
_HIGH = "(least(a.y + a.height, b.y + b.height) - greatest(a.y, b.y))"
_BOTH = f"{_WIDE} * {_HIGH}"
_UNION = f"(a.width * a.height + b.width * b.height - {_BOTH})"

# Each pair once: `a` is the later entry, whose columns are those of the row.
PAIRS = f"""
    SELECT a.*, b.entry AS other_entry, b.category_key AS other_key, b.label AS other_label,
        {_BOTH} / {_UNION} AS iou, c.one_class
    FROM close_pairs c JOIN boxes a ON a.rowid = c.a JOIN boxes b ON b.rowid = c.b
    WHERE {_BOTH} >= 0.5 * {_UNION}
"""
# `a` lies inside `b`: `inside` is the share of a's area that b covers.
NESTED = f"""
    SELECT a.*, b.entry AS other_entry, b.width AS other_width, b.height AS other_height,
        {_BOTH} / (a.width * a.height) AS inside, {_BOTH} / {_UNION} AS iou
    FROM (SELECT a, b FROM close_pairs WHERE one_class
        UNION ALL SELECT b, a FROM close_pairs WHERE one_class) c
    JOIN boxes a ON a.rowid = c.a JOIN boxes b ON b.rowid = c.b
    WHERE a.category_key IS NOT NULL AND a.width * a.height < b.width * b.height
        AND {_BOTH} >= 0.9 * a.width * a.height
"""


_BOXES = """
    SELECT rowid AS row, entry, category_key, x AS x0, y AS y0, x + width AS x1, y + height AS y1,
        dense_rank() OVER (ORDER BY sample_id, file, image_key) AS picture
    FROM boxes WHERE sample_id IS NOT NULL AND width > 0 AND height > 0 AND NOT crowd
        AND isfinite(x) AND isfinite(y) AND isfinite(width) AND isfinite(height)
    ORDER BY picture, y0, entry
"""


@dataclass(frozen=True, slots=True)
class ClosePairs:
    """Pairs of boxes by the `rowid` of their rows, `a` the later entry; each pair once. `one_class`
    stands with the pair: joined by their class, boxes would meet that are no pair, n x n of them.

    `compared` boxes in all, `limited` of which were compared with `MOST_NEXT` others only, or have
    more pairs than are kept.
    """

    pairs: pl.DataFrame
    compared: int
    limited: int


def close_pairs(store: Store) -> ClosePairs:
    """Return the pairs of one picture and file with an IoU of 0.5, or 0.9 of the smaller inside."""
    frame = store.query(_BOXES)
    corners = frame.select("x0", "y0", "x1", "y1").to_numpy().astype(np.float64)
    lengths = frame["picture"].rle().struct.field("len").to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    codes = frame["category_key"].fill_null("").rank("dense").to_numpy().astype(np.int64)
    first, second, limited = sweep(corners, offsets, codes)
    rows, entries = (frame[name].to_numpy() for name in ("row", "entry"))
    later = entries[first] > entries[second]
    a, b = np.where(later, first, second), np.where(later, second, first)
    pairs = {"a": rows[a], "b": rows[b], "one_class": codes[a] == codes[b]}
    return ClosePairs(pl.DataFrame(pairs), frame.height, limited)


class _Pairs(BoxCheck):
    judged = SOUND
    how = " and compared with each other"

    def worst(self, store: Store, params: Any, **more: Any) -> Iterator[Finding]:
        """Yield one finding a picture, from the pairs that a sweep has found."""
        with store.frame_as("close_pairs", store.share(close_pairs).pairs):
            yield from list(super().worst(store, params, **more))

    def completeness(self, store: Store, params: Any) -> str:
        """Say how many boxes were compared, and of how many not with all others."""
        said, found = super().completeness(store, params), store.share(close_pairs)
        if not found.limited:
            return said
        return (
            f"{said} {found.limited:,} boxes with many overlaps were compared with the next "
            f"{MOST_NEXT:,} boxes only, and at most {MOST_PAIRS} pairs of each are counted."
        )


class DuplicateBox(_Pairs):
    """Pairs of boxes of one class that cover the same object.

    ## What it does
    Compares the boxes of each image, class and file. A pair is reported if its overlap
    (intersection over union) is at least `min_iou`. From `min_near`, a pair is reported if such
    overlaps are rare: once, or in at most `max_share` of the boxes of the class. It is also
    reported if overlaps of `min_less` to `min_near` are much rarer, because neighbouring objects
    overlap little more often than much.

    ## Why is this bad
    The object counts twice in training. In evaluation one of the two boxes is always missed,
    because non-maximum suppression keeps one detection.

    ## Example
    A box was pasted twice: same class, same four numbers.

    ## What to do
    Drop the box that fits its object less well.

    ## Limits
    Two real objects of one class can overlap this much, but rarely do, even in crowds. Crowd
    regions are not checked. BOX006 compares boxes of different classes.
    """

    code = "BOX004"
    name = "duplicate-box"
    severity = Severity.ERROR

    @dataclass(frozen=True)
    class Params:
        """min_iou: overlap from which two boxes of one class count as one object, 0..1
        min_near: overlap from which they count as one object if such overlaps are rare, 0..1
        max_share: share of the boxes of the class up to which an overlap is rare, 0..1
        min_less: overlap from which pairs of neighbouring objects are counted, 0..1
        spare: number of pairs added to that count
        """

        min_iou: float = 0.9
        min_near: float = 0.8
        max_share: float = 0.02
        min_less: float = 0.6
        spare: int = 1

    hits = f"""
        WITH pairs AS MATERIALIZED (
            SELECT *, iou < $min_iou AS near FROM ({PAIRS}) WHERE one_class
        ), often AS (
            SELECT file, category_key, count(*) FILTER (WHERE near AND iou >= $min_near) AS times,
                count(*) FILTER (WHERE iou BETWEEN $min_less AND $min_near) AS less
            FROM pairs GROUP BY file, category_key
        ), usual AS (
            SELECT o.file, o.category_key FROM often o JOIN boxes b
                ON b.file = o.file AND b.category_key IS NOT DISTINCT FROM o.category_key
            GROUP BY ALL HAVING any_value(o.times) > greatest(1, $max_share * count(*))
                AND any_value(o.times) <= 2 * (any_value(o.less) + $spare)
        )
        SELECT p.*, iou AS amount, CASE WHEN iou > 0.9999 THEN 'the same as'
            ELSE printf('%.0f%% one with', 100 * iou) END AS same
        FROM pairs p WHERE iou >= $min_near AND (NOT near OR NOT EXISTS (SELECT 1 FROM usual u
            WHERE u.file = p.file AND u.category_key IS NOT DISTINCT FROM p.category_key))
    """
    message = "A box ({box}) is {same} entry {other_entry:,} of the same class"
    evidence = ("iou", "other_entry")


class BoxOfTwoClasses(_Pairs):
    """Pairs of boxes of different classes that cover the same object.

    ## What it does
    Reports two boxes of different classes in one image and file whose overlap (intersection over
    union) is at least `min_iou`. The two classes must overlap rarely: once, or in at most
    `max_share` of the boxes of the rarer class.

    ## Why is this bad
    One of the two labels is wrong, so every prediction counts as an error for one of the boxes.

    ## Example
    Two people annotated one image; the same dog is `dog` and `wolf`.

    ## What to do
    Decide on the class, and drop the other box.

    ## Limits
    Classes that coincide often (person and rider, a part and its whole) are a convention of the
    dataset, and are not reported.
    """

    code = "BOX006"
    name = "box-of-two-classes"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_iou: overlap from which two boxes are one object, 0..1
        max_share: share of the boxes of the rarer class up to which an overlap is rare
        """

        min_iou: float = 0.9
        max_share: float = 0.02

    hits = f"""
        WITH pairs AS MATERIALIZED (
            SELECT *, least(category_key, other_key) || chr(31) ||
                greatest(category_key, other_key) AS both FROM ({PAIRS})
            WHERE category_key <> other_key AND iou >= $min_iou
        ), sizes AS (
            SELECT file, category_key, count(*) AS n FROM boxes GROUP BY file, category_key
        ), often AS (
            SELECT p.file, p.both, count(*) AS times, min(least(s.n, t.n)) AS rarer FROM pairs p
            JOIN sizes s ON s.file = p.file AND s.category_key = p.category_key
            JOIN sizes t ON t.file = p.file AND t.category_key = p.other_key
            GROUP BY p.file, p.both
        )
        SELECT p.*, p.iou AS amount, o.times,
            coalesce(nullif(p.other_label, ''), 'class ' || p.other_key) AS other_class
        FROM pairs p JOIN often o ON o.file = p.file AND o.both = p.both
        WHERE o.times <= greatest(1, $max_share * o.rarer)
    """
    message = (
        "A box ({box}) overlaps a box of {other_class} by {iou:.0%} (entry {other_entry:,}; such "
        "pairs in this file: {times:,})"
    )
    evidence = ("iou", "other_class", "times")


class NestedBox(_Pairs):
    """Boxes inside a larger box of the same class, if the class has few of them.

    ## What it does
    Reports a box if at least `min_inside` of it lies in a larger box of its class and file. The
    class must have one such box, or at most `max_times` and at most `max_share` of its boxes.

    ## Why is this bad
    Often the smaller box is a part of the object (a person's head), or the larger box is a group.
    The class then has two meanings.

    ## Example
    A box around a raccoon and another around its face, both called raccoon.

    ## What to do
    Compare the two boxes; drop the box that is not one whole object.

    ## Limits
    Objects can occlude each other. Classes with many nested boxes (crowded scenes) are not
    reported.
    """

    code = "BOX010"
    name = "nested-box"
    severity = Severity.INFO

    @dataclass(frozen=True)
    class Params:
        """min_inside: share of a box's area that lies in the other, 0..1
        max_share: share of the boxes of a class up to which nesting is rare
        max_times: and at most this many in the class; large classes have more by chance
        """

        min_inside: float = 0.98
        max_share: float = 0.02
        max_times: int = 3

    hits = f"""
        WITH nested AS MATERIALIZED (
            SELECT * FROM ({NESTED}) WHERE inside >= $min_inside AND iou < 0.9
            QUALIFY row_number() OVER (
                PARTITION BY file, sample_id, entry ORDER BY other_entry) = 1
        ), sizes AS (
            SELECT file, category_key, count(*) AS boxes FROM boxes GROUP BY file, category_key
        ), often AS (
            SELECT file, category_key, count(*) AS times FROM nested GROUP BY file, category_key
        )
        SELECT n.*, n.inside AS amount, o.times, s.boxes AS of_class FROM nested n
        JOIN sizes s ON s.file = n.file AND s.category_key = n.category_key
        JOIN often o ON o.file = n.file AND o.category_key = n.category_key
        WHERE o.times <= greatest(1, $max_share * s.boxes) AND o.times <= $max_times
    """
    evidence = ("inside", "other_entry")

    def said(self, row: Row, params: Any) -> str:
        return (
            f"A box ({box_text(row)}) is inside a larger box of its class "
            f"({px(row['other_width'])} x {px(row['other_height'])} px, entry "
            f"{row['other_entry']:,}); {row['times']:,} of {row['of_class']:,} boxes of the class "
            "are nested"
        )
