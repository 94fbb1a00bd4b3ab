"""Cases of LABEL001, LABEL003, LABEL004."""

from collections.abc import Iterator

from audit.records import ONE_HOT
from audit.testing import Case
from tests.audit.checks.case_tables import Cases, sized

NONE = {"label": None}
SPACES = {"label": "  "}
TEST = {"split": "test", **NONE}
BROKEN = {"status": "unreadable", "error_kind": "empty", "label": "owl"}


def _several(sample: str, *labels: str) -> dict[str, list[dict[str, str]]]:
    """Return the table of a sample that has several labels."""
    return {"several_labels": [{"sample_id": sample, "label": label} for label in labels]}


def label003() -> Iterator[Case]:
    cats, owls = (
        [{"split": split, "label": label} for split in ("train", "test")]
        for label in ("cat", "owl")
    )
    yield Case("declared and present", [{}], tables={"declared_classes": cats[:1]})
    yield Case("empty in one split only: DIST003", [{}], tables={"declared_classes": cats})
    yield Case("an empty folder in both splits is one class", [{}], ["class:owl"],
         tables={"declared_classes": owls})  # fmt: skip
    yield Case("a class whose only file is broken", [{"label": "cat"}, BROKEN], ["class:owl"])


CASES: Cases = {
    "LABEL001": [
        Case("every sample labelled", [{}, {"label": "dog"}]),
        Case("the label 0 is a label", [{"label": "0"}, {"label": "1"}]),
        Case("an empty dataset", []),
        Case("several labels are labels", [{}, NONE], tables=_several("0001.jpg", "cat", "dog")),
        Case(
            "columns of 0 and 1 say no to each class",
            [{}, NONE],
            tables={"label_columns": [{"source": "", "reading": ONE_HOT}]},
        ),
        Case("absent and blank", [{}, {"id": "a", **NONE}, {"id": "b", **SPACES}], ["a", "b"]),
        Case("a test split without labels", [{}, *[TEST] * 2], ["split:test"]),
        Case("a dataset without labels", [{"split": None, "label": None}] * 3, ["dataset"]),
    ],
    "LABEL004": [
        Case("two samples", [{}, {"split": "test"}]),
        Case("no labels", [{"label": None}]),
        Case("one stray sample", sized("train", bridge=3, bridgee=1), ["class:bridgee"]),
        Case(
            "of images with several labels",
            [{}, {}, NONE],
            ["class:owl"],
            tables=_several("0002.jpg", "cat", "owl"),
        ),
        Case(
            "one-shot identities are reported once",
            [{"label": f"person {i}"} for i in range(25)] + [{"label": "person 3"}],
            ["dataset"],
        ),
    ],
}
