"""What all advised changes leave of the data stall together, by one replay with all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pipeline_profiler.profiling.diagnose.evidence import Case, Evidence
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.diagnose.rules.loader import with_workers

Relief = Callable[[Case], Mapping[str, Any]]
MAX_CAUSES = 3
EXPLAINED = 0.5  # of the stall, from which the causes explain it
NUMBERS = {2: "Both", 3: "All three"}


@dataclass(frozen=True)
class Together:
    """The stall that is left (share of the step) when all changes are made."""

    left: Interval
    before: float
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """The key `together` of the results."""
        numbers = {"before": self.before, "after": self.left.value}
        return self.left.as_dict() | numbers | {"sentence": self.sentence}


def replay_together(e: Evidence, causes: Sequence[Diagnosis]) -> Together | None:
    """Replay the first causes without all of them; None where fewer than two can be replayed."""
    sure = [c for c in causes if c.about == "input" and c.share.low > 0][:MAX_CAUSES]
    reliefs = [cause.relief for cause in sure if cause.relief is not None]
    stall = e.stall
    if len(reliefs) < 2 or len(reliefs) < len(sure) or stall.value < NOT_BOUND:
        return None
    saved = e.saving(partial(_relieved_period, e, reliefs), modelled=True)
    left, low, high = (_left(stall.value, share) for share in (saved.value, saved.high, saved.low))
    words = f"{stall.value:.0%} -> {left:.0%} of the step (replay)"
    explained = left <= (1 - EXPLAINED) * stall.value or left < NOT_BOUND
    sentence = (
        f"{NUMBERS[len(reliefs)]} changes together: data stall {words}."
        if explained
        else f"These causes do not explain the data stall: {words}."
    )
    return Together(Interval(left, low, high, saved.n), stall.value, sentence)


def _left(stall: float, saved: float) -> float:
    """Return the stall as a share of the step that `saved` (a share) makes shorter."""
    return max(0.0, (stall - saved) / max(1 - saved, 1e-9))


def _relieved_period(e: Evidence, reliefs: Sequence[Relief], case: Case) -> float:
    """Return the period (ns) of a replay with the inputs of all reliefs."""
    merged: dict[str, Any] = {}
    for relief in reliefs:
        for name, value in relief(case).items():
            merged[name] = _merged(name, merged.get(name), value, case)
    if (workers := merged.pop("workers", None)) is None:
        return case.play(**merged)
    ratio = float(np.sum(merged.get("fetch", case.fetch)) / max(float(case.fetch.sum()), 1.0))
    costs, startup = case.costs, merged.get("startup", case.costs.startup)
    costs = replace(costs, cpu=costs.cpu * ratio, blocked=costs.blocked * ratio, startup=startup)
    return with_workers(e, replace(case, costs=costs), workers)


def _merged(name: str, known: Any, value: Any, case: Case) -> Any:
    if known is None:
        return value
    if name == "fetch":  # each removes a part of its own
        return np.maximum(known + value - case.fetch, 0.0)
    return max(known, value) if name in ("workers", "prefetch") else np.minimum(known, value)
