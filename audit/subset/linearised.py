"""Metrics that are no plain share of rows: macro-recall, macro-F1, AUROC, by linearisation.

Each is a smooth function of weighted totals, so its design variance is that of the weighted sum of
the rows' influences (Deville 1999, Survey Methodology 25:193): no resampling, and memory that grows
with the rows, not with the classes squared. A few rows in a class, all right, have no influence and
show no variance; so each metric also says what a row weighs in it (`share`) and which rows speak
against it (`against`), from which `intervals` steadies the variance as it does for a share.

- precision is a share among rows that depend on the model.
- macro-recall is a share whose rows weigh 1 / (classes x files of their class).
- macro-F1 is one whose rows weigh what one mistake in them would cost: their class, and the class
  that they might be called instead.
- AUROC weighs positives and negatives by one half each; a row's influence is how it ranks among the
  other kind (DeLong, DeLong and Clarke-Pearson 1988, Biometrics 44:837).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from audit.stats import Floats, Ints
from audit.subset.design import Design
from audit.subset.estimate import ESTIMANDS, Estimand, Ratio


@dataclass(frozen=True)
class Linearised:
    """A metric at one model's answers; every array has one entry a row.

    `value`: the metric; `influence`: a row's effect on it, weighted sum 0; `sides`: what a row
    weighs in each side of it, weighted sums that add up to 1 (a share has one side, AUROC two);
    `against`: how far rows speak against the metric, and how far for it, 0..1; `reach`: what
    mistakes in all rows would cost together if each cost as much as alone: 1 for a share, more
    where a mistake costs another class as well.
    """

    value: float
    influence: Floats
    sides: tuple[Floats, ...]
    against: tuple[Floats, ...]
    reach: float = 1.0

    @property
    def share(self) -> Floats:
        """What a row weighs in the metric; weighted sum 1."""
        return np.asarray(sum(self.sides))

    def ratio(self, design: Design) -> Ratio:
        """Return it as a weighted ratio: its value, variances, and what they rest on."""
        # in files, as the moments of a plain share are: the mean row weighs one
        counts = (self.share > 0).astype(float)
        mean = 1 / max(float((design.weight * counts).sum()), 1e-300)
        share = self.share / mean
        r = design.ratio(self.influence / mean + self.value * share, share)
        plain = design.ratio(counts, counts)
        spread = min(_spread(design, self.share, side) for side in self.against)
        return replace(
            r,
            value=np.asarray(self.value),
            base_n=self._base_sizes(design),
            rare_units=np.asarray(spread),
            grouped=plain.grouped,
            fraction=plain.fraction,
        )

    def told_apart(self, design: Design) -> Ratio:
        """Return how far the rows that speak against it could move it: of a difference, those
        that two models answer otherwise."""
        moved = self.reach * float((design.weight * self.share * self.against[0]).sum())
        return replace(self.ratio(design), value=np.asarray(min(moved, 1.0)))

    def _base_sizes(self, design: Design) -> dict[Estimand, Floats]:
        """Return the sizes at which units that are all right or all wrong have the same variance.

        The smaller side decides: the variance of an AUROC is at most A (1 - A) over the rows of the
        rarer kind (Birnbaum and Klose 1957, Annals of Mathematical Statistics 28:933).
        """
        totals = [_unit_totals(design, design.weight * side) for side in self.sides]
        n = np.bincount(design.stratum, minlength=design.population.size)
        remaining = 1 - (n / np.maximum(design.population, 1))[design.stratum]
        factors = dict(zip(ESTIMANDS, (remaining, np.ones_like(remaining)), strict=True))
        with np.errstate(divide="ignore"):
            return {
                e: np.asarray(min(t.sum() ** 2 / (t**2 * f).sum() for t in totals) / self.reach)
                for e, f in factors.items()
            }


def _unit_totals(design: Design, values: Floats) -> Floats:
    return np.bincount(design.unit, values, design.n_units).astype(float)


def _spread(design: Design, share: Floats, against: Floats) -> float:
    """Return among how many units' worth of the heaviest rows something is spread.

    Kish's effective number, times how light the rows are: rows that weigh little say little of the
    variance where rows weigh much.
    """
    weight = design.weight * share
    total = _unit_totals(design, weight * against)
    if not total.any():
        return 0.0
    kish = total.sum() ** 2 / (total**2).sum()
    typical = total.sum() / against[share > 0].sum()
    return float(kish * min(1.0, typical / weight.max()))


# ---- shares of classes ----


def share_of(top: Floats, bottom: Floats, weight: Floats) -> Linearised:
    """Return the share of `top` among the rows that `bottom` marks: precision of one class."""
    share = bottom * (weight > 0)
    total = float((weight * share).sum())
    if not total:
        return Linearised(float("nan"), share, (share,), (share,))
    share = share / total
    value = float((weight * share * top).sum())
    return Linearised(value, share * (top - value), (share,), _wrong_and_right(top, weight))


def macro_recall(label: Ints, hit: Floats, weight: Floats, classes: int) -> Linearised:
    """Return the mean recall of the classes that have rows; `weight` is 0 for rows left out."""
    files = np.bincount(label, weight, classes)
    present = files > 0
    each = np.where(present, 1 / np.maximum(files, 1e-300), 0.0) / max(int(present.sum()), 1)
    recall = np.bincount(label, weight * hit, classes) * each * present.sum()
    share = each[label] * (weight > 0)
    value = float((weight * share * hit).sum())
    return Linearised(value, share * (hit - recall[label]), (share,), _wrong_and_right(hit, weight))


def macro_f1(label: Ints, predicted: Ints, hit: Floats, weight: Floats, classes: int) -> Linearised:
    """Return the mean F1 of the classes with labels or predictions; `classes` means none of them.

    `predicted` is `classes` for a prediction that is no class of the set.
    """
    called = np.bincount(predicted, weight, classes + 1)[:classes]
    total = np.asarray(np.bincount(label, weight, classes) + called, float)
    present = total > 0
    each = np.where(present, 1 / np.maximum(total, 1e-300), 0.0) / max(int(present.sum()), 1)
    f1 = 2 * np.bincount(label, weight * hit, classes) * each * present.sum()
    # a prediction outside the classes counts against the recall of its label alone
    of_called = np.append(each, 0.0)[predicted]
    f1_called = np.append(f1, 0.0)[predicted]
    used = weight > 0
    influence = (2 * each[label] * hit - each[label] * f1[label] - of_called * f1_called) * used
    mean, square = _loss_of_a_mistake(label, f1, total, each, weight)
    loss = np.sqrt(square) * used
    all_wrong, whole = (max(float((weight * v).sum()), 1e-300) for v in (mean, loss))
    # By Cauchy's inequality at least the cost of a mistake in every row, and equal to it where it
    # costs the same whatever the row is called.
    reach = max(whole**2 / all_wrong, 1.0)
    value = float(f1.sum() / max(int(present.sum()), 1))
    return Linearised(value, influence, (loss / whole,), _wrong_and_right(hit, weight), reach)


def _loss_of_a_mistake(
    label: Ints, f1: Floats, total: Floats, each: Floats, weight: Floats
) -> tuple[Floats, Floats]:
    """Return what macro-F1 would lose, per weight of each row, if that row alone were wrong.

    The mean, and the mean square, over the classes it might be called. A heavy row called a small
    class costs that class far more than its own, and few samples show such a row.
    """
    present = total > 0
    classes = int(present.sum())
    own = each[label] * (2 - f1[label])
    levels, place = np.unique(weight, return_inverse=True)
    # A class loses the share that the row adds to its files, at most all of its F1.
    lost = (f1[present] / (total[present] + level) / max(classes, 1) for level in levels)
    sums, squares = np.array([(v.sum(), (v**2).sum()) for v in lost])[place].T
    itself = f1[label] / np.maximum(total[label] + weight, 1e-300) / max(classes, 1)
    others = max(classes - 1, 1)
    into, into_square = (sums - itself) / others, (squares - itself**2) / others
    return own + into, own**2 + 2 * own * into + into_square


def _wrong_and_right(hit: Floats, weight: Floats) -> tuple[Floats, Floats]:
    used = weight > 0
    return (1 - hit) * used, hit * used


# ---- ranking ----


def auroc(positive: npt.NDArray[np.bool_], score: Floats, weight: Floats) -> Linearised:
    """Return the area under the ROC curve; ties count half. NaN without both kinds."""
    used = weight > 0
    good, bad = weight * positive, weight * ~positive
    n_good, n_bad = float(good.sum()), float(bad.sum())
    if not (n_good and n_bad):
        zero = np.zeros(weight.size)
        return Linearised(float("nan"), zero, (zero, zero), (zero, zero))
    # of the other kind, the share that a row is rightly ranked against
    below, above = _ranked_below(score, bad) / n_bad, 1 - _ranked_below(score, good) / n_good
    placed = np.where(positive, below, above)
    value = float((good * below).sum() / n_good)
    of_kind = np.where(positive, 1 / n_good, 1 / n_bad) * used
    kinds = (positive * used, ~positive * used)
    wrong = np.where(value >= 0.5, 1 - placed, placed)
    return Linearised(
        value,
        of_kind * (placed - value),
        (of_kind * kinds[0] / 2, of_kind * kinds[1] / 2),
        (wrong * kinds[0], wrong * kinds[1]),
    )


def _ranked_below(score: Floats, weight: Floats) -> Floats:
    """Return for each row the weight of what scores below it, ties by half."""
    values, place = np.unique(score, return_inverse=True)
    tied = np.bincount(place, weight, values.size)
    return np.asarray((np.cumsum(tied) - tied / 2)[place])


def mean_of(parts: list[Linearised]) -> Linearised:
    """Return the mean of several metrics of the same rows: AUROC of more than two classes."""
    known = [part for part in parts if np.isfinite(part.value)] or parts[:1]

    def mean(arrays: list[Floats]) -> Floats:
        return np.asarray(sum(arrays)) / len(known)

    return Linearised(
        float(np.mean([part.value for part in known])),
        mean([part.influence for part in known]),
        tuple(mean([part.sides[k] for part in known]) for k in (0, 1)),
        tuple(mean([part.against[k] for part in known]) for k in (0, 1)),
    )


def difference_of(first: Linearised, second: Linearised, changed: Floats) -> Linearised:
    """Return second minus first on the same rows; `changed` marks rows answered otherwise."""
    return Linearised(
        second.value - first.value,
        second.influence - first.influence,
        ((first.share + second.share) / 2,),
        (changed,),
        (first.reach + second.reach) / 2,
    )
