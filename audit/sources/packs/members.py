"""What is inside a pack: a member, where its bytes lie, and what can be wrong with either.

A member's uri is `pack+FORMAT://PATH#KEY`: the path of the pack, percent-encoded, and a key that
its format understands. It says where the bytes are, as an absolute path does for a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import quote, unquote, unquote_to_bytes

from audit.sources.object_store import open_object, read_object
from audit.sources.reading_error import ReadingError

SCHEME = "pack+"


@dataclass(frozen=True, slots=True)
class PackMember:
    """One picture, or a small file beside it, inside a pack.

    `name` is its path inside, '' where members have none; `n_bytes` what it takes when read; `key`
    tells its format where it lies. `label` and `split` only where the pack itself says so; `more`
    are its other columns. `is_picture`: its bytes start as a picture, whatever its name says.
    """

    name: str
    key: str
    n_bytes: int
    label: str | None = None
    split: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    is_picture: bool = False


class DamagedPackError(Exception):
    """A pack, or the rest of it, cannot be read: the text says where and what was lost."""


def member_uri(form: str, path: str, key: str) -> str:
    """Return the uri of a member of a pack."""
    return f"{SCHEME}{form}://{quote(os.fsencode(path))}#{quote(key)}"


def member_place(uri: str) -> tuple[str, str, str]:
    """Return format, path of the pack and key of a member's uri."""
    form, _, rest = uri.removeprefix(SCHEME).partition("://")
    path, _, key = rest.rpartition("#")
    return form, os.fsdecode(unquote_to_bytes(path)), unquote(key)


def is_member(place: str) -> bool:
    """Return whether a place is inside a pack."""
    return place.startswith(SCHEME)


def read_range(path: str, start: int, size: int) -> bytes:
    """Return a range of a pack; raises ReadingError where the pack ends before."""
    if is_distant(path):
        if not size:
            return b""
        return read_object(path, size, start, size)
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        data = file.read(size) or b""
        while len(data) < size and (more := file.read(size - len(data))):
            data += more
    if len(data) < size:
        raise ReadingError(
            "truncated", f"the pack ends {size - len(data):,} bytes before the end of this member"
        )
    return data


def open_pack(path: str) -> IO[bytes]:
    """Open a pack to read ranges of it: a file, or an object of a store."""
    if is_distant(path):
        opened: IO[bytes] = open_object(path)
        return opened
    return open(path, "rb")


def is_distant(path: str) -> bool:
    """Return whether a pack is an object of a store."""
    return "://" in path
