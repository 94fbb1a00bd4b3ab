"""BOX016: outlines that cross themselves."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import entry_place
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

RING = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0, "kind": "polygon", "part": 0,
        "n_points": 12, "crossings": 0, "area": 900.0}  # fmt: skip


class CrossedOutline(Check):
    """Polygons of which two sides cross.

    ## What it does
    Compares all pairs of sides of each ring of a polygon, and flags rings in which two sides that
    are no neighbours cross each other.

    ## Why is this bad
    What is inside such a ring depends on the reader: one fills by the even-odd rule, another by
    winding number, a third repairs the ring and drops a part. The mask is not what was drawn.

    ## Example
    The last two corners were clicked in the wrong order: the outline looks like a bow tie.

    ## What to do
    Draw the outline again, or exchange the corners.

    ## Limits
    Rings that only touch themselves are not flagged; rings above 3,000 points are not examined.

    ## References
    OGC Simple Features: a polygon's rings are simple.
    """

    code = "BOX016"
    name = "crossed-outline"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    CLEAN = (
        Case("a simple ring", [{}], tables=boxed({}, annotation_shapes=[RING])),
        Case(
            "not counted", [{}], tables=boxed({}, annotation_shapes=[{**RING, "crossings": None}])
        ),
    )
    DIRTY = (
        Case(
            "a bow tie",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotation_shapes=[{**RING, "crossings": 1}]),
        ),
        Case(
            "the second ring",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotation_shapes=[RING, {**RING, "part": 1, "crossings": 3}]),
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a picture."""
        sql = """
            WITH crossed AS (
                SELECT b.sample_id, b.label, b.category_key, s.file, s.entry, b.line, b.byte,
                    b.image_key, s.crossings, s.n_points,
                    count(*) OVER (PARTITION BY b.sample_id) AS n,
                    row_number() OVER (PARTITION BY b.sample_id
                        ORDER BY s.crossings DESC, s.file, s.entry, s.part) AS place
                FROM annotation_shapes s JOIN boxes b
                    ON b.file = s.file AND b.image_key = s.image_key AND b.entry = s.entry
                WHERE s.crossings > 0 AND b.sample_id IS NOT NULL
            )
            SELECT c.*, i.subject FROM crossed c JOIN images i ON i.id = c.sample_id
            WHERE place = 1 ORDER BY sample_id
        """
        for row in store.query(sql).iter_rows(named=True):
            label = row["label"] or f"class {row['category_key']}"
            yield Finding(
                self.code,
                self.severity,
                (row["sample_id"],),
                f"The outline of {label} ({entry_place(row)}) crosses itself {row['crossings']:,} "
                f"times over {row['n_points']:,} points; {row['n']:,} outlines of this picture do.",
                {"crossings": row["crossings"], "points": row["n_points"], "outlines": row["n"],
                 "file": row["file"], "entry": row["entry"]},
                Action.REVIEW,
                row["subject"],
            )  # fmt: skip

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many rings were examined."""
        n, counted = store.query(
            "SELECT count(*), count(crossings) FROM annotation_shapes WHERE kind = 'polygon'"
        ).row(0)
        return f"{counted:,} of {n:,} rings of polygons examined."
