"""Runs compared and their history: each planted change is named with its reason, and no other."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import audit
from audit.compare.diff import RunDiff, RunFindings, compare_runs, compare_snapshots, find_drift
from audit.decisions.decisions import decide_findings
from audit.errors import RunError
from audit.records import Action, Severity
from audit.results.history import HISTORY, Moment, arrival, last_change, read_history
from audit.run.run_version import keep_versions, list_published, list_versions
from tests.audit.conftest import Command
from tests.audit.reviewed import made_run
from tests.audit.run.scanned import recheck_run, scan_tree
from tests.conftest import make_tree, picture
from tests.warm import warm_audit

pytestmark = pytest.mark.slow

CHECKS = ("FILE", "DUP001", "DUP002", "IMG004", "SPLIT001")


def plain(seed: int, path: Path) -> None:
    Image.new("RGB", (64, 48), (seed, seed, seed)).save(path)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs, before and after ten kinds of change to one dataset."""
    folder = tmp_path_factory.mktemp("diff")
    tree = make_tree(folder / "pets")
    cats, dogs, owls = (tree / "train" / name for name in ("cat", "dog", "owl"))
    (cats / "broken.jpg").write_bytes(b"\xff\xd8nothing")  # will be mended
    (cats / "empty.jpg").touch()  # will be removed
    (cats / "stays.jpg").write_bytes(b"GIF89a")  # stays
    plain(40, cats / "blank.png")  # will be moved, finding and all
    shutil.copy(dogs / "0.jpg", dogs / "copy.jpg")  # a group that will grow
    shutil.copy(owls / "0.jpg", owls / "twin.jpg")  # a pair that will be dissolved
    scan_tree(tree, folder / "before", checks=CHECKS)
    Image.fromarray(picture(900)).save(cats / "broken.jpg")  # edited
    (cats / "empty.jpg").unlink()  # removed
    (cats / "blank.png").rename(dogs / "blank.png")  # moved
    shutil.copy(dogs / "0.jpg", dogs / "third.jpg")  # added, to a group
    Image.fromarray(picture(901)).save(owls / "twin.jpg")  # edited, out of a pair
    Image.fromarray(picture(902)).save(owls / "fresh.jpg")  # added, sound
    (owls / "bad.jpg").write_bytes(b"\xff\xd8nothing")  # added, broken
    shutil.copy(tree / "train/owl/1.jpg", tree / "test/owl/leak.jpg")  # added, a leak
    (owls / "2.jpg").rename(owls / "renamed.jpg")  # moved, sound
    (owls / "3.jpg").write_bytes((owls / "3.jpg").read_bytes()[:900])  # edited, damaged
    scan_tree(tree, folder / "after", checks=CHECKS)
    return folder / "before", folder / "after"


@pytest.fixture(scope="module")
def diff(changed: tuple[Path, Path]) -> RunDiff:
    return compare_runs(*changed)


def files(diff: RunDiff, change: str) -> set[str]:
    rows = diff.files.filter(pl.col("change") == change)
    return set(rows.select(pl.coalesce("after", "before")).to_series())


def findings(diff: RunDiff, change: str) -> set[tuple[str, str, str]]:
    rows = diff.findings.filter(pl.col("change") == change)
    return {(r["code"], " ".join(sorted(r["ids"])), r["why"]) for r in rows.to_dicts()}


def test_files_are_added_removed_edited_and_moved(diff: RunDiff) -> None:
    assert files(diff, "added") == {
        "train/dog/third.jpg", "train/owl/fresh.jpg", "train/owl/bad.jpg", "test/owl/leak.jpg",
    }  # fmt: skip
    assert files(diff, "removed") == {"train/cat/empty.jpg"}
    edited = {"train/cat/broken.jpg", "train/owl/twin.jpg", "train/owl/3.jpg"}
    assert files(diff, "edited") == edited
    assert files(diff, "moved") == {"train/dog/blank.png", "train/owl/renamed.jpg"}
    assert files(diff, "reclassified") == set()


def test_findings_are_fixed_and_new_with_the_reason(diff: RunDiff) -> None:
    assert findings(diff, "fixed") == {
        ("FILE001", "train/cat/broken.jpg", "files were edited"),
        ("FILE001", "train/cat/empty.jpg", "its files were removed"),
        ("DUP001", "train/owl/0.jpg train/owl/twin.jpg", "files were edited"),
    }
    new = findings(diff, "new")
    assert ("FILE001", "train/owl/bad.jpg", "new files") in new
    assert ("FILE002", "train/owl/3.jpg", "files were edited") in new
    assert {code for code, _, _ in new} == {"FILE001", "FILE002", "DUP001", "SPLIT001"}
    assert all("leak.jpg" in ids for code, ids, _ in new if code in ("DUP001", "SPLIT001"))


