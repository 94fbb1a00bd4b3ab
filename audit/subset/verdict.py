"""Better, worse, or cannot tell: comparing two models on the same drawn examples.

The verdict is read from the design-based interval of the weighted difference: by stratum, by unit,
finite-population corrected for full-set. Where McNemar's test is valid (equal weights, single
files, one plain share) the interval for generalisation is the one that inverts it (Tango), and its
p-value is printed: interval and test never disagree. A
plain McNemar test on a disproportionate or grouped subset can call the worse model better nearly
every time. At n = N the full-set difference is stated, not inferred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from audit import stats
from audit.stats import Floats
from audit.subset.design import Design
from audit.subset.detection import connor_n
from audit.subset.estimate import ESTIMANDS, Estimand, Ratio, degrees_of_freedom
from audit.subset.intervals import FEW_DEGREES, difference_interval
from audit.subset.linearised import Linearised, difference_of
from audit.subset.noise import noise_bound
from audit.subset.outcome import Outcome


@dataclass(frozen=True)
class Difference:
    """Second model minus first, for one estimand, with the verdict in one word and in words.

    `n_to_tell`: units at which a difference of the observed size would be detected; None where
    it is detected already or there is none.
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


@dataclass(frozen=True)
class Pairing:
    """Two models on one subset: their names, the metric, the error rates of the verdict."""

    design: Design
    names: Sequence[str]
    metric: str
    confidence: float
    power: float


def compare_right(pairing: Pairing, first: Floats, second: Floats, counts: Floats) -> Comparison:
    """Compare two models' right answers on the rows that `counts` marks with 1."""
    design = pairing.design
    change = (second - first) * counts
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    difference = design.ratio(change, counts)
    discordant = design.ratio(np.abs(change), counts)
    # McNemar's test counts examples: it needs each of them to count for one, alone.
    p_value = float(stats.mcnemar(gained, lost, "score")) if design.equal_files else None
    estimands: dict[Estimand, Difference] = {}
    for estimand in ESTIMANDS:
        # The test is about new examples of the same kind, never about the rest of a finite set.
        by_test = design.equal_files and estimand == "generalisation"
        estimands[estimand] = _difference(
            pairing, difference, discordant, estimand, by_test=by_test
        )
    psi = float(discordant.value)
    notes = [] if design.equal_files else [_why_no_mcnemar(design)]
    change_variance = np.asarray(max(psi - float(difference.value) ** 2, 0.0))
    degrees = float(degrees_of_freedom(difference, change_variance)[0])
    if bool(difference.grouped) and degrees < FEW_DEGREES:
        notes.append(
            f"The verdict is rough: {degrees:.1f} degrees of freedom, fewer than "
            f"{FEW_DEGREES:g}. Draw more units, or smaller groups."
        )
    return Comparison(pairing.metric, gained, lost, psi, estimands, p_value, notes)


def _difference(
    pairing: Pairing,
    difference: Ratio,
    discordant: Ratio,
    estimand: Estimand,
    *,
    by_test: bool,
) -> Difference:
    value, psi = float(difference.value), float(discordant.value)
    known = estimand == "full-set" and pairing.design.complete
    if by_test:  # each example counts for one: no effective size is needed
        size = difference.moments.n.sum()
        gain, loss = (psi + value) / 2, (psi - value) / 2
        limits = (*stats.paired_difference(gain, loss, size, pairing.confidence), size)
    else:
        limits = difference_interval(difference, discordant, estimand, pairing.confidence)
    low, high, effective = (float(v) for v in limits)
    if known:
        low = high = value
    verdict = _verdict(low, high, known)
    needed = None
    if verdict == "cannot tell" and value != 0:
        needed = _n_to_tell(pairing, value, float(discordant.value), effective, estimand)
    result = Difference(value, low, high, verdict, "", needed)
    return replace(result, sentence=_sentence(pairing, result, known, estimand))


def _verdict(low: float, high: float, known: bool) -> str:
    if known:
        return "equal" if low == 0 else "better" if low > 0 else "worse"
    return "better" if low > 0 else "worse" if high < 0 else "cannot tell"


