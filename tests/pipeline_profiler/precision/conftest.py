"""torch on one thread: on a busy machine two are far slower than one."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
