"""BOX019, BOX020: keypoints that cannot be, and skeletons whose left and right are exchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit.checking.boxes import BoxCheck, Row, entry_place
from audit.checking.check import NoParams
from audit.records import Finding, Severity
from audit.run.store import Store

# Per object; px in the frame of the annotation file, `names` JSON or null.
_KEYPOINTS = """
    WITH placed AS (
        SELECT s.points, s.file, s.image_key, s.entry, b.line, b.byte, b.sample_id, b.label,
            b.category_key, i.subject, c.keypoints AS names, a.n_keypoints,
            ends_with(coalesce(f.reading, f.form), ' share') <> coalesce(b.other_unit, false)
                AS in_shares,
            f.frame = 'stored' AND i.orientation > 1 AS is_stored,
            f.frame = 'stored' AND i.orientation >= 5 AS sides_stored,
            coalesce(b.picture_width, b.declared_width) AS shown_width,
            coalesce(b.picture_height, b.declared_height) AS shown_height,
            CASE WHEN sides_stored THEN shown_height ELSE shown_width END AS w0,
            CASE WHEN sides_stored THEN shown_width ELSE shown_height END AS h0,
            CASE WHEN is_stored THEN b.stored_x ELSE b.x END AS x,
            CASE WHEN is_stored THEN b.stored_y ELSE b.y END AS y,
            CASE WHEN is_stored THEN b.stored_width ELSE b.width END AS width,
            CASE WHEN is_stored THEN b.stored_height ELSE b.height END AS height
        FROM annotation_shapes s JOIN boxes b USING (file, image_key, entry)
        JOIN annotation_files f ON f.file = s.file
        JOIN images i ON i.id = b.sample_id
        LEFT JOIN annotations a USING (file, image_key, entry)
        LEFT JOIN (SELECT file, category_key, any_value(keypoints) AS keypoints FROM categories
            GROUP BY file, category_key) c ON c.file = b.file AND c.category_key = b.category_key
        WHERE s.kind = 'keypoints'
    )
    SELECT * REPLACE (CASE WHEN in_shares THEN list_transform(points, lambda v, i:
        v * CASE i % 3 WHEN 1 THEN w0 WHEN 2 THEN h0 ELSE 1 END) ELSE points END AS points)
    FROM placed WHERE {where} ORDER BY sample_id, file, entry