def test_what_moved_or_grew_persists(diff: RunDiff) -> None:
    persisting = {(code, ids) for code, ids, _ in findings(diff, "persisting")}
    assert ("IMG004", "train/dog/blank.png") in persisting
    assert ("DUP001", "train/dog/0.jpg train/dog/copy.jpg train/dog/third.jpg") in persisting
    assert ("FILE002", "train/cat/stays.jpg") in persisting


def test_a_run_is_like_itself_and_the_other_way_round_new_is_fixed(
    changed: tuple[Path, Path], diff: RunDiff
) -> None:
    same = compare_runs(changed[0], changed[0])
    assert same.files.is_empty()
    assert same.counts() == {
        "new": 0, "fixed": 0, "persisting": len(same.findings), "unchecked": 0,
    }  # fmt: skip
    back = compare_runs(*reversed(changed))
    assert back.counts()["new"] == diff.counts()["fixed"]
    assert back.counts()["fixed"] == diff.counts()["new"]


def test_a_check_that_did_not_run_is_no_fix(changed: tuple[Path, Path]) -> None:
    before, after = map(RunFindings.of, changed)
    less = RunFindings(after.run, after.samples, after.findings.filter(pl.col("code") != "FILE001"),
                    after.ran - {"FILE001"}, after.objects)  # fmt: skip
    found = compare_snapshots(before, less).findings.filter(pl.col("code") == "FILE001")
    assert set(found["change"]) == {"unchecked"}
    assert set(found["why"]) == {"the check did not run in the later run"}


def test_decisions_are_told_and_settle_what_is_new(
    changed: tuple[Path, Path], tmp_path: Path
) -> None:
    shutil.copytree(changed[1], tmp_path / "after")
    now = RunFindings.of(tmp_path / "after").findings
    kept = now.filter(pl.col("code") == "IMG004")["fingerprint"][0]
    bad = now.filter(pl.col("ids").list.contains("train/owl/bad.jpg"))["fingerprint"][0]
    decide_findings(tmp_path / "after", [kept, bad], Action.FALSE_POSITIVE)
    diff = compare_runs(changed[0], tmp_path / "after")
    assert diff.settled().select("fingerprint", "before", "status").rows() == [
        (kept, "open", "waived")
    ]
    assert bad not in diff.new(Severity.INFO)["fingerprint"]
    assert len(diff.new(Severity.ERROR)) < len(diff.new(Severity.WARNING)) + 1


def test_the_command_says_it_and_fails_on_what_is_new(changed: tuple[Path, Path]) -> None:
    before, after = map(str, changed)
    said = warm_audit("diff", before, after)
    assert said.returncode == 0
    assert "2 moved" in said.stdout
    assert "train/cat/blank.png -> train/dog/blank.png" in said.stdout
    assert warm_audit("diff", before, after, "--fail-on", "new:error").returncode == 1
    assert warm_audit("diff", before, before, "--fail-on", "new:warning").returncode == 0
    document = json.loads(compare_runs(*changed).document())
    assert document["schema"] == "audit-diff/1"
    assert document["counts"]["fixed"] == 3
    assert warm_audit("diff", before, "nowhere").returncode == 2


def test_a_scan_fails_on_what_a_baseline_had_not(tmp_path: Path) -> None:
    tree, run = make_tree(tmp_path / "pets"), str(tmp_path / "run")
    new = ("--fail-on", "new:error")
    alone = warm_audit("scan", tree, "--out", run, *new)
    assert (alone.returncode, "--baseline" in alone.stderr) == (2, True)
    assert not Path(run).exists()
    with pytest.raises(RunError):
        RunFindings.of(tmp_path / "none")
    (tree / "train/cat/empty.jpg").touch()
    words = ("scan", tree, "--out", run, "--checks", "FILE001", "--jobs", "1")
    assert warm_audit(*words).returncode == 1
    quiet = warm_audit(*words, "--baseline", run, *new)
    assert quiet.returncode == 0, quiet.stderr
    assert "0 new, 0 fixed, 1 persisting" in quiet.stdout
    (tree / "train/cat/other.jpg").touch()
    loud = warm_audit(*words, "--baseline", run, *new)
    assert loud.returncode == 1
    assert "1 new, 0 fixed, 1 persisting" in loud.stdout


