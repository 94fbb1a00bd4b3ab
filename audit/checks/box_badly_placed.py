"""BOX028: boxes that lie beside the object which a detector finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import compared, doubt_finding, doubtful_pictures, placed_text
from audit.checking.cases import doubt_cases
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

DOUBT = {
    "kind": "badly placed", "score": 0.3, "iou": 0.3, "entry": 0, "label": "cat",
    "x": 370.0, "y": 300.0, "width": 50.0, "height": 40.0,
}  # fmt: skip


class BadlyPlacedBox(Check):
    """Boxes that a confident prediction of their class overlaps by less than half.

    ## What it does
    Pairs each box with the nearest prediction of its class that belongs to no other box. The pair
    is flagged where the prediction has at least `min_probability` and the two overlap, but by less
    than half (intersection over union).

    ## Why is this bad
    The detector learns a wrong place or size, and its right boxes count as errors in evaluation.

    ## Example
    A box drawn for another frame of a video: 40 px beside the animal.

    ## What to do
    Look at the findings in order of `rank`, the most doubtful first, and correct what is wrong.

    ## Limits
    Needs `audit scan --predictions` with a detector's boxes as COCO results; without, it says
    nothing. A detector that was trained on these very annotations has learned their errors: use
    predictions of pictures that it did not see (cross-validation). Its mistakes are reported as
    well as the annotators'; one of low confidence everywhere reports nothing.

    ## References
    U. Tkachenko, A. Thyagarajan, J. Mueller, "ObjectLab: Automated Diagnosis of Mislabeled Images
    in Object Detection Data", arXiv:2309.00832 (2023): the score of
    badly located boxes; below an overlap of 0.5 a box is not found (Pascal VOC).
    """

    code = "BOX028"
    name = "badly-placed-box"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_probability: probability from which a prediction counts, 0..1
        max_score: score up to which a box counts as badly placed, 0..1
        """

        min_probability: float = 0.95
        max_score: float = 0.5

    CLEAN, DIRTY = doubt_cases(DOUBT, ("near enough", 0.52), "beside the object")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture, the most doubtful first."""
        for row in doubtful_pictures(
            store, "badly placed", params.min_probability, params.max_score
        ):
            yield doubt_finding(
                self.code,
                self.severity,
                row,
                f"A box ({row['label']} {placed_text(row)}) overlaps by {row['iou']:.0%} with what "
                f"is predicted of its class {placed_text(row, 'predicted_')} with probability "
                f"{row['probability']:.2f}",
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many predictions there were."""
        return compared(store, "badly placed", params.min_probability)
