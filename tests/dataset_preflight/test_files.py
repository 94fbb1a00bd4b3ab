"""Paths and text that others name: opened below their folder or refused, surrogates found."""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dataset_preflight.foundation.files import (
    SpecialFileError,
    inside,
    read_regular,
    refuse_special,
)
from dataset_preflight.foundation.text import text_fault


def _socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a full device": lambda path: path.symlink_to("/dev/full"),
    "the terminal of the process": lambda path: path.symlink_to("/dev/ptmx"),
}


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
def test_what_is_no_file_is_refused_at_once(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "x")
    for read in (read_regular, refuse_special):
        with pytest.raises(SpecialFileError, match="and no file"):
            read(tmp_path / "x")


def test_files_links_to_files_and_no_file_at_all(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"text")
    (tmp_path / "link").symlink_to("x")
    assert read_regular(tmp_path / "x") == read_regular(str(tmp_path / "link")) == b"text"
    assert read_regular(os.devnull) == b""
    for missing in ("none", "x\0", "n" * 300):
        refuse_special(tmp_path / missing)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)


ELSEWHERE = (
    "", ".", "..", "/", "/etc/passwd", "//host/x", "../x", "a/../x", "a/./x", "a//x", "a/", "x\0y",
    "\ud800", "n" * 300, "a/" * 3000 + "x", 7, None, ["x"], b"x",
)  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE, ids=lambda name: repr(name)[:20])
def test_a_name_that_leads_elsewhere_or_is_none_is_refused(name: object, tmp_path: Path) -> None:
    for links in (True, False):
        with pytest.raises(ValueError, match="no path below a folder"):
            inside(tmp_path, name, links=links)


def test_a_folder_that_is_a_link_leads_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="through a link"):
        inside(tmp_path / "in", "link/x")
    assert inside(tmp_path / "in", "link/x", links=False) == tmp_path / "in/link/x"
    assert inside(tmp_path / "in", "link") == tmp_path / "in/link"  # it itself is named


@pytest.mark.parametrize("name", ["a.jpg", "a/b/c.jpg", "C:\\x", "C:/x", "..x", "é/ß", "\udcff"])
def test_a_name_below_the_folder_is_its_place(name: str, tmp_path: Path) -> None:
    assert inside(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("\udcff", ""),
        ({"note": "\udcff"}, "note: "),
        ({"goal": {"by": ["a", "\ud800"]}}, "goal: "),
        ({"goal": {"\ud800": 1}}, ""),
        ([["\udc80"]], ""),
    ],
)
def test_half_a_surrogate_is_named(values: Any, named: str) -> None:
    fault = text_fault(values)
    assert fault is not None
    assert fault.startswith(f"{named}'")
    assert fault.isascii()


@pytest.mark.parametrize("values", ["caf\u00e9 \U0001f600", {"a": [1, None, {"b": ""}]}, None])
def test_other_text_has_no_fault(values: Any) -> None:
    assert text_fault(values) is None