def _n_to_tell(
    pairing: Pairing, value: float, discordant: float, effective_size: float, estimand: Estimand
) -> int | None:
    # The effective size that Connor asks for, at the effective size per unit that this design has.
    design = pairing.design
    psi = min(max(discordant, abs(value)), 1.0)
    needed = connor_n(abs(value), psi, 1 - pairing.confidence, pairing.power)
    if not math.isfinite(effective_size) or effective_size <= 0:
        return None
    n, N = design.n_units, float(design.population.sum())
    if estimand == "generalisation":
        return math.ceil(n * needed / effective_size)
    # The correction makes n units count as r n / (1 - n/N), r being what one gives without it:
    # solved for n.
    rate = effective_size * (1 - n / N) / n
    return min(math.ceil(needed * N / (needed + rate * N)), int(N))


def _sentence(pairing: Pairing, result: Difference, known: bool, estimand: Estimand) -> str:
    first, second = pairing.names[0], pairing.names[1]
    verdict, needed = result.verdict, result.n_to_tell
    gap = f"{100 * result.value:+.2f} points of {pairing.metric}"
    if known:
        word = {"equal": "is equal to", "better": "is better than", "worse": "is worse than"}
        return f"{second} {word[verdict]} {first} on the full set: {gap}, known exactly."
    limits = f"interval {100 * result.low:+.2f} to {100 * result.high:+.2f}"
    if verdict != "cannot tell":
        return f"{second} is {verdict} than {first}: {gap}, {limits}."
    if needed is None:
        return f"Cannot tell {second} from {first} at this size: {gap}, {limits}."
    total = int(pairing.design.population.sum())
    more = f"about {needed} units would tell a difference of this size"
    if estimand == "full-set" and needed >= total:
        more = "only the full set would tell"
    elif needed > total:
        more += f", more than the {total} that exist"
    return f"Cannot tell {second} from {first} at this size: {gap}, {limits}; {more}."


def _why_no_mcnemar(design: Design) -> str:
    grouped = design.n_units != design.unit.size or bool((design.multiplicity != 1).any())
    why = "units hold or stand for several files" if grouped else "the rows have unequal weights"
    return f"McNemar's test is not shown: {why}, and it would ignore that."


def noise_sentence(eta: float, differ: float, value: float) -> str:
    """Return how far wrong labels at a rate `eta` may shift a difference of `value`."""
    bound = noise_bound(eta, differ)
    within = "the difference is within it, so it is not guaranteed under class-dependent noise."
    beyond = "the difference is larger than that."
    return (
        f"Wrong labels at a rate of {eta:g} may shift the difference by up to {100 * bound:.2f} "
        f"points; {within if abs(value) <= bound else beyond}"
    )


def compare_metric(pairing: Pairing, first: Outcome, second: Outcome) -> Comparison:
    """Compare two models on precision, a mean over classes or ranks: by each row's influence."""
    design, every = pairing.design, np.ones(first.hit.size)
    old, new = (outcome.linearised(pairing.metric, every) for outcome in (first, second))
    changed = first.counts * (
        _ranked_otherwise(old, new)
        if pairing.metric == "auroc"
        else (first.predicted != second.predicted).fill_null(True).to_numpy()
    )
    linear = difference_of(old, new, changed)
    psi = float((design.weight * linear.share * changed).sum())
    pair = linear.ratio(design), linear.told_apart(design)
    estimands = {e: _difference(pairing, *pair, e, by_test=False) for e in ESTIMANDS}
    change = (second.hit - first.hit) * first.counts
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    why = f"McNemar's test is not shown: it compares right answers, not {pairing.metric}."
    return Comparison(pairing.metric, gained, lost, psi, estimands, None, [why])


def _ranked_otherwise(first: Linearised, second: Linearised) -> Floats:
    sides = zip(first.against, second.against, strict=True)
    return np.asarray(sum(np.abs(b - a) for a, b in sides))
