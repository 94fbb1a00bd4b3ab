"""A decided dataset as a folder: whole or not there, nothing lost, resumed after a kill."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import audit
from audit.errors import LockedError, MachineError, UsageError
from audit.exports import application
from audit.exports.application import apply_plan
from audit.exports.planning import DatasetPlan, file_digest, read_plan
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
    """Every file but the plan, by its path."""
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


KILLED = (
    "import os, signal, sys\n"
    "from pathlib import Path\n"
    "from audit.exports import application\n"
    "from audit.exports.planning import read_plan\n"
    "n, when = int(sys.argv[3]), sys.argv[4]\n"
    "def counted(real):\n"
    "    def call(*args):\n"
    "        global n\n"
    "        n -= 1\n"
    "        if n == 0 and when == 'before': os.kill(os.getpid(), 9)\n"
    "        real(*args)\n"
    "        if n == 0: os.kill(os.getpid(), 9)\n"
    "    return call\n"
    "os.rename, os.replace = counted(os.rename), counted(os.replace)\n"
    "application.apply_plan(read_plan(Path(sys.argv[1])), Path(sys.argv[2]))\n"
)
"""Makes the folder of a plan, and kills itself before or after a rename."""


def part_of(folder: Path) -> Path:
    """Where the files of a folder are made."""
    inside = folder / ".preflight-part"
    return inside if inside.exists() else folder.with_name(f".{folder.name}.preflight-part")


@pytest.mark.parametrize("kind", ["new", "mount point"])
def test_a_killed_apply_shows_nothing_and_goes_on_to_the_same_tree(
    kind: str, own: audit.Run, tmp_path: Path
) -> None:
    plan, new = own.plan(tmp_path / "plan.json"), tmp_path / "new"
    apply_plan(plan, tmp_path / "whole")
    whole = tree_of(tmp_path / "whole")
    if kind == "mount point":
        new.mkdir()
        disk = new.stat()

    def kill(n: int, when: str) -> None:
        words = [*warm_line("python"), KILLED, str(tmp_path / "plan.json"), str(new)]
        subprocess.run([*words, str(n), when], capture_output=True, check=False)

    # the first rename gives the plan its name, and the last the folder
    for n, when, made in ((1, "before", 0), (7, "after", 6), (6, "before", 10)):
        kill(n, when)
        listed = tree_of(part_of(new))
        listed = {name: data for name, data in listed.items() if not name.endswith(".part")}
        assert len(listed) == made
        assert listed.items() <= whole.items()
        assert not [p for p in new.glob("*") if p.name != ".preflight-part"]
    kill(1 + 14 + 1 + 1, "before")  # the plan, the files that lack, the table, then the folder
    assert tree_of(part_of(new)) == whole
    if kind == "mount point":
        kill(1 + 1 + 2, "after")  # two of the entries are moved up
        assert sorted(os.listdir(new)) == [".preflight-part", "manifest.csv", "test"]
        with pytest.raises(UsageError, match="is not whole: an `audit apply` into it was stopped"):
            scan_tree(new, tmp_path / "half")
    result = apply_plan(plan, new)
    assert (result.made, result.there) == (0, 24)
    assert tree_of(new) == whole
    assert not part_of(new).exists()
    assert read_plan(new / ".preflight/plan.json") == plan
    if kind == "mount point":
        assert os.path.samestat(new.stat(), disk), "the folder itself stays"


def test_what_differs_in_the_part_is_made_again_and_what_is_strange_refused(
    own: audit.Run, tmp_path: Path
) -> None:
    plan = own.plan()
    stopped(plan, tmp_path / "new")
    part = tmp_path / ".new.preflight-part"
    file = next(file for file in plan.files if file.target.startswith("train/"))
    (part / file.target).write_bytes(bytes(file.n_bytes))  # of its size
    (part / "mine.txt").touch()
    with pytest.raises(UsageError, match=r"mine\.txt is not of the plan: remove it"):
        apply_plan(plan, tmp_path / "new")
    (part / "mine.txt").unlink()
    shutil.rmtree(part / "test")
    (tmp_path / "outside").mkdir()
    (part / "test").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="is not a folder: remove it"):
        apply_plan(plan, tmp_path / "new")
    assert not list((tmp_path / "outside").iterdir())
    (part / "test").unlink()
    apply_plan(plan, tmp_path / "new")
    apply_plan(plan, tmp_path / "whole")
    assert tree_of(tmp_path / "new") == tree_of(tmp_path / "whole")


def stopped(plan: DatasetPlan, folder: Path) -> None:
    """Apply a plan until all is made but the folder."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application._Target, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            apply_plan(plan, folder)
    assert not folder.exists()


