"""One run of the warm loader as input for a replay: what would it do without one cost?

A case holds the run's own batch costs, its loop and its setting. `play` replays them with some of
these exchanged; the difference to the untouched replay is what the exchanged cost is worth. A
replay of 240 batches takes about half a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline_profiler.diagnose import predict
from pipeline_profiler.diagnose.columns import Batches, Ints, Steps, stage_columns
from pipeline_profiler.diagnose.intervals import Floats
from pipeline_profiler.diagnose.window import Window
from pipeline_profiler.record.session import MAIN

REPLAYED = 240  # batches of a replay, at least
LABELLED = ("read", "decode", "transform", "collate", "serialise")


@dataclass(frozen=True)
class Case:
    """One run of the warm loader; nanoseconds, one entry a batch."""

    window: Window
    costs: predict.Costs
    fetch: Floats
    lag: Floats
    loop: Floats
    overhead: float
    ready: float
    startup: float  # a step
    workers: int
    prefetch: int
    in_order: bool
    period: float  # measured, over whole epochs
    stages: Mapping[str, Floats]

    def play(self, startup: float | None = None, **changes: Any) -> float:
        """Period of the replay with some inputs exchanged."""
        inputs: dict[str, Any] = {
            "fetch": self.fetch,
            "workers": self.workers,
            "prefetch": self.prefetch,
            "loop": self.loop,
            "overhead": self.overhead,
            "ready": self.ready,
            "serialise": self.lag,
            "in_order": self.in_order,
        } | changes
        # a short window again and again: the edges of the replay shall not decide
        often = -(-REPLAYED // max(1, len(inputs["fetch"])))
        inputs["fetch"] = np.tile(inputs["fetch"], often)
        return predict.replay(**inputs).period + (self.startup if startup is None else startup)

    @cached_property
    def replayed(self) -> float:
        """Period of the untouched replay, which every rule compares with."""
        return self.play()

    @property
    def steps(self) -> Steps:
        """One row per step."""
        return self.window.steps

    @property
    def batches(self) -> Batches:
        """One row per delivered batch."""
        return self.window.batches

    @property
    def traced(self) -> bool:
        """Whether worker-side rows travelled with the batches."""
        return len(self.batches.batch) > 0


def make_case(window: Window, labels: Mapping[str, float]) -> Case:
    """A window as replay input; `labels` split the loading time that no hook could name."""
    steps, batches, config = window.steps, window.batches, window.run.config
    costs = predict.measured_costs(window)
    workers = int(config.get("workers") or 0)
    # without workers, or with a loader that tells nothing, the wait is the fetch
    serial = workers == 0 or not len(batches.batch) or window.in_main
    normal = ~steps.first if (~steps.first).any() else np.ones(len(steps.first), bool)
    fetch = steps.wait[normal] if serial else batches.fetch
    return Case(
        window=window,
        costs=costs,
        fetch=fetch.astype(float),
        lag=np.zeros(len(fetch)) if serial else np.maximum(costs.serialise, 0.0),
        loop=costs.loop,
        overhead=0.0 if serial else costs.overhead,
        ready=0.0 if serial else costs.ready,
        startup=costs.startup,
        workers=0 if serial else workers,
        prefetch=max(1, int(config.get("prefetch") or 1)),
        in_order=bool(config.get("in_order", True)),
        period=window.epoch_period_ns,
        stages=_stages(window, steps.batch[normal] if serial else batches.batch, labels),
    )


def _stages(window: Window, ids: Ints, labels: Mapping[str, float]) -> dict[str, Floats]:
    """Loader stages aligned to `ids`; the unnamed rest is split by what the stacks say."""
    walls, _ = stage_columns(window.run, ids)
    stages = {k: v.astype(float) for k, v in walls.items() if k != "index"}
    none = np.zeros(len(ids))
    if not window.wall_of("fetch", ids).any():
        # an unknown loader: what its own stages do not explain of the wait is unnamed
        wait = window.wall_of("wait", ids, MAIN)
        stages["getitem"] = np.maximum(wait - sum(stages.values(), none), 0.0)
    rest = stages.pop("getitem", none)
    for name, share in labels.items():
        if name in LABELLED:
            stages[name] = stages.get(name, none) + rest * share
    stages["sample code"] = rest * max(0.0, 1 - sum(labels.get(n, 0.0) for n in LABELLED))
    return stages
