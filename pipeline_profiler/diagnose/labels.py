"""Names for the loading time that no hook could see, from the run with stack samples.

A sample is keyed `phase|stage|place`. Shares of the samples stand for shares of the time; they are
labels for a time that was measured and decide no verdict. The error of a share is binomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline_profiler.diagnose.window import Window
from pipeline_profiler.record.session import Session

SAMPLE_US = 5000  # distance of stack samples
HOOKED_SHARE = 0.01  # of the fetch, from which a stage counts as measured by its hook
Shares = dict[str, float]


@dataclass(frozen=True)
class Labels:
    """What the stack samples say."""

    by_stage: Shares = field(default_factory=dict)  # share of the time that no hook could name
    places: dict[str, Shares] = field(default_factory=dict)  # phase -> "stage|place" -> share
    samples: float = 0.0  # how many stacks the shares rest on
    step_samples: float = 0.0  # the same for those seen in the step

    def error(self, stage: str) -> float:
        """Half width of a stage's size, relative to it: binomial, 95 %; 0 if it was measured."""
        share = self.by_stage.get(stage, 0.0)
        if not share or not self.samples:
            return 0.0
        return 1.96 * math.sqrt((1 - share) / (share * self.samples))

    def step_places(self) -> Shares:
        """Lines of the step with their share of it, whatever stage the words around them told."""
        places: Shares = {}
        for key, share in self.places.get("step", {}).items():
            place = key.partition("|")[2]
            places[place] = places.get(place, 0.0) + share
        return places

    def step_error(self, share: float) -> float:
        """Half width of a share of the step: binomial, 95 %."""
        if not self.step_samples:
            return 0.0
        return 1.96 * math.sqrt(max(0.0, share * (1 - share)) / self.step_samples)


def read_labels(session: Session, warm: Sequence[Window]) -> Labels:
    """Labels of a session; `warm` tells which stages were measured already."""
    places = {
        phase: {key: hits / sum(rows.values()) for key, hits in rows.items()}
        for phase, rows in _hits(session).items()
    }
    # workers where there are any: the trainer's next() then only waits for them
    loading = places.get("worker") or places.get("wait") or {}
    hooked_stages = _hooked(warm)
    unnamed = {k: v for k, v in loading.items() if k.partition("|")[0] not in hooked_stages}
    total = sum(unnamed.values())
    by_stage: Shares = {}
    for key, share in unnamed.items():
        name = key.partition("|")[0]
        by_stage[name] = by_stage.get(name, 0.0) + share / total
    return Labels(by_stage, places, _count(session, "worker|", "wait|"), _count(session, "step|"))


def _hits(session: Session) -> dict[str, Shares]:
    """Microseconds seen, by phase and place."""
    hits: dict[str, Shares] = {}
    for run in session.runs:
        for key, weight in run.stacks.items():
            phase, _, place = key.partition("|")
            if place != "|":  # an idle worker: no frame of the user's, no word
                rows = hits.setdefault(phase, {})
                rows[place] = rows.get(place, 0) + weight
    return hits


def _count(session: Session, *phases: str) -> float:
    """Stacks seen in some phases: one every 5 ms, or what the run says."""
    return sum(
        weight / run.totals.get("stack_us", SAMPLE_US)
        for run in session.runs
        for key, weight in run.stacks.items()
        if key.startswith(phases) and not key.endswith("||")
    )


def _hooked(warm: Sequence[Window]) -> set[str]:
    """Stages whose time was measured directly: not to be guessed again."""
    names = set()
    for window in warm:
        batches = window.batches
        fetch = max(1.0, float(batches.fetch.sum()))
        names |= {
            name
            for name, wall in batches.stages.items()
            if name != "getitem" and wall.sum() / fetch > HOOKED_SHARE
        }
    return names