def test_a_finished_folder_is_compared_and_never_mended(own: audit.Run, tmp_path: Path) -> None:
    plan, new = own.plan(), tmp_path / "new"
    apply_plan(plan, new)
    result = apply_plan(plan, new)
    assert (result.made, result.there, result.n_bytes) == (0, 24, 0)
    (new / "test/cat/0.jpg").write_bytes(bytes((new / "test/cat/0.jpg").stat().st_size))
    (new / "test/cat/1.jpg").unlink()
    with pytest.raises(UsageError, match=r"2 of its files are missing or differ \(test/cat/0"):
        apply_plan(plan, new)
    assert not (new / "test/cat/1.jpg").exists()


def test_a_folder_that_appears_meanwhile_is_not_replaced(own: audit.Run, tmp_path: Path) -> None:
    plan, new = own.plan(), tmp_path / "new"

    def appear(done: int, total: int) -> None:
        new.mkdir(exist_ok=True)
        (new / "mine.txt").touch()

    with pytest.raises(UsageError, match="is in the way: move it away"):
        apply_plan(plan, new, advance=appear)
    shutil.rmtree(new)
    assert apply_plan(plan, new).there == 24


@pytest.mark.parametrize("how", ["hardlink", "symlink"])
def test_links_hold_the_same(
    own: audit.Run, scanned: Path, tmp_path: Path, how: application.How
) -> None:
    plan = own.plan()
    apply_plan(plan, tmp_path / "copy")
    apply_plan(plan, tmp_path / "new", how)
    assert tree_of(tmp_path / "new") == tree_of(tmp_path / "copy")
    place, source = tmp_path / "new/test/cat/0.jpg", scanned / "pets/test/cat/0.jpg"
    assert place.samefile(source)
    assert place.is_symlink() == (how == "symlink")
    assert apply_plan(plan, tmp_path / "new", how).made == 0
    with pytest.raises(UsageError, match="24 of its files are missing or differ"):
        apply_plan(plan, tmp_path / "new")  # asked for copies
    shutil.rmtree(tmp_path / "new")
    stopped(plan, tmp_path / "new")
    apply_plan(plan, tmp_path / "new", how)
    assert place.samefile(source), "what was copied is made again as a link"


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


def test_folders_that_cannot_be_are_refused(own: audit.Run, scanned: Path, tmp_path: Path) -> None:
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
    stopped(plan, tmp_path / "other")
    held = application._Target(plan, tmp_path / "other", "copy")
    with held.hold(), pytest.raises(LockedError, match="by another `audit apply`"):
        apply_plan(plan, tmp_path / "other")
    with pytest.raises(UsageError, match="another plan"):
        apply_plan(replace(plan, notes=("another",)), tmp_path / "other")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file: choose a folder"):
        apply_plan(plan, tmp_path / "file")


def test_a_full_disk_is_a_sentence_before_anything_is_made(
    own: audit.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: free)
    with pytest.raises(MachineError, match="10 free"):
        apply_plan(own.plan(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "audit-plan/1"}', "\0", '{"files": ' + "[" * 100_000],
    ids=["empty", "list", "object", "bare", "NUL", "deep"],
)  # fmt: skip
def test_what_is_no_plan_is_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UsageError, match="is not a plan"):
        read_plan(tmp_path / "plan.json")


def test_a_plan_whose_targets_lead_out_is_refused(own: audit.Run, tmp_path: Path) -> None:
    plan = own.plan()
    for target in ("../x", "/etc/x", "a/../../x", "a//b", ".preflight/x", ".preflight-part/x"):
        broken = replace(plan, files=(replace(plan.files[0], target=target),))
        broken.write(tmp_path / "plan.json")
        with pytest.raises(UsageError, match="is not a plan"):
            read_plan(tmp_path / "plan.json")


def test_the_command_line_makes_a_folder_once(
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
    assert "24 exist already, so the folder is complete" in call(
        "apply", "plan.json", "--to", "new"
    )


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
