"""BOX026: class names of annotations that are probably one class in two spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.boxes import BoxCheck
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store

_SAMPLES = """
    SELECT DISTINCT sample_id FROM boxes WHERE file = ? AND label = ? AND sample_id IS NOT NULL
    ORDER BY 1 LIMIT 100
"""
_FILLER = re.compile(r"[\s_-]+")


class NearMissClass(BoxCheck):
    """Class names of boxes that differ by case, spaces, or one letter.

    ## What it does
    Compares the class names of the boxes of a file. Two names are reported if they are equal
    without case, spaces, hyphens and underscores. Names of at least five letters that differ by one
    letter are reported if the rarer has at most `max_share` of the boxes of the other.

    ## Why is this bad
    The misspelt class becomes a separate output with few samples. Its objects count as background
    for the correct class.

    ## Example
    216 boxes of `raccoon` and 1 of `racoon`.

    ## What to do
    Rename the class in its annotation files.

    ## Limits
    Names that differ only in a digit count as a numbered series. Files with more than `max_classes`
    classes are not searched for one-letter differences. LABEL002 compares class folders.
    """

    code = "BOX026"
    name = "near-miss-class"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """max_share: boxes of the rarer class per box of the other, if one letter differs
        max_classes: largest number of classes of a file searched for one-letter differences
        """

        max_share: float = 0.05
        max_classes: int = 1500

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = r"""
            WITH used AS (
                SELECT file, label, count(*) AS n FROM boxes
                WHERE label IS NOT NULL AND sample_id IS NOT NULL GROUP BY file, label
            ), sized AS (
                SELECT *, count(*) OVER (PARTITION BY file) <= $max_classes AS few,
                    regexp_replace(lower(label), '[\s_-]+', '', 'g') AS bare FROM used
            ), pairs AS (
                SELECT a.file, a.label AS rare, b.label AS common, a.n AS n_rare, b.n AS n_common
                FROM sized a JOIN sized b ON a.file = b.file AND a.label <> b.label
                    AND (a.n < b.n OR (a.n = b.n AND a.label < b.label))
                WHERE a.few AND b.few AND damerau_levenshtein(lower(a.label), lower(b.label)) <= 3
                UNION ALL
                SELECT a.file, a.label, b.label, a.n, b.n FROM sized a JOIN (
                    SELECT DISTINCT ON (file, bare) * FROM sized WHERE NOT few
                    ORDER BY n DESC, label DESC
                ) b ON a.file = b.file AND a.bare = b.bare AND a.label <> b.label
            )
            FROM pairs ORDER BY 1, 2, 3
        """
        for file, rare, common, n, others in asked(store, sql, params).iter_rows():
            few = n <= params.max_share * others and _one_letter(rare, common)
            if few or _bare(rare) == _bare(common):
                yield self.about_file(
                    file,
                    "|".join(sorted((rare, common))),
                    f"File {file} has {others:,} boxes of {common!r} and {n:,} of {rare!r}: "
                    "probably one class in two spellings.",
                    {"class": rare, "other_class": common, "boxes": n, "other_boxes": others},
                    store.query(_SAMPLES, [file, rare])["sample_id"].to_list(),
                )

    counts = "SELECT count(DISTINCT label) AS n FROM boxes"
    examined = "{n:,} class names of boxes were compared with each other."


def _bare(name: str) -> str:
    return _FILLER.sub("", name).casefold()


def _one_letter(a: str, b: str) -> bool:
    a, b = a.casefold(), b.casefold()
    if min(len(a), len(b)) < 5 or abs(len(a) - len(b)) > 1:
        return False
    pairs = enumerate(zip(a, b, strict=False))
    start = next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
    rest_a, rest_b = a[start:], b[start:]
    if any(char.isdigit() for char in rest_a[:1] + rest_b[:1]):
        return False
    swapped = rest_a[:2] == rest_b[:2][::-1] and rest_a[2:] == rest_b[2:]
    return swapped or rest_b == rest_a[1:] or rest_a == rest_b[1:] or rest_a[1:] == rest_b[1:]
