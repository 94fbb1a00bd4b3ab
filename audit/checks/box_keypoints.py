"""BOX019: keypoints outside the picture, miscounted, or of the wrong number."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from audit.annotations.findings import entry_place
from audit.annotations.keypoints import keypoint_rows
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

POSE = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0, "kind": "keypoints", "part": 0,
        "points": [120.0, 130.0, 2.0, 150.0, 160.0, 1.0]}  # fmt: skip
CLASS = {"file": "boxes.json", "category_key": "1", "label": "cat", "declared": True, "entry": 0}

SHARES = {**POSE, "points": [0.25, 0.4, 2.0, 0.0, 0.0, 0.0]}
YOLO = {"format": "YOLO", "form": "centre share", "reading": "centre share"}


class WrongKeypoints(Check):
    """Keypoints that cannot be: outside the picture, all off their box, or miscounted.

    ## What it does
    Flags keypoints that are marked and lie outside the picture, skeletons whose marked keypoints
    are all outside their own box, visibilities other than 0, 1, 2, lists whose length is not three
    times the number of names, and a `num_keypoints` that is not the number of marked ones.

    ## Why is this bad
    The heat map of such a point is empty or in the wrong cell; a wrong count drops the object
    from the evaluation.

    ## Example
    A left ankle at (655, 471) in a picture 640 px wide.

    ## What to do
    Mark the point again, or set its visibility to 0.

    ## Limits
    Points up to 1 px outside are taken for rounding. Whether a point is on the right limb is
    beyond this check; BOX020 compares left and right.

    ## References
    COCO keypoints: x, y, v with v = 0 not labelled, 1 hidden, 2 visible.
    """

    code = "BOX019"
    name = "wrong-keypoints"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    CLEAN = (
        Case("inside", [{}], tables=boxed({}, annotation_shapes=[POSE])),
        Case(
            "shares",
            [{}],
            tables=boxed({}, annotation_shapes=[SHARES], annotation_files=[YOLO]),
        ),
        Case(
            "in the frame of a picture that is displayed on its side",
            [{"orientation": 6}],
            tables=boxed(
                {
                    "stored_x": 100.0,
                    "stored_y": 340.0,
                    "stored_width": 150.0,
                    "stored_height": 200.0,
                },
                annotation_shapes=[{**POSE, "points": [150.0, 500.0, 2.0]}],
                annotation_files=[{"frame": "stored"}],
            ),
        ),
        Case(
            "not labelled, so its place does not matter",
            [{}],
            tables=boxed(
                {}, annotation_shapes=[{**POSE, "points": [120.0, 130.0, 2.0, -5.0, 0, 0]}]
            ),
        ),
    )
    DIRTY = (
        Case(
            "outside the picture",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotation_shapes=[{**POSE, "points": [655.0, 130.0, 2.0]}]),
        ),
        Case(
            "a number too few",
            [{}],
            ["0000.jpg"],
            tables=boxed(
                {},
                annotation_shapes=[POSE],
                categories=[{**CLASS, "keypoints": '["eye", "ear", "tail"]'}],
            ),
        ),
        Case(
            "off its box",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotation_shapes=[{**POSE, "points": [10.0, 10.0, 2.0] * 2}]),
        ),
        Case(
            "shares: outside the picture",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotation_shapes=[SHARES, {**SHARES, "points": [1.02, 0.3, 2.0]}],
                         annotation_files=[YOLO]),
        ),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a picture, about its first such skeleton."""
        last = None
        for row in keypoint_rows(store).iter_rows(named=True):
            wrong = None if row["sample_id"] == last else _wrong(row)
            if wrong is None:
                continue
            last = row["sample_id"]
            n = len(row["points"]) // 3
            yield Finding(
                self.code,
                self.severity,
                (last,),
                f"Of the {n:,} keypoints of {row['label'] or 'an object'} ({entry_place(row)}) "
                f"{wrong}.",
                {"keypoints": n, "wrong": wrong, "file": row["file"], "entry": row["entry"]},
                Action.REVIEW,
                row["subject"],
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many skeletons were examined."""
        n = store.scalar("SELECT count(*) FROM annotation_shapes WHERE kind = 'keypoints'")
        return f"The keypoints of {n:,} objects examined."


def _wrong(row: dict[str, object]) -> str | None:
    values = np.array(row["points"], float)
    names = json.loads(str(row["names"])) if row["names"] else []
    if len(values) % 3 or (names and len(values) != 3 * len(names)):
        return f"there are {len(values):,} numbers, where {len(names) or 'x'} names need three each"
    x, y, v = values.reshape(-1, 3).T
    if not np.isin(v, (0, 1, 2)).all():
        return f"one has the visibility {v[~np.isin(v, (0, 1, 2))][0]:g}, and 0, 1, 2 exist"
    marked = v > 0
    given = row["n_keypoints"]
    if given is not None and int(float(str(given))) != int(marked.sum()):
        return f"{int(marked.sum()):,} are marked and num_keypoints is {float(str(given)):.0f}"
    if row["w0"] is None or not marked.any():
        return None
    w0, h0 = float(str(row["w0"])), float(str(row["h0"]))
    out = marked & ~((x >= -1) & (y >= -1) & (x <= w0 + 1) & (y <= h0 + 1))
    if out.any():
        k = int(np.flatnonzero(out)[0])
        what = f" ({names[k]})" if k < len(names) else ""
        return (
            f"{int(out.sum()):,} lie outside the picture of {w0:.0f} x {h0:.0f} px: number "
            f"{k}{what} at ({x[k]:.0f}, {y[k]:.0f})"
        )
    if row["x"] is None:
        return None
    bx, by, bw, bh = (float(str(row[name])) for name in ("x", "y", "width", "height"))
    inside = (x >= bx - 1) & (x <= bx + bw + 1) & (y >= by - 1) & (y <= by + bh + 1)
    if marked.sum() >= 2 and not (inside & marked).any():
        return f"all {int(marked.sum()):,} marked ones lie outside the box of the object"
    return None
