"""Fixes of annotations: proposed with before and after, recorded, applied in exports, undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit.annotations.clipping import clip_box, clip_ring, ring_area
from audit.errors import DamagedError, UsageError
from audit.records import Action
from audit.report import collect_report
from audit.review.annotation_export import export_annotations
from audit.review.box_fixes import ProposedFix
from audit.review.decisions import decide_findings, decide_samples, plan_fixes
from audit.review.ledger import Entry, Ledger
from audit.review.status import apply_decisions
from tests.audit.annotations.datasets import annotated_run, coco, coco_tree, codes

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


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Path:
    return annotated_run(root, tmp_path / "run")


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
    assert by_reason(plan_fixes(run, ["BOX001"])) == (
        1, ["a box lies wholly outside of its picture: drop or move it"],
    )  # fmt: skip
    [line] = plan_fixes(run, ["BOX002"])[0].lines()
    assert line == "annotations.json, images/1.jpg, entry 1: cat (5, 6, 0, 10) -> dropped"
    assert by_reason(plan_fixes(run, ["BOX004"]))[1] == [
        "two boxes are alike and not equal: choose the better one"
    ]
    assert by_reason(plan_fixes(run, ["BOX003"])) == (
        0, ["say which class it is: --as fix:NAME"],
    )  # fmt: skip
    for code in ("BOX001", "BOX002", "BOX004", "BOX005", "BOX026"):
        decide_findings(run, [code], Action.FIX, by="anna")
    decide_findings(run, ["BOX003"], Action.FIX, "cat", by="anna")
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
    assert {i: e for i, e in pictures.items() if i != 5} == {
        i: e for i, e in resized.items() if i != 5
    }
    said = " ".join(collect_report(run).completeness)
    assert "Fixes of annotations decided: 6, of 6 findings" in said
    assert (apply_decisions(run).settled["status"] == "decided").all()
    Ledger(run).undo(6, "anna")
    assert exported(run, tmp_path / "c") == (before, pictures)
    assert "Fixes of annotations" not in " ".join(collect_report(run).completeness)


def test_the_exported_set_has_none_of_what_was_fixed(run: Path, root: Path) -> None:
    """Scanning what was exported finds only what had no mechanical fix."""
    for code in ("BOX001", "BOX002", "BOX004", "BOX005", "BOX026"):
        decide_findings(run, [code], Action.FIX)
    decide_findings(run, ["BOX003"], Action.FIX, "cat")
    out = run.parent / "again"
    coco_tree(out, "{}", 8)
    (out / "annotations.json").unlink()
    export_annotations(run, out, "coco")
    assert codes(root) >= {"BOX001", "BOX002", "BOX003", "BOX004", "BOX005", "BOX026"}
    assert codes(out) & {"BOX001", "BOX002", "BOX003", "BOX004", "BOX005", "BOX026"} == {
        "BOX001", "BOX004",  # the box wholly outside, and the two that are not equal
    }  # fmt: skip


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
        "1 fix was not applied: the size in the entry is another one now.",
        "1 fix was not applied: the box is another one now.",
    ]


def test_what_is_no_fix_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="applies to a finding"):
        decide_samples(run, ["images/0.jpg"], Action.FIX)
    with pytest.raises(UsageError, match="BOX001 takes no class"):
        plan_fixes(run, ["BOX001"], "cat")
    twice = coco(1, [(1, 5, 6, 20, 10), (1, 30, 30, 9, 9)], id=7)
    other = annotated_run(coco_tree(tmp_path / "ids", twice), tmp_path / "run2")
    with pytest.raises(UsageError, match="BOX012 has no mechanical fix"):
        plan_fixes(other, ["BOX012"])


def test_a_damaged_fix_in_the_ledger_is_damage(run: Path) -> None:
    evidence = json.dumps({"code": "BOX001", "fixes": [{"what": "clip", "file": 1}]})
    Ledger(run).record([Entry("finding", "0" * 16, None, Action.FIX, evidence=evidence)])
    with pytest.raises(DamagedError):
        Ledger(run).current()


def test_clipping_is_the_part_inside() -> None:
    assert clip_box((-5.0, -5.0, 10.0, 20.0), 8, 8) == (0.0, 0.0, 5.0, 8)
    assert clip_box((9.0, 0.0, 10.0, 20.0), 8, 8) is None
    assert clip_ring([1, 1, 3, 1, 3, 3], 8, 8) == [1, 1, 3, 1, 3, 3]
    assert ring_area(clip_ring([-4, 4, 4, -4, 12, 4, 4, 12], 8, 8)) == 64
    assert clip_ring([20, 20, 30, 20, 30, 30], 8, 8) == []
