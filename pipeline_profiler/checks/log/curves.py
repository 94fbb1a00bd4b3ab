"""Curves of one log: periods, divergence, plateaus, gaps between its steps."""

from __future__ import annotations

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, Nearness, passed, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    LogSubject,
    Series,
    Values,
    better_is,
    correlation_length,
    is_held_out,
    is_metric,
    noise_of,
    spectral_peak,
    without_noise,
)

LEAST_PERIOD = 128  # rows
CHANCE = 1e-6


class Periodic(Check):
    """A metric with a fixed period.

    ## What it does
    Searches the spectrum of each metric for one line that stands out from its neighbours.

    ## Why is this bad
    A training loss with the period of an epoch shows that the data order repeats. A periodic
    validation metric shows that recent data dominate.

    ## How it decides
    Fails if the strongest line exceeds its surroundings (about 40 times) with a chance below one in
    a million. It must swing by a quarter of the noise, or a fiftieth of the range. Settings,
    clocks, counts and columns without noise are ignored.

    ## What to do
    Shuffle anew in each epoch, and compare the period with the steps of an epoch. For a held-out
    metric, first check whether training and held-out data share images.

    ## Limits
    Needs 128 rows at even steps, and nine periods. Schedules with restarts have their own period.
    """

    code = "LOG001"
    name = "periodic-metric"
    causes = (
        "the data come in the same order each epoch",
        "the batches of a part of the data differ (sorted, by source)",
        "a schedule with restarts",
    )
    next_step = "Is this the number of steps of an epoch? Then shuffle anew in each epoch."

    def run(self, subject: LogSubject) -> Answer:
        judged = [s for s in subject.series if len(s.steps) >= LEAST_PERIOD and is_metric(s.name)]
        judged = [s for s in judged if np.isfinite(s.values).all()]
        judged = [s for s in judged if _distances(s.steps, 0.01)[1] < 0.02]
        judged = [s for s in judged if not without_noise(s.values)]
        if not judged:
            return unclear(f"No metric has {LEAST_PERIOD} rows of noisy numbers at even steps.")
        peaks = [(s, spectral_peak(s.values)) for s in judged]
        found = [row for row in peaks if row[1].chance * len(judged) < CHANCE]
        large = [(s, p) for s, p in found if p.swing > max(p.noise / 4, np.ptp(s.values) / 50)]
        series, peak = max(large or found or peaks, key=lambda row: row[1].ratio)
        steps = float(np.median(np.diff(series.steps))) * peak.rows
        numbers = {"metric": series.title, "period_steps": steps, "swing": peak.swing}
        numbers |= {"ratio": peak.ratio, "chance": peak.chance}
        line = f"its spectrum has a line {peak.ratio:.0f} times its surroundings"
        if large:
            others = f" ({len(large)} metrics do)" if len(large) > 1 else ""
            said = (
                f"{series.title} swings by {peak.swing:.3g} with a period of {steps:.4g} steps"
                f"{others}: {line} (by chance {peak.chance:.0e})."
            )
            if not is_held_out(series.name):
                return self.failed(said, **numbers)
            overlap = "the held-out data share samples with the training data"
            check = "Run `audit find RUN FOLDER` on the two sets of images first."
            return wrong(said, (overlap, *self.causes), check, **numbers)
        if found:
            return passed(f"{series.title} swings by {peak.swing:.2g} only: {line}.", **numbers)
        return passed(
            f"No period in {len(judged)} metrics; the strongest line ({series.title}) is "
            f"{peak.ratio:.1f} times its surroundings.",
            **numbers,
        )


LEAST_DIVERGENCE, FAR = 20, 6.0


