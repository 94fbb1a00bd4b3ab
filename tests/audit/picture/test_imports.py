"""What importing costs: the slow libraries load when a picture is measured, not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from audit.machine.compiled import FirstCallKernel, compiled_on_first_call


@pytest.mark.slow
def test_listing_and_measuring_code_import_none_of_the_slow_libraries() -> None:
    code = """
import sys, audit.sources
print([m for m in ("polars", "pyarrow", "duckdb", "numpy") if m in sys.modules])
import audit.picture.decode, audit.picture.features
print([m for m in ("numba", "scipy", "cv2") if m in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["[]", "[]"]


@pytest.mark.slow
def test_measuring_pictures_loads_no_scipy() -> None:
    # every worker would pay for it: twice what all its kernels take
    code = """
import sys, numpy as np
from audit.picture.measure import warm_up
from audit.picture.hashing import hashes
warm_up()
assert hashes(np.full((1, 40, 50), 7, np.uint8))["phash"] == [1 << 63]
print([m for m in ("scipy.linalg", "scipy.fft", "scipy.special") if m in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@compiled_on_first_call
def twice(value: int) -> int:
    return 2 * value


@compiled_on_first_call
def four_times(value: int) -> int:
    return twice(twice(value))


def test_a_kernel_may_call_another_that_was_never_called() -> None:
    first = globals()["four_times"]
    assert isinstance(first, FirstCallKernel)
    assert first(3) == 12
    assert not isinstance(globals()["twice"], FirstCallKernel)
    assert first(4) == 16
