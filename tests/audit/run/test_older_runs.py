"""A run of version 0.1: one sentence from every reader; a scan measures it anew, decisions stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest

from audit import scanning
from audit.cli.main import command_line
from audit.errors import RunError
from audit.executors import Serial
from audit.measuring import Progress
from audit.records import Action
from audit.review.decisions import decide_samples
from audit.review.ledger import Ledger
from audit.run import generations
from audit.run.store import Store
from audit.sources import open_source
from audit.verifying import repair_run, verify_run
from tests.audit.run.scanned import CHECKS

pytestmark = pytest.mark.slow

SENTENCE = "was made by version 0.1: scan its source again into it; decisions stay."
# What version 0.1 called them.
OLD_TABLES = (
    "ALTER TABLE rechecks RENAME TO looks",
    "ALTER TABLE rejected_pairs RENAME TO refused",
    "ALTER TABLE pairs RENAME COLUMN verified_full_size TO looked",
)


def scan(source: Path, run: Path, **options: object) -> scanning.ScanResult:
    made = open_source([str(source)])
    settings = {"executor": Serial(), "checks": CHECKS, **options}
    return scanning.scan(made, run, **settings)  # type: ignore[arg-type]


def make_old(database: Path, *, finished: bool = True) -> None:
    """Give a measurements database the tables and the version of 0.1."""
    with duckdb.connect(str(database)) as connection:
        views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        for (view,) in views.fetchall():
            connection.execute(f"DROP VIEW {view}")
        for statement in OLD_TABLES:
            connection.execute(statement)
        connection.execute("DELETE FROM meta WHERE key = 'schema_version'")
        if finished:
            connection.execute("INSERT INTO meta VALUES ('schema_version', '1')")


@pytest.fixture
def old_run(tree: Path, tmp_path: Path) -> Path:
    """A run with a decision in it, as version 0.1 left it."""
    run = tmp_path / "run"
    scan(tree, run)
    decide_samples(run, ["train/cat/0.jpg"], Action.DROP, note="blurred")
    make_old(run / "gen-0001" / generations.MEASUREMENTS)
    (run / "gen-0001" / "generation.json").unlink()
    named = {"schema": 1, "generation": "gen-0001", "findings": "findings-0001.duckdb"}
    (run / "CURRENT").write_text(json.dumps(named) + "\n")
    (run / "signatures").rename(run / "thumbnails")
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    "command",
    [
        ["report", "RUN"],
        ["recheck", "RUN"],
        ["show", "RUN", "train/cat/0.jpg"],
        ["sql", "RUN", "SELECT count(*) FROM images"],
        ["decide", "RUN", "train/cat/1.jpg", "--as", "keep"],
        ["export", "RUN", "--manifest", "kept.csv"],
        ["overlap", "NEW", "RUN"],
        ["subset", "plan", "RUN", "--n", "5"],
    ],
    ids=lambda command: command[0],
)
def test_every_reader_answers_with_one_sentence(
    command: list[str],
    old_run: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = {"RUN": str(old_run), "NEW": str(tree)}
    before = contents(old_run / "gen-0001")
    monkeypatch.chdir(old_run.parent)
    monkeypatch.setattr("sys.argv", ["audit", *(named.get(word, word) for word in command)])
    with pytest.raises(SystemExit) as stop:
        command_line()
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.strip().splitlines()
    assert line.endswith(f": {old_run} {SENTENCE}")
    assert contents(old_run / "gen-0001") == before


def test_verify_reads_it_and_changes_nothing(old_run: Path) -> None:
    before = {path: path.read_bytes() for path in old_run.rglob("*") if path.is_file()}
    verified = verify_run(old_run)
    assert not verified.damaged
    states = {part.name: part.state for part in verified.parts}
    assert states["gen-0001/generation.json"] == "absent"
    assert repair_run(old_run).repaired == ()
    assert {path: path.read_bytes() for path in old_run.rglob("*") if path.is_file()} == before
    (old_run / "CURRENT").write_text("")
    with pytest.raises(RunError, match=SENTENCE):
        generations.require(old_run)


def test_a_scan_measures_again_and_the_decisions_stay(old_run: Path, tree: Path) -> None:
    old = contents(old_run / "gen-0001")
    pointer = (old_run / "CURRENT").read_text()
    phases = []

    def watch(step: Progress) -> None:
        phases.append(step.phase)
        # nothing of the old generation goes before the new one is published
        assert (old_run / "CURRENT").read_text() == pointer
        assert contents(old_run / "gen-0001") == old

    result = scan(tree, old_run, progress=watch)
    assert set(phases) == {"list", "measure", "relate", "judge"}
    assert (result.measured, result.kept, result.resumed) == (24, 0, 0)
    assert not result.unchanged
    assert generations.require(old_run).path.name == "gen-0002"
    assert [(d.subject, d.verb, d.note) for d in Ledger(old_run).log()] == [
        ("train/cat/0.jpg", Action.DROP, "blurred")
    ]
    with generations.open_run(old_run) as store:
        assert store.meta()["schema_version"] == "2"
        assert store.columns("pairs")["verified_full_size"] == "BOOLEAN"
    assert scan(tree, old_run).unchanged


def test_an_unfinished_build_of_the_old_version_is_not_gone_on_with(
    old_run: Path, tree: Path, tmp_path: Path
) -> None:
    building = generations.building(old_run) / generations.MEASUREMENTS
    shutil.copy(old_run / "gen-0001" / generations.MEASUREMENTS, building)
    with duckdb.connect(str(building)) as connection:
        connection.execute("DELETE FROM meta WHERE key = 'schema_version'")
    assert scan(tree, old_run).resumed == 0
    with Store.open(generations.require(old_run).measurements) as store:
        assert not store.columns("looks")
        assert not store.columns("refused")
        assert "looked" not in store.columns("pairs")
        assert store.scalar("SELECT count(*) FROM images") == 24


def test_a_killed_build_of_this_version_is_gone_on_with(old_run: Path, tree: Path) -> None:
    def kill(step: Progress) -> None:
        if step.phase == "relate":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan(tree, old_run, progress=kill)
    with pytest.raises(RunError, match=r"made by version 0\.1"):
        generations.require(old_run)
    assert scan(tree, old_run).resumed == 24
