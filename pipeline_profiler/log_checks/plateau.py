"""LOG004: a metric that gains nothing more in half of the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    Nearness,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.log_metrics import Values, better_is, correlation_length, noise_of
from pipeline_profiler.checking.log_subject import LogSubject, Series

LEAST, BLOCKS = 96, 12
LITTLE = 0.05  # of the whole gain: half of the time for a twentieth of it
T_BOUND = 6.2  # one-sided 5e-5 with 10 degrees of freedom


class Plateau(Check):
    """A metric whose second half brings nothing.

    ## What it does
    Lays a line through the second half of each loss and score, and compares what the half gained
    with the gain of the whole run.

    ## Why is this bad
    Half of the time was spent on nothing: a lower learning rate at the bend, or an earlier end,
    would have been free.

    ## How it decides
    Fails where the whole gain stands out of the noise, and the most that the second half can have
    gained (upper end of an interval that is exceeded once in 20,000) is below 5 % of it. Passes
    where the half gained more than that for sure; "cannot tell" in between, with fewer than 96
    rows, and where the metric never improved. The interval is that of a slope through twelve block
    means, widened by their correlation; where rows are correlated over more than a block it cannot
    tell. By simulation (500 runs each of 100 and 400 rows, second half gains 6 %) none is failed
    with white noise or with neighbours correlated by 0.5; with 0.9, 1 of 3,000 is.

    ## What to do
    Lower the learning rate where the curve bends, or end there; regularise less if the training
    loss is flat as well, more if it is only the held-out one.

    ## Limits
    Names of losses and scores only. A schedule that ends with a small learning rate is flat at its
    end by design; half of the run is more than such an end takes.
    """

    code = "LOG004"
    name = "plateau"
    nearness = Nearness.SYMPTOM

    def run(self, subject: LogSubject) -> Answer:
        """Every loss and score."""
        judged = [s for s in subject.series if better_is(s.name) and _long(s)]
        if not judged:
            return unclear(f"No loss or score has {LEAST} rows of numbers.")
        rows = [(series, *late_gain(series)) for series in judged]
        flat = [row for row in rows if row[3] <= LITTLE * row[1] and row[1] > 0]
        if flat:
            return _failed(*flat[0], count=len(flat))
        moving = [row for row in rows if row[2] > LITTLE * row[1] > 0]
        known = [row for row in rows if row[1] > 0]
        if not known:
            return unclear(f"{judged[0].title} never improves beyond its noise.")
        if not moving:
            series, whole, low, high = known[0]
            if not np.isfinite(high):
                return unclear(f"The rows of {series.title} are too correlated for their number.")
            return unclear(
                f"The second half of {series.title} gains between {max(low, 0) / whole:.0%} and "
                f"{high / whole:.0%} of the whole: the noise hides which."
            )
        series, whole, low, high = moving[0]
        return passed(
            f"The second half of {series.title} gains {(low + high) / 2 / whole:.0%} of the whole.",
            metric=series.title,
            share=(low + high) / 2 / whole,
        )

    @staticmethod
    def _made(length: float, noise: float = 0.05, count: int = 400) -> LogSubject:
        rng = np.random.default_rng(0)
        steps = np.arange(float(count))
        loss = 0.5 + 2 * np.exp(-steps / length) + rng.normal(0, noise, count)
        return LogSubject([Series("val_loss", steps * 10, loss)])

    PLANTED = (
        Example("flat from a tenth on", lambda: Plateau._made(20, 0.03)),
        Example("flat and without noise", lambda: Plateau._made(20, 0.0)),
    )
    HEALTHY = (
        Example("falls to the end", lambda: Plateau._made(200)),
        Example("few rows", lambda: Plateau._made(4, count=40)),
        Example("nothing but noise", lambda: Plateau._made(0.01)),
    )


def _long(series: Series) -> bool:
    return len(series.values) >= LEAST and bool(np.isfinite(series.values).all())


def late_gain(series: Series) -> tuple[float, float, float]:
    """(gain of the run, least and most gain of its second half); the first 0 without a gain."""
    values = -series.values if better_is(series.name) < 0 else series.values
    half = values[len(values) // 2 :]
    middle, error = _slope_gain(half)
    if np.ptp(half) <= LITTLE * (np.median(half) - np.median(values[: max(3, len(values) // 10)])):
        error = min(error, float(np.ptp(half)) / T_BOUND)  # it cannot have gained more
    elif _correlated(half):
        error = float("inf")
    tenth = max(3, len(values) // 10)
    whole = float(np.median(half) - np.median(values[:tenth]))
    start_error = 1.25 * noise_of(values) * np.sqrt(2 / tenth)
    if not whole > T_BOUND * start_error:
        return 0.0, middle - T_BOUND * error, middle + T_BOUND * error
    return whole, middle - T_BOUND * error, middle + T_BOUND * error


def _correlated(half: Values) -> bool:
    """Whether blocks are too short to be independent of each other."""
    places = np.arange(len(half), dtype=float)
    line = np.polyval(np.polyfit(places, half, 1), places)
    return correlation_length(half, line) > len(half) / BLOCKS


def _slope_gain(half: Values) -> tuple[float, float]:
    """(gain over the half by a line through block means, its standard error)."""
    means = np.array([part.mean() for part in np.array_split(half, BLOCKS)])
    places = np.arange(BLOCKS) - (BLOCKS - 1) / 2
    power = float((places**2).sum())
    slope = float((places * means).sum()) / power
    rest = means - means.mean() - slope * places
    variance = float((rest**2).sum()) / (BLOCKS - 2)
    total = float((rest**2).sum())
    # the correlation of residuals is underestimated by about 2 / blocks once a line is taken out
    near = (float((rest[1:] * rest[:-1]).sum()) / total if total > 0 else 0.0) + 2 / BLOCKS
    widened = variance * (1 + max(0.0, near)) / (1 - min(0.7, max(0.0, near)))
    return slope * (BLOCKS - 1), float(np.sqrt(widened / power)) * (BLOCKS - 1)


def _failed(series: Series, whole: float, low: float, high: float, count: int) -> Answer:
    half = float(series.steps[len(series.steps) // 2])
    others = f" ({count} metrics are alike)" if count > 1 else ""
    numbers: dict[str, Any] = {"metric": series.title, "gain": whole, "late_gain_most": high}
    return wrong(
        f"{series.title} gains at most {max(high, 0.0) / whole:.1%} of its whole gain after step "
        f"{half:g}, in the second half of the run{others}.",
        [
            "the learning rate is too high to settle, or too low to move",
            "the model has learned what it can from these data",
            "the run is longer than it needs to be",
        ],
        f"Lower the learning rate about where it bends, or end near step {half:g}.",
        **numbers,
    )
