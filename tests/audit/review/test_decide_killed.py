"""kill -9 inside a bulk decision and inside a comparison: whole or absent, and done again alike."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import audit
from audit.review.ledger import Ledger
from audit.review.ledger_check import check_ledger
from audit.run.verify import SOUND
from audit.run_diff import compare_runs
from tests.audit.reviewed import reviewed_dataset
from tests.audit.run.scanned import scan_tree
from tests.warm import warm_line

# Where the process dies: the name of a function, and whether before it begins or after it ended.
MOMENTS = {
    "before the rows": ("audit.review.ledger", "append_rows", "before", False),
    "rows not committed": ("audit.review.ledger", "append_rows", "after", False),
    "committed, not copied": ("audit.review.ledger_copy:LedgerCopy", "catch_up", "before", True),
    "copied": ("audit.review.ledger_copy:LedgerCopy", "catch_up", "after", True),
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
COMPARE = DIE + "from audit.run_diff import compare_runs; compare_runs(*map(Path, sys.argv[4:6]))"


def die(code: str, *words: object) -> None:
    done = subprocess.run([*warm_line("python"), code, *map(str, words)], check=False)
    assert done.returncode == -9


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    reviewed_dataset(folder / "pets")
    scan_tree(folder / "pets", folder / "run", checks=("FILE", "DUP"))
    return folder / "run"


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_decision_is_whole_or_absent(scanned: Path, moment: str, tmp_path: Path) -> None:
    shutil.copytree(scanned, tmp_path / "run")
    run = audit.open(tmp_path / "run")
    chosen = [i for i in run.images["id"] if i.startswith("train/cat/")]
    where, name, when, recorded = MOMENTS[moment]
    die(DECIDE, where, name, when, run.path, PICKED)
    log = Ledger(run.path).log()
    assert len(log) == (len(chosen) if recorded else 0)
    run.decide(where=PICKED, verdict="drop")
    assert not set(run.kept()["id"]) & set(chosen)
    assert run.kept().height == run.images.height - len(chosen)
    assert len(run.undo()) == len(chosen)
    if recorded:
        run.undo()
    assert run.kept().height == run.images.height
    assert not [p.name for p in run.path.iterdir() if p.suffix in (".part", ".new")]
    assert {part.state for part in check_ledger(run.path)} == {SOUND}


def test_a_killed_comparison_changes_nothing(scanned: Path, tmp_path: Path) -> None:
    shutil.copytree(scanned, tmp_path / "run")
    audit.open(tmp_path / "run").decide("train/cat/0.jpg", "drop")
    before = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    document = compare_runs(scanned, tmp_path / "run").document()
    die(COMPARE, "audit.run_diff", "apply_decisions", "after", scanned, tmp_path / "run")
    assert {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()} == before
    assert compare_runs(scanned, tmp_path / "run").document() == document
