"""Cases of BOX027, BOX028, BOX029."""

from collections.abc import Iterator

from audit.checking.boxes import Row, Rows
from audit.testing import Case
from tests.audit.checks.case_tables import Cases, boxed

# What a detector says of the sample 0000.jpg, as a row of `box_doubts`; and a box beside it.
_PREDICTED = {
    "file": "boxes.json", "image_key": "0000.jpg", "sample_id": "0000.jpg",
    "predicted_label": "cat", "probability": 0.98, "predicted_x": 400.0, "predicted_y": 300.0,
    "predicted_width": 50.0, "predicted_height": 40.0,
}  # fmt: skip
_BESIDE = {"entry": 0, "y": 300.0, "width": 50.0, "height": 40.0}


def _cases(doubt: Row, clean: tuple[str, float], dirty: str) -> Iterator[Case]:
    """Yield the cases of a doubt: `clean` names one that is too weak, with its score."""
    facts: Rows = [{"key": "predictions", "value": "2"}, {"key": "pictures", "value": "1"}]

    def case(name: str, expect: tuple[str, ...] = (), **changed: float) -> Case:
        row = {**_PREDICTED, **doubt, **changed}
        return Case(name, [{}], expect, tables=boxed({}, box_doubts=[row], prediction_facts=facts))

    yield Case("no predictions", [{}], tables=boxed({}))
    yield case("not sure enough", probability=0.8)
    yield case(clean[0], score=clean[1])
    yield case(dirty, ("0000.jpg",))
    weaker = case("other limits", ("0000.jpg",), probability=0.6, score=0.65)
    limits = {"min_probability": 0.5, "max_score": 0.7}
    yield Case(weaker.name, weaker.images, weaker.expect, limits, weaker.tables)


OVERLOOKED = {"kind": "overlooked", "score": 0.001, "iou": 0.0}
PLACED = {"kind": "badly placed", "score": 0.3, "iou": 0.3, "label": "cat", "x": 370.0}
SWAPPED = {"kind": "swapped", "score": 0.1, "iou": 0.9, "label": "dog", "x": 401.0}
ELSEWHERE = "not at the same place", 0.45


CASES: Cases = {
    "BOX027": list(_cases(OVERLOOKED, ("a box of the class is near", 0.45), "no box there")),
    "BOX028": list(_cases(_BESIDE | PLACED, ("near enough", 0.52), "beside the object")),
    "BOX029": list(_cases(_BESIDE | SWAPPED, ELSEWHERE, "another class at the same place")),
}
