"""Rule for work that is dealt unevenly: one worker whose batches take longer than the others'.

In order, every batch waits for the one before it, so the slowest worker sets the pace of all.
"""

from __future__ import annotations

import numpy as np

from pipeline_profiler.diagnose.case import Case
from pipeline_profiler.diagnose.evidence import Evidence
from pipeline_profiler.diagnose.finding import Diagnosis
from pipeline_profiler.diagnose.intervals import Floats

SLOWER = 1.5
"""Median batch against the others', from which a worker is named: less is not worth a new split."""
SEPARATED = 0.9
"""Share of pairs (its batch, another's) in which its own is slower: of equal workers with eight
batches each, one in 300 is so far off by chance, in one run."""
LEAST_BATCHES, LEAST_IN_ONE_RUN = 8, 24


def slow_worker(e: Evidence) -> Diagnosis | None:
    """One and the same worker is the slow one, in every run of the loader."""
    found = [_slowest(case) for case in e.cases]
    first = found[0] if found else None
    if first is None or any(one is None or one[0] != first[0] for one in found):
        return None
    if len(found) == 1 and min(_counts(e.cases[0])) < LEAST_IN_ONE_RUN:
        return None
    worker = first[0]
    own, others = (
        float(np.mean([one[place] for one in found if one is not None])) / 1e6 for place in (1, 2)
    )
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


def _counts(case: Case) -> list[int]:
    return [int(n) for n in np.unique(case.batches.worker, return_counts=True)[1]]


def _slowest(case: Case) -> tuple[int, float, float] | None:
    """(worker, its median batch, the others', ns) where one is slower beyond doubt."""
    workers, fetch = case.batches.worker, case.fetch
    if case.workers < 2 or len(workers) != len(fetch) or not len(fetch):
        return None
    present = np.unique(workers)
    if len(present) < 2 or min(_counts(case)) < LEAST_BATCHES:
        return None
    medians = [float(np.median(fetch[workers == w])) for w in present]
    worker = int(present[int(np.argmax(medians))])
    own, others = fetch[workers == worker], fetch[workers != worker]
    slower = float(np.mean(own[:, None] > others[None, :]))
    middle = float(np.median(others))
    if max(medians) < SLOWER * middle or slower < SEPARATED:
        return None
    return worker, max(medians), middle


def _evened(case: Case, worker: int) -> Floats:
    """The loading times with those of one worker brought to the others' median."""
    own = case.batches.worker == worker
    times = float(np.median(case.fetch[~own])) / max(float(np.median(case.fetch[own])), 1.0)
    return np.where(own, case.fetch * times, case.fetch)
