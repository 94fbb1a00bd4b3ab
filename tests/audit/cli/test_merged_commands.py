"""Each command that was merged into another one: the exit code of its new call is that of its old.

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
DRAW = "--split all --n 6 --seed 1"
TABLE = (
    ("overlap new RUN", "find new RUN", 0),
    ("overlap new RUN --json", "find new RUN --json", 0),
    ("overlap none RUN", "find none RUN", 2),
    ("overlap new none", "find new none", 2),
    ("undo RUN", "decide RUN --undo", 0),
    ("undo RUN 2 --by anna", "decide RUN --undo --limit 2 --by anna", 0),
    ("undo RUN --anyone", "decide RUN --undo --anyone", 0),
    ("undo RUN 0", "decide RUN --undo --limit 0", 2),
    ("undo none", "decide none --undo", 2),
    ("log RUN", "decide RUN --log", 0),
    ("log RUN --stale --json", "decide RUN --stale --json", 0),
    ("log RUN --tags", "decide RUN --tags", 0),
    ("log none", "decide none --log", 2),
    ("labels RUN --draw 4 -o drawn.csv", "decide RUN --draw-labels 4 -o drawn.csv", 0),
    ("labels RUN --draw 4", "decide RUN --draw-labels 4", 2),
    ("labels RUN --draw 0 -o drawn.csv", "decide RUN --draw-labels 0 -o drawn.csv", 2),
    ("labels RUN --reviewed labels.csv", "decide RUN --reviewed labels.csv", 0),
    ("labels RUN --reviewed none.csv", "decide RUN --reviewed none.csv", 2),
    (
        "labels RUN --draw 4 -o drawn.csv --reviewed labels.csv",
        "decide RUN --draw-labels 4 -o drawn.csv --reviewed labels.csv",
        2,
    ),
    ("needs RUN --jobs 1", "input-study RUN --jobs 1", 0),
    ("needs none", "input-study none", 2),
    ("history RUN", "report RUN --section history", 0),
    ("history RUN SPLIT001", "report RUN --section history --list SPLIT001", 0),
    ("history RUN ZZZ001 --json", "report RUN --section history --list ZZZ001 --json", 0),
    ("history none", "report none --section history", 2),
    ("expect RUN --config met.toml", "report RUN --section expectations --config met.toml", 0),
    ("expect RUN --config unmet.toml", "report RUN --section expectations --config unmet.toml", 1),
    (
        "expect RUN --config unmet.toml --json",
        "report RUN --section expectations --config unmet.toml --json",
        1,
    ),
    ("expect RUN", "report RUN --section expectations", 2),
    ("expect RUN --config wrong.toml", "report RUN --section expectations --config wrong.toml", 2),
    ("expect RUN --write", "recheck RUN --write-expectations", 0),
    ("expect none --write", "recheck none --write-expectations", 2),
    ("drift darker RUN", "diff RUN darker", 0),
    ("drift RUN RUN --fail", "diff RUN RUN --distributions --fail-on info", 0),
    ("drift darker RUN --fail", "diff RUN darker --fail-on info", 1),
    ("drift darker RUN --fail --json", "diff RUN darker --fail-on info --json", 1),
    ("drift darker none", "diff none darker", 2),
    (
        "select RUN --n 3 --by coverage -o next.csv",
        "subset draw RUN --split all --n 3 --choose coverage -o next.csv",
        0,
    ),
    (
        "select RUN --n 3 --by uncertainty -o next.csv",
        "subset draw RUN --split all --n 3 --choose uncertainty -o next.csv",
        2,
    ),
    ("subset curve RUN --split all --size 6", "subset plan RUN --split all --sizes 6", 0),
    ("subset curve RUN --split none", "subset plan RUN --split none --sizes auto", 2),
    ("report RUN --card", "report RUN --section card", 0),
    ("report RUN --card --json", "report RUN --section card --json", 2),
    ("report RUN --junit report.xml", "report RUN -o report.xml", 0),
    ("report RUN --junit none/report.xml", "report RUN -o none/report.xml", 2),
    ("scan new --out new-run --jobs 1 --verify", "scan new --out new-run --jobs 1 --hash-all", 0),
    (
        "scan new --out new-run --jobs 1 --no-lock",
        "scan new --out new-run --jobs 1 --set scan.lock=false",
        0,
    ),
    (
        "scan new --out new-run --executor none",
        "scan new --out new-run --set scan.executor=none",
        2,
    ),
    ("scan new --out new-run --own none.py", "scan new --out new-run --plugin none.py", 2),
    ("apply plan.json --to clean --hardlink", "apply plan.json --to clean --link hard", 0),
    ("apply plan.json --to clean --symlink", "apply plan.json --to clean --link symbolic", 0),
    ("apply plan.json --to clean --copy --dry-run", "apply plan.json --to clean --dry-run", 0),
)  # fmt: skip


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


@pytest.mark.parametrize(("old", "new", "code"), TABLE, ids=[old for old, *_ in TABLE])
def test_the_new_call_ends_with_the_code_of_the_old_one(
    old: str, new: str, code: int, folder: Path, tmp_path: Path, command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here = Path(shutil.copytree(folder, tmp_path / "here"))
    monkeypatch.chdir(here)
    ended, out, err = command(*("run" if word == "RUN" else word for word in shlex.split(new)))
    assert ended == code, err
    assert "Traceback" not in err
    assert out or err or code == 0


def test_the_old_names_are_no_commands(command: Command) -> None:
    names = {old.split()[0] for old, new, _ in TABLE} - {new.split()[0] for _, new, _ in TABLE}
    assert names == {
        "drift", "expect", "history", "labels", "log", "needs", "overlap", "select", "undo",
    }  # fmt: skip
    for name in names:
        assert command(name, "run")[0] == 2
