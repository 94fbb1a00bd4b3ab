"""Loaders that hang end at the limit, with what was measured and with where they hang."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.report.render import to_text
from tests.pipeline_profiler.cli.loaders import (
    FAST,
    SOURCE,
    TORCH_SOURCE,
    interrupt_when,
    profile,
    write_source,
)

pytestmark = pytest.mark.slow
# loader: source, limit in seconds. Each waits more than it computes, so three run at a time.
HANGING = {
    "hang_in_next": (SOURCE, 2), "hang_at_once": (SOURCE, 2), "hang_deaf": (SOURCE, 2),
    "hang_in_close": (SOURCE, 2), "hang_in_c": (SOURCE, 1),
    "make_loader": (TORCH_SOURCE, 5), "make_stuck": (TORCH_SOURCE, 5),
}  # fmt: skip
Ended = Callable[[str], tuple[CompletedProcess[str], Path]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """How `run` ended with a loader, and the folder with its session s.json."""
    root = tmp_path_factory.mktemp("hanging")

    def run(loader: str) -> CompletedProcess[str]:
        source, limit = HANGING[loader]
        (root / loader).mkdir()
        train = write_source(root / loader, source)
        words = (
            "run",
            f"{train}:{loader}",
            *FAST,
            "--set",
            f"measure.limit={limit}",
            "-o",
            "s.json",
        )
        return profile(*words, cwd=root / loader)

    with ThreadPoolExecutor(3) as threads:
        runs = {loader: threads.submit(run, loader) for loader in HANGING}
        yield lambda loader: (runs[loader].result(), root / loader)


def cut_off(folder: Path) -> dict[str, object]:
    session = Session.load(folder / "s.json")
    assert session.partial
    return session.results["cut_off"]


WORKER = ["the training", "worker"]


@pytest.mark.parametrize(
    ("loader", "line", "stacks"),
    [
        ("hang_in_next", "sleep_for_ever", ["the training"]),
        ("hang_at_once", "sleep_for_ever", ["the training"]),
        ("hang_deaf", "swallow_all", ["the training"]),
        ("hang_in_close", "__iter__", ["the training"]),
        ("make_loader", "load_slowly", WORKER),
        ("make_stuck", "wait_at_start", WORKER),
    ],
)
def test_a_loader_that_hangs_is_ended_with_where_it_hangs(
    ended: Ended, loader: str, line: str, stacks: list[str]
) -> None:
    done, folder = ended(loader)
    assert done.returncode == 2, done.stderr
    assert "Nothing happened for" in done.stderr
    assert f"{line}: time.sleep(1000)" in done.stderr
    assert "Traceback" not in done.stderr
    assert [s["of"].partition(" process")[0] for s in cut_off(folder)["stacks"]] == stacks
    report = to_text(Session.load(folder / "s.json"))
    assert "This session is partial" in report
    assert f"{line}: time.sleep(1000)" in report


def test_c_code_that_keeps_the_interpreter_is_ended_with_its_stack(ended: Ended) -> None:
    done, folder = ended("hang_in_c")
    assert done.returncode == 1, done.stderr
    assert "Timeout" in done.stderr
    assert "hold_the_interpreter" in done.stderr
    assert Session.load(folder / "s.json").partial  # as it was saved meanwhile


def test_ctrl_c_in_a_hanging_loader_keeps_what_there_is(tmp_path: Path) -> None:
    train = write_source(tmp_path, SOURCE)
    code, said = interrupt_when(
        tmp_path, "block 1", "run", f"{train}:hang_in_next", *FAST, "-o", "s.json"
    )
    assert code == 130
    assert "The partial session is saved in s.json" in said
    assert "Traceback" not in said
    assert Session.load(tmp_path / "s.json").partial


def test_a_loader_that_leaves_the_program_does_not_end_it(tmp_path: Path) -> None:
    train = write_source(tmp_path, SOURCE)
    done = profile("run", f"{train}:leave", *FAST, "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "raised SystemExit" in done.stderr
    assert Session.load(tmp_path / "s.json").partial
