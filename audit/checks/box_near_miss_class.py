"""BOX026: class names of annotations that are probably one class in two spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import file_finding
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

_SAMPLES = """
    SELECT DISTINCT sample_id FROM boxes WHERE file = ? AND label = ? AND sample_id IS NOT NULL
    ORDER BY 1 LIMIT 100
"""
_FILLER = re.compile(r"[\s_-]+")


def _label(name: str, n: int = 1) -> list[dict[str, object]]:
    return [{"label": name, "category_key": name}] * n


class NearMissClass(Check):
    """Class names of boxes that differ by case, blanks, or one letter.

    ## What it does
    Compares the class names that the boxes of a file use: two that are equal without case, blanks,
    hyphens and underscores; and two of at least five letters that differ by one letter, where the
    rarer has at most `max_share` of the boxes of the other.

    ## Why is this bad
    The misspelt class becomes an output of its own, with next to no examples, and its objects are
    background to the right one.

    ## Example
    216 boxes of `raccoon` and 1 of `racoon`.

    ## What to do
    Rename the class in its annotation files.

    ## Limits
    Names that differ in a digit alone are taken for numbers of a series. The folders of a dataset
    are compared by LABEL002.

    ## References
    V. I. Levenshtein, "Binary codes capable of correcting deletions, insertions and reversals",
    1966.
    """

    code = "BOX026"
    name = "near-miss-class"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_share: boxes of the rarer class for one of the other, where one letter differs
        """

        max_share: float = 0.05

    CLEAN = (
        Case("different names", [{}], tables=boxed(*_label("cat", 30), *_label("car"))),
        Case("both are many", [{}], tables=boxed(*_label("mouse", 9), *_label("house", 9))),
        Case("numbers", [{}], tables=boxed(*_label("class 10", 40), *_label("class 11"))),
    )
    DIRTY = (
        Case(
            "a capital",
            [{}],
            ["dataset:boxes.json/Cat|cat"],
            tables=boxed(*_label("cat", 3), *_label("Cat")),
        ),
        Case(
            "a letter too few",
            [{}],
            ["dataset:boxes.json/raccoon|racoon"],
            tables=boxed(*_label("raccoon", 40), *_label("racoon")),
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a pair of names."""
        sql = """
            WITH used AS (
                SELECT file, label, count(*) AS n FROM boxes
                WHERE label IS NOT NULL AND sample_id IS NOT NULL GROUP BY file, label
            )
            SELECT a.file, a.label AS rare, b.label AS common, a.n AS n_rare, b.n AS n_common
            FROM used a JOIN used b ON a.file = b.file AND a.label <> b.label
                AND (a.n < b.n OR (a.n = b.n AND a.label < b.label))
            WHERE damerau_levenshtein(lower(a.label), lower(b.label)) <= 3 ORDER BY 1, 2, 3
        """
        for row in store.query(sql).iter_rows(named=True):
            rare, common = row["rare"], row["common"]
            alike = _bare(rare) == _bare(common)
            few = row["n_rare"] <= params.max_share * row["n_common"]
            if not (alike or (few and _one_letter(rare, common))):
                continue
            samples = store.query(_SAMPLES, [row["file"], rare])["sample_id"].to_list()
            yield file_finding(
                self.code,
                self.severity,
                row["file"],
                "|".join(sorted((rare, common))),
                f"The file {row['file']} has {row['n_common']:,} boxes of {common!r} and "
                f"{row['n_rare']:,} of {rare!r}, which is probably the same class.",
                {"class": rare, "other_class": common, "boxes": row["n_rare"],
                 "other_boxes": row["n_common"]},
                samples,
            )  # fmt: skip

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many names were compared."""
        n = store.scalar("SELECT count(DISTINCT label) FROM boxes")
        return f"{n:,} class names of boxes compared with each other."


def _bare(name: str) -> str:
    return _FILLER.sub("", name).casefold()


def _one_letter(a: str, b: str) -> bool:
    """Say whether two names of five letters and more differ by one letter, and no digit."""
    a, b = a.casefold(), b.casefold()
    if min(len(a), len(b)) < 5 or abs(len(a) - len(b)) > 1:
        return False
    start = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    rest_a, rest_b = a[start:], b[start:]
    if any(char.isdigit() for char in rest_a[:1] + rest_b[:1]):
        return False
    swapped = rest_a[:2] == rest_b[:2][::-1] and rest_a[2:] == rest_b[2:]
    return swapped or rest_b in (rest_a[1:],) or rest_a == rest_b[1:] or rest_a[1:] == rest_b[1:]