"""


class WrongKeypoints(BoxCheck):
    """Invalid keypoints: outside the image, all outside their box, or miscounted.

    ## What it does
    Reports labelled keypoints outside the image, and skeletons whose labelled keypoints are all
    outside their box. Also reports visibilities other than 0, 1, 2, lists whose length is not three
    times the number of names, and a wrong `num_keypoints`.

    ## Why is this bad
    The heat map of a point outside is empty or in the wrong cell. A wrong count drops the object
    from the evaluation.

    ## Example
    A left ankle at (655, 471) in an image 640 px wide.

    ## What to do
    Mark the point again, or set its visibility to 0.

    ## Limits
    Points up to 1 px outside count as rounding. Points on the wrong limb are not detected; BOX020
    compares left and right.
    """

    code = "BOX019"
    name = "wrong-keypoints"
    severity = Severity.WARNING

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        last = None
        for row in store.query(_KEYPOINTS.format(where="TRUE")).iter_rows(named=True):
            wrong = None if row["sample_id"] == last else _wrong(row)
            if wrong is None:
                continue
            last = row["sample_id"]
            n = len(row["points"]) // 3
            yield self.finding(
                row["subject"],
                f"Invalid keypoints of {row['label'] or 'an object'} ({entry_place(row)}): "
                f"{wrong}.",
                {"keypoints": n, "wrong": wrong, "file": row["file"], "entry": row["entry"]},
                (last,),
            )

    counts = "SELECT count(*) AS n FROM annotation_shapes WHERE kind = 'keypoints'"
    examined = "The keypoints of {n:,} objects were checked."


def _wrong(row: Row) -> str | None:
    values = np.array(row["points"], float)
    names = json.loads(str(row["names"])) if row["names"] else []
    if len(values) % 3 or (names and len(values) != 3 * len(names)):
        return f"{len(values):,} numbers, but {len(names) or 'x'} names need three each"
    x, y, v = values.reshape(-1, 3).T
    if not np.isin(v, (0, 1, 2)).all():
        return f"visibility {v[~np.isin(v, (0, 1, 2))][0]:g}, but only 0, 1, 2 are defined"
    marked = v > 0
    given = row["n_keypoints"]
    if given is not None and int(given) != int(marked.sum()):
        return f"{int(marked.sum()):,} are labelled, but num_keypoints is {given:.0f}"
    w0, h0 = row["w0"], row["h0"]
    if w0 is None or not marked.any():
        return None
    out = marked & ~((x >= -1) & (y >= -1) & (x <= w0 + 1) & (y <= h0 + 1))
    if out.any():
        k = int(np.flatnonzero(out)[0])
        what = f" ({names[k]})" if k < len(names) else ""
        return (
            f"{int(out.sum()):,} of {len(x):,} are outside the image of {w0:.0f} x {h0:.0f} px: "
            f"number {k}{what} at ({x[k]:.0f}, {y[k]:.0f})"
        )
    if row["x"] is None:
        return None
    bx, by, bw, bh = (row[name] for name in ("x", "y", "width", "height"))
    inside = (x >= bx - 1) & (x <= bx + bw + 1) & (y >= by - 1) & (y <= by + bh + 1)
    if marked.sum() >= 2 and not (inside & marked).any():
        return f"all {int(marked.sum()):,} labelled keypoints are outside the box of the object"
    return None


class FlippedSkeleton(BoxCheck):
    """Skeletons whose left and right keypoints are exchanged.

    ## What it does
    Compares keypoints that come in pairs (left_eye, right_eye). A pair is reliable if at least
    `min_skeletons` of a class have it, and at least `min_agreement` of these in the same order: the
    eyes of people who face the camera. A skeleton is reported if all its reliable pairs are in the
    opposite order and lie side by side.

    ## Why is this bad
    The model confuses left and right. Horizontal flips that do not exchange the names affect half
    of a dataset.

    ## Example
    In 1 of 400 skeletons the left eye is left of the right eye, although the person faces the
    camera.

    ## What to do
    Exchange the keypoints of each pair.

    ## Limits
    A person upside down looks the same. Pairs without a usual order (ankles) are not used. A class
    whose skeletons are all exchanged is not detected.
    """

    code = "BOX020"
    name = "flipped-skeleton"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_agreement: share of the skeletons in which a reliable pair has the same order
        min_skeletons: smallest number of skeletons with both points of a pair
        """

        min_agreement: float = 0.97
        min_skeletons: int = 40

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        from audit.annotations.keypoints import pairs_of

        named = "names IS NOT NULL AND len(points) = 3 * json_array_length(names)"
        frame = store.query(_KEYPOINTS.format(where=named))
        for _, own in frame.group_by("file", "category_key", "names", maintain_order=True):
            pairs = pairs_of(json.loads(own["names"][0]))
            if pairs and own.height >= params.min_skeletons:
                yield from self._judge_class(own, pairs, params)

    def _judge_class(
        self, own: pl.DataFrame, pairs: list[tuple[int, int]], params: Params
    ) -> Iterator[Finding]:
        points = np.array(own["points"].to_list(), float).reshape(own.height, -1, 3)
        left, right = (points[:, [p[side] for p in pairs]] for side in (0, 1))
        dx, dy = (left - right)[..., 0], (left - right)[..., 1]
        known = (left[..., 2] > 0) & (right[..., 2] > 0) & (np.abs(dx) > np.abs(dy))
        n, usual = known.sum(0), np.where((known & (dx > 0)).sum(0) * 2 >= known.sum(0), 1, -1)
        agree = (known & (np.sign(dx) == usual)).sum(0)
        reliable = (n >= params.min_skeletons) & (agree >= params.min_agreement * n)
        against = known & reliable & (np.sign(dx) == -usual)
        flipped = against.any(1) & (against == (known & reliable)).all(1)
        seen = set[str]()
        for k in np.flatnonzero(flipped).tolist():
            row = own.row(k, named=True)
            if row["sample_id"] in seen:
                continue
            seen.add(row["sample_id"])
            n_pairs, total = int(against[k].sum()), int(n[reliable].max())
            yield self.finding(
                row["subject"],
                f"Left and right of {row['label']} ({entry_place(row)}) seem exchanged: "
                f"{n_pairs:,} pairs of keypoints are in the opposite order to at least "
                f"{params.min_agreement:.0%} of {total:,} skeletons.",
                {"pairs": n_pairs, "skeletons": total, "file": row["file"], "entry": row["entry"]},
                (row["sample_id"],),
            )

    counts = "SELECT count(*) AS n FROM annotation_shapes WHERE kind = 'keypoints'"
    examined = "The named left and right keypoints of {n:,} objects were compared."
