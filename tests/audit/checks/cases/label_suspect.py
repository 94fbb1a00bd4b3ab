"""Cases of LABEL006, LABEL007."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from audit.checking.label_facts import JudgedFacts, LabelFacts
from audit.testing import Case

SCORE: Mapping[str, Any] = {
    "label_quality": 0.01, "suggested_label": "dog", "probability": 0.001,
    "suggested_probability": 0.98, "error_chance": 0.97, "sure_chance": 0.96,
    "neighbours": 20, "neighbours_given": 0, "neighbours_suggested": 19, "class_doubt": 0.02,
}  # fmt: skip
LABELS = JudgedFacts(
    gain=40.0, accuracy=0.8, agreed=20.0, listed=2, found=1.2, found_low=0.4, found_high=1.9,
    wrong=25.0, wrong_low=15.0, wrong_high=40.0,
)  # fmt: skip
FACTS = LabelFacts(
    "built-in vectors", judged=500, classes=10, conflicting=2,
    in_small_classes=3, atypical=1, labels=LABELS,
)  # fmt: skip
IMAGES = [{"id": "a.jpg", "label": "cat"}, {"id": "b.jpg", "label": "dog"}]


def _tables(score: Mapping[str, Any], facts: LabelFacts = FACTS) -> Mapping[str, Any]:
    near = {"sample_id": "a.jpg", "position": 0, "neighbour_id": "b.jpg", "similarity": 0.9}
    return {
        "label_scores": [{**SCORE, "sample_id": "a.jpg", **score}],
        "vector_neighbours": [near],
        "label_facts": facts.rows(),
    }


def label006() -> Iterator[Case]:
    yield Case("never scanned for labels", IMAGES)
    yield Case("a label that is probably right", IMAGES, tables=_tables({"sure_chance": 0.6}))
    yield Case(
        "overlap explains the labels as well",
        IMAGES,
        tables=_tables({}, replace(FACTS, labels=replace(LABELS, gain=0.4))),
    )
    yield Case(
        "half of the class: a matter of its name", IMAGES, tables=_tables({"class_doubt": 0.7})
    )
    few = replace(FACTS, labels=None, reason="12 images, but 50 are needed")
    yield Case("too few images", IMAGES, tables=_tables({}, few))
    yield Case(
        "it looks as much like its own class", IMAGES,
        tables=_tables({"probability": 0.34, "suggested_probability": 0.32}),
    )  # fmt: skip
    both = _tables({})
    for chance, found in ((0.7, ["a.jpg", "b.jpg"]), (0.62, ["a.jpg"])):
        less = {**SCORE, "sample_id": "b.jpg", "sure_chance": chance}
        yield Case(
            f"{chance:.0%} beside one that is surer", IMAGES, found, {"min_chance": 0.75},
            {**both, "label_scores": [*both["label_scores"], less]},
        )  # fmt: skip
    yield Case("a dog filed under cat", IMAGES, ["a.jpg"], tables=_tables({}))
    yield Case(
        "a lower threshold", IMAGES, ["a.jpg"], {"min_chance": 0.25},
        _tables({"sure_chance": 0.3}),
    )  # fmt: skip


def label007() -> Iterator[Case]:
    none = replace(LABELS, agreed=1.0)
    yield Case("never scanned for labels", IMAGES)
    yield Case("vectors that know nothing", IMAGES, tables=_tables({}, replace(FACTS, labels=none)))
    few = replace(FACTS, labels=None, reason="12 images, but 50 are needed")
    yield Case("too few images", IMAGES, tables=_tables({}, few))
    yield Case("some are wrong", IMAGES, ["dataset"], tables=_tables({}))
    yield Case(
        "nothing to look at: no other class is likelier", IMAGES,
        tables=_tables({"probability": 0.9, "suggested_probability": 0.1},
                       replace(FACTS, labels=replace(LABELS, gain=0.4))),
    )  # fmt: skip
    overlap = replace(LABELS, gain=0.4)
    yield Case(
        "how many cannot be told", IMAGES, ["dataset"],
        tables=_tables({}, replace(FACTS, labels=overlap)),
    )  # fmt: skip
