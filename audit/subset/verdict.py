"""Better, worse, or cannot tell: comparing two models on the same drawn examples.

The verdict is read from the design-based interval of the weighted difference: by stratum, by unit,
finite-population corrected for full-set. The mid-p McNemar test is printed beside it, and decides
the generalisation verdict, only where it is valid: equal weights, single files, one plain share. A
plain McNemar test on a disproportionate or grouped subset can call the worse model better nearly
every time. At n = N the full-set difference is stated, not inferred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit import stats
from audit.stats import Floats
from audit.subset import bootstrap, estimate, sizes
from audit.subset.design import Design
from audit.subset.estimate import ESTIMANDS, Estimand
from audit.subset.outcome import Outcome


@dataclass(frozen=True)
class Difference:
    """Second model minus first, for one estimand, with the verdict in one word and in words.

    `n_to_tell`: units at which a difference of the observed size would be told; None where it is
    told already or there is none to tell.
    """

    value: float
    low: float
    high: float
    verdict: str
    sentence: str
    n_to_tell: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples: counts of disagreement, a verdict per estimand.

    `mcnemar_p` is None where the test does not apply, with the reason in `notes`.
    """

    metric: str
    second_only: int
    first_only: int
    discordant: float
    estimands: dict[Estimand, Difference]
    mcnemar_p: float | None
    notes: list[str]


def compare_right(
    design: Design,
    first: Floats,
    second: Floats,
    counts: Floats,
    metric: str,
    confidence: float,
    power: float,
    names: Sequence[str],
    label_noise: float | None,
    predictions_differ: float,
) -> Comparison:
    """Compare two models' right answers on the rows that `counts` marks with 1."""
    change = (second - first) * counts
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    difference = design.ratio(change, counts)
    discordant = design.ratio(np.abs(change), counts)
    plain = design.equal_files
    p_value = float(stats.mcnemar(gained, lost)) if plain else None
    found: dict[Estimand, Difference] = {}
    for estimand in ESTIMANDS:
        test = p_value if estimand == "generalisation" else None
        found[estimand] = _difference(
            design, difference, discordant, estimand, confidence, power, names, metric, test
        )
    psi = float(discordant.value)
    notes = [] if plain else [_why_no_mcnemar(design)]
    spread = np.asarray(max(psi - float(difference.value) ** 2, 0.0))
    degrees = float(estimate.degrees_of_freedom(difference, spread)[0])
    if degrees < estimate.FEW_DEGREES:
        notes.append(
            f"The verdict is rough: {degrees:.1f} degrees of freedom, fewer than "
            f"{estimate.FEW_DEGREES:g}. Draw more units, or smaller groups."
        )
    if label_noise:
        notes.append(_noise_said(label_noise, predictions_differ, float(difference.value)))
    return Comparison(metric, gained, lost, psi, found, p_value, notes)


def _difference(
    design: Design,
    difference: estimate.Ratio,
    discordant: estimate.Ratio,
    estimand: Estimand,
    confidence: float,
    power: float,
    names: Sequence[str],
    metric: str,
    mcnemar_p: float | None,
) -> Difference:
    value = float(difference.value)
    known = estimand == "full-set" and design.complete
    low, high, worth = (
        float(v) for v in estimate.difference_interval(difference, discordant, estimand, confidence)
    )
    if known:
        low = high = value
    verdict = _verdict(low, high, known)
    if mcnemar_p is not None and not known:
        told = mcnemar_p <= 1 - confidence
        verdict = ("better" if value > 0 else "worse") if told else "cannot tell"
    needed = None
    if verdict == "cannot tell" and value != 0:
        needed = _n_to_tell(design, value, float(discordant.value), worth, estimand,
                            confidence, power)  # fmt: skip
    sentence = _said(value, low, high, verdict, known, needed, names, metric, estimand, design)
    return Difference(value, low, high, verdict, sentence, needed)


def _verdict(low: float, high: float, known: bool) -> str:
    if known:
        return "equal" if low == 0 else "better" if low > 0 else "worse"
    return "better" if low > 0 else "worse" if high < 0 else "cannot tell"


def _n_to_tell(
    design: Design,
    value: float,
    discordant: float,
    worth: float,
    estimand: Estimand,
    confidence: float,
    power: float,
) -> int | None:
    # The effective size that Connor asks for, at the effective size per unit that this design has.
    psi = min(max(discordant, abs(value)), 1.0)
    effective = sizes.connor_n(abs(value), psi, 1 - confidence, power)
    if not math.isfinite(worth) or worth <= 0:
        return None
    n, N = design.n_units, float(design.population.sum())
    if estimand == "generalisation":
        return math.ceil(n * effective / worth)
    rate = worth * (1 - n / N) / n  # worth per unit without the finite-population gain
    return min(math.ceil(effective * N / (effective + rate * N)), int(N))


