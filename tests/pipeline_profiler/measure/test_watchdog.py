"""The watchdog's second process ends with the measurement, whatever else was started meanwhile."""

from __future__ import annotations

import multiprocessing
import time

from pipeline_profiler.measure.watchdog import Pulse, Watchdog
from pipeline_profiler.record.session import Session


def test_a_worker_that_lives_on_does_not_keep_the_second_process() -> None:
    watchdog = Watchdog(Pulse(), 60.0, Session(), rescue=lambda session: None)
    with watchdog:
        # like a DataLoader's with persistent_workers: forked, so it holds the same pipe
        worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        worker.start()
    try:
        assert watchdog._last is not None
        assert watchdog._last.returncode == 0
    finally:
        worker.kill()
        worker.join()
