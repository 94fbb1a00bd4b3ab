"""Compute metrics of one model on drawn rows, each with its interval.

Accuracy, recall and specificity have the interval of a weighted ratio. Macro-recall, macro-F1,
AUROC and differences in precision have the variance of the weighted influences of the rows (Deville
1999, Survey Methodology 25:193; AUROC: DeLong, DeLong and Clarke-Pearson 1988, Biometrics 44:837).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.errors import UsageError
from audit.statistics.intervals import Floats, Ints, effective_n
from audit.subset.draw import COLUMNS
from audit.subset.estimate import (
    Ratio,
    caution,
    counted_interval,
    proportion_interval,
    unit_moments,
    weighted_ratio,
)
from audit.subset.goal import ESTIMANDS, Estimand, parse_metric
from audit.subset.predictions import PROBABILITY


@dataclass(frozen=True)
class MetricEstimate:
    """An estimate with its limits for one estimand; `known` where the whole set was scored.

    `caution` says how to read the limits where they are rough or wide, and what to do about it.
    """

    value: float
    low: float
    high: float
    effective_n: float
    known: bool = False
    caution: str = ""


@dataclass(frozen=True)
class Design:
    """Strata and units of the rows of a subset, as numbers.

    `unit` codes each row's unit, `stratum` each unit's stratum, `population` is N_h, `multiplicity`
    the files each row stands for within its unit, `weight` the design weight of each row.
    """

    rows: pl.DataFrame
    unit: Ints
    stratum: Ints
    population: Floats
    multiplicity: Floats
    weight: Floats

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Design:
        """Read the design from drawn rows; raises UsageError for a table that is not a subset."""
        absent = [c for c in COLUMNS if c not in rows.columns]
        if absent:
            raise UsageError(
                f"This is not a drawn subset: it has no column {absent[0]!r}. Make one with `audit "
                "subset draw`, and keep all its columns."
            )
        if rows.is_empty():
            raise UsageError("The subset has no rows: draw it again.")
        rows = rows.with_columns(
            pl.col("sample_id", "path", "label", "stratum", "unit_id").cast(pl.String)
        )
        _check_values(rows)
        strata = rows.select("stratum", "N_h").unique().sort("stratum")
        if strata["stratum"].is_duplicated().any():
            raise UsageError("A stratum has two sizes N_h: the rows come from different draws.")
        unit = np.unique(rows["rank"].to_numpy(), return_inverse=True)[1]
        code = rows["stratum"].cast(pl.Enum(strata["stratum"])).to_physical().to_numpy()
        stratum = np.zeros(int(unit.max()) + 1, np.int64)
        stratum[unit] = code
        # A shortened file keeps its old n_h: weights from it would be too small without a warning.
        drawn = np.bincount(stratum, minlength=len(strata))
        if np.any(drawn[code] != rows["n_h"].to_numpy()):
            raise UsageError(
                "Rows are missing from this subset (n_h does not match the rows): weights would be "
                "wrong. Use the file that `draw` wrote, or --first N for a shorter one."
            )
        weight = rows["weight"].to_numpy().astype(float)
        # Whole by construction; CSV and floating point leave a trace of rounding.
        multiplicity = np.rint(weight * rows["inclusion_probability"].to_numpy())
        population = strata["N_h"].to_numpy().astype(float)
        return cls(rows, unit, stratum, population, multiplicity, weight)

    @property
    def n_units(self) -> int:
        """Drawn units."""
        return int(self.stratum.size)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Drawn files, drawn units, and units of the set."""
        return len(self.rows), self.n_units, int(self.population.sum())

    @property
    def complete(self) -> bool:
        """True where every unit of the set was drawn."""
        return bool(self.n_units >= self.population.sum())

    @property
    def equal_files(self) -> bool:
        """True where weights are equal and every unit is one file: plain counts mean something."""
        single = self.n_units == self.unit.size and bool((self.multiplicity == 1).all())
        return single and bool(np.ptp(self.weight) <= 1e-9 * self.weight.max())

    def totals(self, values: Floats) -> Floats:
        """Return the sum of a per-row column over each unit."""
        return np.bincount(self.unit, values, self.n_units).astype(float)

    def ratio(self, top: Floats, bottom: Floats) -> Ratio:
        """Return the weighted ratio of two per-row columns."""
        y, x = (self.totals(v * self.multiplicity) for v in (top, bottom))
        return weighted_ratio(unit_moments(y, x, self.stratum, self.population))


