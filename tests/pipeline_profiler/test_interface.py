"""A profile from Python: verdict, causes and reports; what cannot be measured is a sentence."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipeline_profiler
from pipeline_profiler import ProfileError
from pipeline_profiler.profiling.diagnose.verdict import Verdict, diagnose_session
from tests.conftest import ROOT
from tests.pipeline_profiler.fakes import made_session, schedule

SCRIPT = """
import multiprocessing
import pipeline_profiler

class Loader:  # what a DataLoader tells of its workers
    num_workers, multiprocessing_context = 1, multiprocessing.get_context("spawn")
    def __iter__(self): yield 1

try:
    pipeline_profiler.profile(Loader(), 1.0, seconds=1)
except pipeline_profiler.ProfileError as error:
    print(error)
"""


class Slow:
    """A loader that takes ten times as long as the step, and three times where that is late."""

    def __iter__(self) -> Iterator[int]:
        step_s = 0.0
        for number in range(10_000):
            time.sleep(0.005 + 3 * step_s)
            began = time.monotonic()
            yield number
            step_s = time.monotonic() - began


@pytest.fixture(scope="module")
def judged() -> pipeline_profiler.Profile:
    session = made_session(schedule(100, 0, 2, 2.0, lambda j: 10.0), 2.0)
    session.results |= diagnose_session(session).as_results()
    return pipeline_profiler.Profile(session)


def test_both_names_stay_what_they_are_after_every_import() -> None:
    before = pipeline_profiler.profile
    for module in pkgutil.iter_modules(pipeline_profiler.__path__, "pipeline_profiler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert pipeline_profiler.profile is before
    assert {"Profile", "profile"} <= set(dir(pipeline_profiler))
    with pytest.raises(AttributeError, match="nothing"):
        _ = pipeline_profiler.nothing


@pytest.mark.slow
def test_a_slow_loader_is_named() -> None:
    said: list[str] = []
    found = pipeline_profiler.profile(Slow, 0.5, seconds=2, progress=said.append)
    assert found.verdict == Verdict.HIGH
    assert found.causes[0]["share"]
    assert said


def test_a_profile_says_it_in_words_and_files(
    judged: pipeline_profiler.Profile, tmp_path: Path
) -> None:
    assert judged.verdict in list(Verdict)
    assert repr(judged) == f"Profile: {judged.sentence}"
    assert judged.sentence[:20] in str(judged.report())
    assert judged.verdict in judged._repr_html_()
    page = judged.report(tmp_path / "x.html")
    assert Path(page).read_text().lower().startswith("<!doctype html>")
    assert judged.report(tmp_path / "x.html") == page  # its own file is replaced
    (tmp_path / "x.md").write_text("notes of mine")
    for path in (tmp_path / "x.md", tmp_path / "x.pdf"):
        with pytest.raises(ProfileError):
            judged.report(path)
    assert (tmp_path / "x.md").read_text() == "notes of mine"


@pytest.mark.parametrize(
    ("loader", "step"), [(7, 1.0), ([1], None), ([1], -1.0), ([1], "fast"), (lambda: 7, 1.0)]
)
def test_what_cannot_be_measured_is_a_sentence(loader: Any, step: Any) -> None:
    with pytest.raises(ProfileError, match=r"\.$"):
        pipeline_profiler.profile(loader, step, seconds=1)


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "The loader's workers start by 'spawn' and run this script again: put line 10 below "
        '`if __name__ == "__main__":`.\n'
    )
