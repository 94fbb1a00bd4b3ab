"""A cause: what it is, what it is worth, what was seen, what to try next.

Codes are never reused. `about` tells loader causes ("input") from the rest ("step").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_profiler.profiling.diagnose.intervals import Interval

NOT_BOUND = 0.05  # of the step: a stall below it is none
NAMES = {
    "PIPE000": "compute-bound",
    "PIPE001": "slow-read",
    "PIPE002": "slow-decode",
    "PIPE003": "slow-transform",
    "PIPE004": "slow-collate",
    "PIPE005": "heavy-transfer",
    "PIPE006": "too-few-workers",
    "PIPE007": "shallow-prefetch",
    "PIPE008": "straggler-samples",
    "PIPE009": "periodic-stall",
    "PIPE011": "worker-startup",
    "PIPE012": "oversubscribed-cpu",
    "PIPE013": "gc-pauses",
    "PIPE014": "work-between-steps",
    "PIPE015": "synchronising-step",
    "PIPE016": "cold-files",
    "PIPE017": "slow-sampler",
    "PIPE018": "sequential-map",
    "PIPE019": "no-prefetch",
    "PIPE020": "shuffle-buffer-fill",
    "PIPE021": "copy-to-device",
    "PIPE022": "unused-fields",
    "PIPE024": "remote-source",
    "PIPE025": "slow-sample-code",
    "PIPE026": "sequential-interleave",
    "PIPE027": "uncached-pipeline",
    "PIPE028": "slow-tf-operation",
    "PIPE030": "slow-worker",
    "PIPE031": "slow-first-use",
    "PIPE032": "idle-worker",
    "PIPE033": "other-programs",
}


@dataclass(frozen=True)
class Diagnosis:
    """One cause; `share` is of the step period, with its interval."""

    code: str
    cause: str  # one sentence with the numbers in it
    share: Interval
    evidence: Mapping[str, float | int | str]
    next: str  # the next command or change to try
    about: str = "input"
    change: Mapping[str, Any] | None = None  # the loader setting that would undo it
    tried: bool = False  # whether the share is what that setting was measured to save
    relief: Callable[[Any], Mapping[str, Any]] | None = None  # Case -> replay inputs without it

    @property
    def name(self) -> str:
        """The name behind the code."""
        return NAMES[self.code]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        interval = self.share.as_dict()
        return {
            "code": self.code,
            "name": self.name,
            "cause": self.cause,
            **interval,
            "evidence": dict(self.evidence),
            "next": self.next,
            "about": self.about,
        }
