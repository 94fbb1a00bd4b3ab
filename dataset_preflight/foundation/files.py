"""Open paths from outside: regular files below an allowed folder only.

A named pipe waits and /dev/zero never ends, so a file opens without waiting and is checked first.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

LONGEST_NAME = 255  # bytes, of the common file systems
LONGEST_PATH = 4096 - 1  # bytes, of a call of the system
LONGEST_SHOWN = 400  # characters of a name in a sentence
KINDS = {
    stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


class SpecialFileError(OSError):
    """What was named is a pipe, a socket or a device; `strerror` says which."""


def regular(path: Any, flags: int = os.O_RDONLY) -> int:
    """Return the descriptor of a regular file or folder; SpecialFileError for other files."""
    try:
        file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        if error.errno == errno.ENXIO:  # sockets, and pipes to write to that nobody reads
            refuse_special(path)
        raise
    try:
        _judge(path, os.fstat(file))
    except OSError:
        os.close(file)
        raise
    return file


def real(path: Path) -> Path:
    """Return `path.resolve()`, also in a loop of links (a RuntimeError before Python 3.13)."""
    return Path(os.path.realpath(path))


def refuse_special(path: Any) -> None:
    """Raise SpecialFileError for what exists and is neither file nor folder."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return
    _judge(path, status)


def read_regular(path: Any) -> bytes:
    """Return the content of a file; raises OSError, SpecialFileError where it is none."""
    with open(path, "rb", opener=regular) as file:
        return file.read()


def _judge(path: Any, status: os.stat_result) -> None:
    kind = KINDS.get(stat.S_IFMT(status.st_mode))
    # /dev/null is an empty file to whoever names it
    if kind is not None and not os.path.samestat(status, os.stat(os.devnull)):
        raise SpecialFileError(errno.EINVAL, f"it is {kind}, and no file", os.fspath(path))


def inside(folder: Path, name: object, *, links: bool = True) -> Path:
    """Return the path below `folder` of a name in a document.

    Raises ValueError for absolute paths, `..`, empty parts, NUL, long names; `links`: for links.
    """
    parts = name.split("/") if isinstance(name, str) else []
    named = bool(parts) and all(map(_is_file_name, parts))
    if not named or len(os.fsencode(str(name))) > LONGEST_PATH:
        raise ValueError(f"{_shown(name)} is no path below a folder")
    place = folder.joinpath(*parts)
    if links and leads_out(place.parent, folder):
        raise ValueError(f"{_shown(name)} leads through a link")
    return place


def leads_out(parent: Path, folder: Path) -> bool:
    """Return whether a folder on the way from `folder` down to `parent` is a link."""
    below = (p for p in (parent, *parent.parents) if p != folder and p.is_relative_to(folder))
    return any(p.is_symlink() for p in below)


def _is_file_name(part: str) -> bool:
    try:
        fits = len(os.fsencode(part)) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False
    return fits and "\0" not in part and part not in ("", ".", "..")


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
