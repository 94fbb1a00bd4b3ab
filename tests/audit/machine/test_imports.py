"""What importing costs: slow libraries are loaded when they are needed."""

import subprocess
import sys

import pytest

LOADS = {
    "listing and measuring code import none of the slow libraries": """
import sys, audit.sources
print([m for m in ("polars", "pyarrow", "duckdb", "numpy") if m in sys.modules])
import audit.picture.decode, audit.picture.features
print([m for m in ("scipy", "cv2") if m in sys.modules])
""",
    # every worker would pay for it: twice what all its kernels take
    "measuring pictures loads no scipy": """
import sys, numpy as np
from audit.picture.measure import warm_up
from audit.picture.hashing import hash_bits, reduce_luma
warm_up()
assert hash_bits(*reduce_luma(np.full((1, 40, 50), 7, np.uint8)))["phash"] == [1 << 63]
print([m for m in ("scipy.linalg", "scipy.fft", "scipy.special") if m in sys.modules])
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("code", LOADS.values(), ids=LOADS)
def test_slow_libraries_load_when_they_are_needed(code: str) -> None:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == {"[]"}