def _said(
    value: float,
    low: float,
    high: float,
    verdict: str,
    known: bool,
    needed: int | None,
    names: Sequence[str],
    metric: str,
    estimand: Estimand,
    design: Design,
) -> str:
    first, second = names[0], names[1]
    gap = f"{100 * value:+.2f} points of {metric}"
    if known:
        word = {"equal": "is equal to", "better": "is better than", "worse": "is worse than"}
        return f"{second} {word[verdict]} {first} on the full set: {gap}, known exactly."
    limits = f"interval {100 * low:+.2f} to {100 * high:+.2f}"
    if verdict != "cannot tell":
        return f"{second} is {verdict} than {first}: {gap}, {limits}."
    if needed is None:
        return f"Cannot tell {second} from {first} at this size: {gap}, {limits}."
    more = f"about {needed} units would tell a difference of this size"
    if estimand == "full-set" and needed >= design.population.sum():
        more = "only the full set would tell"
    elif needed > design.population.sum():
        more += f", more than the {int(design.population.sum())} that exist"
    return f"Cannot tell {second} from {first} at this size: {gap}, {limits}; {more}."


def _why_no_mcnemar(design: Design) -> str:
    grouped = design.n_units != design.unit.size or bool((design.multiplicity != 1).any())
    why = "units hold or stand for several files" if grouped else "the rows have unequal weights"
    return f"McNemar's test is not shown: {why}, and it would ignore that."


def _noise_said(eta: float, differ: float, value: float) -> str:
    bound = sizes.noise_bound(eta, differ)
    under = abs(value) <= bound
    tail = (
        "the difference is within it, so it is not guaranteed under class-dependent noise."
        if under
        else "the difference is larger than that."
    )
    return (
        f"Wrong labels at a rate of {eta:g} may shift the difference by up to {100 * bound:.2f} "
        f"points; {tail}"
    )


def compare_metric(
    first: Outcome,
    second: Outcome,
    name: str,
    metric: str,
    confidence: float,
    names: Sequence[str],
) -> Comparison:
    """Compare two models on a metric without a formula, by the same replicates for both."""
    design = first.design
    functions = [_function(outcome, name, metric) for outcome in (first, second)]

    def gap(weights: Floats) -> Floats:
        return functions[1](weights) - functions[0](weights)

    weight = design.weight * first.counts
    value = float(gap(weight[None, :])[0])
    found: dict[Estimand, Difference] = {}
    change, share, gained, lost = _changes(design, first, second)
    spread = max(share - float(change.value) ** 2, 0.0)
    for estimand in ESTIMANDS:
        known = estimand == "full-set" and design.complete
        half = 0.0
        if not known:
            draws = bootstrap.bootstrap(
                gap, weight, design.unit, design.stratum, design.population, estimand
            )
            half = design.student(change, spread, confidence) * float(np.nanstd(draws, ddof=1))
        low, high = value - half, value + half
        verdict = _verdict(low, high, known)
        sentence = _said(value, low, high, verdict, known, None, names, metric, estimand, design)
        found[estimand] = Difference(value, low, high, verdict, sentence)
    why = f"McNemar's test is not shown: it compares right answers, not {metric}."
    return Comparison(metric, gained, lost, share, found, None, [why])


def _changes(
    design: Design, first: Outcome, second: Outcome
) -> tuple[estimate.Ratio, float, int, int]:
    # Weighted difference in right answers, share of rows that differ, rows gained and lost.
    change = (second.hit - first.hit) * first.counts
    share = float(design.ratio(np.abs(change), first.counts).value)
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    return design.ratio(change, first.counts), share, gained, lost


def _function(outcome: Outcome, name: str, metric: str) -> bootstrap.Metric:
    if name != "precision":
        return outcome.metric_function(name)
    top, bottom = outcome._terms("precision", metric.partition(":")[2])

    def precision(weights: Floats) -> Floats:
        called = (weights * bottom).sum(1)
        right = (weights * top * bottom).sum(1)
        empty = np.full(called.shape, np.nan)
        return np.asarray(np.divide(right, called, out=empty, where=called > 0))

    return precision
