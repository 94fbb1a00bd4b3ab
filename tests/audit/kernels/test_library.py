"""The table refuses what C would read past; a library of other sources is not loaded."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.kernels.build import build_library, find_compilers
from audit.kernels.library import (
    ENTRIES,
    NUMBERS,
    PATH_VARIABLE,
    _parse,
    find_kernel,
    load_kernels,
)
from tests.conftest import ROOT

NAMES = list(ENTRIES)


def arguments(name: str) -> list[Any]:
    """Arguments that fit: every size is 4 where the table has a name."""
    return [
        np.zeros([4 if isinstance(s, str) else s for s in a.sizes], NUMBERS[a.kind][0])
        if a.sizes
        else 1
        for a in _parse(ENTRIES[name])
    ]


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_is_refused(kernels: None, name: str) -> None:
    kernel, good, table = find_kernel(name), arguments(name), _parse(ENTRIES[name])
    assert kernel
    with pytest.raises(ValueError, match="arguments"):
        kernel(*good[:-1])
    for at, argument in enumerate(table):
        if not argument.sizes:
            continue
        other = np.float32 if argument.kind != "f32" else np.int64
        strided = np.repeat(good[at], 2, axis=-1)[..., ::2]
        bad = [good[at].astype(other), good[at][None], good[at].tolist()]
        if not strided.flags.c_contiguous:
            bad.append(strided)
        if argument.written:
            locked = good[at].copy()
            locked.flags.writeable = False
            bad.append(locked)
        for value in bad:
            with pytest.raises(ValueError, match=argument.name):
                kernel(*good[:at], value, *good[at + 1 :])


@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_disagree_are_refused(kernels: None, name: str) -> None:
    kernel, good, seen = find_kernel(name), arguments(name), set[str]()
    assert kernel
    for at, argument in enumerate(_parse(ENTRIES[name])):
        for axis, size in enumerate(argument.sizes):
            if not isinstance(size, str) or size in seen:
                longer = np.repeat(good[at], 2, axis=axis)
                with pytest.raises(ValueError, match=argument.name):
                    kernel(*good[:at], longer, *good[at + 1 :])
            else:
                seen.add(size)


def test_every_type_has_the_size_of_its_c_type() -> None:
    import ctypes

    for kind, in_c in NUMBERS.values():
        assert kind.itemsize == ctypes.sizeof(in_c)


def test_without_a_library_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, "off")
    load_kernels.cache_clear()
    assert find_kernel(NAMES[0]) is None
    monkeypatch.undo()
    load_kernels.cache_clear()


def test_a_library_of_other_sources_is_not_loaded(
    kernels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_kernel(NAMES[0])
    monkeypatch.setattr("audit.kernels.library.source_hash", lambda: "0" * 32)
    load_kernels.cache_clear()
    assert find_kernel(NAMES[0]) is None


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays(tmp_path: Path) -> None:
    """All tests of kernels again, on a library that checks every address."""
    compiler = next(find_compilers(), None)
    found = compiler and subprocess.run(
        [*compiler, "-print-file-name=libasan.so"], capture_output=True, text=True
    )
    if not found or not Path(found.stdout.strip()).is_file():
        pytest.skip("no compiler with AddressSanitizer")
    path = tmp_path / "kernels.so"
    assert not build_library(path, sanitize=True)
    environment = {
        **os.environ,
        PATH_VARIABLE: str(path),
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not slow", Path(__file__).parent],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
