"""The history of a run: what came with which scan, kept when generations are pruned."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

import audit
from audit.compare.history import HISTORY, Moment, arrival, last_change, read_history
from audit.run.generations import list_generations
from tests.audit.run.scanned import recheck_run, scan_tree
from tests.conftest import picture
from tests.warm import warm_audit


def test_what_came_with_which_scan_is_told_for_ever(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    for number in range(8):
        path = data / ("train" if number < 5 else "test") / "cat" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number, 48, 48)).save(path)
    scan_tree(data, run)
    leak = data / "test" / "cat" / "leak.png"
    leak.write_bytes((data / "train" / "cat" / "0.png").read_bytes())
    scan_tree(data, run)
    recheck_run(run)
    leak.unlink()
    for number in range(3):  # generations are pruned meanwhile
        Image.fromarray(picture(20 + number, 48, 48)).save(
            data / "train" / "cat" / f"n{number}.png"
        )
        scan_tree(data, run)
    scan_tree(data, run)  # nothing changed: no moment
    first, second, again, third, *_ = history = read_history(run)
    assert len(history) == 6
    assert len(list_generations(run)) == 2
    assert (first.files, first.splits, first.came) == (8, {"train": 5, "test": 3}, {})
    assert second.came["SPLIT001"] == 1
    assert not {**again.came, **again.went}
    assert third.went["SPLIT001"] == 1
    found = arrival(history, "SPLIT001")
    assert found is not None
    assert found[0] is second
    assert found[1] == ["test/cat/leak.png"]
    mark = next(mark for code, mark, *_ in second.named if code == "SPLIT001")
    assert arrival(history, str(mark)) == found
    assert arrival(history, "DUP009") is None
    assert "UTC came" in (said := last_change(history[:3]))
    assert "SPLIT001 1" in said
    assert last_change(history[:1]) == ""
    assert audit.open(run).history["came"].to_list()[:3] == [0, sum(second.came.values()), 0]
    told, brought, document = (
        warm_audit("history", run, *more, folder=tmp_path)
        for more in ([], ["SPLIT001"], ["--json"])
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("\n") >= 7
    assert "SPLIT001 came with the scan" in brought.stdout
    assert len(json.loads(document.stdout)["moments"]) == 6
    assert told.stdout.count("  gen-") == 2, "those that are kept are named"


def test_a_damaged_line_and_what_a_later_version_adds_are_passed_over(tmp_path: Path) -> None:
    lines = ['{"at": "2026-01-01", "generation": "g", "files": 3, "later": 1}', "{", '{"files": 1}']
    (tmp_path / HISTORY).write_text("\n".join(lines))
    assert read_history(tmp_path) == [Moment("2026-01-01", "g", 3)]
    assert read_history(tmp_path / "nowhere") == []
    (tmp_path / "other" / HISTORY).mkdir(parents=True)
    assert read_history(tmp_path / "other") == []