class Diverged(Check):
    """A training loss that became NaN, or left its best value for good.

    ## What it does
    Compares the median of the last tenth of each training loss with the best median of any tenth.

    ## Why is this bad
    The steps after the best value are wasted, and the last checkpoint is not the best.

    ## How it decides
    Fails with a NaN or infinite value. Fails if the last median is 6 deviations (robust) and half
    of the whole gain above the best. A rising held-out loss is overfitting, so it is inconclusive.

    ## Limits
    Only metrics named as losses (loss, error, mse, mae, nll, perplexity, ...).
    """

    code = "LOG002"
    name = "diverged"
    causes = (
        "the learning rate is too high for this part of the training",
        "a batch with extreme values",
        "overflow in half precision",
    )
    next_step = "Lower the learning rate or clip gradients; look at the batches before that step."

    def run(self, subject: LogSubject) -> Answer:
        losses = [s for s in subject.series if better_is(s.name) < 0]
        if not losses:
            return unclear("No metric is named as a loss.")
        rises = []
        for series in losses:
            bad = np.flatnonzero(~np.isfinite(series.values))
            if len(bad):
                at = series.steps[bad[0]]
                return Diverged.failed(
                    f"{series.title} is no number from step {at:g} on ({len(bad)} rows).",
                    metric=series.title,
                )
            if len(series.values) >= LEAST_DIVERGENCE and (text := _rise(series)):
                rises.append((series, text))
        for series, text in rises:
            if not is_held_out(series.name):
                return Diverged.failed(text, metric=series.title)
        if rises:
            return unclear(
                f"{rises[0][1]} A held-out loss that rises is overfitting.",
                "Keep the checkpoint of the best, or stop there.",
            )
        return passed(f"{len(losses)} losses end near their best.")


def _rise(series: Series) -> str:
    """A sentence where the last tenth lies far above the best one; "" else."""
    parts = [p for p in np.array_split(series.values, 10) if len(p)]
    medians = np.array([np.median(p) for p in parts])
    noise = 1.4826 * float(np.median(np.abs(np.diff(series.values)))) / np.sqrt(2)
    error = 1.25 * noise / np.sqrt(len(parts[-1])) + 1e-12
    best = int(medians.argmin())
    above, gain = medians[-1] - medians[best], medians[0] - medians[best]
    if above > FAR * error * np.sqrt(2) and above > 0.5 * max(gain, noise):
        step = series.steps[sum(map(len, parts[:best]))]
        return (
            f"{series.title} ends at {medians[-1]:.4g} and was {medians[best]:.4g} about step "
            f"{step:g}."
        )
    return ""


LEAST_STEPS, MOST_ODD = 8, 0.25


class UnevenSteps(Check):
    """A metric with uneven distances between its steps.

    ## What it does
    Compares the distances between the steps of each metric with their median.

    ## Why is this bad
    If evaluation follows the clock, faster runs have fewer steps between evaluations. Runs are then
    compared at different steps, and more evaluations give a better best by chance.

    ## How it decides
    Fails if a quarter of the distances differ from the median by more than 10%. A pause or a
    resumed run changes few distances. Growing distances (1, 2, 4, ...) are inconclusive.

    ## What to do
    Evaluate every n steps, not every n minutes.

    ## Limits
    Needs at least 8 rows of a metric.
    """

    code = "LOG003"
    name = "uneven-steps"

    def run(self, subject: LogSubject) -> Answer:
        judged = [s for s in subject.series if len(s.steps) >= LEAST_STEPS]
        if not judged:
            return unclear(f"No metric has {LEAST_STEPS} rows.")
        for series in judged:
            gaps, (middle, odd) = np.diff(series.steps), _distances(series.steps)
            if odd <= MOST_ODD:
                continue
            numbers = {"metric": series.title, "median_gap": middle, "odd": odd}
            if bool((np.diff(gaps) >= 0).all()):
                return unclear(
                    f"The distances of {series.title} grow: is that by design?", **numbers
                )
            by_clock = "evaluation by the clock instead of by steps"
            clock, uneven = (0.0, 1.0) if series.seconds is None else _distances(series.seconds)
            if clock > 0 and uneven <= MOST_ODD:
                numbers["seconds_between"] = clock
                by_clock += f": the times are even, {clock:.4g} s apart"
            return wrong(
                f"{odd:.0%} of the distances between steps of {series.title} differ from their "
                f"median {middle:g} (least {gaps.min():g}, largest {gaps.max():g}).",
                [by_clock, "several runs in one file", "rows are missing"],
                "Evaluate every n steps.",
                **numbers,
            )
        return passed(f"{len(judged)} metrics come at even steps.")


