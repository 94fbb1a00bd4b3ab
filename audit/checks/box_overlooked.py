"""BOX027: objects that a detector finds and no box marks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import compared, doubt_finding, doubtful_pictures, placed_text
from audit.checking.cases import doubt_cases
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

DOUBT = {"kind": "overlooked", "score": 0.001, "iou": 0.0}


class OverlookedObject(Check):
    """Objects that a detector predicts with confidence where no box is.

    ## What it does
    Compares the boxes of a detector with the annotated ones. A prediction of at least
    `min_probability` is flagged where no box of any class overlaps it by half (intersection over
    union) and no crowd region holds it; its score is the similarity to the nearest box of its
    class.

    ## Why is this bad
    Training punishes the detector for finding the object; evaluation counts a right answer as a
    false alarm.

    ## Example
    Two raccoons in a picture, one of them annotated.

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
    overlooked boxes, with the thresholds of its first implementation.
    """

    code = "BOX027"
    name = "overlooked-object"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_probability: probability from which a prediction counts, 0..1
        max_score: score up to which an object counts as overlooked, 0..1
        """

        min_probability: float = 0.95
        max_score: float = 0.3

    CLEAN, DIRTY = doubt_cases(DOUBT, ("a box of the class is near", 0.45), "no box there")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture, the most doubtful first."""
        for row in doubtful_pictures(store, "overlooked", params.min_probability, params.max_score):
            yield doubt_finding(
                self.code,
                self.severity,
                row,
                f"An object ({row['predicted_label']}) is predicted "
                f"{placed_text(row, 'predicted_')} with probability {row['probability']:.2f}, and "
                "no box is there",
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many predictions there were."""
        return compared(store, "overlooked", params.min_probability)
