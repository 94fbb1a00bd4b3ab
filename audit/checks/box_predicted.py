"""BOX027, BOX028, BOX029: annotations that a detector's confident predictions contradict.

Source: ObjectLab, whose three errors `audit.annotations` scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from audit.checking.boxes import BoxCheck, Row, entry_place, px
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store

_DOUBTS = """
    WITH hits AS (
        SELECT * FROM box_doubts
        WHERE kind = $kind AND probability >= $min_probability AND score <= $max_score
    ), ranked AS (
        SELECT *, count(*) OVER same AS n FROM hits WINDOW same AS (PARTITION BY sample_id)
        QUALIFY 1 = row_number() OVER (same ORDER BY score, probability DESC, predicted_x, entry)
    )
    SELECT r.*, i.subject, b.line, b.byte, b.annotation_id,
        row_number() OVER (ORDER BY score, probability DESC, sample_id) AS rank
    FROM ranked r JOIN images i ON i.id = r.sample_id
    LEFT JOIN (SELECT DISTINCT ON (file, image_key, entry) file, image_key, entry, line, byte,
        annotation_id FROM boxes SEMI JOIN hits USING (file, image_key, entry)) b
        ON b.file = r.file AND b.image_key = r.image_key AND b.entry = r.entry
    ORDER BY rank
