"""A decided dataset as a folder: whole, nothing lost, resumed after a kill, taken back."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import audit
from audit.errors import LockedError, MachineError, UsageError
from audit.exports import application
from audit.exports.application import apply_plan, open_receipt, roll_back
from audit.exports.planning import read_plan
from audit.run.digests import file_digest
from tests.audit.conftest import Command
from tests.audit.exports.test_planning import save, yolo
from tests.audit.run.scanned import scan_tree
from tests.audit.sources.packed_sets import pictures, write_tar
from tests.conftest import make_tree
from tests.warm import warm_line

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `pets`, two planted copies in it, and `run`, not to be changed."""
    folder = tmp_path_factory.mktemp("acting")
    tree = make_tree(folder / "pets")
    shutil.copy(tree / "train/cat/0.jpg", tree / "train/cat/copy.jpg")
    shutil.copy(tree / "test/owl/0.jpg", tree / "train/owl/leak.jpg")
    scan_tree(tree, folder / "run")
    return folder


@pytest.fixture
def own(scanned: Path, tmp_path: Path) -> audit.Run:
    """A copy of the run, of the one dataset, with decisions: two drops, a relabel, a move."""
    shutil.copytree(scanned / "run", tmp_path / "run")
    run = audit.open(tmp_path / "run")
    run.decide(["train/cat/copy.jpg", "train/owl/leak.jpg"], "drop")
    run.decide("train/dog/1.jpg", "relabel:cat")
    run.decide("train/dog/2.jpg", "move:test")
    return run


