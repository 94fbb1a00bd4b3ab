"""Calls of the commands that read or decide, each with its exit code.

0 clean, 1 findings, 2 the caller can mend it.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import audit
from audit.decisions.decisions import decide_samples
from audit.decisions.label_sample import draw_labels, write_drawn
from audit.records import Action
from tests.audit.conftest import Command
from tests.audit.run.scanned import scan_tree

pytestmark = pytest.mark.slow
CALLS = (
    ("find new RUN", 0),
    ("find new RUN --json", 0),
    ("find none RUN", 2),
    ("find new none", 2),
    ("decide RUN --undo", 0),
    ("decide RUN --undo --limit 2 --by anna", 0),
    ("decide RUN --undo --limit 0", 2),
    ("decide none --undo", 2),
    ("decide RUN --log", 0),
    ("decide RUN --stale --json", 0),
    ("decide RUN --tags", 0),
    ("decide none --log", 2),
    ("decide RUN --draw-labels 4 -o drawn.csv", 0),
    ("decide RUN --draw-labels 4", 2),
    ("decide RUN --draw-labels 0 -o drawn.csv", 2),
    ("decide RUN --reviewed labels.csv", 0),
    ("decide RUN --reviewed none.csv", 2),
    ("decide RUN --draw-labels 4 -o drawn.csv --reviewed labels.csv", 2),
    ("input-study RUN --jobs 1", 0),
    ("input-study none", 2),
    ("report RUN --section history", 0),
    ("report RUN --section history --list SPLIT001", 0),
    ("report RUN --section history --list ZZZ001 --json", 0),
    ("report none --section history", 2),
    ("report RUN --section expectations --config met.toml", 0),
    ("report RUN --section expectations --config unmet.toml", 1),
    ("report RUN --section expectations --config unmet.toml --json", 1),
    ("report RUN --section expectations", 2),
    ("report RUN --section expectations --config wrong.toml", 2),
    ("recheck RUN --write-expectations", 0),
    ("recheck none --write-expectations", 2),
    ("diff RUN darker", 0),
    ("diff RUN RUN --distributions --fail-on info", 0),
    ("diff RUN darker --fail-on info", 1),
    ("diff RUN darker --fail-on info --json", 1),
    ("diff none darker", 2),
    ("subset draw RUN --split all --n 3 --choose coverage -o next.csv", 0),
    ("subset draw RUN --split all --n 3 --choose uncertainty -o next.csv", 2),
    ("subset plan RUN --split all --sizes 6", 0),
    ("subset plan RUN --split none --sizes auto", 2),
    ("report RUN --section card", 0),
    ("report RUN --section card --json", 2),
    ("report RUN -o report.xml", 0),
    ("report RUN -o none/report.xml", 2),
    ("scan new --out new-run --jobs 1 --hash-all", 0),
    ("scan new --out new-run --jobs 1 --set scan.lock=false", 0),
    ("scan new --out new-run --set scan.lock=perhaps", 2),
    ("scan new --out new-run --plugin none.py", 2),
    ("apply plan.json --to clean --link hard", 0),
    ("apply plan.json --to clean --link symbolic", 0),
    ("apply plan.json --to clean --dry-run", 0),
)


@pytest.fixture(scope="module")
def folder(reviewed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the calls of the table read: a run with decisions, another dataset, settings, a plan."""
    folder = tmp_path_factory.mktemp("merged")
    run = Path(shutil.copytree(reviewed_run, folder / "run"))
    for name in ("train/cat/0.jpg", "train/cat/1.jpg"):
        for by in ("anna", None):
            decide_samples(run, [name], Action.KEEP, by=by)
    for name, shade in (("new", 1.0), ("shots", 0.3)):
        for number in range(60):
            path = folder / name / "train" / ("cat", "owl")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = np.random.default_rng(number).integers(0, 256, (48, 48, 3)) * shade
            Image.fromarray(noise.astype(np.uint8)).save(path)
    scan_tree(folder / "shots", folder / "darker")
    (folder / "met.toml").write_text('[expect]\nmin_side = "> 0"\n')
    (folder / "unmet.toml").write_text("[expect]\nfiles = 3\n")
    (folder / "wrong.toml").write_text("[expect]\nflies = 3\n")
    write_drawn(draw_labels(run, 4, 0), folder / "labels.csv")
    rows = pl.read_csv(folder / "labels.csv", infer_schema=False)
    rows.with_columns(wrong=pl.lit("no")).write_csv(folder / "labels.csv")
    audit.open(run).plan(folder / "plan.json")
    return folder


@pytest.mark.parametrize(("call", "code"), CALLS, ids=[call for call, _ in CALLS])
def test_a_call_ends_with_its_exit_code(
    call: str, code: int, folder: Path, tmp_path: Path, command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here = Path(shutil.copytree(folder, tmp_path / "here"))
    monkeypatch.chdir(here)
    ended, out, err = command(*("run" if word == "RUN" else word for word in shlex.split(call)))
    assert ended == code, err
    assert "Traceback" not in err
    assert out or err or code == 0