def _check_values(rows: pl.DataFrame) -> None:
    chance, weight = pl.col("inclusion_probability"), pl.col("weight")
    number = chance.is_between(0, 1, closed="right") & weight.is_finite() & (weight > 0)
    bad = rows.filter(~number.fill_null(False) | pl.col("label").is_null())
    if len(bad):
        raise UsageError(
            f"The subset is damaged: {len(bad)} of {len(rows)} rows have no label, or no weight "
            f"above 0, such as {bad['sample_id'][0]!r}. Use the file that `draw` wrote."
        )


def estimate_share(
    design: Design, hit: Floats, counts: Floats, confidence: float
) -> dict[Estimand, MetricEstimate]:
    """Return the weighted share of `hit` among the rows that `counts` marks with 1."""
    # A simple random sample needs no approximation by an effective size.
    plain_count = _simple_counts(design, hit, counts)
    if plain_count is not None:
        return {e: _counted(*plain_count, e, confidence) for e in ESTIMANDS}
    r = design.ratio(hit * counts, counts)
    return estimate_ratio(design, r, float(r.value), confidence)


def estimate_ratio(
    design: Design, r: Ratio, value: float, confidence: float
) -> dict[Estimand, MetricEstimate]:
    """Return `value` with the interval of a share that has the variance of `r`."""
    if math.isnan(value):
        return dict.fromkeys(ESTIMANDS, MetricEstimate(math.nan, 0.0, 1.0, 0.0))
    value = min(max(value, 0.0), 1.0)
    estimates: dict[Estimand, MetricEstimate] = {}
    for estimand in ESTIMANDS:
        low, high, effective = (float(v) for v in proportion_interval(r, estimand, confidence))
        estimates[estimand] = MetricEstimate(value, low, high, effective, caution=caution(r, value))
    if design.complete:
        estimates["full-set"] = MetricEstimate(value, value, value, math.inf, True)
    return estimates


def _counted(k: int, n: int, N: int, estimand: Estimand, confidence: float) -> MetricEstimate:
    if estimand == "full-set" and n >= N:
        return MetricEstimate(k / n, k / n, k / n, math.inf, True)
    successes, size, total = (np.array(float(v)) for v in (k, n, N))
    low, high = counted_interval(successes, size, total, estimand, confidence)
    effective = n if estimand == "generalisation" else float(effective_n(n, N))
    return MetricEstimate(k / n, float(low), float(high), effective)


def _simple_counts(design: Design, hit: Floats, counts: Floats) -> tuple[int, int, int] | None:
    # All counted rows in one stratum, which they fill, as single files: a plain count (k, n, N).
    used = np.unique(design.stratum[design.unit[counts > 0]])
    if used.size != 1 or not bool((design.multiplicity[counts > 0] == 1).all()):
        return None
    inside = design.stratum[design.unit] == used[0]
    single = int(inside.sum()) == int((design.stratum == used[0]).sum())
    if not single or bool((counts[inside] == 0).any()):
        return None
    return int(hit[inside].sum()), int(inside.sum()), int(design.population[used[0]])


