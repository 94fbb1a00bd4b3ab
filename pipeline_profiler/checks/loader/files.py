"""Files that a dataset holds open, as its workers read them."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Sequence
from time import sleep
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear
from pipeline_profiler.checks.indexed import spread_indices
from pipeline_profiler.checks.loader_subject import LoaderSubject, ProbedDataset, held_objects
from pipeline_profiler.checks.user_code import Patience, batches_of, seed_everything

SAMPLES, SECONDS, MAX_ROUNDS, STDERR = 64, 1.5, 64, 2
CONNECTED = ("av", "cv2", "decord", "h5py", "lmdb", "netCDF4", "rasterio", "sqlite3", "tables")


class SharedHandle(Check):
    """An open file or connection that forked workers share.

    ## Why is this bad
    Forked workers share the position in an open file, so one reads where another moved it.

    ## How it decides
    Reads up to 64 samples by one worker, and by all workers at once, each after the same seed.
    Fails if samples that repeat in one worker have other bytes or an error where several read, and
    the dataset holds an open file. Inconclusive for an open file alone.

    ## Limits
    Forked workers, datasets with indices. The race may not show in the time of the check.
    """

    code = "LOAD028"
    name = "shared-handle"
    recorded = True  # first: other checks open in this process what a worker opens itself
    causes = ("the file is opened in __init__ or in the main process, before workers are forked",)
    next_step = "Open it in each worker at the first access: if self.file is None: self.file = ..."

    def run(self, subject: LoaderSubject) -> Answer:
        loader, workers = subject.loader, subject.workers
        context = getattr(loader, "multiprocessing_context", None) or multiprocessing
        if not subject.has_indices or workers < 2 or context.get_start_method() != "fork":
            return absent("No two forked workers read a dataset with indices.")
        known = getattr(getattr(type(loader.dataset), "__getitem__", None), "__globals__", {})
        handles = list(held_objects(loader.dataset, _is_handle))
        handles += [name for name, value in known.items() if _is_handle(value)]
        alone = _read(loader, spread_indices(loader.dataset, SAMPLES), 1, 2)
        right = [i for i, found in alone.items() if len(found) == 1]
        together = _read(loader, right, workers, MAX_ROUNDS)
        bad = [i for i in right if together[i] - alone[i]]
        text = f"{len(bad)} of {len(right)} samples differ where {workers} workers read at once; "
        text += f"{', '.join(handles[:3]) or 'no file'} is open before they are forked."
        if bad and handles and _read(loader, bad, 1, 1) == {i: alone[i] for i in bad}:
            return self.failed(text)
        return (unclear if bad or handles or not right else passed)(text)


def _is_handle(value: Any) -> bool:
    with contextlib.suppress(OSError, ValueError):  # closed, or in memory
        if hasattr(type(value), "fileno"):
            return bool(value.fileno() > STDERR)
    return type(value).__module__.lstrip("_").partition(".")[0] in CONNECTED


def _pause_after_seek(_: Any, event: str, function: Any) -> None:
    if event == "c_return" and function.__name__ == "seek":
        sleep(1e-3)


class _Digests(ProbedDataset):
    """A dataset of (index, digest or kind of error); another worker runs after each seek()."""

    def __getitem__(self, index: int) -> Any:
        seed_everything(0)
        sys.setprofile(_pause_after_seek)
        try:
            return int(index), digest_of(self._probed[int(index)])
        except Exception as error:  # noqa: BLE001 - in a worker it is a result
            return int(index), type(error).__name__


def _read(loader: Any, indices: Sequence[int], workers: int, rounds: int) -> dict[int, set[str]]:
    """What workers make of these samples in some time, by index: digests, and kinds of errors."""
    clone, random = copy.copy(loader), np.random.default_rng(0)
    order = np.concatenate([random.permutation(indices) for _ in range(rounds)])
    clone.__dict__ |= {
        "dataset": _Digests(loader.dataset), "collate_fn": list, "num_workers": workers,
        "batch_sampler": np.array_split(order, 1 + len(order) // 8),
        "persistent_workers": False, "_iterator": None,
    }  # fmt: skip
    found, patience = defaultdict[int, set[str]](set), Patience(SECONDS, 2 * SECONDS)
    for batch in batches_of(clone):
        for index, digest in batch:
            found[index].add(digest)
        if patience.over:
            break
    return found
