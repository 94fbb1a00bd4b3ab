"""Three lines of Python: a scan, its tables as frames, decisions, and what a notebook shows."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import audit
from audit.checking.check import all_checks
from audit.checking.config import Config
from audit.errors import AuditError, RunError, UsageError
from tests.conftest import ROOT, make_tree

pytestmark = pytest.mark.slow

CONFIG = Config(match={"synthetic_sources": 0})
QUICK: dict[str, Any] = {"checks": ["FILE", "DUP"], "config": CONFIG, "jobs": 1, "progress": False}


@pytest.fixture(scope="module")
def found(sample_data_run: Path) -> audit.Run:
    return audit.open(str(sample_data_run))


@pytest.fixture
def own(sample_data_run: Path, tmp_path: Path) -> audit.Run:
    """A copy of the run to decide in."""
    shutil.copytree(sample_data_run, tmp_path / "run")
    return audit.open(tmp_path / "run")


def test_a_scan_takes_text_or_paths_and_twice_is_the_same(tmp_path: Path) -> None:
    tree, seen = make_tree(tmp_path / "images"), list[str]()
    watched = {**QUICK, "progress": lambda state: seen.append(state.phase)}
    first = audit.scan(str(tree), str(tmp_path / "run"), **watched)
    assert {"measure", "judge"} <= set(seen)
    for module in pkgutil.walk_packages(audit.__path__, "audit."):
        if module.name.count(".") == 1 and module.name != "audit.__main__":
            importlib.import_module(module.name)
    second = audit.scan(tree, tmp_path / "run", **QUICK)
    assert first.path == second.path == tmp_path / "run"
    assert first.images["id"].to_list() == second.images["id"].to_list()
    assert first.images.height > 0


def test_several_folders_by_name_are_splits(tmp_path: Path) -> None:
    trees = {name: make_tree(tmp_path / name) for name in ("train", "test")}
    run = audit.scan(trees, tmp_path / "run", **QUICK)
    assert set(run.images["split"]) == {"train", "test"}


def test_a_script_without_a_main_guard_scans_in_processes(tmp_path: Path) -> None:
    make_tree(tmp_path / "images")
    (tmp_path / "script.py").write_text(
        "import audit\n"
        "run = audit.scan('images', jobs=2, checks=['FILE001'], progress=False)\n"
        "print(len(run.images), run.path)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "24 runs/images\n"), done.stderr


@pytest.mark.parametrize("source", [7, [], {"a": "/nowhere"}, "/nowhere", ["one", 2]])
def test_a_source_that_cannot_be_is_a_sentence(source: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        audit.scan(source, tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunError):
        audit.open(str(tmp_path / "run"))


def test_findings_hold_paths_and_evidence(found: audit.Run) -> None:
    frame = found.findings
    twice = frame.filter(pl.col("code") == "DUP001")
    assert twice["paths"].list.len().min() == 2
    assert all(Path(p).is_file() for p in twice["paths"].explode())
    assert isinstance(frame.schema["evidence"], pl.Struct)
    assert set(frame["status"]) == {"open"}


def test_the_findings_of_a_check_have_their_numbers_as_columns_if_there_are_any(
    found: audit.Run,
) -> None:
    pairs = found.found("near-duplicate")
    assert set(pairs["code"]) == {"DUP003"}
    assert "evidence" not in pairs.columns
    assert pairs["similarity"].dtype == pl.Float64
    assert pairs.height == found.findings.filter(pl.col("code") == "DUP003").height
    silent = set(all_checks()) - set(found.findings["code"])
    assert found.found(min(silent)).height == 0


def test_images_pairs_groups_and_annotations_are_frames(found: audit.Run) -> None:
    images = found.images
    assert images.height == 307
    assert {"path", "label", "brightness", "decision"} <= set(images.columns)
    assert found.pairs.height >= found.groups["group"].n_unique()
    assert set(found.groups["id"]) <= set(images["id"])
    assert found.annotations["sample_id"].is_in(images["id"].implode()).all()
    assert found.sql("SELECT count(*) AS n FROM images")["n"][0] == 307
    with pytest.raises(AuditError):
        found.sql("DELETE FROM findings")


def test_what_is_shown_is_text_and_a_picture(found: audit.Run) -> None:
    first, second = found.found("DUP001")["ids"][0]
    card = found.show(first)
    assert first in repr(card)
    assert "data:image/jpeg" in card._repr_html_()
    assert "the same bytes" in repr(found.show(first, second))


def test_a_report_is_text_or_a_file(found: audit.Run, tmp_path: Path) -> None:
    assert "Audit of sample_data" in str(found.report())
    page = found.report(str(tmp_path / "x.html"))
    assert Path(page).read_text().startswith("<!doctype html>")


def test_a_notebook_shows_counts_thumbnails_and_hostile_names_as_text(
    found: audit.Run, tmp_path: Path
) -> None:
    html = found._repr_html_()
    assert "DUP001" in html
    assert "data:image/jpeg" in html
    assert "errors" in repr(found)
    tree = make_tree(tmp_path / "images")
    picture = next(tree.rglob("*.jpg"))
    for name in ("<script>alert(1)<", "<script>alert(2)<"):
        shutil.copy(picture, picture.with_name(f"{name}.jpg"))
    run = audit.scan(tree, tmp_path / "run", **QUICK)
    assert "<script" not in run._repr_html_()
    assert "<script" not in run.show("<script>alert(1)<.jpg")._repr_html_()
    assert "&lt;script" in run._repr_html_()


def test_decisions_change_what_is_kept_and_are_taken_back(own: audit.Run) -> None:
    first = own.found("DUP001")["ids"][0][0]
    own.decide(first, "drop", note="a copy")
    assert own.kept().height == 306
    assert own.images.filter(pl.col("id") == first)["decision"].to_list() == ["drop"]
    assert own.decisions["note"].to_list() == ["a copy"]
    own.decide("FILE001", "false-positive")
    assert set(own.found("FILE001")["status"]) == {"waived"}
    own.decide(where="width < 64", verdict="drop")
    assert own.decisions["note"][0] == "where width < 64"
    own.undo(3)
    assert own.kept().height == 307
    assert set(own.findings["status"]) == {"open"}


def test_a_decision_names_one_thing_and_a_verb(own: audit.Run) -> None:
    for arguments in ({"things": "nothing.jpg", "verdict": "drop"}, {"verdict": "drop"},
                      {"things": "FILE001", "verdict": "shrink"},
                      {"things": "x", "where": "true", "verdict": "drop"}):  # fmt: skip
        with pytest.raises(UsageError):
            own.decide(**arguments)  # type: ignore[arg-type]
    assert own.decisions.height == 0


def test_a_subset_is_drawn_with_weights(found: audit.Run) -> None:
    rows = found.subset(n=30, seed=7)
    assert rows.height == 30
    assert rows.equals(found.subset(n=30, seed=7))
    with pytest.raises(UsageError, match="half_width"):
        found.subset(halfwidth=0.1)


def test_importing_audit_loads_nothing() -> None:
    code = "import sys, audit; dir(audit); print([m for m in sys.modules if 'audit' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['audit']\n"
    with pytest.raises(AttributeError, match="no attribute 'scna'"):
        audit.scna  # type: ignore[attr-defined]  # noqa: B018
