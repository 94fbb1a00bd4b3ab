"""How much the evaluation splits of a run can show, as they are.

The margin of error is that of an accuracy of 50% (Wilson 1927), from the effective sample size: the
widest there is. The smallest gain is that of McNemar's test with a power of 80% (Connor 1987).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from audit.results.report_data import Report
from audit.statistics.intervals import wilson_share
from audit.subset.sizes import connor_difference

TRAIN_SPLITS = ("train", "training")
DISAGREEMENT = 0.2  # of two models: the share of images on which exactly one is right


@dataclass(frozen=True, slots=True)
class EvaluationSplit:
    """An evaluation split: images, effective images, and what they can show (shares, 0..1).

    `smallest_gain`: None where even models that always disagree cannot be distinguished. `leaked`:
    share of the images that are in training, too.
    """

    name: str
    images: int
    effective: float
    margin: float
    smallest_gain: float | None
    leaked: float

    @property
    def sentence(self) -> str:
        """The size in one line."""
        text = (
            f"{self.name} has {self.effective:,.0f} effective images: margin of error "
            f"{100 * self.margin:.1f} points."
        )
        if self.smallest_gain is None:
            return text
        points = f"{100 * self.smallest_gain:.0f}"
        return f"{text} A gain below {points} points between two models cannot be seen."


def evaluation_splits(report: Report) -> list[EvaluationSplit]:
    """Return the splits of a run that are not for training, test first."""
    found = []
    for name, images in report.dataset.by_split().items():
        if not name or name.lower() in TRAIN_SPLITS or not images:
            continue
        numbers = {cost.kind: cost.numbers for cost in report.costs if cost.split == name}
        effective = float(numbers.get("repeated", {}).get("effective") or images)
        leaked = float(numbers.get("leaked", {}).get("share") or 0.0)
        found.append(measure_split(name, images, effective, leaked))
    return sorted(found, key=lambda split: ("test" not in split.name, split.name))


def measure_split(name: str, images: int, effective: float, leaked: float) -> EvaluationSplit:
    """Return what a set of images can show; `effective`: independent ones; `leaked`: a share."""
    low, high = wilson_share(0.5, effective)
    gain = float(connor_difference(effective, DISAGREEMENT))
    smallest = None if math.isnan(gain) else gain
    return EvaluationSplit(name, images, effective, float(high - low) / 2, smallest, leaked)


def evaluation_problems(report: Report, min_difference: float = 0.0) -> list[str]:
    """Return why the evaluation cannot be trusted: leaks, sizes, and classes without an image.

    `min_difference`: what it must show, a share; 0 for no wish.
    """
    problems = []
    for split in evaluation_splits(report):
        if split.leaked > split.margin:
            problems.append(
                f"The leak can add {100 * split.leaked:.1f} points to the accuracy on "
                f"{split.name}, more than its margin of error."
            )
        if min_difference and split.margin > min_difference:
            wanted = f"{100 * min_difference:.1f} points"
            problems.append(f"{split.name} is too small to show a difference of {wanted}.")
    if missing := _classes_without_evaluation(report):
        names = ", ".join(missing[:3]) + ", ..." * bool(missing[3:])
        problems.append(f"Classes of train without an evaluation image: {len(missing)} ({names}).")
    return problems


def _classes_without_evaluation(report: Report) -> list[str]:
    classes = [c for c in report.dataset.classes if c.n and c.label is not None and c.split]
    trained = {c.label for c in classes if c.split and c.split.lower() in TRAIN_SPLITS}
    evaluated = {c.label for c in classes if c.split and c.split.lower() not in TRAIN_SPLITS}
    return sorted(label for label in trained - evaluated if label) if evaluated else []
