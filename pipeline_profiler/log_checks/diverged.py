"""LOG002: a loss that is no number, or ends far above its best."""

from __future__ import annotations

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.log_metrics import better_is, is_held_out
from pipeline_profiler.checking.log_subject import LogSubject, Series

LEAST, FAR = 20, 6.0


class Diverged(Check):
    """A training loss that became NaN, or left its best for good.

    ## What it does
    Compares the median of the last tenth of each training loss with the best median of any tenth.

    ## Why is this bad
    What came after the best was wasted, and the last checkpoint is not the one to keep.

    ## How it decides
    Fails with a value that is no number, or where the last median lies 6 deviations (of the noise
    around medians, robust) and half of the whole gain above the best. A held-out loss that rises
    is overfitting, not divergence: "cannot tell".

    ## What to do
    Lower the learning rate, clip gradients, look at the batch where it began.

    ## Limits
    Metrics named as losses only (loss, error, mse, mae, nll, perplexity, ...).
    """

    code = "LOG002"
    name = "diverged"

    def run(self, subject: LogSubject) -> Answer:
        """Every loss."""
        losses = [s for s in subject.series if better_is(s.name) < 0]
        if not losses:
            return unclear("No metric is named as a loss.")
        rises = []
        for series in losses:
            bad = np.flatnonzero(~np.isfinite(series.values))
            if len(bad):
                at = series.steps[bad[0]]
                return _failed(
                    f"{series.title} is no number from step {at:g} on ({len(bad)} rows).",
                    series.title,
                )
            if len(series.values) >= LEAST and (text := _rise(series)):
                rises.append((series, text))
        for series, text in rises:
            if not is_held_out(series.name):
                return _failed(text, series.title)
        if rises:
            return unclear(
                f"{rises[0][1]} A held-out loss that rises is overfitting.",
                "Keep the checkpoint of the best, or stop there.",
            )
        return passed(f"{len(losses)} losses end near their best.")

    @staticmethod
    def _made(name: str, end: float) -> LogSubject:
        rng = np.random.default_rng(0)
        steps = np.arange(200.0)
        loss = 2 * np.exp(-steps / 40) + rng.normal(0, 0.05, 200)
        loss[150:] += np.linspace(0, end, 50)
        return LogSubject([Series(name, steps, loss)])

    PLANTED = (Example("rises at the end", lambda: Diverged._made("train/loss", 4.0)),)
    HEALTHY = (
        Example("falls", lambda: Diverged._made("train/loss", 0.0)),
        Example("overfitting", lambda: Diverged._made("val_loss", 4.0)),
    )


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


def _failed(text: str, name: str) -> Answer:
    return wrong(
        text,
        [
            "the learning rate is too high for this part of the training",
            "a batch with extreme values",
            "overflow in half precision",
        ],
        "Lower the learning rate or clip gradients; look at the batches before that step.",
        metric=name,
    )
