"""Files that a dataset holds open, as its workers read them."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import sys
from itertools import takewhile
from typing import Any

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear
from pipeline_profiler.checks.indexed import spread_indices
from pipeline_profiler.checks.loader_subject import LoaderSubject, ProbedDataset, held_objects
from pipeline_profiler.checks.user_code import Patience, batches_of, seed_everything

SAMPLES, SECONDS, STDERR = 32, 4.0, 2
CONNECTED = ("av", "cv2", "decord", "h5py", "lmdb", "netCDF4", "rasterio", "sqlite3", "tables")


class SharedHandle(Check):
    """An open file or connection whose position forked workers share.

    ## How it decides
    Reads up to 32 samples three times after one seed. In the third pass each file that was open
    before the fork moves after every seek(), as other workers move it. Fails if samples that repeat
    have other bytes or an error then. Inconclusive for an open file or a connection alone.

    ## Limits
    Forked workers, datasets with indices.
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
        handles = held_objects(loader.dataset, _is_handle)
        handles |= {name: value for name, value in known.items() if _is_handle(value)}
        files = [value.fileno() for value in handles.values() if hasattr(value, "fileno")]
        clone, patience = copy.copy(loader), Patience(SECONDS, 2 * SECONDS)
        clone.__dict__ |= {
            "dataset": _Digests(loader.dataset, files), "collate_fn": list, "num_workers": 1,
            "batch_sampler": [[i] for i in spread_indices(loader.dataset, SAMPLES)],
            "persistent_workers": False, "_iterator": None,
        }  # fmt: skip
        rows = [batch[0] for batch in takewhile(lambda _: not patience.over, batches_of(clone))]
        right = [(alone, moved) for alone, again, moved in rows if alone == again]
        bad = sum(alone != moved for alone, moved in right)
        text = f"{bad} of {len(right)} samples differ where other workers move an open file; "
        text += f"{', '.join([*handles][:3]) or 'no file'} is open before they are forked."
        if bad:
            return self.failed(text)
        return (unclear if handles or not right else passed)(text)


def _is_handle(value: Any) -> bool:
    with contextlib.suppress(OSError, ValueError):  # closed, or in memory
        if hasattr(type(value), "fileno"):
            return bool(value.fileno() > STDERR)
    return type(value).__module__.lstrip("_").partition(".")[0] in CONNECTED


class _Digests(ProbedDataset):
    """A dataset of the digests of a sample, or kinds of its errors: two alike, one disturbed."""

    def __init__(self, dataset: Any, files: list[int]) -> None:
        super().__init__(dataset)
        self.__dict__["_files"] = files

    def __getitem__(self, index: int) -> Any:
        return [self._digest(index, disturb) for disturb in (None, None, self._move)]

    def _digest(self, index: int, disturb: Any) -> str:
        seed_everything(0)
        sys.setprofile(disturb)
        try:
            return digest_of(self._probed[index])
        except Exception as error:  # noqa: BLE001 - in a worker it is a result
            return type(error).__name__
        finally:
            sys.setprofile(None)

    def _move(self, _: Any, event: str, function: Any) -> None:
        moves = event == "c_return" and function.__name__ == "seek"
        for file in self._files if moves else ():
            with contextlib.suppress(OSError):  # a socket
                os.lseek(file, 0, os.SEEK_END)
