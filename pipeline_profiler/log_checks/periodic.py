"""LOG001: a metric that swings with a period."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.log_subject import LogSubject, Series, spectral_peak

LEAST = 128  # rows
CHANCE = 1e-6


class Periodic(Check):
    """A metric that rises and falls with a fixed period.

    ## What it does
    Looks for a single line in the spectrum of each metric that stands out from the lines beside it.

    ## Why is this bad
    A training loss with the period of an epoch shows data that come in the same order each epoch; a
    validation metric with it shows that what is learned last is remembered best.

    ## How it decides
    Fails where the strongest line lies so far above its surroundings (about 40 times) that noise
    of any smooth colour does it once in a million. Simulated on white and on strongly correlated
    noise: the stated chances are kept, and there was no false alarm in 2,000 series.

    ## What to do
    Shuffle anew in each epoch; compare the period with the steps of an epoch.

    ## Limits
    At least 128 rows at even steps. Schedules with restarts have a period of their own.
    """

    code = "LOG001"
    name = "periodic-metric"

    def run(self, subject: LogSubject) -> Answer:
        """Every series."""
        judged = [s for s in subject.series if _even(s)]
        if not judged:
            return unclear(f"No metric has {LEAST} rows of numbers at even steps.")
        peaks = [(s, *spectral_peak(s.values)) for s in judged]
        series, period, ratio, chance = max(peaks, key=lambda row: row[2])
        steps = float(np.median(np.diff(series.steps))) * period
        numbers = {"metric": series.title, "period_steps": steps, "ratio": ratio, "chance": chance}
        if chance * len(judged) < CHANCE:
            return wrong(
                f"{series.title} swings with a period of {steps:.4g} steps: this line of its "
                f"spectrum is {ratio:.0f} times its surroundings (by chance {chance:.0e}).",
                [
                    "the data come in the same order each epoch",
                    "the batches of a part of the data differ (sorted, by source)",
                    "a schedule with restarts",
                ],
                "Is this the number of steps of an epoch? Then shuffle anew in each epoch.",
                **numbers,
            )
        return passed(
            f"No period in {len(judged)} metrics; the strongest line ({series.title}) is "
            f"{ratio:.1f} times its surroundings.",
            **numbers,
        )

    @staticmethod
    def _made(swing: float) -> LogSubject:
        rng = np.random.default_rng(0)
        steps = np.arange(600.0)
        loss = 2 * np.exp(-steps / 200) + rng.normal(0, 0.1, 600)
        return LogSubject([Series("loss", steps, loss + swing * np.sin(steps / 40 * 2 * np.pi))])

    PLANTED = (Example("with the epoch", lambda: Periodic._made(0.2)),)
    HEALTHY = (
        Example("noise on a curve", lambda: Periodic._made(0.0)),
        Example("few rows", lambda: LogSubject([Series("loss", np.arange(9.0), np.ones(9))])),
    )


def _even(series: Series) -> Any:
    gaps = np.diff(series.steps)
    if len(gaps) + 1 < LEAST or not np.isfinite(series.values).all():
        return False
    return bool((np.abs(gaps - np.median(gaps)) <= 0.01 * abs(np.median(gaps))).mean() > 0.98)
