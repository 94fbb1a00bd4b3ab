"""LOG006: runs that are compared at different budgets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, unclear, wrong
from pipeline_profiler.checks.log_subject import (
    LogSubject,
    Series,
    better_is,
    error_of_mean,
    is_held_out,
)

LEAST, MOST, LAST = 8, 1000, 5  # rows of a log, at most for its noise; of a mean
LONGER = 1.05
Z_BOUND = 4.5  # two-sided 7e-6, for the errors are estimated


class Level(NamedTuple):
    """Where a run stands at a budget: the mean of its last rows, better is larger."""

    log: str
    value: float
    error: float
    rows: int


class EqualBudget(Check):
    """A run that wins because it trained longer.

    ## What it does
    Takes several logs, and compares each loss and score that they share twice: at the end of each
    log, and at the largest step that all of them reached (means of the last five rows there).

    ## Why is this bad
    The better curve at a longer budget shows what more steps are worth, not what the change is
    worth.

    ## How it decides
    Fails where the run that is ahead at its own end has 5 % more steps than the shortest, and at
    the common step another one is ahead, or none is beyond the noise (4.5 standard errors, from
    neighbouring rows). Passes where the same run is ahead at both. One log, fewer than 8 rows, or
    no difference beyond the noise: "cannot tell". By simulation: of 16,000
    pairs of equal runs, most with unequal budgets, past their bend, none is failed, with white
    noise or neighbours correlated by 0.5.

    ## What to do
    Compare at the same number of steps (or examples, or hours, if that is what you pay), and train
    each setting with several seeds.

    ## Limits
    The noise is that within a run: what another seed would give is not in it, and is larger. Steps
    are compared, so other batch sizes need steps that count examples.
    """

    code = "LOG006"
    name = "unequal-budgets"

    def run(self, subject: LogSubject) -> Answer:
        logs: dict[str, dict[str, Series]] = {series.log: {} for series in subject.series}
        if len(logs) < 2:
            return unclear("There is one log: give several to compare them at an equal budget.")
        for s in subject.series:
            if len(s.values) >= LEAST and better_is(s.name) and np.isfinite(s.values).all():
                logs[s.log].setdefault(s.name, s)
        shared = set.intersection(*map(set, logs.values()))
        if not shared:
            return unclear(f"The logs share no loss or score with {LEAST} rows.")
        answers = [
            _compared([log[name] for log in logs.values()])
            for name in sorted(shared, key=lambda n: (not is_held_out(n), n))
        ]
        order = ("fail", "pass", "cannot_tell")
        return min(answers, key=lambda answer: order.index(answer.judgement))

    @staticmethod
    def _made(first: float, second: float, rows: tuple[int, int]) -> LogSubject:
        """Two runs that fall with these lengths, to 0.5."""
        rng = np.random.default_rng(0)
        made = []
        for name, length, count in zip("ab", (first, second), rows, strict=True):
            steps = np.arange(float(count))
            loss = 0.5 + np.exp(-steps / length) + rng.normal(0, 0.01, count)
            made.append(Series("val_loss", steps * 100, loss, log=f"{name}.csv"))
        return LogSubject(made)

    PLANTED = (
        ("slower but longer", lambda: EqualBudget._made(30, 40, (30, 90))),
        ("the same but longer", lambda: EqualBudget._made(40, 40, (40, 80))),
    )
    HEALTHY = (
        ("faster and longer", lambda: EqualBudget._made(60, 20, (40, 60))),
        ("longer for nothing", lambda: EqualBudget._made(5, 5, (60, 90))),
    )


def level_at(series: Series, step: float) -> Level:
    """The mean of the last rows up to a step, with its standard error."""
    values = better_is(series.name) * series.values[series.steps <= step]
    last = values[-LAST:]
    mean = float(last.mean()) if len(last) else float("nan")
    # the last rows are as noisy as the others, and a thousand of them show it
    error = error_of_mean(series.values[-MOST:], max(len(last), 1))
    return Level(series.log, mean, error, len(values))


def _leader(levels: list[Level]) -> Level | None:
    """The best one, where it is ahead of all others beyond the noise."""
    best = max(levels, key=lambda level: level.value)
    for other in levels:
        apart = Z_BOUND * np.hypot(best.error, other.error)
        if other is not best and not best.value - other.value > apart:
            return None
    return best


def _compared(runs: list[Series]) -> Answer:
    budgets = {run.log: float(run.steps.max()) for run in runs}
    common = min(budgets.values())
    at_end = [level_at(run, budgets[run.log]) for run in runs]
    at_common = [level_at(run, common) for run in runs]
    name, sign = runs[0].name, better_is(runs[0].name)
    numbers: dict[str, Any] = {
        "metric": name,
        "budgets": budgets,
        "common_step": common,
        "at_end": {level.log: sign * level.value for level in at_end},
        "at_common_step": {level.log: sign * level.value for level in at_common},
        "rows": {level.log: level.rows for level in at_end},
    }
    if min(level.rows for level in at_common) < LAST:
        return unclear(f"The logs share too few rows up to step {common:g}.", **numbers)
    winner, fair = _leader(at_end), _leader(at_common)
    if winner is None:
        return unclear(f"No run is ahead in {name} beyond the noise.", **numbers)
    same = fair is not None and fair.log == winner.log
    if same or budgets[winner.log] < LONGER * common:
        return passed(
            f"{winner.log} is ahead in {name} at its end ({sign * winner.value:.4g})"
            + (f" and at step {common:g}, which all runs reached." if same else "."),
            **numbers,
        )
    instead = f"{fair.log} is ahead" if fair else "no run is ahead beyond the noise"
    said = ", ".join(f"{log} {value:.4g}" for log, value in numbers["at_common_step"].items())
    return wrong(
        f"{winner.log} is ahead in {name} after {budgets[winner.log]:g} steps, but at step "
        f"{common:g}, which all runs reached, {instead} ({said}).",
        ["the run trained longer", "the other run was ended early, or is still going on"],
        "Compare at equal steps, and train each setting with several seeds.",
        **numbers,
    )