def samples(*rows: tuple[str, str]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["id", "content_hash"], orient="row")
    null = pl.lit(None, pl.String)
    return frame.with_columns(split=null, label=null)


def groups(**members: list[str]) -> pl.DataFrame:
    """Findings DUP003 by fingerprint."""
    schema = dict.fromkeys(("fingerprint", "code", "name", "severity", "message"), pl.String)
    schema |= {"n_samples": pl.Int64, "ids": pl.List(pl.String), "status": pl.String}
    rows = [
        (name, "DUP003", "near-duplicate", "warning", "alike", len(ids), ids, "open")
        for name, ids in members.items()
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def snapshot(files: pl.DataFrame, found: pl.DataFrame) -> RunFindings:
    objects = pl.DataFrame(schema={"class": pl.String, "n": pl.Int64})
    return RunFindings(Path("run"), files, found, frozenset({"DUP003"}), objects)


def test_equal_contents_are_paired_one_by_one() -> None:
    before = snapshot(samples(("a", "1"), ("b", "1"), ("c", "1"), ("d", "2")), groups())
    after = snapshot(samples(("x", "1"), ("y", "1"), ("d", "2")), groups())
    rows = compare_snapshots(before, after).files.select("change", "before", "after").rows()
    assert rows == [("removed", "c", None), ("moved", "a", "x"), ("moved", "b", "y")]


def test_a_group_with_another_representative_is_the_one_that_shares_most() -> None:
    before = samples(*((name, name) for name in "abcdefg"))
    after = samples(*((name, name) for name in "bcdefgh"))
    old = groups(first=["a", "b", "c", "d"], second=["f", "g"])
    new = groups(larger=["b", "c", "d", "h"], other=["e", "f"], none=["e", "h"])
    diff = compare_snapshots(snapshot(before, old), snapshot(after, new))
    changes = dict(diff.findings.select("fingerprint", "change").iter_rows())
    assert changes == {"larger": "persisting", "other": "persisting", "none": "new"}


def test_another_class_or_split_is_said(tmp_path: Path) -> None:
    images = [{"label": "cat", "split": "test"} for _ in range(3)]
    before = made_run(tmp_path / "before", images)
    images[0], images[1] = images[0] | {"label": "lynx"}, images[1] | {"split": "train"}
    found = compare_runs(before, made_run(tmp_path / "after", images)).files
    assert found["change"].to_list() == ["reclassified"] * 2
    assert found["class_after"].to_list() == ["lynx", "cat"]
    assert found["split_after"].to_list() == ["test", "train"]


def test_what_other_vectors_found_is_neither_new_nor_fixed() -> None:
    files, code = samples(("a", "1")), pl.lit("LABEL006")
    some = snapshot(files, groups(one=["a"]).with_columns(code=code))
    some = replace(some, ran=frozenset({"LABEL006"}))
    none = replace(some, findings=some.findings.clear())
    assert compare_snapshots(some, none).counts()["fixed"] == 1
    assert compare_snapshots(none, some).counts()["new"] == 1
    for before, after in ((some, none), (none, some)):
        diff = compare_snapshots(before, replace(after, vectors='{"embedder": "1234"}'))
        assert diff.counts() == {"new": 0, "fixed": 0, "persisting": 0, "unchecked": 1}
        assert diff.findings["why"].to_list() == ["the other run used other embeddings"]


def test_generations_that_are_kept_are_compared_by_their_path(tmp_path: Path) -> None:
    tree, run = make_tree(tmp_path / "pets"), tmp_path / "run"
    keep_versions(run, 3)  # before the first scan there is nothing to keep
    scan_tree(tree, run, checks=CHECKS)
    keep_versions(run, 3)
    for number in range(2):
        (tree / "train" / "cat" / f"broken{number}.jpg").write_bytes(b"GIF89a")
        scan_tree(tree, run, checks=CHECKS)
    first, second, third = (run / f"gen-000{n}" for n in (1, 2, 3))
    here = audit.open(run)
    assert [here.diff(one).counts()["new"] for one in (first, second, third)] == [2, 1, 0]
    assert here.history["generation"].to_list() == [one.name for one in list_published(run)]
    assert compare_runs(first, second).files["after"].to_list() == ["train/cat/broken0.jpg"]
    recheck_run(run)
    files = [third / f"findings-000{n}.duckdb" for n in (1, 2)]
    assert compare_runs(*files).counts()["persisting"] == len(here.findings)
    told = warm_audit("diff", "run/gen-0001", "run", "--json", folder=tmp_path)
    assert json.loads(told.stdout)["before"] == "run/gen-0001"
    gone = warm_audit("diff", "run/gen-0009", "run", folder=tmp_path)
    assert gone.returncode == 2
    assert "gen-0009" in gone.stderr
    assert "gen-0001/findings-0001.duckdb" in gone.stderr, "what there is, is named"
    named = Path(shutil.copytree(run, tmp_path / "gen-0001"))  # a run of the name of a generation
    assert compare_runs(named, run).counts()["persisting"] == len(here.findings)


def scanned(folder: Path, seed: int, labels: tuple[str, ...], light: float = 1.0) -> Path:
    """A run of 36 pictures a class, darkened by a factor."""
    for k, label in enumerate(labels):
        (folder / "set" / label).mkdir(parents=True)
        for i in range(36):
            pixels = np.round(picture(1000 * seed + 100 * k + i) * light).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "set" / label / f"{i}.png")
    scan_tree(folder / "set", folder / "run", checks=("FILE",))
    return folder / "run"


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scanned(tmp_path_factory.mktemp("drift"), 1, ("cat", "dog"))


