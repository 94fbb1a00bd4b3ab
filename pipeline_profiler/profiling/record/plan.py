"""What a measurement sets out to do (`Plan`), and the results of probes (`Probes`).

A plan is fixed before the first run, except for a trial setting; steps and warm-up are those of the
newest block. A probe that did not run is None.
A session file has both under `plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict, cast

from pipeline_profiler.profiling.record.arm import Arm

Setting = dict[str, Any]  # loader settings as an adapter describes them: workers, prefetch, ...


@dataclass(frozen=True, slots=True)
class Plan:
    """Arms, their length and number, and the reason for each choice."""

    arms: tuple[Arm, ...] = ()
    repeats: int = 0
    steps: int = 0
    warmup: int = 0
    seconds: float = 0.0
    reasons: tuple[str, ...] = ()  # why something is in the plan, or is not
    seed: int = 0
    emulate_ms: float | None = None
    alone_s: float | None = None  # of each piece of the loader alone; 0: no time for it
    early_stop: bool = False  # after the third or fourth block, once the interval decides

    def to_json(self) -> dict[str, Any]:
        """The keys of `plan` in a session file; a plan without arms has its reasons alone."""
        reasons = list(self.reasons)
        if not self.arms:
            return {"reasons": reasons} if reasons else {}
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"arms": list(self.arms), "reasons": reasons}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Inverse of `to_json`."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        known["arms"] = tuple(Arm(letter) for letter in data.get("arms", ()) if letter in set(Arm))
        known["reasons"] = tuple(data.get("reasons", ()))
        return cls(**known)


class Operation(TypedDict):
    """tf.data: one operation's cost, from its prefix iterated alone; milliseconds."""

    operation: str
    ms: float
    total_ms: float
    first_ms: float
    visits: float


class TriedIntervention(TypedDict, total=False):
    """tf.data: one change that was tried and timed; milliseconds a step."""

    name: str
    why: str
    how: str
    baseline_ms: float
    period_ms: float
    spread: float
    repeats: int
    gains: list[float]


class SlowSample(TypedDict, total=False):
    """One of the slowest samples; `path` where the dataset lists its files."""

    key: int | str
    seen: int
    ms: float
    worst_ms: float
    stall_share: float
    path: str
    image: str  # size and format, where a run of `audit` was given


class SynchronisingLine(TypedDict):
    """A line of the step that makes the host wait for the device."""

    at: str
    per_step: float


class Repeatable(TypedDict, total=False):
    """Whether preparing a sample twice gave the same bytes, and how many."""

    same: bool
    bytes: float
    samples: int


@dataclass(slots=True)
class Probes:
    """Findings beside the arms; None where a probe did not run."""

    unused_fields: dict[str, int] | None = None  # field -> bytes a batch that no step touched
    batch_bytes: int | None = None
    piped_bytes: float | None = None  # of a batch, through a worker's pipe
    delivered: dict[str, int] | None = None  # a stream's worker -> its last step, as drawn once
    recording_ns: float | None = None  # a step, of the recorder around batches in hand
    loading_ns: float | None = None  # the same in next() of a DataLoader without workers
    prefixes: list[Operation] | None = None
    interventions: list[TriedIntervention] | None = None
    change: Setting | None = None  # what the trial setting changes; `try` in the file
    promised: dict[str, float] | None = None  # setting -> ms a step predicted before its trial
    failed: dict[str, str] | None = None  # setting -> what its trial raised
    repeatable: Repeatable | None = None
    slow_samples: list[SlowSample] | None = None
    on_device: bool = False  # the two rows below were probed: CUDA was there
    synchronising_lines: list[SynchronisingLine] | None = None
    utilisation_symptom: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The probes' keys of `plan` in a session file."""
        values = {name: getattr(self, name) for name in _ALWAYS}
        data = {_KEYS.get(k, k): v for k, v in values.items() if v is not None}
        device = {name: getattr(self, name) for name in _ON_DEVICE}
        return data | (device if self.on_device else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Probes:
        """Inverse of `to_json`."""
        known = {name: data.get(_KEYS.get(name, name)) for name in (*_ALWAYS, *_ON_DEVICE)}
        return cls(on_device=_ON_DEVICE[0] in data, **cast("dict[str, Any]", known))


LEAST_IDLE = 12  # steps without a batch of a worker; in order, each delivers in its turn


def idle_workers(delivered: Mapping[str, int], steps: int) -> dict[str, int]:
    """Workers that had nothing more in a stream drawn for `steps`, and the last step of each."""
    least = max(LEAST_IDLE, 4 * len(delivered))
    return {worker: last for worker, last in delivered.items() if steps - last >= least}


_ON_DEVICE = ("synchronising_lines", "utilisation_symptom")
_ALWAYS = tuple(f.name for f in fields(Probes) if f.name not in (*_ON_DEVICE, "on_device"))
_KEYS = {"change": "try"}  # a word that Python keeps for itself
