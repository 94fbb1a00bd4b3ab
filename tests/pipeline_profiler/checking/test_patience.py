"""When a check stops: after its work, or where the clock says that the budget would not hold."""

from __future__ import annotations

import time

from pipeline_profiler.checking.patience import Patience


def test_time_that_others_use_is_no_work() -> None:
    long_ago = (time.monotonic() - 1e6, time.process_time())
    assert not Patience(work=1e5, wall=1e7, began=long_ago).over
    assert Patience(work=1e5, wall=1e5, began=long_ago).over


def test_threads_that_share_the_work_are_not_counted_twice() -> None:
    busy = (time.monotonic(), time.process_time() - 1e6)
    assert not Patience(work=1e5, wall=1e5, began=busy).over


def test_work_ends_it() -> None:
    both = (time.monotonic() - 1e6, time.process_time() - 1e6)
    assert Patience(work=1e5, wall=1e7, began=both).over
