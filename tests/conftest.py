"""Fixtures shared by the tests: pictures made here, and where real data lies if there is any."""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import hypothesis
import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent
# A sync of a file took a disk 4 ms, a commit of a ledger 21, and memory next to nothing: what
# pytest makes lies in memory where it has room. What a killed process leaves is the same.
MEMORY, ROOM_BYTES, DISK = Path("/dev/shm"), 4 << 30, Path(tempfile.gettempdir())
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
os.environ["PIPELINE_PROFILER_RUNS"] = "off"  # tests add no rows to the user's table of runs
# As the app runs: Streamlit would collect after each page, among all that other tests loaded.
os.environ["STREAMLIT_RUNNER_POST_SCRIPT_GC"] = "false"
# The same examples in every run, and no clock: a loaded machine is no failure. A folder that all
# examples of a test share is meant.
hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)  # fmt: skip
hypothesis.settings.load_profile("tests")
WHOLE_FILE_IS_SLOW = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.slow", re.MULTILINE)
# A file stays on one worker: the longest begin, so that none is left over for the end.
LONGEST = (
    "browser/test_app.py", "pipeline_profiler/cli/test_check_script.py",
    "sample_data/test_plants.py", "sample_data/test_make.py", "audit/scanning/test_rescan.py",
    "pipeline_profiler/cli/test_other_python.py",
    "audit/ui/test_pages.py", "audit/cli/test_hostile_calls.py",
    "audit/decisions/test_decisions.py", "audit/scanning/test_scanning.py",
    "pipeline_profiler/profiling/monitor/test_watch.py", "audit/checks/test_cases.py",
    "pipeline_profiler/cli/test_check_frameworks.py", "audit/subset/test_score.py",
    "pipeline_profiler/cli/test_hanging.py", "audit/test_real_data.py",
    "test_supply.py", "audit/ui/test_queue.py",
    "pipeline_profiler/checks/test_examples.py", "audit/subset/test_objects.py",
    "audit/compare/test_diff.py", "audit/annotations/test_annotation_forms.py",
    "audit/machine/test_executors.py", "audit/annotations/test_annotation_coco.py",
    "audit/decisions/test_box_fixes.py", "audit/run/test_damaged_run.py",
    "audit/run/test_verify.py", "audit/cli/test_main.py", "audit/test_fuzz.py", "test_wheel.py",
)  # fmt: skip
# Only one process imports TensorFlow: that takes as long as importing all that is tested.
TENSORFLOW = (
    "pipeline_profiler/checks/test_examples.py", "pipeline_profiler/checks/test_keras.py",
    "pipeline_profiler/profiling/adapters/test_tf.py", "audit/sources/test_packs.py",
    "audit/sources/test_python_objects.py",
)  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import slow files for `make quick`: torch and TensorFlow take 10 s to import."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if WHOLE_FILE_IS_SLOW.search(text) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, in the order of `LONGEST`."""
    places = {str(ROOT / "tests" / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


def pytest_collection_finish() -> None:
    """Leave what is imported out of later collections of garbage."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # without xdist there is no such hook
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Start a process a core for `make quick`, whose tests wait for nothing; else three a core,
    where each has 1.7 GB of free memory: tests wait for other processes as long as they compute.
    """
    from audit.machine.executors import usable_memory
    from dataset_preflight.foundation.cores import usable_cores

    if config.option.markexpr == "not slow":
        return max(2, usable_cores())
    return max(2, min(3 * usable_cores(), int(usable_memory() / 1.7e9)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file on one worker, and files together that share a browser or import TensorFlow."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            if file.endswith(TENSORFLOW):
                return "TensorFlow"
            return str(Path(file).parent) if "browser/" in file else file

    return ByFile(config, log)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case of packed bytes by their number: a name with a time in it stops parallel runs."""
    if isinstance(val, bytes) and not (val.isascii() and val.decode("ascii").isprintable()):
        return f"{len(val)} bytes"
    return None


@pytest.fixture(autouse=True)
def own_main() -> Iterator[None]:
    """Put the main module back: a page of Streamlit takes its place, and a process that a later
    test spawns would run the page."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real images; tests that use it are skipped, with this sentence, without it."""
    folder = Path(os.environ.get("PREFLIGHT_REAL_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real images at {folder}: set PREFLIGHT_REAL_DATA to run this test")
    return folder


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that are compared with ours can be imported; in CI they must be there."""
    folder = Path(os.environ.get("PREFLIGHT_PEERS", Path(sys.prefix) / "peers_packages"))
    if not folder.is_dir() and not os.environ.get("CI"):
        pytest.skip("needs `make test`, which installs such libraries beside the environment")
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])


class LateModule:
    """A module imported at its first use: each process collects all tests, and one runs these."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for marks
            raise AttributeError(attribute)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(self._name)
        return getattr(module, attribute)


def import_late(name: str) -> Any:
    """Return the module `name`, imported at its first use; skip the file where there is none."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)
    return LateModule(name)


def make_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]
) -> Path:
    """A folder made by the first of the test processes that needs it; the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = shared / name, shared / f"{name}.made"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file is closed
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a try that failed
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def sample_data_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the committed sample data, not to be changed: copy it where a test decides."""
    from audit.scanning import scanning
    from audit.sources import open_source

    def scan(run: Path) -> None:
        scanning.scan(open_source([str(ROOT / "sample_data")]), run, jobs=1)

    return make_once(tmp_path_factory, "scanned_sample_data", scan)


def picture(seed: int, width: int = 96, height: int = 72) -> np.ndarray:
    """A textured RGB picture (height, width, 3): smooth colour, shapes, and fine noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(20, 235, (6, 8, 3)).astype(np.float32)
    field = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    for _ in range(6):
        x, y = int(rng.integers(width)), int(rng.integers(height))
        size = int(rng.integers(4, max(5, width // 4)))
        colour = tuple(float(v) for v in rng.uniform(0, 255, 3))
        cv2.rectangle(field, (x, y), (x + size, y + size // 2 + 1), colour, -1)
    return np.clip(field + rng.normal(0, 4, field.shape), 0, 255).astype(np.uint8)


@pytest.fixture
def make_picture() -> Callable[..., np.ndarray]:
    """The function `picture(seed, width, height)`."""
    return picture


def make_tree(root: Path) -> Path:
    """Write a small dataset: two splits, three classes, 24 JPEG files of their own."""
    seed = 0
    for split, count in (("train", 5), ("test", 3)):
        for label in ("cat", "dog", "owl"):
            folder = root / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(picture(seed)).save(folder / f"{number}.jpg", quality=88)
                seed += 1
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The small dataset of `make_tree`, to be changed at will."""
    return make_tree(tmp_path / "pets")


def pytest_unconfigure() -> None:
    """Keep the list of what DuckDB's binding finds alive at the very end out of the output."""
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
