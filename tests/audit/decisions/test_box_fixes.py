"""Fixes of annotations: proposed with before and after, recorded, applied in exports, undone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import audit
from audit.annotations.geometry import clip_box, clip_ring, ring_area
from audit.decisions.box_fixes import (
    FIXABLE,
    ProposedFix,
    describe_open_faults,
    find_fixes,
    fix_open_faults,
    open_faults,
    propose_removal,
)
from audit.decisions.decisions import decide_findings, decide_samples, plan_fixes
from audit.decisions.store import DecisionStore, Entry
from audit.decisions.waivers import apply_decisions, open_for_deciding
from audit.errors import DamagedError, UsageError
from audit.exports.annotation_export import export_annotations
from audit.exports.export import export_as
from audit.records import Action
from audit.report import collect_report
from audit.subset.source import frame_from_run
from tests.audit.annotations.datasets import annotated_run, coco, coco_tree, codes
from tests.audit.conftest import Command
from tests.audit.reviewed import findings

pytestmark = pytest.mark.slow


def faulty() -> dict[str, Any]:
    """A document with each mechanical error in a picture of its own."""
    boxes = [
        (1, 50, 6, 20, 10), (2, 5, 6, 0, 10), (3, 5, 6, 20, 10), (3, 5, 6, 20, 10),
        (4, 5, 6, 20, 10), (5, 2, 3, 20, 10), (6, 70, 6, 20, 10), (7, 5, 6, 20, 20),
        (7, 5, 6, 20, 20.5),
    ]  # fmt: skip
    document = coco(8, [*boxes, *[(8, 3 + i, 3, 9, 9) for i in range(0, 40, 10)]])
    document["annotations"][0]["segmentation"] = [[50, 6, 70, 6, 70, 16, 50, 16]]
    document["annotations"][0]["area"] = 200
    document["annotations"][4]["category_id"] = 9
    document["images"][4] |= {"width": 48, "height": 64}
    document["categories"].append({"id": 2, "name": "Cat"})
    document["annotations"][-1]["category_id"] = 2
    return document


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coco_tree(tmp_path_factory.mktemp("faulty") / "data", faulty(), 8)


@pytest.fixture(scope="module")
def undecided(root: Path) -> Path:
    return annotated_run(root, root.parent / "run")


@pytest.fixture
def run(undecided: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undecided, tmp_path / "run"))


def exported(run: Path, out: Path) -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]]:
    """Annotations and pictures of an export, by id."""
    export_annotations(run, out, "coco")
    document = json.loads((out / "annotations.json").read_text())
    return (
        {e["id"]: e for e in document["annotations"]}, {e["id"]: e for e in document["images"]},
    )  # fmt: skip


def by_reason(proposed: list[ProposedFix]) -> tuple[int, list[str]]:
    return sum(bool(p.fixes) for p in proposed), [p.reason for p in proposed if not p.fixes]


def test_fixes_are_shown_applied_counted_and_undone(run: Path, root: Path, tmp_path: Path) -> None:
    before, pictures = exported(run, tmp_path / "a")
    outside = "a box is completely outside its image: drop or move it"
    assert by_reason(plan_fixes(run, ["BOX001"])) == (1, [outside])
    [line] = plan_fixes(run, ["BOX002"])[0].lines()
    assert line == "annotations.json, images/1.jpg, entry 1: cat (5, 6, 0, 10) -> dropped"
    assert by_reason(plan_fixes(run, ["BOX004"]))[1] == [
        "two boxes are similar but not equal: drop the worse box"
    ]
    unnamed = "name the class: --as fix:NAME"
    assert by_reason(plan_fixes(run, ["BOX003"])) == (0, [unnamed])
    for code in FIXABLE:
        value = "cat" if code == "BOX003" else None
        decide_findings(run, [code], Action.FIX, value, by="anna")
    after, resized = exported(run, tmp_path / "b")
    assert after[1]["bbox"] == [50, 6, 14, 10]
    assert after[1]["area"] == 140
    assert ring_area(after[1]["segmentation"][0]) == 140
    assert set(before) - set(after) == {2, 4}
    assert after[5]["category_id"] == 1
    assert after[13]["category_id"] == 1
    assert (resized[5]["width"], resized[5]["height"]) == (64, 48)
    same = set(after) - {1, 5, 13}
    assert {i: after[i] for i in same} == {i: before[i] for i in same}
    assert {**pictures, 5: None} == {**resized, 5: None}
    said = " ".join(collect_report(run).completeness)
    assert "6 fixes of annotations are decided, for 6 findings" in said
    assert (apply_decisions(run).settled["status"] == "decided").all()
    DecisionStore(run).undo(6, "anna")
    assert exported(run, tmp_path / "c") == (before, pictures)
    assert "fixes of annotations" not in " ".join(collect_report(run).completeness)
    # scanning what was exported finds only what had no mechanical fix
    for picture in (root / "images").iterdir():
        (tmp_path / "b/images").mkdir(exist_ok=True)
        shutil.copy(picture, tmp_path / "b/images")
    assert codes(root) >= set(FIXABLE)
    # the box wholly outside, and the two that are not equal
    assert codes(tmp_path / "b") & set(FIXABLE) == {"BOX001", "BOX004"}


def test_open_faults_are_told_by_an_export_and_fixed_as_one_batch(
    run: Path, tmp_path: Path
) -> None:
    faults = {code: len(found) for code in FIXABLE if (found := findings(run, code))}
    assert open_faults(run) == faults
    said = f"{sum(faults.values())} open faults with an automatic fix (BOX001 {faults['BOX001']}, "
    assert any(line.startswith(said) for line in export_as(run, tmp_path / "a", "coco").said)
    removals = [line for f in findings(run, "BOX004") for line in propose_removal(run, f).lines()]
    assert len(removals) == faults["BOX004"]
    assert any(line.endswith("(5, 6, 20, 10) -> dropped") for line in removals)
    assert not propose_removal(run, next(iter(findings(run, "BOX005")))).fixes
    done = fix_open_faults(run, by="anna")
    assert {(d.batch, d.by, d.verb) for d in done} == {(done[0].batch, "anna", Action.FIX)}
    left = open_faults(run)
    assert "BOX002" not in left
    assert left["BOX003"] == faults["BOX003"]  # its class is for a person to say
    assert describe_open_faults(run)
    assert fix_open_faults(run) == []
    decide_findings(run, list(left), Action.KEEP)
    assert describe_open_faults(run) == ""


def test_a_fix_to_a_class_that_the_files_do_not_have_is_refused(
    run: Path, command: Command
) -> None:
    (fingerprint,) = findings(run, "BOX003")
    for named in ([fingerprint], ["--code", "BOX003", "--yes"]):
        code, _, words = command("decide", run, *named, "--as", "fix:zebra")
        assert (code, "the class 'zebra' (the nearest is" in words) == (2, True)
    assert DecisionStore(run).log() == []
    assert command("decide", run, fingerprint, "--as", "fix:zebra", "--new-name")[0] == 0
    assert command("decide", run, "--undo")[0] == 0
    assert command("decide", run, fingerprint, "--as", "fix:Cat")[0] == 0


def test_a_fix_of_what_changed_since_is_stale(root: Path, tmp_path: Path) -> None:
    document = faulty()
    tree = coco_tree(tmp_path / "data", document, 8)
    run = annotated_run(tree, tmp_path / "run")
    decide_findings(run, ["BOX001", "BOX005"], Action.FIX)
    document["annotations"][0]["bbox"] = [40, 6, 40, 10]
    document["images"][4] |= {"width": 50, "height": 64}
    (tree / "annotations.json").write_text(json.dumps(document))
    annotated_run(tree, run)
    result = export_annotations(run, tmp_path / "out", "coco")
    assert result.fixed == 0
    assert result.stale == [
        "1 fix was not applied: the size in the entry has changed.",
        "1 fix was not applied: the box has changed.",
    ]


def test_what_is_no_fix_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="applies to a finding"):
        decide_samples(run, ["images/0.jpg"], Action.FIX)
    with pytest.raises(UsageError, match="BOX001 takes no class"):
        plan_fixes(run, ["BOX001"], "cat")
    twice = coco(1, [(1, 5, 6, 20, 10), (1, 30, 30, 9, 9)], id=7)
    other = annotated_run(coco_tree(tmp_path / "ids", twice), tmp_path / "run2")
    with pytest.raises(UsageError, match="BOX012 has no automatic fix"):
        plan_fixes(other, ["BOX012"])


def test_a_picture_is_not_dropped_for_one_of_its_boxes(run: Path, command: Command) -> None:
    (found,) = findings(run, "BOX002")
    says = rf"BOX002 {found} concerns one box of images/1.jpg, .* decide fix, keep or false-pos"
    for word in (found, "BOX002"):
        with pytest.raises(UsageError, match=says):
            decide_findings(run, [word], Action.DROP)
        with pytest.raises(UsageError, match=says):
            audit.open(run).decide(word, "drop")
    for words in ([found], ["--code", "BOX002", "--yes"], [found, "images/2.jpg"]):
        code, _, refused = command("decide", run, *words, "--as", "drop")
        assert code == 2
        assert "Name the image itself to drop it" in " ".join(refused.split())
    assert not DecisionStore(run).log()
    assert command("decide", run, found, "images/1.jpg", "--as", "drop")[0] == 0
    assert {d.subject for d in DecisionStore(run).log()} == {found, "images/1.jpg"}
    (size,) = findings(run, "BOX005")  # of the picture's entry
    assert decide_findings(run, [size], Action.DROP)
    assert decide_findings(run, ["BOX001"], Action.KEEP)


def test_pictures_with_a_box_of_a_wrong_class_stay_suspected(run: Path) -> None:
    suspected = frame_from_run(run, None).filter("suspected_mislabel")["sample_id"].to_list()
    assert suspected == ["images/3.jpg"]  # BOX003


def test_a_damaged_fix_in_the_ledger_is_damage(run: Path) -> None:
    evidence = json.dumps({"code": "BOX001", "fixes": [{"what": "clip", "file": 1}]})
    DecisionStore(run).record([Entry("finding", "0" * 16, None, Action.FIX, evidence=evidence)])
    with open_for_deciding(run) as store, pytest.raises(DamagedError):
        find_fixes(run, store)


def test_clipping_is_the_part_inside() -> None:
    assert clip_box((-5.0, -5.0, 10.0, 20.0), 8, 8) == (0.0, 0.0, 5.0, 8)
    assert clip_box((9.0, 0.0, 10.0, 20.0), 8, 8) is None
    assert clip_ring([1, 1, 3, 1, 3, 3], 8, 8) == [1, 1, 3, 1, 3, 3]
    assert ring_area(clip_ring([-4, 4, 4, -4, 12, 4, 4, 12], 8, 8)) == 64
    assert clip_ring([20, 20, 30, 20, 30, 30], 8, 8) == []
