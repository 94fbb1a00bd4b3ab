"""Cases of DUP001, DUP002, LABEL005."""

from collections.abc import Iterator

from audit.checks.dup_equal import Row
from audit.testing import Case
from tests.audit.checks.case_tables import Cases

A = {"content_hash": "a" * 64, "pixel_hash": "a" * 32}
PIXELS = {"pixel_hash": "b" * 32}
SAME_FILE = {**PIXELS, "content_hash": "c" * 64}
EMPTY_FILE = {"status": "unreadable", "n_bytes": 0}
LABELLED = {"pixel_hash": "d" * 32}
GROUP_A, GROUP_B, GROUP_D = ([f"group:{16 * letter}"] for letter in "abd")
BLANK = {"contrast": 0.0, "entropy": 0.0, "sharpness": None}


def label005() -> Iterator[Case]:
    yield Case("copies that agree", [LABELLED, LABELLED])
    yield Case("different images, different labels", [{"label": "cat"}, {"label": "dog"}])
    yield Case("a missing label is no conflict", [LABELLED, {**LABELLED, "label": None}])
    yield Case("no image to compare", [{"pixel_hash": None, "label": x} for x in "ab"])
    named = [{**LABELLED, "label": label} for label in ("cat", "dog")]
    yield Case("one image as cat and as dog", [named[0], *named], GROUP_D)
    same_file = [{**row, "content_hash": "e" * 64} for row in named]
    yield Case("byte-identical copies count", same_file, GROUP_D)
    both = [{"sample_id": "0000.jpg", "label": x} for x in ("cat", "dog")]
    several: list[Row] = [{**LABELLED, "label": None}, {**LABELLED, "label": "dog"}]
    yield Case("one image as cat and dog, and as dog alone", several, GROUP_D,
         tables={"several_labels": both})  # fmt: skip
    yield Case(
        "sets that agree",
        [{**LABELLED, "label": None}] * 2,
        tables={"several_labels": both + [{**r, "sample_id": "0001.jpg"} for r in both]},
    )
    yield Case(
        "black frames in every class are reported once",
        [{**LABELLED, "contrast": 0.0, "label": f"class {i}"} for i in range(20)],
        ["dataset:blank"],
    )


CASES: Cases = {
    "DUP001": [
        Case("different files", [{}, {}]),
        Case("empty files are all equal: FILE001", [{**A, **EMPTY_FILE}] * 2),
        Case("no hash is no duplicate", [{"content_hash": None}, {"content_hash": None}]),
        Case("same pixels, other bytes: DUP002", [{"pixel_hash": "a" * 32}] * 2),
        Case("one image twice", [A, A, {}], GROUP_A),
        Case("a copy in the test split", [A, {**A, "split": "test"}], GROUP_A),
        Case(
            "blank images: one group, however many",
            [{**A, "contrast": 0.0, "entropy": 0.0, "label": f"{i}"} for i in range(40)],
            GROUP_A,
        ),
    ],
    "DUP002": [
        Case("different images", [{}, {}]),
        Case("the same file twice: DUP001", [SAME_FILE] * 2),
        Case(
            "same hash of other sizes",
            [{**PIXELS, "width": 4, "height": 9}, {**PIXELS, "width": 9}],
        ),
        Case("no image, no duplicate", [{"pixel_hash": None, "status": "unreadable"}] * 2),
        Case("a PNG and a BMP of one image", [PIXELS, PIXELS, {}], GROUP_B),
        Case(
            "two equal files and a third that shows the same",
            [SAME_FILE, SAME_FILE, {**PIXELS, "split": "test"}],
            GROUP_B,
        ),
        Case(
            "three shades of blank make one finding",
            [{**BLANK, "pixel_hash": f"{i % 3}" * 32} for i in range(30)],
            ["dataset:blank"],
        ),
        Case(
            "transparent images are blank too",
            [{**PIXELS, "transparent": 1.0, "contrast": 0.2}] * 2,
            ["dataset:blank"],
        ),
    ],
}
