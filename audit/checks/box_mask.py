"""BOX030: annotated masks that a model's masks contradict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit.checking.boxes import BoxCheck, Row, boxed, entry_place, px
from audit.checking.cases import Case
from audit.records import Severity
from audit.run.store import Store

_SAID = {
    "missing": "An object ({predicted_label}) is predicted {at}, and no mask is there",
    "not there": "A mask ({label} {at}) lies where nothing is predicted",
    "class": "A mask ({label} {at}) is predicted to be {predicted_label}",
    "outline": "A mask ({label} {at}) and the predicted one lie {distance:.1f} px apart on average",
}
# What a model says of an object of the sample 0000.jpg, as a row of `mask_doubts`.
_DOUBT: Row = {
    "kind": "outline", "file": "boxes.json", "image_key": "0000.jpg", "sample_id": "0000.jpg",
    "entry": 0, "chance": 0.9, "gain": 20.0, "doubt": 0.8, "distance": 4.0, "wrong": 0.4,
    "label": "cat", "predicted_label": "dog", "x": 100.0, "y": 100.0, "width": 200.0,
    "height": 150.0,
}  # fmt: skip


def _case(name: str, expect: list[str], params: Mapping[str, float], *changed: Row) -> Case:
    rows = [{**_DOUBT, **change} for change in changed]
    return Case(name, [{}], expect, params, boxed({}, mask_doubts=rows))


class ContradictedMask(BoxCheck):
    """Masks and outlines that a model's masks of the same pictures contradict.

    ## What it does
    Compares each annotated mask with the predicted ones, pixel by pixel. Four things are reported
    where the chance that the annotation is wrong, and not the prediction, is at least
    `min_chance`: a predicted object that nobody annotated, a mask where nothing is predicted, a
    mask of another class, and an outline too far from the predicted one. Nothing is reported unless
    wrong annotations explain it better than the model's own errors do, by `min_gain` in log
    likelihood.

    ## Why is this bad
    Each wrong pixel teaches a network the wrong class; in evaluation a right answer counts as an
    error.

    ## Example
    The masks of a cat and a dog in one picture have each other's class.

    ## What to do
    Look at the findings in order of `rank`, the most doubtful first, and draw the masks anew.

    ## Limits
    Needs `audit scan --predictions` with masks of pictures that the model did not learn from: COCO
    results with a `segmentation`, or a folder of PNG masks. PNG masks do not say how sure the model
    is, so they rarely show a wrong class or a missing object with certainty. Below 50 objects
    nothing is said. Objects of one class that touch are told apart by what is annotated alone.

    ## References
    V. Lad, J. Mueller, "Estimating label quality and errors in semantic segmentation data via any
    model", arXiv:2307.05080 (2023), which scores pixels; here objects are judged.
    """

    code = "BOX030"
    name = "contradicted-mask"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_chance: chance that the annotation is wrong from which it is said, 0..1
        min_gain: log likelihood that wrong masks must explain beyond errors of the model
        """

        min_chance: float = 0.65
        min_gain: float = 4.0

    @staticmethod
    def cases() -> Iterator[Case]:
        yield Case("no predictions", [{}], tables=boxed({}))
        yield _case("an error of the model as well", [], {}, {"chance": 0.5})
        yield _case("the model's own errors explain it", [], {}, {"gain": 1.0})
        yield _case("an outline far away", ["0000.jpg"], {}, {})
        yield _case("two of a picture", ["0000.jpg"], {}, {"kind": "class"}, {"kind": "not there"})
        yield _case("one that is missing", ["0000.jpg"], {},
                    {"kind": "missing", "entry": None, "label": None})  # fmt: skip
        yield _case("other limits", ["0000.jpg"], {"min_chance": 0.4, "min_gain": 0.5},
                    {"chance": 0.5, "gain": 1.0})  # fmt: skip

    sql = """
        WITH hits AS (
            SELECT * FROM mask_doubts WHERE chance >= $min_chance AND gain >= $min_gain
        ), ranked AS (
            SELECT *, count(*) OVER same AS n FROM hits WINDOW same AS (PARTITION BY sample_id)
            QUALIFY 1 = row_number() OVER (same ORDER BY doubt DESC, chance DESC, entry)
        )
        SELECT r.*, i.id, i.subject, row_number() OVER (ORDER BY doubt DESC, sample_id) AS rank
        FROM ranked r JOIN images i ON i.id = r.sample_id
        ORDER BY rank
    """
    evidence = (
        "rank", "chance", "doubt", "distance", "wrong", "predicted_label", "x", "y", "width",
        "height", "file",
    )  # fmt: skip

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        x, y, w, h = (px(row[side]) for side in ("x", "y", "width", "height"))
        place = entry_place(row) if row["entry"] is not None else str(row["file"])
        more = row["n"] - 1
        also = f" {more:,} more of this picture likewise." if more else ""
        what = _SAID[row["kind"]].format(**row, at=f"at ({x}, {y}), {w} x {h} px")
        return f"{what}: wrong with a chance of {row['chance']:.0%} ({place}).{also}"

    def completeness(self, store: Store, params: Params) -> str:
        facts = dict(store.query("SELECT key, value FROM prediction_facts").iter_rows())
        if "mask_objects" not in facts:
            return "0 predicted masks were given (`audit scan --predictions`)."
        odd = int(facts["mask_odd"])
        left = f"; {odd:,} pictures whose predicted mask has another size left out" if odd else ""
        return (
            f"{int(facts['mask_objects']):,} masks of {int(facts['mask_pictures']):,} pictures "
            f"compared with predicted ones{left}."
        )