def test_drift_between_runs(pets: Path, tmp_path: Path, command: Command) -> None:
    first = pets
    alike = scanned(tmp_path / "b", 2, ("cat", "dog"))
    darker = scanned(tmp_path / "c", 3, ("cat", "owl"), 0.6)
    assert find_drift(alike, first).findings == []
    assert find_drift(first, first).findings == []
    found = {(f.code, f.subject): f for f in find_drift(darker, first).findings}
    assert set(found) == {
        ("DIST003", "split:reference/class:owl"), ("DIST003", "split:run/class:dog"),
        ("DIST007", "split:run"),
    }  # fmt: skip
    darkened = found["DIST007", "split:run"]
    assert "brightness" in str(darkened.evidence["properties"])
    assert all(name.startswith("cat/") for name in darkened.sample_ids)
    code, out, _ = command("diff", first, darker, "--distributions", "--json", "--fail-on", "info")
    document = json.loads(out)
    assert (code, document["schema"], len(document["findings"])) == (1, "audit-drift/1", 3)
    code, out, _ = command("diff", first, alike, "--distributions", "--fail-on", "info")
    assert code == 0
    assert "No difference found between" in out


def test_two_datasets_are_compared_by_their_distributions(
    pets: Path, tmp_path: Path, command: Command
) -> None:
    """Without an option; and a new finding is one of the same dataset only."""
    first = pets
    other = scanned(tmp_path / "c", 3, ("owl", "fox"), 0.6)
    code, out, _ = command("diff", first, other)
    assert code == 0
    assert out.startswith("Comparing distributions: 0.0% of the samples of the smaller run are in")
    assert "DIST003" in out
    assert command("diff", first, other, "--fail-on", "info")[0] == 1
    code, out, refused = command("diff", first, other, "--fail-on", "new:error")
    assert (code, out) == (2, "")
    assert "--fail-on new:error compares two scans of one dataset" in " ".join(refused.split())
    assert command("diff", first, first, "--fail-on", "new:error")[0] == 0


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
    assert len(list_versions(run)) == 2
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
    assert "UTC: new " in (said := last_change(history[:3]))
    assert "SPLIT001 1" in said
    assert last_change(history[:1]) == ""
    assert audit.open(run).history["came"].to_list()[:3] == [0, sum(second.came.values()), 0]
    told, brought, document = (
        warm_audit("report", run, "--section", "history", *more, folder=tmp_path)
        for more in ([], ["--list", "SPLIT001"], ["--json"])
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("\n") >= 7
    assert "SPLIT001 first appeared in the scan" in brought.stdout
    assert len(json.loads(document.stdout)["moments"]) == 6
    assert told.stdout.count("  gen-") == 2, "those that are kept are named"


def test_a_damaged_line_and_what_a_later_version_adds_are_passed_over(tmp_path: Path) -> None:
    lines = ['{"at": "2026-01-01", "generation": "g", "files": 3, "later": 1}', "{", '{"files": 1}']
    (tmp_path / HISTORY).write_text("\n".join(lines))
    assert read_history(tmp_path) == [Moment("2026-01-01", "g", 3)]
    assert read_history(tmp_path / "nowhere") == []
    (tmp_path / "other" / HISTORY).mkdir(parents=True)
    assert read_history(tmp_path / "other") == []