def _distances(values: Values, near: float = 0.1) -> tuple[float, float]:
    """(median distance of neighbours, share of distances that are off by more than a share)."""
    gaps = np.diff(values)
    middle = float(np.median(gaps))
    return middle, float((np.abs(gaps - middle) > near * abs(middle)).mean())


LEAST_PLATEAU, BLOCKS = 96, 12
LITTLE = 0.05  # of the whole gain: half of the time for a twentieth of it
T_BOUND = 6.2  # one-sided 5e-5 with 10 degrees of freedom


class Plateau(Check):
    """A metric without gain in its second half.

    ## What it does
    Fits a line through the second half of each loss and score. Compares its gain with the gain of
    the whole run.

    ## Why is this bad
    Half of the time gave nothing. A lower learning rate at the bend, or an earlier end, costs
    nothing.

    ## How it decides
    Fails if the whole gain exceeds the noise, and the late gain is below 5% of it (upper limit,
    one-sided 99.995%). Passes if the lower limit is above 5%. Inconclusive in between, with fewer
    than 96 rows, without improvement, or with long correlations (over a twelfth of the half).

    ## What to do
    Lower the learning rate at the bend, or stop there. Regularise less if the training loss is flat
    too, more if only the held-out loss is.

    ## Limits
    Only metrics named as losses or scores. A schedule with a small final rate is flat at its end by
    design.
    """

    code = "LOG004"
    name = "plateau"
    nearness = Nearness.SYMPTOM

    def run(self, subject: LogSubject) -> Answer:
        judged = [s for s in subject.series if better_is(s.name) and np.isfinite(s.values).all()]
        judged = [s for s in judged if len(s.values) >= LEAST_PLATEAU]
        if not judged:
            return unclear(f"No loss or score has {LEAST_PLATEAU} rows of numbers.")
        rows = [(series, *late_gain(series)) for series in judged]
        flat = [row for row in rows if row[3] <= LITTLE * row[1] and row[1] > 0]
        if flat:
            series, whole, _, high = flat[0]
            half = float(series.steps[len(series.steps) // 2])
            others = f" ({len(flat)} metrics are alike)" if len(flat) > 1 else ""
            return wrong(
                f"{series.title} gains at most {max(high, 0.0) / whole:.1%} of its whole gain "
                f"after step {half:g}, in the second half of the run{others}.",
                [
                    "the learning rate is too high to settle, or too low to move",
                    "the model has learned what it can from these data",
                    "the run is longer than it needs to be",
                ],
                f"Lower the learning rate about where it bends, or end near step {half:g}.",
                metric=series.title,
                gain=whole,
                late_gain_most=high,
            )
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
        share = (low + high) / 2 / whole
        said = f"The second half of {series.title} gains {share:.0%} of the whole."
        return passed(said, metric=series.title, share=share)


def late_gain(series: Series) -> tuple[float, float, float]:
    """(gain of the run, least and most gain of its second half); the first 0 without a gain."""
    values = -series.values if better_is(series.name) < 0 else series.values
    half = values[len(values) // 2 :]
    middle, error = _slope_gain(half)
    tenth = max(3, len(values) // 10)
    whole = float(np.median(half) - np.median(values[:tenth]))
    places = np.arange(len(half), dtype=float)
    if np.ptp(half) <= LITTLE * whole:
        error = min(error, float(np.ptp(half)) / T_BOUND)  # it cannot have gained more
    elif correlation_length(half, np.polyval(np.polyfit(places, half, 1), places)) > (
        len(half) / BLOCKS
    ):
        error = float("inf")  # blocks are too short to be independent of each other
    if not whole > T_BOUND * 1.25 * noise_of(values) * np.sqrt(2 / tenth):
        whole = 0.0
    return whole, middle - T_BOUND * error, middle + T_BOUND * error


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


LEAST_FALL, FIRST_ROWS, MOST_OF_GAIN, TIMES_LOWER = 200, 0.02, 0.75, 2.5


class FirstFall(Check):
    """A loss whose first fall only learns a constant.

    ## What it does
    Finds a training loss with most of its gain in the first rows, and reads the scores there.

    ## Why is this bad
    A last layer far from the mean of the targets learns that mean first (imbalanced classes,
    targets near 100). This costs steps, and its scale hides the rest of the curve.

    ## How it decides
    Fails if the first 2% of the rows make three quarters of the gain and divide the loss by 2.5.
    Scores must make less than a quarter of their gain there. Inconclusive without a score, because
    an easy task falls as fast.

    ## Limits
    Needs 200 rows of a loss. A score averaged over the epoch hides when it rose.
    """

    code = "LOG008"
    name = "first-fall"
    nearness = Nearness.EFFECT
    causes = (
        "the bias of the last layer begins far from the base rate",
        "targets that are not standardised",
    )
    next_step = "Set the last bias to the base rate or the mean; `check` says which it is."

    def run(self, subject: LogSubject) -> Answer:
        losses = [s for s in subject.series if better_is(s.name) < 0 and not is_held_out(s.name)]
        losses = [s for s in losses if len(s.values) >= LEAST_FALL and np.isfinite(s.values).all()]
        if not losses:
            return unclear(f"No training loss has {LEAST_FALL} rows of numbers.")
        for series in losses:
            first = max(4, round(FIRST_ROWS * len(series.values)))
            end = series.steps[first]
            top, then, last = _levels(series.values, first)
            if not (top > TIMES_LOWER * then > 0 and top - then > MOST_OF_GAIN * (top - last)):
                continue
            said = (
                f"{series.title} falls from {top:.4g} to {then:.4g} before step {end:g}: "
                f"{(top - then) / (top - last):.0%} of its gain in {FIRST_ROWS:.0%} of its rows"
            )
            numbers = {"metric": series.title, "first": top, "then": then, "last": last}
            scores = [s for s in subject.series if better_is(s.name) > 0 and s.log == series.log]
            rises = [(s, rise) for s in scores if (rise := _rise_before(s, end)) is not None]
            if not rises:
                text = f"{said}. No score shows whether something was learned there."
                return unclear(text, self.next_step, **numbers)
            if all(rise < 0.25 for _, rise in rises):
                names = ", ".join(s.title for s, _ in rises[:3])
                return self.failed(f"{said}, and {names} did not rise meanwhile.", **numbers)
        return passed(f"{len(losses)} training losses do not fall at once.")


def _levels(values: Values, first: int) -> tuple[float, float, float]:
    """(the beginning, what the first rows come to, the lowest level after) of a loss."""
    tenth = max(1, len(values) // 10)
    after = np.array([np.median(part) for part in np.array_split(values[first:], 9)])
    top = float(values[: max(1, first // 8)].mean())
    return top, float(np.median(values[first : first + tenth])), float(after.min())


def _rise_before(series: Series, end: float) -> float | None:
    """The share of a score's gain that lies before a step; None where it has no rows there."""
    values = series.values[np.isfinite(series.values)]
    before = int((series.steps < end).sum())
    if before < 2 or len(values) < 20:
        return None
    start, then, last = values[0], np.median(values[before : before + 5]), np.median(values[-5:])
    return float((then - start) / (last - start)) if last > start else 1.0