"""
_EVIDENCE = (
    "rank", "score", "probability", "iou", "label", "predicted_label", "predicted_x",
    "predicted_y", "predicted_width", "predicted_height", "x", "y", "width", "height", "file",
    "entry", "annotation_id",
)  # fmt: skip


class _Contradicted(BoxCheck):
    severity = Severity.WARNING
    kind: ClassVar[str]

    def find(self, store: Store, params: Any) -> Iterator[Finding]:
        for row in asked(store, _DOUBTS, params, kind=self.kind).iter_rows(named=True):
            more = row["n"] - 1
            also = f" {more:,} more in this image." if more else ""
            place = entry_place(row) if row["entry"] is not None else str(row["file"])
            row |= {"annotated": _placed(row, ""), "predicted": _placed(row, "predicted_")}
            evidence = {name: row[name] for name in _EVIDENCE if row.get(name) is not None}
            yield self.finding(
                row["subject"],
                f"{self.said(row, params)} ({place}).{also}",
                {**evidence, "boxes": row["n"]},
                (row["sample_id"],),
            )

    def completeness(self, store: Store, params: Any) -> str:
        facts = dict(store.query("SELECT key, value FROM prediction_facts").iter_rows())
        if "predictions" not in facts:
            return "Skipped: 0 predicted boxes (`audit scan --predictions FILE`)."
        sql = (
            "SELECT count(*), count(*) FILTER (WHERE probability >= $2), "
            "count(*) FILTER (WHERE probability < $2 AND score <= $3) FROM box_doubts "
            "WHERE kind = $1"
        )
        limits = [self.kind, params.min_probability, params.max_score]
        n, sure, unsure = store.query(sql, limits).row(0)
        unknown = int(facts.get("unknown", 0))
        left_out = f", {unknown:,} of unlisted images left out" if unknown else ""
        if beyond := int(facts.get("left_out", 0)):
            left_out += f", the {beyond:,} least confident of crowded images left out"
        if low := int(facts.get("low", 0)):
            left_out += f", {low:,} below probability {facts['lowest']} left out"
        return (
            f"{int(facts['predictions']):,} predicted boxes of {int(facts['pictures']):,} images "
            f"compared{left_out}; {n:,} disagree, {sure:,} with confidence; {unsure:,} below "
            f"min_probability {params.min_probability:g} are not reported."
        )


def _placed(row: Row, whose: str) -> str:
    x, y, w, h = (px(row[f"{whose}{side}"]) for side in ("x", "y", "width", "height"))
    return f"at ({x}, {y}), {w} x {h} px"


class OverlookedObject(_Contradicted):
    """Objects that a detector predicts with confidence but that have no box.

    ## What it does
    Compares a detector's boxes with the annotated boxes. A prediction of at least `min_probability`
    is reported if no box of any class overlaps it by 0.5 (intersection over union) and no crowd
    region contains it. Its score is the similarity to the nearest box of its class.

    ## Why is this bad
    Training penalises the detector for finding the object. Evaluation counts a correct detection as
    a false positive.

    ## Example
    An image shows two raccoons, but one is annotated.

    ## What to do
    Review the findings in order of `rank` (most suspicious first). Correct wrong annotations.

    ## Limits
    Skipped without `audit scan --predictions` (a detector's boxes as COCO results). A detector
    trained on these annotations has learned their errors: use predictions on images that it was not
    trained on (cross-validation). Errors of the detector are reported too. A detector with low
    confidence yields no findings.

    ## References
    U. Tkachenko, A. Thyagarajan, J. Mueller, "ObjectLab: Automated Diagnosis of Mislabeled Images
    in Object Detection Data", arXiv:2309.00832 (2023): the score of
    overlooked boxes, with the thresholds of its first implementation.
    """

    code = "BOX027"
    name = "overlooked-object"
    kind = "overlooked"

    @dataclass(frozen=True)
    class Params:
        """min_probability: probability from which a prediction counts, 0..1
        max_score: score up to which an object counts as overlooked, 0..1
        """

        min_probability: float = 0.95
        max_score: float = 0.3

    message = (
        "An object ({predicted_label}) is predicted {predicted} with probability "
        "{probability:.2f}, but has no box"
    )


class BadlyPlacedBox(_Contradicted):
    """Boxes that a confident prediction of their class overlaps by less than half.

    ## What it does
    Pairs each box with the nearest unmatched prediction of its class. The pair is reported if the
    prediction has at least `min_probability` and the two overlap, but by less than 0.5
    (intersection over union).

    ## Why is this bad
    The detector learns a wrong position or size, and evaluation counts its correct boxes as errors.

    ## Example
    A box drawn for another frame of a video: 40 px beside the animal.

    ## What to do
    Review the findings in order of `rank` (most suspicious first). Correct wrong annotations.

    ## Limits
    Skipped without `audit scan --predictions` (a detector's boxes as COCO results). A detector
    trained on these annotations has learned their errors: use predictions on images that it was not
    trained on (cross-validation). Errors of the detector are reported too. A detector with low
    confidence yields no findings.

    ## References
    U. Tkachenko, A. Thyagarajan, J. Mueller, "ObjectLab: Automated Diagnosis of Mislabeled Images
    in Object Detection Data", arXiv:2309.00832 (2023): the score of badly located boxes; below an
    overlap of 0.5 a box counts as missed (Pascal VOC).
    """

    code = "BOX028"
    name = "badly-placed-box"
    kind = "badly placed"

    @dataclass(frozen=True)
    class Params:
        """min_probability: probability from which a prediction counts, 0..1
        max_score: score up to which a box counts as badly placed, 0..1
        """

        min_probability: float = 0.95
        max_score: float = 0.5

    message = (
        "A box ({label} {annotated}) overlaps only by {iou:.0%} a prediction of its class "
        "{predicted} with probability {probability:.2f}"
    )


class SwappedClass(_Contradicted):
    """Boxes that a confident prediction of another class covers.

    ## What it does
    Reports a box that no prediction of its class matches, but that a prediction of another class
    covers with at least `min_probability`. Its score is 1 minus their similarity.

    ## Why is this bad
    The detector learns the wrong class, and evaluation counts its correct prediction as two errors:
    a missed object and a false positive.

    ## Example
    A cat annotated as dog; the detector predicts cat at the same position.

    ## What to do
    Review the findings in order of `rank` (most suspicious first). Correct wrong annotations.

    ## Limits
    Skipped without `audit scan --predictions` (a detector's boxes as COCO results). A detector
    trained on these annotations has learned their errors: use predictions on images that it was not
    trained on (cross-validation). Errors of the detector are reported too. A detector with low
    confidence yields no findings.

    ## References
    U. Tkachenko, A. Thyagarajan, J. Mueller, "ObjectLab: Automated Diagnosis of Mislabeled Images
    in Object Detection Data", arXiv:2309.00832 (2023): the score of
    swapped boxes, with the thresholds of its first implementation.
    """

    code = "BOX029"
    name = "swapped-class"
    kind = "swapped"

    @dataclass(frozen=True)
    class Params:
        """min_probability: probability from which a prediction counts, 0..1
        max_score: score up to which a class counts as swapped, 0..1
        """

        min_probability: float = 0.95
        max_score: float = 0.3

    message = (
        "A box ({label} {annotated}) is predicted as {predicted_label} with probability "
        "{probability:.2f}, overlapping by {iou:.0%}"
    )
