"""BOX031, BOX032: boxes that look like another class than theirs, or like no object at all.

One rule: each scan judges what boxes show (`audit.embeddings.box_looks`), and a check reads the
answers to one question. Costs one query each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from audit.checking.boxes import ENTRY, BoxCheck, Row, box_case, box_found
from audit.checking.cases import Case
from audit.checking.label_facts import LEAST_AGREED
from audit.records import Severity
from audit.run.store import Store

_HITS = """
    SELECT b.*, l.chance AS amount, l.chance, l.probability, l.suggested_label,
        l.suggested_probability
    FROM box_looks l JOIN box_look_facts f ON f.kind = l.kind
    JOIN boxes b ON b.file = l.file AND b.image_key = l.image_key AND b.entry = l.entry
        AND b.sample_id = l.sample_id
    WHERE l.kind = '{kind}' AND l.chance >= $min_chance AND l.class_doubt <= $max_class_doubt
        AND f.gain >= $min_gain
"""
_FACTS: Row = {
    "judged": 400, "boxes": 420, "classes": 8, "background": 200, "gain": 30.0, "accuracy": 0.9,
    "agreed": 9.0, "reason": "",
}  # fmt: skip
_LOOK: Row = {
    **ENTRY, "sample_id": "0000.jpg", "chance": 0.95, "probability": 0.001,
    "suggested_probability": 0.98, "class_doubt": 0.02,
}  # fmt: skip


class _Looks(BoxCheck):
    """The rule that the checks of this file share: answers to the question of one `kind`."""

    severity = Severity.WARNING
    kind: ClassVar[str]
    evidence: ClassVar[tuple[str, ...]] = ("chance", "probability", "suggested_probability")

    def completeness(self, store: Store, params: Any) -> str:
        """Say how many boxes were judged, or why none was."""
        known = store.rows("FROM box_look_facts WHERE kind = ?", [self.kind])
        if not known:
            return "0 boxes were judged by what they show: there are too few, or this run is old."
        facts = known[0]
        if facts["reason"]:
            return f"What boxes show cannot be judged: {facts['reason']}."
        if facts["agreed"] < LEAST_AGREED:
            return (
                f"What boxes show cannot be judged: the classes of {facts['judged']:,} boxes are "
                "predicted no better than classes dealt at random."
            )
        beside = f" beside {facts['background']:,} places without a box" * (self.kind != "class")
        return (
            f"{facts['judged']:,} of {facts['boxes']:,} boxes, of {facts['classes']:,} classes, "
            f"were judged{beside}; unseen, {facts['accuracy']:.0%} are recognised."
        )


def _cases(kind: str, suggested: str | None) -> Iterator[Case]:
    look = {**_LOOK, "kind": kind, "suggested_label": suggested}
    facts = {**_FACTS, "kind": kind}
    yield box_case("nothing was judged", {})
    yield box_case("not sure", {}, box_looks=[{**look, "chance": 0.6}], box_look_facts=[facts])
    yield box_case(
        "overlap explains it as well", {}, box_looks=[look],
        box_look_facts=[{**facts, "gain": 1.0}],
    )  # fmt: skip
    yield box_case(
        "half of its class: that is how it looks", {}, box_looks=[{**look, "class_doubt": 0.4}],
        box_look_facts=[facts],
    )  # fmt: skip
    yield box_found("surely", {}, box_looks=[look], box_look_facts=[facts])
    yield box_found(
        "a lower threshold", {}, params={"min_chance": 0.5}, box_looks=[{**look, "chance": 0.6}],
        box_look_facts=[facts],
    )  # fmt: skip


class OtherClass(_Looks):
    """Boxes whose content looks like another class than theirs.

    ## What it does
    Each scan cuts the boxes out of the pictures while it reads them, and describes each crop by
    its shapes and colours. A box's class is predicted from the boxes of other pictures, by a linear
    model and by the nearest crops: near-duplicates, frames of one film and pictures of one group
    count as one picture. A box is reported if the chance that its class is wrong is at least
    `min_chance`. Two tests come first, as for labels (LABEL006): the predictions must agree with
    these classes better than with classes dealt at random, and wrong boxes must explain the
    doubtful ones better than classes that look alike do (by `min_gain` in log likelihood). The
    chance is cautious: it holds if the share of wrong boxes is the smallest that fits.

    ## Why is this bad
    The detector learns the wrong class, and its right answer counts twice as an error in
    evaluation: one object missed, one false alarm.

    ## Example
    A clear apple in a box of `banana`.

    ## What to do
    Look at the boxes and correct the classes of those that are wrong.

    ## Limits
    Needs 50 boxes, of classes with 10 boxes in 5 pictures. Boxes below 8 px a side, crowds, and
    more than 64 boxes of a picture are not judged; of very many boxes some 20,000 are. What only a
    trained network tells apart (dogs from cats) is hardly reported: a detector's own predictions
    see more (BOX029).

    ## References
    Northcutt, Jiang and Chuang (2021), Confident Learning, JAIR 70. Coates, Lee and Ng (2011), An
    Analysis of Single-Layer Networks in Unsupervised Feature Learning, AISTATS.
    """

    code = "BOX031"
    name = "box-of-other-class"
    kind = "class"
    hits = _HITS.format(kind="class")
    evidence = (*_Looks.evidence, "suggested_label")
    message = (
        "A box ({box}) is probably of another class ({chance:.0%}): it looks like "
        "{suggested_label!r} ({suggested_probability:.1%}; {label!r} {probability:.1%})"
    )

    @dataclass(frozen=True)
    class Params:
        """min_chance: chance that the class is wrong from which a box is reported, 0..1
        min_gain: log likelihood that wrong boxes must explain beyond overlap (6: p = 0.0003)
        max_class_doubt: a class of which more would be doubted is left out, 0..1
        """

        min_chance: float = 0.8
        min_gain: float = 6.0
        max_class_doubt: float = 0.35

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from _cases("class", "dog")


class BackgroundBox(_Looks):
    """Boxes that hold nothing but background.

    ## What it does
    Each scan cuts the boxes out of the pictures while it reads them, and beside them places of the
    same sizes that no box touches. What a crop shows is predicted from those of other pictures
    (BOX031 says how), with background as one class more. A box is reported if the chance that it is
    background is at least `min_chance`, and boxes on background explain the doubtful ones better
    than objects that look like background do (by `min_gain` in log likelihood).

    ## Why is this bad
    The detector learns that background is an object, and the object that the box was meant for is
    not annotated.

    ## Example
    A box that was drawn for the frame before: the car is gone, the box is on the road.

    ## What to do
    Look at the boxes; delete those that show nothing, or move them to their object.

    ## Limits
    The limits of BOX031, and 30 places without a box are needed: grids and crowds have none.
    Where the background holds many objects that nobody annotated, or most boxes of a class look
    like background (grass, road, faint or tiny objects), less is reported, or nothing.

    ## References
    Tkachenko, Thyagarajan and Mueller (2023), ObjectLab, arXiv:2309.00832, for the kind of error;
    it needs a detector.
    """

    code = "BOX032"
    name = "box-of-background"
    kind = "background"
    hits = _HITS.format(kind="background")
    message = (
        "A box ({box}) probably holds background alone ({chance:.0%}): it looks like places "
        "without a box ({suggested_probability:.1%}; {label!r} {probability:.1%})"
    )

    @dataclass(frozen=True)
    class Params:
        """min_chance: chance of background from which a box is reported, 0..1
        min_gain: log likelihood that such boxes must explain beyond overlap (4: p = 0.002)
        max_class_doubt: a class of which more would be doubted is left out, 0..1
        """

        min_chance: float = 0.8
        min_gain: float = 4.0
        max_class_doubt: float = 0.35

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from _cases("background", None)
