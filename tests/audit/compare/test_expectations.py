"""What a dataset is expected to be: each number is right, and what cannot be told is not met."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from audit.compare.expectations import (
    Expectation,
    judge_expectations,
    parse_expectations,
    propose_expectations,
)
from audit.decisions.decisions import decide_findings
from audit.errors import UsageError
from audit.records import Action
from tests.audit.run.scanned import CHECKS, scan_tree
from tests.conftest import make_tree
from tests.warm import warm_audit


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pictures of 96 x 72 px, a leak into test, a small picture and an empty file."""
    folder = tmp_path_factory.mktemp("expected")
    tree = make_tree(folder / "pets")
    shutil.copy(tree / "train/cat/0.jpg", tree / "test/cat/leak.jpg")
    Image.effect_noise((40, 30), 60).save(tree / "train/dog/small.png")
    (tree / "train/owl/empty.jpg").touch()
    scan_tree(tree, folder / "run", checks=CHECKS)
    return folder / "run"


def judge(run: Path, name: str, wanted: Any, part: str = "") -> tuple[bool | None, Any]:
    (outcome,) = judge_expectations(run, [Expectation(name, wanted, part)])
    return outcome.met, outcome.found


@pytest.mark.parametrize(
    ("name", "part", "value"),
    [
        ("files", "", 27), ("files", "test", 10), ("unlabelled", "", 0), ("unreadable", "", 1),
        ("damaged", "", 0), ("min_side", "", 30), ("min_side", "test", 72), ("max_side", "", 96),
        ("per_class", "", 9), ("per_class", "test", 3),
        ("largest_over_smallest_class", "test", 4 / 3), ("duplicate_share", "", 1 / 27),
        ("duplicate_share", "test", 0), ("leaked_share", "", 0.1), ("leaked_share", "test", 0.1),
        ("errors", "", 2), ("errors", "train", 2), ("errors", "test", 1), ("FILE001", "", 1),
        ("FILE001", "test", 0),
    ],
)  # fmt: skip
def test_numbers_are_right(run: Path, name: str, part: str, value: float) -> None:
    met, found = judge(run, name, f">= {value - 1e-9}", part)
    assert (met, found) == (True, pytest.approx(value))
    assert judge(run, name, f"<= {value + 1e-9}", part)[0] is True
    assert judge(run, name, f"> {value + 1e-9}", part)[0] is False


def test_names_are_all_of_them_and_no_others(run: Path) -> None:
    assert judge(run, "classes", ["owl", "cat", "dog"])[0] is True
    (less,) = judge_expectations(run, [Expectation("splits", ["train", "val"])])
    assert (less.met, less.said) == (False, "without val; also test")


def test_what_a_run_cannot_tell_is_not_met_and_waived_findings_do_not_count(
    run: Path, tmp_path: Path
) -> None:
    assert judge(run, "DIST001", "<= 5") == (None, None)
    assert judge(run, "per_class", ">= 1", "val") == (None, None)
    shutil.copytree(run, tmp_path / "run")
    decide_findings(tmp_path / "run", ["FILE001"], Action.FALSE_POSITIVE)
    assert judge(tmp_path / "run", "FILE001", 0) == (True, 0)


@pytest.mark.parametrize(
    "table",
    [
        {"min_sides": 3}, {"min_side": ">= many"}, {"min_side": True}, {"min_side": float("inf")},
        {"classes": "cat"}, {"classes": [1]}, {"test": {"leaked": 0}}, {"min_side": "=> 3"},
        {"files": "1e"}, {"dup001": 0}, {"min_side": [3]},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_read_is_a_sentence(table: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"\[expect\]"):
        parse_expectations(table)
    right = {"min_side": ">= 64", "classes": ["a"], "test": {"per_class": 50}}
    assert [(e.title, e.wanted) for e in parse_expectations(right)] == [
        ("min_side", ">= 64"), ("classes", ["a"]), ("test.per_class", 50),
    ]  # fmt: skip


def test_a_proposal_is_met_and_is_toml(run: Path) -> None:
    table = tomllib.loads(propose_expectations(run))["expect"]
    found = judge_expectations(run, parse_expectations(table))
    assert len(found) >= 12
    assert all(one.met for one in found)


def test_hostile_names_are_quoted(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "pets")
    (tree / "train/cat").rename(tree / 'train/c"]\\ \u202e\n')
    scan_tree(tree, tmp_path / "run", checks=["FILE001"])
    table = tomllib.loads(propose_expectations(tmp_path / "run"))["expect"]
    assert 'c"]\\ \u202e\n' in table["classes"]


@pytest.mark.slow
def test_the_command_says_what_is_not_met(run: Path, tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text('[expect]\nmin_side = ">= 64"\nDIST001 = 0\nfiles = 27\n')
    said = warm_audit("report", run, "--section", "expectations", folder=tmp_path)
    assert said.returncode == 1
    assert [line.split()[:2] for line in said.stdout.splitlines()[1:]] == [
        ["NOT", "MET"], ["INCONCLUSIVE", "DIST001"], ["met", "files"],
    ]  # fmt: skip
    document = json.loads(
        warm_audit("report", run, "--section", "expectations", "--json", folder=tmp_path).stdout
    )
    assert [one["met"] for one in document["expectations"]] == [False, None, True]
    (tmp_path / "audit.toml").write_text(warm_audit("recheck", run, "--write-expectations").stdout)
    assert warm_audit("report", run, "--section", "expectations", folder=tmp_path).returncode == 0


@pytest.mark.slow
def test_a_scan_says_it_too(tmp_path: Path) -> None:
    make_tree(tmp_path / "pets")
    (tmp_path / "audit.toml").write_text("[expect]\nfiles = 23\n")
    said = warm_audit("scan", "pets", "--checks", "FILE001", "--jobs", "1", folder=tmp_path)
    assert said.returncode == 1
    assert "NOT MET" in said.stdout
    (tmp_path / "audit.toml").write_text("[expect]\nflies = 23\n")
    wrong = warm_audit("scan", "pets", "--out", "other", folder=tmp_path)
    assert (wrong.returncode, (tmp_path / "other").exists()) == (2, False)


@pytest.mark.slow
def test_expectations_of_one_call_go_before_those_of_the_file(tmp_path: Path) -> None:
    make_tree(tmp_path / "pets")
    words = ("scan", "pets", "--out", "run", "--checks", "FILE001", "--jobs", "1", "--expect")
    met = warm_audit(*words, "files=24", "--expect", "min_side=> 10", folder=tmp_path)
    assert met.returncode == 0, met.stderr
    assert "2 of 2 expectations are met." in met.stdout
    (tmp_path / "audit.toml").write_text("[expect]\nfiles = 24\n")
    unmet = warm_audit(*words, "files=> 100", folder=tmp_path)
    assert unmet.returncode == 1
    assert "1 expectation not met" in " ".join(unmet.stdout.split())
    for wrong, remedy in (("flies=3", "flies"), ("files", "=")):
        refused = warm_audit(*words, wrong, folder=tmp_path)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
        assert remedy in refused.stderr
