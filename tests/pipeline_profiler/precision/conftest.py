"""torch on one thread: on a busy machine two are far slower than one."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    if "torch" in sys.modules:  # a test that needs it has imported it; the others need not wait
        sys.modules["torch"].set_num_threads(1)
