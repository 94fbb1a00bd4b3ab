"""BOX029: boxes for which a detector names another class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import compared, doubt_finding, doubtful_pictures, placed_text
from audit.checking.cases import doubt_cases
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

DOUBT = {
    "kind": "swapped", "score": 0.1, "iou": 0.9, "entry": 0, "label": "dog",
    "x": 401.0, "y": 300.0, "width": 50.0, "height": 40.0,
}  # fmt: skip


class SwappedClass(Check):
    """Boxes that a confident prediction of another class covers.

    ## What it does
    Flags a box that no prediction of its class finds, and on which a prediction of another class,
    of at least `min_probability`, lies: its score is one minus their similarity.

    ## Why is this bad
    The detector learns the wrong class, and its right answer counts twice as an error in
    evaluation: one object missed, one false alarm.

    ## Example
    A cat annotated as dog; the detector says cat at the same place.

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
    swapped boxes, with the thresholds of its first implementation.
    """

    code = "BOX029"
    name = "swapped-class"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_probability: probability from which a prediction counts, 0..1
        max_score: score up to which a class counts as swapped, 0..1
        """

        min_probability: float = 0.95
        max_score: float = 0.3

    CLEAN, DIRTY = doubt_cases(
        DOUBT, ("not at the same place", 0.45), "another class at the same place"
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture, the most doubtful first."""
        for row in doubtful_pictures(store, "swapped", params.min_probability, params.max_score):
            yield doubt_finding(
                self.code,
                self.severity,
                row,
                f"A box ({row['label']} {placed_text(row)}) is predicted as "
                f"{row['predicted_label']} with probability {row['probability']:.2f}, overlapping "
                f"by {row['iou']:.0%}",
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many predictions there were."""
        return compared(store, "swapped", params.min_probability)
