"""A folder on a disk: of /dev, where memory is, the checks hold nothing back and own all files."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import DISK, ROOT

# Of scripts that compile nothing: see the sitecustomize there.
UNCOMPILED = f"{ROOT / 'tests' / 'pipeline_profiler' / 'uncompiled'}{os.pathsep}{ROOT}"
UNRECORDED = ("--set", "record.enabled=false")
TRAINERS = Path(os.environ.get("PREFLIGHT_TRAINERS", Path(sys.prefix) / "trainers_packages"))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """An empty folder, on a disk."""
    with tempfile.TemporaryDirectory(dir=DISK, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning, transformers and accelerate can be imported; in CI they must be there."""
    if not TRAINERS.is_dir() and not os.environ.get("CI"):
        pytest.skip("needs `make test`, which installs the frameworks beside the environment")
    monkeypatch.setattr(sys, "path", [*sys.path, str(TRAINERS)])


@pytest.fixture(autouse=True, scope="module")
def _no_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is said of a machine without a GPU is tested on one with a GPU too."""
    environment = sys.modules.get("pipeline_profiler.profiling.measure.environment")
    with pytest.MonkeyPatch.context() as patch:
        if environment is not None and "cuda" not in request.keywords:
            patch.setattr(environment, "has_cuda", lambda: False)
        yield
