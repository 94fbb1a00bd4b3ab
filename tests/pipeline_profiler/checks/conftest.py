"""What the tests of checks share: one thread of torch, one check asked."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline_profiler.checks.check import all_checks
from pipeline_profiler.checks.runner import CheckResult, run_check


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Several threads wait for each other on a busy machine: these networks are tiny."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def judged(code: str, subject: Any) -> CheckResult:
    """What one check says of a subject; it must not break."""
    result = run_check(all_checks(code.rstrip("0123456789"))[code], subject)
    assert not result.broken, result.broken
    return result
