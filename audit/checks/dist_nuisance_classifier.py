"""DIST005: classes that a classifier guesses from the files alone, without a look at a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from audit.checking.cases import Case
from audit.checking.check import QueryCheck
from audit.checking.properties import MEASURED_COLUMNS, PropertyTable, property_table
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.association import binned, fold_scores, unit_folds
from audit.statistics.intervals import mcnemar, paired_difference


class Guesses(NamedTuple):
    """How a classifier on nuisance columns fares against always saying the largest class."""

    pictures: int
    classes: int
    columns: int
    accuracy: float
    majority_share: float
    gain_low: float
    gain_high: float
    p: float
    sources: str

    @property
    def skill_low(self) -> float:
        """The lower limit of the gain, as a share of what the largest class leaves to gain."""
        return self.gain_low / max(1 - self.majority_share, 1e-9)


def _sized(n: int, label: str, **fixed: Any) -> list[dict[str, Any]]:
    return [{"label": label, **fixed} for _ in range(n)]


class GuessableFromFiles(QueryCheck):
    """Datasets whose classes a classifier guesses from properties of the files alone.

    ## What it does
    Trains a linear classifier (ridge, 5 folds, copies and manifest groups kept together) on the
    format, size, mode, JPEG quality and subsampling, colour profile, EXIF camera and orientation,
    words of file names and columns of the manifest; on nothing that is measured on the picture
    itself. Its accuracy on files it did not see is compared with that of always saying the largest
    class. Reported if it is surely better (mid-p McNemar test at `rate`), and if the lower limit of
    the gain is at least `min_skill` of what the largest class leaves to gain.

    ## Why is this bad
    Whatever such a classifier gets right, a model can get right without a look at the subject: the
    part of its score that it has from the files is not worth anything elsewhere.

    ## Example
    Of 10 equal classes the files alone give 34 % accuracy, and always saying one class 10 %.

    ## What to do
    See which properties (DIST004 names classes), make them alike over classes, and compare the
    score of a model with this accuracy rather than with chance.

    ## Limits
    A linear model finds no interplay of properties. Classes with fewer than `min_units` pictures
    are left out. Columns and words that name the class are left out, as in DIST004.

    ## References
    Torralba and Efros, Unbiased look at dataset bias, CVPR 2011. Fagerland, Lydersen and Laake
    (2013), BMC Medical Research Methodology 13:91. Bonett and Price (2012), JEBS 37:479."""

    code = "DIST005"
    name = "guessable-from-files"
    severity = Severity.WARNING
    features = MEASURED_COLUMNS
    message = (
        "From properties of the files alone, a classifier names the class of {accuracy:.1%} of "
        "{pictures:,} pictures it did not see (95 % interval {accuracy_low:.1%} to {most:.1%}); "
        "always saying the largest of {classes:,} classes gives {majority_share:.1%}. The "
        "properties: {sources}."
    )
    evidence = (
        "accuracy", "accuracy_low", "accuracy_high", "majority_share", "pictures", "classes", "p"
    )  # fmt: skip

    @dataclass(frozen=True)
    class Params:
        """rate: false findings in datasets whose files do not tell the class, 0..1
        min_skill: gain over the largest class, of what it leaves to gain, at the lower limit, 0..1
        min_units: pictures (copies and groups counted once) of a class, at least
        min_total: pictures in all, at least
        """

        rate: float = 0.01
        min_skill: float = 0.1
        min_units: int = 10
        min_total: int = 100

    @staticmethod
    def cases() -> Iterator[Case]:
        yield Case("files all alike", _sized(60, "a") + _sized(60, "b"))
        yield Case(
            "a large class, and properties that say nothing",
            [{"label": "a" if i % 10 else "b", "jpeg_quality": 80 + i % 7} for i in range(600)],
        )
        yield Case("a column that names a frequent class is rare",
             _sized(300, "a") + _sized(60, "b") + _sized(12, "b", format="PNG"))  # fmt: skip
        yield Case("too few", _sized(20, "a", format="PNG") + _sized(20, "b"))
        yield Case("another size for each class", _sized(60, "a") + _sized(60, "b", width=800)
             + _sized(60, "c", width=320), ["dataset"])  # fmt: skip
        yield Case("qualities that overlap",
             [{"label": x, "jpeg_quality": 70 + (i * 7) % 20 + 8 * k}
              for k, x in enumerate("abc") for i in range(100)], ["dataset"])  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        guesses = store.share(_judged, params)[1]
        if guesses and guesses.p <= params.rate and guesses.skill_low >= params.min_skill:
            row = {
                **guesses._asdict(), "subject": "dataset",
                "accuracy_low": guesses.majority_share + guesses.gain_low,
                "accuracy_high": guesses.majority_share + guesses.gain_high,
            }  # fmt: skip
            yield self.of_row({**row, "most": min(row["accuracy_high"], 1.0)}, params)

    def completeness(self, store: Store, params: Params) -> str:
        table, guesses = store.share(_judged, params)
        if guesses is None:
            return (
                f"No classifier was trained on the files: {len(table.ids):,} pictures in classes "
                f"of at least {params.min_units}, {len(table.properties):,} properties that vary."
            )
        return (
            f"From {guesses.columns:,} properties of {guesses.pictures:,} files a classifier names "
            f"{guesses.accuracy:.1%} of the classes; always saying the largest: "
            f"{guesses.majority_share:.1%}."
        )


def _judged(
    store: Store, params: GuessableFromFiles.Params
) -> tuple[PropertyTable, Guesses | None]:
    """Return the nuisance columns of units in classes that are large enough.

    And what a classifier makes of them, where these are enough.
    """
    table = store.share(property_table).of_kind("nuisance")
    table = table.rows(table.label >= 0).by_unit()
    sizes = np.bincount(table.label, minlength=len(table.labels))
    table = table.rows(sizes[table.label] >= params.min_units)
    classes = len(np.unique(table.label))
    enough = len(table.ids) >= params.min_total and classes > 1 and table.properties
    return table, _guesses(table) if enough else None


def _guesses(table: PropertyTable) -> Guesses:
    present, classes = np.unique(table.label, return_inverse=True)
    columns = binned(table.values, np.array([p.level for p in table.properties], bool))
    guessed = np.zeros(len(classes), np.int64)
    for rows, scores in fold_scores(columns, classes, unit_folds(table.unit), len(present)):
        guessed[rows] = scores.argmax(1)
    n = len(classes)
    right = guessed == classes
    largest = classes == int(np.bincount(classes).argmax())
    gained, lost = int((right & ~largest).sum()), int((largest & ~right).sum())
    low, high = paired_difference(gained / n, lost / n, n)
    one_sided = float(mcnemar(gained, lost, "midp")) / 2
    return Guesses(
        n, len(present), len(table.properties), float(right.mean()), float(largest.mean()),
        float(low), float(high), one_sided if gained > lost else 1.0,
        ", ".join(dict.fromkeys(p.source for p in table.properties)),
    )  # fmt: skip
