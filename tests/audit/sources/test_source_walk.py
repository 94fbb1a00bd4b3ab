"""The walk: order, what is left out and counted, links, permissions, odd names."""

import os
import socket
import unicodedata
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.sources import folder, open_source
from audit.sources.folder_listing import stat_files
from audit.sources.paths import path_of
from tests.audit.sources.trees import PNG, TEXT, grow, ids, kinds, read, skipped

ODD_NAMES = [
    "with space.png", " leading.png", "new\nline.png", "tab\t.png", "quote'\".png",
    "semi;colon.png",
    "猫.png", "a\u0308.png", "emoji😀.png", "%41.png", "back\\slash.png", "-dash.png", "a#2.png",
    "bad\udcff\udcfe.png", "x" * 251 + ".png",
]  # fmt: skip


def test_odd_names_survive_and_can_be_opened(tmp_path: Path) -> None:
    grow(tmp_path, *ODD_NAMES, *(f"dir {name}/a.png" for name in ODD_NAMES[:-1]))
    samples = read(open_source([str(tmp_path)], layout="flat"))
    assert len(samples) == 2 * len(ODD_NAMES) - 1
    assert len(set(ids(samples))) == len(samples)
    for sample in samples:
        sample.id.encode()
        sample.uri.encode()
        path = path_of(sample.uri)
        assert path is not None
        assert Path(path).read_bytes() == PNG
        assert sample.n_bytes == len(PNG)
    assert "bad%FF%FE.png" in ids(samples)
    assert unicodedata.normalize("NFC", "a\u0308.png") in ids(samples)