@dataclass(frozen=True)
class Linearised:
    """A metric at one model's answers; every array has one entry a row.

    `value`: the metric; `influence`: a row's effect on it, weighted sum 0; `sides`: what a row
    weighs in each side of it, weighted sums that add up to 1 (a share has one side, AUROC two);
    `against`: how far rows speak against the metric, and for it, 0..1; `reach`: what mistakes in
    all rows would cost together, 1 for a share. `squares`, of pictures with objects: what the
    objects of each weigh, squared and summed. `curve`, of a metric that is no mean: its bias, and a
    variance of rows not seen.
    """

    value: float
    influence: Floats
    sides: tuple[Floats, ...]
    against: tuple[Floats, ...]
    reach: float = 1.0
    squares: Floats | None = None
    curve: tuple[float, float] | None = None

    @property
    def share(self) -> Floats:
        """What a row weighs in the metric; weighted sum 1."""
        return np.asarray(sum(self.sides))

    def ratio(self, design: Design) -> Ratio:
        """Return it as a weighted ratio: its value, variances, and what they rest on."""
        # in files, as the moments of a plain share are: the mean row weighs one
        counts = (
            (self.share > 0).astype(float) if self.squares is None else np.ones(self.share.size)
        )
        mean = 1 / max(float((design.weight * counts).sum()), 1e-300)
        share = self.share / mean
        r = design.ratio(self.influence / mean + self.value * share, share)
        plain = design.ratio(counts, counts)
        spread = min(_spread(design, self.share, side) for side in self.against)
        bias, unseen = self.curve or (0.0, 0.0)
        return replace(
            r,
            value=np.asarray(self.value),
            # an interval of the mean square error holds whatever the sign of the bias
            variance={e: v + bias**2 + unseen for e, v in r.variance.items()},
            base_n=self._base_sizes(design),
            rare_units=np.asarray(spread),
            grouped=plain.grouped,
            fraction=plain.fraction,
            curved=self.curve is not None,
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
        totals = [design.totals(design.weight * side) for side in self.sides]
        n = np.bincount(design.stratum, minlength=design.population.size)
        remaining = 1 - (n / np.maximum(design.population, 1))[design.stratum]
        factors = dict(zip(ESTIMANDS, (remaining, np.ones_like(remaining)), strict=True))
        with np.errstate(divide="ignore"):
            if self.squares is not None:  # objects of a picture are not found or lost together
                each = design.weight**2 * self.squares
                return {
                    e: np.asarray(1 / (each * f[design.unit]).sum()) for e, f in factors.items()
                }
            return {
                e: np.asarray(min(t.sum() ** 2 / (t**2 * f).sum() for t in totals) / self.reach)
                for e, f in factors.items()
            }


def _spread(design: Design, share: Floats, against: Floats) -> float:
    """Return among how many units' worth of the heaviest rows something is spread."""
    weight = design.weight * share
    total = design.totals(weight * against)
    if not total.any():
        return 0.0
    kish = total.sum() ** 2 / (total**2).sum()
    typical = total.sum() / against[share > 0].sum()
    return float(kish * min(1.0, typical / weight.max()))


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
    curve = _curve_of_f1(label, predicted, hit, weight, classes)
    return Linearised(
        value, influence, (loss / whole,), _wrong_and_right(hit, weight), reach, curve=curve
    )


UNSEEN = 2.0
"""Rows of each class that were not seen: wrong as often as the classes are on average, and then
called any other class. With one, too few intervals hold on long tails."""


def _curve_of_f1(
    label: Ints, predicted: Ints, hit: Floats, weight: Floats, classes: int
) -> tuple[float, float]:
    """Return the bias of the mean F1 of samples of this size, and the variance of rows not seen.

    F1 = 2 T / (L + T + W) of a class with L files, T of them right, and W others called it, is
    concave in T and convex in W: where few rows show T, or a heavy row may be called a small class,
    the mean over samples is not the value at the mean. The bias is that of the rows drawn or, where
    that is larger, with the rows not seen.
    """
    # of a set that was drawn from: what is drawn whole is known
    squared = weight**2 * np.maximum(1 - 1 / np.maximum(weight, 1.0), 0.0)
    L, rows = (np.bincount(label, v, classes).astype(float) for v in (weight, np.sign(weight)))
    T, right = (
        np.bincount(label, v * hit, classes).astype(float) for v in (weight, np.sign(weight))
    )
    present = max(int((L > 0).sum()), 1)
    recall = float(np.divide(T, L, out=np.zeros(classes), where=L > 0).sum() / present)
    r = (right + recall) / (rows + 1)
    of_T = np.bincount(label, squared, classes) * r * (1 - r)
    wrong = predicted != label
    W, of_W = (
        np.bincount(predicted[wrong], v[wrong], classes + 1)[:classes].astype(float)
        for v in (weight, squared)
    )
    one, square = (np.bincount(label, v, classes) / np.maximum(rows, 1) for v in (weight, squared))
    rate = UNSEEN * (1 - recall) / max(present - 1, 1)
    more, square = rate * (one.sum() - one), rate * (square.sum() - square)
    gaps = [gap_of_f1(L, T, of_T, W, of_W), gap_of_f1(L, T, of_T, W + more, of_W + square)]
    fixed = np.where(L > 0, L + T, 1.0)
    lost = 2 * T / (fixed * (fixed + square / np.maximum(more, 1e-300)))
    return float(max(gaps, key=abs)) / present, float((square * lost**2).sum()) / present**2


def gap_of_f1(L: Floats, T: Floats, of_T: Floats, W: Floats, of_W: Floats) -> Floats:
    """Return how far the F1 of the classes lie off on average, summed, where T and W have these
    variances: for T the second-order term; for W, a few heavy rows that no expansion holds, the gap
    of the distribution on 0 and one other value."""
    fixed = np.where(L > 0, L + T, 1.0)
    D, step = fixed + W, np.divide(of_W, W, out=np.zeros(W.shape), where=W > 0)
    gap = 2 * T * of_W / (fixed * D * (D + step)) - 2 * (D - T) * of_T / D**3
    return np.asarray(np.where(L > 0, gap, 0.0).sum(-1))


def _loss_of_a_mistake(
    label: Ints, f1: Floats, total: Floats, each: Floats, weight: Floats
) -> tuple[Floats, Floats]:
    """Return the mean and the mean square, over the other classes, of what macro-F1 would lose, per
    weight of each row, if that row alone were wrong.
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
    return Linearised(
        float(np.mean([part.value for part in known])),
        np.mean([part.influence for part in known], axis=0),
        tuple(np.mean([part.sides for part in known], axis=0)),
        tuple(np.mean([part.against for part in known], axis=0)),
    )


def difference_of(first: Linearised, second: Linearised, changed: Floats) -> Linearised:
    """Return second minus first on the same rows; `changed` marks rows answered otherwise."""
    return Linearised(
        second.value - first.value,
        second.influence - first.influence,
        ((first.share + second.share) / 2,),
        (changed,),
        (first.reach + second.reach) / 2,
        None
        if first.squares is None or second.squares is None
        else (first.squares + second.squares) / 2,
        None
        if first.curve is None or second.curve is None
        else (second.curve[0] - first.curve[0], 0.0),
    )


LINEARISED = ("macro-recall", "macro-f1", "auroc")


@dataclass(frozen=True)
class MetricScore:
    """One metric of one model: an estimate per estimand, and the method."""

    metric: str
    estimands: dict[Estimand, MetricEstimate]
    method: str


@dataclass(frozen=True)
class Outcome:
    """One model's answers on the rows: right (1, 0, NaN dropped) and the predicted labels."""

    design: Design
    hit: Floats
    counts: Floats
    predicted: pl.Series
    table: pl.DataFrame

    def score(self, metric: str, confidence: float, included: Floats) -> MetricScore:
        """Return one metric over the rows that `included` marks with 1."""
        name, label = parse_metric(metric)
        if name in LINEARISED:
            estimates = estimate_linear(self.design, self.linearised(metric, included), confidence)
            return MetricScore(metric, estimates, "design-based interval, by linearisation")
        top, bottom = self.share_terms(name, label)
        counts = bottom * self.counts * included
        estimates = estimate_share(self.design, top, counts, confidence)
        return MetricScore(metric, estimates, "design-based interval on the effective size")

    def share_terms(self, name: str, label: str | None) -> tuple[Floats, Floats]:
        """Return a metric that is a share as (right answers, rows that count), one entry a row."""
        every = np.ones(self.hit.size)
        if name == "accuracy":
            return self.hit, every
        labels = self.design.rows["label"]
        if not (labels == label).any():
            raise UsageError(f"No example of class {label!r} is in the subset: draw more of it.")
        own = (labels == label).to_numpy().astype(float)
        called = (self.predicted == label).fill_null(False).to_numpy().astype(float)
        if name == "recall":
            return self.hit, own
        if name == "specificity":
            return 1 - called, 1 - own
        return own, called  # precision: right among what was called this class

    def linearised(self, metric: str, included: Floats) -> Linearised:
        """Return a metric by the influence of each row that `included` marks with 1."""
        name, of_class = parse_metric(metric)
        labels = self.design.rows["label"]
        levels = labels.unique().sort()
        label = labels.cast(pl.Enum(levels)).to_physical().to_numpy().astype(np.int64)
        weight = self.design.weight * self.counts * included
        if name == "auroc":
            return self._auroc(levels.to_list(), label, weight)
        if name not in LINEARISED:
            return share_of(*self.share_terms(name, of_class), weight)
        if name == "macro-recall":
            return macro_recall(label, self.hit, weight, len(levels))
        known = self.predicted.is_in(levels.implode())
        codes = self.predicted.set(~known.fill_null(False), None).cast(pl.Enum(levels))
        predicted = codes.to_physical().cast(pl.Int64).fill_null(len(levels)).to_numpy()
        return macro_f1(label, predicted, self.hit, weight, len(levels))

    def _auroc(self, levels: list[str], label: Ints, weight: Floats) -> Linearised:
        columns = [f"{PROBABILITY}{c}" for c in levels]
        have = [c for c in columns if c in self.table.columns]
        if len(levels) == 2 and have:
            wanted = [levels.index(have[-1].removeprefix(PROBABILITY))]
        elif len(have) == len(levels):
            wanted = list(range(len(levels)))
        else:
            absent = next(c for c in columns if c not in self.table.columns)
            raise UsageError(
                f"AUROC needs the model's probabilities: the predictions have no column {absent!r} "
                "(one prob_<class> column a class, or one of the two)."
            )
        # An example that counts as wrong for want of a prediction gets no support for any class.
        known = {k: self.table[columns[k]].fill_null(0.0).to_numpy() for k in wanted}
        return mean_of([auroc(label == k, known[k], weight) for k in wanted])


def estimate_linear(
    design: Design, linear: Linearised, confidence: float
) -> dict[Estimand, MetricEstimate]:
    """Return a linearised metric with the interval of a share that has its variance."""
    return estimate_ratio(design, linear.ratio(design), linear.value, confidence)
