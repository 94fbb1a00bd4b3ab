"""What importing costs; kernels compile wherever the program runs, and their cache is private."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from audit.machine.compiled import FirstCallKernel, compiled_on_first_call
from tests.conftest import ROOT

CALL = """
import numpy as np
from audit.picture.hashing import hashes
print(sorted(hashes(np.zeros((1, 40, 40), np.uint8))))
import numba
print(numba.config.CACHE_DIR)
"""


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    """An installation and a home that cannot be written, as in a container for any user."""
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "audit", tmp_path / "home" / "audit", ignore=leave_out)
    subprocess.run(["chmod", "-R", "a-w", str(tmp_path / "home")], check=True)
    return tmp_path / "home"


def call_kernel(home: Path, temporary: Path) -> list[str]:
    """Run a kernel there without the rights of a superuser; returns the lines it printed."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
    if drop and shutil.which("setpriv") is None:
        pytest.skip("root may write everything, and setpriv is not there to take that away")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))}
    env = kept | {"HOME": str(home), "PYTHONPATH": str(home), "TMPDIR": str(temporary)}
    command = [*drop, sys.executable, "-P", "-c", CALL]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=home, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_kernels_are_kept_among_temporary_files_where_nothing_else_can_be_written(
    read_only: Path, tmp_path: Path
) -> None:
    names, folder = call_kernel(read_only, tmp_path)
    assert names == "['dhash', 'phash', 'phash256']"
    assert Path(folder).parent == tmp_path
    assert Path(folder).stat().st_mode & 0o077 == 0
    assert list(Path(folder).rglob("*.nbi"))


@pytest.mark.slow
def test_what_somebody_else_could_have_put_there_is_not_run(
    read_only: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / f"dataset-preflight-{os.getuid()}"
    theirs.mkdir(mode=0o777)
    theirs.chmod(0o777)
    names, folder = call_kernel(read_only, tmp_path)
    assert names == "['dhash', 'phash', 'phash256']"
    assert folder == ""
    assert list(theirs.iterdir()) == []


KERNEL = """
from audit.machine.compiled import compiled_on_first_call, is_on_disk

@compiled_on_first_call
def add_one(number):
    return number + 1

print(is_on_disk(add_one), add_one(1), is_on_disk(add_one))
"""


def test_that_a_kernel_is_compiled_is_known_before_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    run = [sys.executable, "-c", "import kernel"]
    for told in ("False 2 True\n", "True 2 True\n"):
        assert subprocess.check_output(run, env=environment, text=True, cwd=tmp_path) == told


LOADS = {
    "listing and measuring code import none of the slow libraries": """
import sys, audit.sources
print([m for m in ("polars", "pyarrow", "duckdb", "numpy") if m in sys.modules])
import audit.picture.decode, audit.picture.features
print([m for m in ("numba", "scipy", "cv2") if m in sys.modules])
""",
    # every worker would pay for it: twice what all its kernels take
    "measuring pictures loads no scipy": """
import sys, numpy as np
from audit.picture.measure import warm_up
from audit.picture.hashing import hashes
warm_up()
assert hashes(np.full((1, 40, 50), 7, np.uint8))["phash"] == [1 << 63]
print([m for m in ("scipy.linalg", "scipy.fft", "scipy.special") if m in sys.modules])
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("code", LOADS.values(), ids=LOADS)
def test_slow_libraries_load_when_they_are_needed(code: str) -> None:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == {"[]"}


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