def tree_of(folder: Path) -> dict[str, bytes]:
    """Every file but the receipt, by its path."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".preflight" not in p.parts
    }


def test_scan_decide_plan_apply_scan(own: audit.Run, scanned: Path, tmp_path: Path) -> None:
    before = tree_of(scanned / "pets")
    plan = own.plan(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    assert read_plan(tmp_path / "plan.json").identity == plan.identity
    own.apply(tmp_path / "plan.json", tmp_path / "new")
    after = tree_of(tmp_path / "new")
    assert after.pop("manifest.csv")
    moved = {"train/dog/1.jpg": "train/cat/1~2.jpg", "train/dog/2.jpg": "test/dog/2~2.jpg"}
    expected = {moved.get(name, name): data for name, data in before.items()}
    del expected["train/cat/copy.jpg"], expected["train/owl/leak.jpg"]
    assert after == expected
    assert {left.id for left in plan.left_out} == {"train/cat/copy.jpg", "train/owl/leak.jpg"}
    assert tree_of(scanned / "pets") == before
    scan_tree(tmp_path / "new", tmp_path / "again")
    again = audit.open(tmp_path / "again")
    assert set(own.findings["code"]) >= {"DUP001", "SPLIT001"}
    assert again.findings["code"].to_list() == []
    kept = own.kept().select("split", "label").sort("split", "label")
    assert again.images.select("split", "label").sort("split", "label").equals(kept)


def test_a_killed_apply_goes_on_to_the_same_tree(own: audit.Run, tmp_path: Path) -> None:
    plan = own.plan(tmp_path / "plan.json")
    apply_plan(plan, tmp_path / "whole")
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from audit.exports import application\n"
        "from audit.exports.planning import read_plan\n"
        "application.BATCH = 4\n"
        "n = int(sys.argv[3])\n"
        "def rename(a, b, real=os.rename):\n"
        "    global n\n"
        "    n -= 1\n"
        "    if n == 0: os.kill(os.getpid(), 9)\n"
        "    real(a, b)\n"
        "    if n == 1 and sys.argv[4] == 'after': os.kill(os.getpid(), 9)\n"
        "os.rename = rename\n"
        "application.apply_plan(read_plan(Path(sys.argv[1])), Path(sys.argv[2]))\n"
    )
    whole = tree_of(tmp_path / "whole")
    for n, when, there in ((1, "before", 0), (6, "after", 5), (5, "before", 9), (3, "after", 11)):
        words = [*warm_line("python"), code, str(tmp_path / "plan.json"), str(tmp_path / "new")]
        subprocess.run([*words, str(n), when], capture_output=True, check=False)
        listed = tree_of(tmp_path / "new")
        made = {name: data for name, data in listed.items() if not name.endswith(".part")}
        assert len(made) == there
        assert made.items() <= whole.items()
    apply_plan(plan, tmp_path / "new")
    assert tree_of(tmp_path / "new") == tree_of(tmp_path / "whole")


def test_a_rollback_takes_what_was_made_and_keeps_what_was_edited(
    own: audit.Run, tmp_path: Path
) -> None:
    apply_plan(own.plan(), tmp_path / "new")
    (tmp_path / "new/test/cat/0.jpg").write_bytes(b"edited")
    (tmp_path / "new/notes.txt").write_text("mine")
    result = roll_back(tmp_path / "new")
    assert result.kept == ("test/cat/0.jpg",)
    assert set(tree_of(tmp_path / "new")) == {"test/cat/0.jpg", "notes.txt"}
    (tmp_path / "new/test/cat/0.jpg").unlink()
    roll_back(tmp_path / "new")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["notes.txt"]


def test_a_rollback_after_a_kill_leaves_nothing(
    own: audit.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(application, "sync", stop)
        with pytest.raises(KeyboardInterrupt):
            apply_plan(own.plan(), tmp_path / "new")
    assert tree_of(tmp_path / "new")
    roll_back(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", ["hardlink", "symlink"])
def test_links_hold_the_same_and_are_taken_back(
    own: audit.Run, scanned: Path, tmp_path: Path, how: application.How
) -> None:
    plan = own.plan()
    apply_plan(plan, tmp_path / "copy")
    apply_plan(plan, tmp_path / "new", how)
    assert tree_of(tmp_path / "new") == tree_of(tmp_path / "copy")
    place, source = tmp_path / "new/test/cat/0.jpg", scanned / "pets/test/cat/0.jpg"
    assert place.samefile(source)
    assert place.is_symlink() == (how == "symlink")
    roll_back(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert source.is_file()


def test_an_edited_dataset_is_refused_by_its_content(
    own: audit.Run, scanned: Path, tmp_path: Path
) -> None:
    shutil.copytree(scanned / "pets", tmp_path / "pets")
    plan = own.plan()
    files = [replace(f, source=str(tmp_path / "pets" / str(f.id))) for f in plan.files]
    plan = replace(plan, files=tuple(files), roots={"": str(tmp_path / "pets")})
    os.utime(tmp_path / "pets/test/cat/1.jpg")  # touched only: no edit
    apply_plan(plan, tmp_path / "one")
    (tmp_path / "pets/test/cat/0.jpg").write_bytes(b"edited")
    with pytest.raises(UsageError, match=r"test/cat/0\.jpg.*scan the dataset again"):
        apply_plan(plan, tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_folders_that_cannot_be_and_a_full_disk_are_refused(
    own: audit.Run, scanned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = own.plan()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").touch()
    with pytest.raises(UsageError, match="not empty"):
        apply_plan(plan, tmp_path / "full")
    with pytest.raises(UsageError, match="overlaps"):
        apply_plan(plan, scanned / "pets/new")
    apply_plan(plan, tmp_path / "new")
    with pytest.raises(UsageError, match="another plan"):
        apply_plan(replace(plan, notes=("another",)), tmp_path / "new")
    with open_receipt(tmp_path / "new"), pytest.raises(LockedError):
        apply_plan(plan, tmp_path / "new")
    with pytest.raises(UsageError, match="no receipt"):
        roll_back(tmp_path / "full")
    free = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: free)
    with pytest.raises(MachineError, match="10 free"):
        apply_plan(plan, tmp_path / "later")
    assert not (tmp_path / "later").exists()


def test_a_link_in_the_new_folder_leads_nowhere(own: audit.Run, tmp_path: Path) -> None:
    plan = own.plan()
    (tmp_path / "new/.preflight").mkdir(parents=True)
    apply_plan(plan, tmp_path / "new")
    shutil.rmtree(tmp_path / "new/test")
    (tmp_path / "outside/cat").mkdir(parents=True)
    (tmp_path / "new/test").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="is not a folder"):
        apply_plan(plan, tmp_path / "new")
    roll_back(tmp_path / "new")
    assert list((tmp_path / "outside").rglob("*")) == [tmp_path / "outside/cat"]


STRANGE_NAMES = (
    "../victim.jpg", "test/../../victim.jpg", "test/./x", "test//x", "", ".", "..",
    ".preflight/receipt.jsonl", ".preflight/x", "x\0.jpg", "\ud800", "x" * 300, 7, None,
)  # fmt: skip


def test_a_receipt_that_names_other_places_removes_and_makes_nothing(
    own: audit.Run, tmp_path: Path
) -> None:
    victim = tmp_path / "victim.jpg"
    victim.write_bytes(b"mine")
    plan = own.plan()
    apply_plan(plan, tmp_path / "new")
    (tmp_path / "new/test/cat/0.jpg").unlink()
    receipt = tmp_path / "new/.preflight/receipt.jsonl"
    whole, before = receipt.read_text(), tree_of(tmp_path)
    lines = {
        json.dumps({word: [[name, file_digest(victim)]]}): re.escape(repr(name)) + " is "
        for word in ("begun", "done") for name in (*STRANGE_NAMES, str(victim))
    }  # fmt: skip
    number = len(whole.splitlines()) + 1
    for line, named in lines.items():
        receipt.write_text(f"{whole}{line}\n")
        said = re.escape(f"{receipt} was changed") + rf".*\(line {number}: {named}"
        with pytest.raises(UsageError, match=said):
            roll_back(tmp_path / "new")
        with pytest.raises(UsageError, match=said):
            apply_plan(plan, tmp_path / "new")
        assert tree_of(tmp_path) == before, line
    for line in ("[]", "7", '{"begun": 7}', '{"begun": [7]}', '{"begun": [[[], 1]]}'):
        receipt.write_text(f"{whole}{line}\n")
        with pytest.raises(UsageError, match="is not a receipt"):
            roll_back(tmp_path / "new")
        assert tree_of(tmp_path) == before, line


def test_what_is_no_plan_and_targets_that_lead_out_are_refused(
    own: audit.Run, tmp_path: Path
) -> None:
    path, plan = tmp_path / "plan.json", own.plan()
    bare, deep = '{"schema": "audit-plan/1"}', '{"files": ' + "[" * 100_000
    for text in ("", "[]", "{}", bare, "\0", deep):
        path.write_text(text)
        with pytest.raises(UsageError, match="is not a plan"):
            read_plan(path)
    for target in ("../x", "/etc/x", "a/../../x", "a//b", ".preflight/x"):
        led_out = replace(plan, files=(replace(plan.files[0], target=target),))
        led_out.write(tmp_path / "led_out.json")
        with pytest.raises(UsageError, match="is not a plan"):
            read_plan(tmp_path / "led_out.json")


def test_the_command_line_makes_and_takes_back(
    own: audit.Run, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> str:
        code, said, error = command(*words)
        assert code == 0, error
        return said

    said = call("export", own.path, "--plan", "plan.json")
    assert "24 samples" in said
    assert "2 left out" in said
    assert "24 files would be written to new" in call(
        "apply", "plan.json", "--to", "new", "--dry-run"
    )
    assert not (tmp_path / "new").exists()
    assert "24 files written to new" in call("apply", "plan.json", "--to", "new")
    assert "0 files written to new" in call("apply", "plan.json", "--to", "new")
    receipt = tmp_path / "new/.preflight/receipt.jsonl"
    sound = receipt.read_text()
    receipt.write_text(sound + '{"begun": [["../victim.jpg", ""]]}\n')
    code, _, refused = command("apply", "--rollback", "new")
    assert (code, refused.count("\n")) == (2, 1)
    assert "'../victim.jpg' is no path below a folder" in refused
    receipt.write_text(sound)
    assert "25 files removed from new" in call("apply", "--rollback", "new")
    assert not (tmp_path / "new").exists()


def test_pictures_of_an_archive_are_written_as_files_and_never_linked(tmp_path: Path) -> None:
    files = pictures(6)
    scan_tree(write_tar(tmp_path / "set.tar", files), tmp_path / "run")
    plan = audit.open(tmp_path / "run").plan(tmp_path / "plan.json")
    assert not plan.left_out
    with pytest.raises(UsageError, match="leave out --link"):
        apply_plan(plan, tmp_path / "linked", "symlink")
    apply_plan(plan, tmp_path / "new")
    made = tree_of(tmp_path / "new")
    made.pop("manifest.csv")
    assert made == files
    other = {**files, "train/cat/00.png": files["train/dog/01.png"]}
    write_tar(tmp_path / "set.tar", other)
    with pytest.raises(UsageError, match="not as planned"):
        apply_plan(plan, tmp_path / "again")


@pytest.fixture
def linked(tmp_path: Path) -> audit.Run:
    """Two images, a text, and links to a text, to an image inside, and to an image outside."""
    for number, name in enumerate(["data/a/0.png", "data/b/1.png", "else/2.png"]):
        save(tmp_path / name, number)
    (tmp_path / "secret").write_text("root:x:0:0:")
    (tmp_path / "data/a/text.jpg").write_text("notes")
    (tmp_path / "data/a/secret.jpg").symlink_to(tmp_path / "secret")
    (tmp_path / "data/a/inside.png").symlink_to("../b/1.png")
    (tmp_path / "data/b/outside.png").symlink_to(tmp_path / "else/2.png")
    scan_tree(tmp_path / "data", tmp_path / "run", checks=("FILE",))
    return audit.open(tmp_path / "run")


def test_only_readable_images_go_along(linked: audit.Run, tmp_path: Path) -> None:
    plan = linked.plan()
    assert {left.id for left in plan.left_out} == {"a/text.jpg", "a/secret.jpg"}
    assert (plan.outside_links, "--no-outside-links" in plan.notes[-1]) == (1, True)
    linked.apply(plan, tmp_path / "new")
    names = {"a/0.png", "a/inside.png", "b/1.png", "b/outside.png"}
    assert set(tree_of(tmp_path / "new")) == {*names, "manifest.csv"}
    narrow = linked.plan(outside_links=False)
    assert {left.id for left in narrow.left_out} == {"a/text.jpg", "a/secret.jpg", "b/outside.png"}
    assert narrow.outside_links == 0


def test_apply_checks_images_links_and_annotations_again(linked: audit.Run, tmp_path: Path) -> None:
    plan, secret = linked.plan(), tmp_path / "data/a/secret.jpg"
    of_secret = {"source": str(secret), "content_hash": file_digest(secret), "n_bytes": 11}
    for id_ in ("a/secret.jpg", None):  # an image; a file of annotations
        strange = replace(plan.files[0], target="x", id=id_, **of_secret)
        with pytest.raises(UsageError, match="neither a readable image"):
            apply_plan(replace(plan, files=(*plan.files, strange)), tmp_path / "new")
    moved = tmp_path / "data/b/1.png"
    moved.rename(tmp_path / "else/1.png")
    moved.symlink_to(tmp_path / "else/1.png")
    with pytest.raises(UsageError, match="than the 1 links of the plan"):
        apply_plan(plan, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_label_file_behind_a_link_is_written_anew(tmp_path: Path) -> None:
    yolo(tmp_path / "data")
    label = tmp_path / "data/labels/train/a.txt"
    label.unlink()
    (tmp_path / "secret").write_text("root:x:0:0:")
    label.symlink_to(tmp_path / "secret")
    scan_tree(tmp_path / "data", tmp_path / "run", checks=("FILE",))
    run = audit.open(tmp_path / "run")
    run.apply(run.plan(tmp_path / "plan.json"), tmp_path / "new")
    assert (tmp_path / "new/labels/train/b.txt").read_text()
    assert not [name for name, data in tree_of(tmp_path / "new").items() if b"root" in data]
