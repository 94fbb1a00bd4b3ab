"""kill -9 inside a bulk decision and inside a comparison: whole or absent, and done again alike."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import audit
from audit.compare.diff import compare_runs
from audit.decisions.recovery import check_decisions
from audit.decisions.store import DecisionStore
from audit.run.checked_parts import SOUND
from tests.warm import warm_line

pytestmark = pytest.mark.slow

# Where the process dies: the name of a function, and whether before it begins or after it ended.
MOMENTS = {
    "before the rows": ("audit.decisions.store", "append_rows", "before", False),
    "rows not committed": ("audit.decisions.store", "append_rows", "after", False),
    "committed, not copied": ("audit.decisions.store:DecisionStore", "write_copy", "before", True),
    "copied": ("audit.decisions.store:DecisionStore", "write_copy", "after", True),
}
DIE = """
import importlib, os, sys
from pathlib import Path
where, name, when = sys.argv[1:4]
module, _, owner = where.partition(":")
place = importlib.import_module(module)
place = getattr(place, owner) if owner else place
real = getattr(place, name)
def die(*words, **more):
    if when == "before": os.kill(os.getpid(), 9)
    real(*words, **more)
    os.kill(os.getpid(), 9)
setattr(place, name, die)
"""
PICKED = "id LIKE 'train/cat/%'"
DECIDE = DIE + "import audit; audit.open(sys.argv[4]).decide(where=sys.argv[5], verdict='drop')"
COMPARE = (
    DIE + "from audit.compare.diff import compare_runs; compare_runs(*map(Path, sys.argv[4:6]))"
)


def die(code: str, *words: object) -> None:
    done = subprocess.run([*warm_line("python"), code, *map(str, words)], check=False)
    assert done.returncode == -9


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_decision_is_whole_or_absent(own: audit.Run, moment: str) -> None:
    chosen = [i for i in own.images["id"] if i.startswith("train/cat/")]
    where, name, when, recorded = MOMENTS[moment]
    die(DECIDE, where, name, when, own.path, PICKED)
    log = DecisionStore(own.path).log()
    assert len(log) == (len(chosen) if recorded else 0)
    own.decide(where=PICKED, verdict="drop")
    assert not set(own.kept()["id"]) & set(chosen)
    assert own.kept().height == own.images.height - len(chosen)
    assert len(own.undo()) == len(chosen)
    if recorded:
        own.undo()
    assert own.kept().height == own.images.height
    assert not [p.name for p in own.path.iterdir() if p.suffix in (".part", ".new")]
    assert {part.state for part in check_decisions(own.path)} == {SOUND}


def test_a_killed_comparison_changes_nothing(reviewed_run: Path, run: Path, tmp_path: Path) -> None:
    audit.open(run).decide("train/cat/0.jpg", "drop")
    before = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    document = compare_runs(reviewed_run, run).document()
    die(COMPARE, "audit.results.reader", "summarise_decisions", "after", reviewed_run, run)
    assert {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()} == before
    assert compare_runs(reviewed_run, run).document() == document
