"""Planted faults and healthy twins for what workers share of open files."""

import os
import tempfile
from typing import Any

import numpy as np

from pipeline_profiler.checks.lazy import torch
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import ToyImages, toy_loader

ROW = 40_000
OPEN: list[Any] = []  # until the process ends


class _Rows:
    """Rows of a file, read as `how` says."""

    def __init__(self, how: str) -> None:
        self.how, self.path = how, f"{tempfile.mkdtemp()}/rows"
        np.arange(64, dtype=np.float32).repeat(ROW // 4).tofile(self.path)
        self.file: Any = open(self.path, "rb") if how == "shared" else None  # noqa: SIM115
        OPEN.append(self.file)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if self.how == "pread":
            file = os.open(self.path, os.O_RDONLY)
            read = os.pread(file, ROW, ROW * index)
            os.close(file)
        else:
            if self.file is None:
                self.file = open(self.path, "rb")  # noqa: SIM115
            self.file.seek(ROW * index)
            read = self.file.read(ROW)
        return np.frombuffer(read, np.float32)[:: ROW // 16].copy(), index % 4


def _read(how: str, **options: Any) -> Any:
    return toy_loader(_Rows(how), **{"batch_size": 4, "num_workers": 2} | options)


def _opened(worker: int) -> None:
    info: Any = torch.utils.data.get_worker_info()
    info.dataset.file = open(info.dataset.path, "rb")  # noqa: SIM115


EXAMPLES: Rows = [
    ("LOAD028", FAULT, "a file opened before the fork", lambda: _read("shared")),
    ("LOAD028", TWIN, "opened at the first access", lambda: _read("lazy")),
    ("LOAD028", TWIN, "opened by worker_init_fn", lambda: _read("lazy", worker_init_fn=_opened)),
    ("LOAD028", TWIN, "read at an offset", lambda: _read("pread")),
    ("LOAD028", TWIN, "no workers", lambda: _read("shared", num_workers=0)),
    ("LOAD028", TWIN, "one worker", lambda: _read("shared", num_workers=1)),
    (
        "LOAD028",
        TWIN,
        "augmented in memory",
        lambda: toy_loader(ToyImages(augment=True), num_workers=2),
    ),
]
