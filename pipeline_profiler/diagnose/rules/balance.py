"""Rule for work that is dealt unevenly: one worker whose batches take longer than the others'.

In order, every batch waits for the one before it, so the slowest worker sets the pace of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_profiler.diagnose.case import Case
from pipeline_profiler.diagnose.evidence import Evidence
from pipeline_profiler.diagnose.finding import Diagnosis
from pipeline_profiler.diagnose.intervals import Floats

SLOWER = 1.5
"""Median batch against the others', from which a worker is named: less is not worth a new split."""
SEPARATED = 0.9
"""Share of pairs (its batch, another's) in which its own is slower: of equal workers with so many
batches each, less than one in 5,000 is so far off by chance, and a worker that is slow in one of
two runs only is not. Of a single run twice as many batches count."""
LEAST_BATCHES = 12


def slow_worker(e: Evidence) -> Diagnosis | None:
    """One and the same worker is the slow one, in every run of the loader."""
    found = _slowest(e.cases)
    if found is None:
        return None
    worker, own, others = found[0], found[1] / 1e6, found[2] / 1e6
    share = e.saving(lambda case: case.play(fetch=_evened(case, worker)))
    return Diagnosis(
        "PIPE030",
        f"the batches of worker {worker} take {own:.1f} ms each, those of the others "
        f"{others:.1f} ms: in order, all wait for it",
        share,
        {"worker": worker, "ms_per_batch": own, "others_ms_per_batch": others},
        "deal the work evenly: shards of equal cost, several small ones a worker, or an order of "
        "samples that is no multiple of the workers; in_order=False hides it in part",
    )


def _slowest(cases: Sequence[Case]) -> tuple[int, float, float] | None:
    """(worker, its median batch, the others', ns) where one is slower beyond doubt."""
    if not cases or not all(_told_by_worker(case) for case in cases):
        return None
    workers = np.concatenate([case.batches.worker for case in cases])
    fetch = np.concatenate([case.fetch for case in cases])
    present, counts = np.unique(workers, return_counts=True)
    least = LEAST_BATCHES if len(cases) > 1 else 2 * LEAST_BATCHES
    if len(present) < 2 or counts.min() < least:
        return None
    medians = [float(np.median(fetch[workers == w])) for w in present]
    worker = int(present[int(np.argmax(medians))])
    own, others = fetch[workers == worker], fetch[workers != worker]
    slower = float(np.searchsorted(np.sort(others), own).mean()) / len(others)
    middle = float(np.median(others))
    if max(medians) < SLOWER * middle or slower < SEPARATED:
        return None
    return worker, max(medians), middle


def _told_by_worker(case: Case) -> bool:
    return case.workers > 1 and 0 < len(case.fetch) == len(case.batches.worker)


def _evened(case: Case, worker: int) -> Floats:
    """The loading times with those of one worker brought to the others' median."""
    own = case.batches.worker == worker
    times = float(np.median(case.fetch[~own])) / max(float(np.median(case.fetch[own])), 1.0)
    return np.where(own, case.fetch * times, case.fetch)
