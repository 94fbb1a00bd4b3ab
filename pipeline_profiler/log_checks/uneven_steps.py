"""LOG003: evaluations at uneven steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.log_subject import LogSubject, Series

LEAST, MOST_ODD = 8, 0.25


class UnevenSteps(Check):
    """A metric whose steps come at uneven distances.

    ## What it does
    Compares the distances between the steps of each metric with their median.

    ## Why is this bad
    An evaluation by the clock gives faster runs fewer steps between evaluations: two runs are
    compared at different steps, and the best of more evaluations is better by luck.

    ## How it decides
    Fails where a quarter of the distances differ from the median by more than a tenth. A pause or
    a resumed run makes one or two; distances that grow by design (1, 2, 4, ...) are "cannot tell".

    ## What to do
    Evaluate every n steps, not every n minutes.

    ## Limits
    At least 8 rows.
    """

    code = "LOG003"
    name = "uneven-steps"

    def run(self, subject: LogSubject) -> Answer:
        """Every series."""
        judged = [s for s in subject.series if len(s.steps) >= LEAST]
        if not judged:
            return unclear(f"No metric has {LEAST} rows.")
        for series in judged:
            gaps = np.diff(series.steps)
            middle = float(np.median(gaps))
            odd = float((np.abs(gaps - middle) > 0.1 * abs(middle)).mean())
            if odd <= MOST_ODD:
                continue
            numbers = {"metric": series.title, "median_gap": middle, "odd": odd}
            if bool((np.diff(gaps) >= 0).all()):
                return unclear(
                    f"The distances of {series.title} grow: is that by design?", "", **numbers
                )
            clock = _period_of_clock(series)
            by_clock = "evaluation by the clock instead of by steps"
            if clock is not None:
                numbers["seconds_between"] = clock
                by_clock += f": the times are even, {clock:.4g} s apart"
            return wrong(
                f"{odd:.0%} of the distances between steps of {series.title} differ from their "
                f"median {middle:g} (least {gaps.min():g}, largest {gaps.max():g}).",
                [
                    by_clock,
                    "several runs in one file",
                    "rows are missing",
                ],
                "Evaluate every n steps.",
                **numbers,
            )
        return passed(f"{len(judged)} metrics come at even steps.")

    @staticmethod
    def _timed() -> LogSubject:
        made = UnevenSteps._made(20.0).series[0]
        return LogSubject([replace(made, seconds=600.0 * np.arange(30.0))])

    @staticmethod
    def _made(jitter: float) -> LogSubject:
        rng = np.random.default_rng(0)
        steps = np.cumsum(np.round(100 + jitter * rng.normal(0, 1, 30)))
        return LogSubject([Series("val_accuracy", steps, rng.normal(0.9, 0.01, 30))])

    PLANTED = (
        Example("uneven", lambda: UnevenSteps._made(20.0)),
        Example("by the clock", lambda: UnevenSteps._timed()),
    )
    HEALTHY = (
        Example("every 100 steps", lambda: UnevenSteps._made(0.0)),
        Example("steps of one that was resumed", lambda: UnevenSteps._resumed()),
    )

    @staticmethod
    def _resumed() -> LogSubject:
        made = UnevenSteps._made(0.0).series[0]
        steps = made.steps + 37.0 * (np.arange(30) > 12)
        return LogSubject([Series(made.name, steps, made.values)])


def _period_of_clock(series: Series) -> float | None:
    """Seconds between rows where these are even, None else."""
    if series.seconds is None:
        return None
    gaps = np.diff(series.seconds)
    middle = float(np.median(gaps))
    if middle <= 0 or float((np.abs(gaps - middle) > 0.1 * middle).mean()) > MOST_ODD:
        return None
    return middle
