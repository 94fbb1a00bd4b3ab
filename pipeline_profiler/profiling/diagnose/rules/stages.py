"""Rules for the stages of loading: which one is most of the work, where its line is, what helps."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pipeline_profiler.profiling.diagnose.evidence import Case, Evidence, sampled
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import Floats, Interval
from pipeline_profiler.profiling.diagnose.rules.loader import (
    LIGHTER_BATCH,
    LOCKED,
    crowded_by_itself,
    relieved,
    shared_period,
    uncrowded,
)

DOMINANT = 0.50  # share of the loading time from which one stage is "the" stage
STAGE_CODES = {
    "read": "PIPE001",
    "decode": "PIPE002",
    "transform": "PIPE003",
    "collate": "PIPE004",
    "serialise": "PIPE005",
}
STAGE_WORDS = {"serialise": "pickling"}
STAGE_NEXT = {
    "read": "pack the samples into shards or a local copy, or read ahead with more workers: "
    "`pipeline-profiler run --try workers=0,2,4`",
    "decode": "store smaller or faster-decoding files (`audit report` lists the large ones), or "
    "decode at a reduced size (Image.draft before load, cv2.IMREAD_REDUCED_*)",
    "transform": "move the deterministic part offline, or onto the device in batches",
    "collate": "preallocate and stack once; pad to a multiple, not per batch",
    "serialise": LIGHTER_BATCH,
}
TEXT = re.compile(r"csv|json|xml|yaml|read_table|read_excel|loadtxt|genfromtxt", re.IGNORECASE)
ONE_LOCK = "the workers wait for each other at one lock: give each its own handle or connection"
SMALL_MS = 0.05  # of an element, below which what it costs is the call and not the work
MANY = 32  # elements of a batch
MORE_CALLS = ("parallel map", "parallel interleave")  # interventions that make calls concurrent
IN_PYTHON = 0.15  # of the stacks in next(), from which Python is what a tf.data graph waits for
NO_PYTHON = (
    "write it in TensorFlow's operations, or prepare it once: calls of a Python function take "
    "turns for one interpreter lock, whatever num_parallel_calls is"
)
MORE_AT_ONCE = (
    "the function waits rather than computes: let more of its calls wait at a time "
    "(num_parallel_calls of the map, cycle_length of the interleave), or ask for more in one call"
)
SHARED = (
    "the function waits for something that its calls share, as more calls at a time were tried and "
    "did not help: a lock, one connection, a rate limit"
)
ONE_BY_ONE = (
    "let the generator give whole batches, or use arrays or files (from_tensor_slices, TFRecord): "
    "each element costs a call of Python and copies"
)
WHOLE_BATCHES = (
    "batch before the map, and map whole batches (parse_example, operations on the whole batch): "
    "each of the {} elements of a batch pays for a call of its own"
)
ONCE = "parse it once, and keep arrays (in memory, np.save, Arrow) instead of text"
PARTS_NEXT = "name its parts with `with stage(...)`"


def dominant_stage(e: Evidence) -> Diagnosis | None:
    """One named stage that is most of the worker's time."""
    name, share = e.top_stage
    return describe_stage(e, name, share) if name != "sample code" and share >= DOMINANT else None


def largest_stage(e: Evidence) -> Diagnosis | None:
    """The stage that costs most, when nothing more specific explains the stall."""
    name, share = e.top_stage
    return describe_stage(e, name, share) if name else None


def describe_stage(e: Evidence, name: str, share_of_fetch: float) -> Diagnosis:
    """Return a stage with its time, its line, what it costs the step and what helps."""
    crowded = crowded_by_itself(e)
    share = e.saving(lambda case: _played_without(e, case, (name,), crowded))
    relief = None if crowded else partial(_relief, e, names=(name,))
    # a stage that samples named is as uncertain as its share of them
    share = share.widened(share.value * e.labels.error(name))
    ms = float(np.mean([case.stages[name].mean() for case in e.cases if name in case.stages])) / 1e6
    blocked, how = _mostly(e)
    place = e.labels.top_place(name)
    contended = bool(LOCKED.search(place)) and e.workers > 1 and blocked > 0.5
    if name == "read" and (remote := _remote(e, share, ms)) is not None:
        return remote
    fix = STAGE_NEXT.get(name, PARTS_NEXT + (", or look at the line shown" if place else ""))
    in_python = e.config.get("kind") == "tf" and _seen_in_python(e) >= IN_PYTHON
    fix = ONCE if name == "decode" and TEXT.search(place) else fix
    if e.config.get("kind") == "tf":
        fix = _of_python(e, blocked) if in_python else _of_graph(e, ms) or fix
    place = "" if e.config.get("kind") == "tf" and not in_python else place
    return Diagnosis(
        STAGE_CODES.get(name, "PIPE025" if e.config.get("kind") != "tf" else "PIPE028"),
        f"{STAGE_WORDS.get(name, name)} takes {ms:.1f} ms a batch, {share_of_fetch:.0%} of the "
        f"loading time, mostly {how}" + (f" ({place})" if place else ""),
        share,
        {"ms_per_batch": ms, "share_of_loading": share_of_fetch, "blocked": blocked, "at": place},
        ONE_LOCK if contended else fix,
        relief=relief,
    )