@settings(max_examples=40)
@given(
    tree=st.sets(
        st.lists(
            st.text("ab%é\u0301e\udcff #", min_size=1, max_size=3).filter(lambda s: s.strip(". ")),
            min_size=1, max_size=3,
        ).map(lambda parts: "/".join(p + "_" for p in parts) + ".png"),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_any_tree_gives_each_file_once_in_one_order(
    tmp_path_factory: pytest.TempPathFactory, tree: set[str]
) -> None:
    forward, backward = tmp_path_factory.mktemp("f"), tmp_path_factory.mktemp("b")
    grow(forward, *sorted(tree))
    grow(backward, *sorted(tree, reverse=True))
    one, two = (read(open_source([str(root)], layout="flat")) for root in (forward, backward))
    assert ids(one) == ids(two)
    assert len(set(ids(one))) == len(one) == len(tree)
    assert {os.path.relpath(path_of(s.uri) or "", forward) for s in one} == tree


def test_order_is_files_first_then_folders_by_name(tmp_path: Path) -> None:
    grow(tmp_path, "z.png", "b/2.png", "b/10.png", "a/c/1.png", "a/9.png", "A.png")
    assert ids(read(open_source([str(tmp_path)], layout="flat"))) == [
        "A.png", "z.png", "a/9.png", "a/c/1.png", "b/10.png", "b/2.png",
    ]  # fmt: skip


def test_names_equal_in_nfc_are_numbered_and_noted(tmp_path: Path) -> None:
    grow(tmp_path, "e\u0301.png", "\u00e9.png", "d\u00e9/a.png", "de\u0301/a.png", "de\u0301/b.png")
    source = open_source([str(tmp_path)], layout="flat")
    assert ids(read(source)) == ["é.png", "é.png#2", "dé/a.png", "dé/b.png", "dé/a.png#2"]
    assert [sample for kind, sample, _ in source.notes if kind == "repeated-id"] == [
        "é.png#2", "dé/a.png#2",
    ]  # fmt: skip


def test_a_name_that_spells_an_escape_stays_apart(tmp_path: Path) -> None:
    grow(tmp_path, "%FF.png", "\udcff.png")
    assert ids(read(open_source([str(tmp_path)]))) == ["%FF.png", "%FF.png#2"]


def test_what_is_left_out_is_counted_with_an_example(tmp_path: Path) -> None:
    grow(tmp_path, "a/ok.png", ".hidden.png", "a/._ok.png", ".git/x/logo.png", "Thumbs.db",
         "a/desktop.ini", "a/.DS_Store", "__MACOSX/a/._ok.png")  # fmt: skip
    grow(tmp_path, "readme.txt", "b.csv", "a/noext", "photo.dng", content=TEXT)
    grow(tmp_path, "__pycache__/loader.pyc", content=TEXT)  # of a script there: not counted
    source = open_source([str(tmp_path)])
    assert ids(read(source)) == ["a/ok.png"]
    assert skipped(source) == {
        ("hidden", "png"): 3, ("system file", "db"): 1, ("system file", "ini"): 1,
        ("system file", ""): 1, ("system file", "png"): 1, ("not an image", "txt"): 1,
        ("not an image", "csv"): 1, ("not an image", ""): 1, ("image format not read", "dng"): 1,
    }  # fmt: skip
    examples = {(row.reason, row.extension): row.example for row in source.log.skipped}
    assert examples["not an image", ""] == "a/noext"


def test_magic_decides_only_where_the_extension_does_not(tmp_path: Path) -> None:
    grow(tmp_path, "noext", "img.0001", "x.strange", "named.txt")
    grow(tmp_path, "empty.jpg", content=b"")
    found = ids(read(open_source([str(tmp_path)])))
    assert found == ["empty.jpg", "img.0001", "noext", "x.strange"]


def test_exclude_matches_path_or_name_and_whole_folders(tmp_path: Path) -> None:
    grow(tmp_path, "a/1.png", "a/2.png", "bad/1.png", "bad/deep/2.png", "b/tmp_1.png")
    globs = ["a/2.*", "bad/", "tmp_*", "**/never.png"]
    source = open_source([str(tmp_path)], exclude=globs)
    assert ids(read(source)) == ["a/1.png"]
    assert skipped(source) == {("excluded", "png"): 4}
    notes = [message for kind, _, message in source.notes if kind == "unused-exclude"]
    assert len(notes) == 1
    assert "'**/never.png' matched no file" in notes[0]


def test_excluding_everything_says_so(tmp_path: Path) -> None:
    grow(tmp_path, "a.png")
    with pytest.raises(UsageError, match=r"1 \.png \(excluded\).*check --exclude"):
        open_source([str(tmp_path)], exclude=["*"])


def test_links_are_followed_loops_end(tmp_path: Path) -> None:
    outside = grow(tmp_path / "outside", "far.png", "more/far2.png")
    root = grow(tmp_path / "root", "cat/a.png")
    (root / "cat" / "up").symlink_to(root, target_is_directory=True)
    (root / "cat" / "self").symlink_to("self")
    (root / "dog").symlink_to(outside, target_is_directory=True)
    (root / "cat" / "b.png").symlink_to(outside / "far.png")
    (root / "cat" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    source = open_source([str(root)], layout="class/file")
    samples = {s.id: s for s in read(source)}
    assert sorted(samples) == [
        "cat/a.png", "cat/b.png", "cat/gone.png", "dog/far.png", "dog/more/far2.png",
    ]  # fmt: skip
    assert samples["cat/gone.png"].n_bytes == -1
    assert samples["cat/b.png"].n_bytes == len(PNG)
    assert kinds(source).count("link-loop") == 1
    assert kinds(source).count("outside-link") == 1


@pytest.mark.parametrize(
    ("links", "listed"),
    [
        ({"b/a": "a", "a/b": "b"}, ["a/1.png", "a/b/2.png", "b/2.png", "b/a/1.png"]),
        ({"a/self": "a", "a/up": ".", "a/above": ".."}, ["a/1.png", "b/2.png"]),
        ({"a/images": "a", "a/data": "a", "b/img": "."}, ["a/1.png", "b/2.png"]),
        ({"a/out": "../far", "../far/in": "b"}, ["a/1.png", "a/out/3.png", "b/2.png"]),
        (
            {"c": "../far", "../far/pool": "../pool", "d": "../far"},  # no loop: both are entered
            ["a/1.png", "b/2.png", "c/3.png", "c/pool/4.png", "d/3.png", "d/pool/4.png"],
        ),
    ],
)
def test_links_that_lead_back_into_the_dataset_end(
    tmp_path: Path, links: dict[str, str], listed: list[str]
) -> None:
    root = grow(tmp_path / "root", "a/1.png", "b/2.png", "../far/3.png", "../pool/4.png")
    for link, target in links.items():
        (root / link).symlink_to((root / target).resolve())
    source = open_source([str(root)], layout="flat")
    assert sorted(ids(read(source))) == listed
    refused = len(links) if len(listed) == 2 else listed.count("a/b/2.png") * 2
    refused += "../far/in" in links
    notes = [message for kind, _, message in source.notes if kind == "link-loop"]
    assert len(notes) == refused
    assert all("not followed" in message for message in notes)


@pytest.mark.parametrize("folder", ["root", "far"])
def test_folders_that_all_link_to_each_other_are_listed_under_one_link(
    tmp_path: Path, folder: str
) -> None:
    for name in "abcdefghi":
        grow(tmp_path, f"{folder}/{name}/1.png", "root/")
        for other in "abcdefghi".replace(name, ""):
            (tmp_path / folder / name / other).symlink_to(tmp_path / folder / other)
        if folder == "far":
            (tmp_path / "root" / name).symlink_to(tmp_path / "far" / name)
    source = open_source([str(tmp_path / "root")])
    found = ids(read(source))
    assert len(found) == 9 + 9 * 8
    assert max(name.count("/") for name in found) == 2


def test_pipes_and_sockets_are_never_opened(tmp_path: Path) -> None:
    grow(tmp_path, "a.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(tmp_path)  # the path of a socket may have 107 bytes only
        try:
            server.bind("sock.png")
        finally:
            os.chdir(before)
        source = open_source([str(tmp_path)])
        assert ids(read(source)) == ["a.png"]
    assert skipped(source) == {("not a regular file", "png"): 3}


def test_a_folder_that_cannot_be_listed_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, "cat/a.png", "secret/b.png")
    real = os.scandir

    def refusing(path: str) -> object:  # root may list everything, so the system is made to refuse
        if os.fspath(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    source = open_source([str(tmp_path)])
    assert ids(read(source)) == ["cat/a.png"]
    [(kind, _, message)] = source.notes
    assert kind == "unlisted-folder"
    assert "secret could not be listed (Permission denied)" in message


def test_the_run_directory_is_not_scanned(tmp_path: Path) -> None:
    grow(tmp_path, "cat/a.png", "dog/b.png", "runs/mine/thumb.png", "old/gen-0001/thumb.png")
    grow(tmp_path, "old/CURRENT", content=b"gen-0001")
    source = open_source([str(tmp_path)], ignore=[tmp_path / "runs" / "mine"])
    assert ids(read(source)) == ["cat/a.png", "dog/b.png"]
    assert skipped(source)["run directory", "png"] == 2


def test_class_folders_without_images_are_declared(tmp_path: Path) -> None:
    grow(tmp_path, "train/cat/a.png", "train/dog/", "test/cat/b.png", "test/images/", "val/")
    source = open_source([str(tmp_path)])
    read(source)
    assert sorted(source.log.declared_classes, key=str) == [
        ("test", "cat"), ("train", "cat"), ("train", "dog"),
    ]  # fmt: skip
    assert [message for kind, _, message in source.notes if kind == "empty-split"] == [
        "The folder of split val contains no images."
    ]


def test_files_below_the_class_folder_are_noted_once(tmp_path: Path) -> None:
    grow(tmp_path, "cat/a.png", "cat/x/b.png", "cat/y/c.png", "dog/d.png")
    source = open_source([str(tmp_path)])
    read(source)
    [(kind, _, message)] = source.notes
    assert kind == "below-class-folder"
    assert "first: cat/x/; 2 images in all" in message


def test_a_root_of_odd_name_can_be_stored_and_read(tmp_path: Path) -> None:
    grow(tmp_path, "caf\udce9/cat/a.png", "caf\udce9/dog/b.png")
    source = open_source([str(tmp_path / "caf\udce9")])
    assert [(s.id, s.label, s.n_bytes) for s in read(source)] == [
        ("cat/a.png", "cat", len(PNG)), ("dog/b.png", "dog", len(PNG)),
    ]  # fmt: skip
    texts = [source.name, source.describe(), source.layout.reason, source.roots[""]]
    assert all(text.encode() for text in texts)
    assert path_of(source.roots[""]) == str(tmp_path / "caf\udce9")


def test_a_deep_tree_ends(tmp_path: Path) -> None:
    deep = "/".join(["d"] * 300)
    grow(tmp_path, f"{deep}/a.png", "b.png")
    assert len(read(open_source([str(tmp_path)], layout="flat"))) == 2


def test_times_and_size_are_those_of_the_file(tmp_path: Path) -> None:
    grow(tmp_path, "a.png")
    os.utime(tmp_path / "a.png", ns=(1, 1_600_000_000_123_456_789))
    [sample] = read(open_source([str(tmp_path)]))
    status = os.stat(tmp_path / "a.png")
    assert (sample.n_bytes, sample.mtime_ns, sample.ctime_ns) == (
        len(PNG), 1_600_000_000_123_456_789, status.st_ctime_ns,
    )  # fmt: skip


@pytest.mark.parametrize("opens", [True, False])
def test_a_file_that_is_gone_when_its_size_is_asked_for_has_none(
    opens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, "a.png", "b.png")
    a, b = (os.stat(tmp_path / name) for name in ("a.png", "b.png"))
    if not opens:  # a system that opens no folders
        monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError))
    assert stat_files(str(tmp_path), ["a.png", "gone.png", "b.png"]) == (
        [a.st_size, -1, b.st_size],
        [a.st_mtime_ns, -1, b.st_mtime_ns],
        [a.st_ctime_ns, -1, b.st_ctime_ns],
    )
    assert stat_files(str(tmp_path / "gone"), ["a.png"]) == ([-1], [-1], [-1])


def test_a_folder_of_many_files_is_listed_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, *(f"{kind}/{n}.png" for kind in ("cat", "dog") for n in range(5)))
    grow(tmp_path, "cat/caf\u00e9.png", "cat/cafe\u0301.png")  # one id, numbered across parts
    whole = read(open_source([str(tmp_path)]))
    monkeypatch.setattr(folder, "BLOCK", 2)
    source = open_source([str(tmp_path)])
    assert [len(rows) for rows in source.rows(1)] == [2, 2, 2, 1, 2, 2, 1]
    assert read(source) == whole
    assert len(set(ids(whole))) == 12
