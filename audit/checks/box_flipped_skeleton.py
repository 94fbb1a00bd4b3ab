"""BOX020: skeletons whose left and right are exchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit.annotations.findings import entry_place
from audit.annotations.keypoints import keypoint_rows, pairs_of
from audit.checking.cases import Case, Rows, boxed
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store

NAMES = '["left_eye", "right_eye"]'
CLASS = {"file": "boxes.json", "category_key": "1", "label": "cat", "declared": True, "entry": 0,
         "keypoints": NAMES}  # fmt: skip


def _poses(n: int, flipped: int = -1, turned: int = 0) -> Mapping[str, Rows]:
    """Return tables of n skeletons; one exchanged, some seen from behind."""
    shapes = [
        {
            "file": "boxes.json", "image_key": f"{i:04d}.jpg", "entry": 0, "kind": "keypoints",
            "part": 0, "points": [150.0, 100.0, 2.0, 120.0, 101.0, 2.0]
            if i != flipped and i >= turned else [120.0, 100.0, 2.0, 150.0, 101.0, 2.0],
        }
        for i in range(n)
    ]  # fmt: skip
    rows = [{"sample_id": f"{i:04d}.jpg", "entry": 0} for i in range(n)]
    return boxed(*rows, annotation_shapes=shapes, categories=[CLASS])


class FlippedSkeleton(Check):
    """Skeletons whose left and right keypoints are exchanged.

    ## What it does
    Takes the keypoints that come in pairs (left_eye, right_eye). Pairs that lie the same way round
    in at least `min_agreement` of the skeletons of a class, of at least `min_skeletons`, are
    reliable: the eyes of people who face the camera. A skeleton whose reliable pairs all lie the
    other way round, and side by side rather than above each other, is flagged.

    ## Why is this bad
    The model learns that left may be right; mirrored pictures with names that were not exchanged do
    this to half of a dataset.

    ## Example
    In 1 of 400 skeletons the left eye is left of the right eye, as nobody's is who faces us.

    ## What to do
    Exchange the keypoints of each pair.

    ## Limits
    Somebody upside down looks the same. Pairs without a usual side (ankles) prove nothing, and a
    class whose skeletons are exchanged throughout is not seen.

    ## References
    COCO keypoints name left and right by the person, not by the picture.
    """

    code = "BOX020"
    name = "flipped-skeleton"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_agreement: share of the skeletons in which a reliable pair lies the same way
        min_skeletons: smallest number of skeletons with both points of a pair
        """

        min_agreement: float = 0.97
        min_skeletons: int = 40

    CLEAN = (
        Case("all alike", [{}] * 50, tables=_poses(50)),
        Case("no usual side", [{}] * 50, tables=_poses(50, turned=20)),
        Case("too few to tell", [{}] * 9, tables=_poses(9, flipped=3)),
    )
    DIRTY = (
        Case("one of fifty", [{}] * 50, ["0007.jpg"], tables=_poses(50, flipped=7)),
        Case("one of a hundred", [{}] * 100, ["0093.jpg"], tables=_poses(100, flipped=93)),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a skeleton, the first of its picture."""
        named = "names IS NOT NULL AND len(points) = 3 * json_array_length(names)"
        frame = keypoint_rows(store, named)
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
            yield Finding(
                self.code,
                self.severity,
                (row["sample_id"],),
                f"Left and right of {row['label']} ({entry_place(row)}) seem exchanged: "
                f"{n_pairs:,} pairs of keypoints lie the other way round than in at least "
                f"{params.min_agreement:.0%} of {total:,} skeletons.",
                {"pairs": n_pairs, "skeletons": total, "file": row["file"], "entry": row["entry"]},
                Action.REVIEW,
                row["subject"],
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many skeletons have names."""
        n = store.scalar("SELECT count(*) FROM annotation_shapes WHERE kind = 'keypoints'")
        return f"The left and right keypoints of {n:,} objects compared, where they have names."