def _of_python(e: Evidence, blocked: float) -> str:
    """What to do about a Python function in a tf.data graph: one that computes, or that waits."""
    if blocked <= 0.5:
        return NO_PYTHON
    tried = [r for r in e.session.probes.interventions or [] if r["name"] in MORE_CALLS]
    helped = [r for r in tried if r["period_ms"] < (1 - NOT_BOUND) * r["baseline_ms"]]
    return SHARED if tried and not helped else MORE_AT_ONCE


def _of_graph(e: Evidence, ms: float) -> str:
    """What to do about a graph whose time is no Python function's of the user; '' unknown."""
    if e.config.get("generator"):
        return ONE_BY_ONE
    rows = e.session.probes.prefixes or []
    mapped = [row["visits"] for row in rows if row["operation"] in ("Map", "ParallelMap")]
    elements = max(mapped, default=0.0)
    return WHOLE_BATCHES.format(round(elements)) if elements >= max(MANY, ms / SMALL_MS) else ""


def _seen_in_python(e: Evidence) -> float:
    """Share of the stacks in next() in which a function of the user's ran; of tf.data its calls."""
    seen = total = 0
    for run in sampled(e.session):
        for key, weight in run.stacks.items():
            phase, _, rest = key.partition("|")
            if phase == "wait":
                total += weight
                seen += weight if rest.partition("|")[2] else 0
    return seen / total if total else 0.0


def _remote(e: Evidence, share: Interval, ms: float) -> Diagnosis | None:
    """The data is not where the training is: first byte against the bytes that follow."""
    latency, data, calls = e.remote_reads()
    # less than half remote: the disk or the decoder behind it is the better name
    if latency + data < 0.5 * ms:
        return None
    batch_bytes = float(np.mean([np.maximum(c.batches.read_chars, 0).mean() for c in e.cases]))
    # bytes that the hooks saw over the time after the first byte
    pace = batch_bytes / 1e6 / max(data / 1e3, 1e-9)
    late = latency > data
    fix = (
        "ask for more at once: larger shards, more workers, or prefetch whole files"
        if late
        else "move fewer bytes: smaller encodings, or copy the data next to the training once"
    )
    mounted = ", ".join(e.session.environment.get("network_file_systems") or ())
    where = f" (mounted here: {mounted})" if mounted else ""
    return Diagnosis(
        "PIPE024",
        f"the source is remote{where}: of {ms:.1f} ms reading a batch, {latency:.1f} ms wait "
        f"for the first byte and {data:.1f} ms for the rest ({pace:.1f} MB/s); "
        f"{'latency' if late else 'bandwidth'} is the larger part",
        share,
        {"latency_ms": latency, "data_ms": data, "megabytes_per_s": pace, "requests": calls},
        fix,
    )


def _without_parts(case: Case, names: tuple[str, ...]) -> Floats:
    fetch = case.fetch
    for name in names:
        wall = case.stages.get(name)
        if wall is not None and len(wall) == len(fetch):
            fetch = np.maximum(fetch - wall, 0.0)
    return fetch


def _played_without(e: Evidence, case: Case, names: tuple[str, ...], crowded: bool) -> float:
    """The period without stages; what waits for the loading, and its crowd, go with their part."""
    if not crowded:
        return case.play(**_relief(e, case, names))
    left = _left(case, _without_parts(case, names))
    # the crowd shrinks with the work: CPU and blocked time both lose the stage's part
    costs = uncrowded(e, case)
    less = replace(costs, cpu=costs.cpu * left, blocked=costs.blocked * left)
    return shared_period(e.cores, case, less)


def _relief(e: Evidence, case: Case, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the replay inputs without these stages."""
    fetch = _without_parts(case, names)
    return {"fetch": fetch} | relieved(e, case, _left(case, fetch))


def _left(case: Case, fetch: Floats) -> float:
    return float(fetch.sum() / max(float(case.fetch.sum()), 1.0))


def _mostly(e: Evidence) -> tuple[float, str]:
    """(blocked share, where most of the loading time goes in words)."""
    shares = e.loading_shares()
    words = {"cpu": "on CPU", "queued": "waiting for a core", "blocked": "blocked (I/O or waiting)"}
    most = max(words, key=lambda key: float(getattr(shares, key)))
    return shares.blocked, words[most] if shares.known else "of unknown kind"
