"""A process that is watched, its files in a folder of the test's own."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_profiler.profiling.monitor.process import WatchedProcess, WatchOrder
from pipeline_profiler.profiling.monitor.queues import hook_queues


@pytest.fixture
def process(tmp_path: Path) -> Iterator[WatchedProcess]:
    (tmp_path / "notes").mkdir()
    order = WatchOrder(
        str(tmp_path / "p.json"), 60.0, str(tmp_path / "notes"), "", os.getppid(), quiet=True
    )
    made = WatchedProcess(order)
    made.on_draw = functools.partial(hook_queues, made)
    yield made
    made.end()
