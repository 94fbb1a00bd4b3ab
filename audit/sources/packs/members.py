"""What is inside a pack: a member, where its bytes lie, and what can be wrong with either.

A member's uri is `pack+FORMAT://PATH#KEY`: the path of the pack, percent-encoded, and a key that
its format understands. The reading process keeps packs open; numbers become a PNG.
"""

from __future__ import annotations

import os
import pickle
import struct
import threading
import tokenize
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import quote, unquote, unquote_to_bytes

from audit.errors import UsageError
from audit.sources.object_store import open_object, read_object
from audit.sources.readings import ReadingError
from dataset_preflight.foundation.files import regular

SCHEME = "pack+"


@dataclass(frozen=True, slots=True)
class PackMember:
    """One image, or a small file beside it, inside a pack.

    `name` is its path inside, '' where members have none; `key` tells its format where it lies;
    `label` and `split` only where the pack itself says so; `more` are its other columns.
    """

    name: str
    key: str
    n_bytes: int
    label: str | None = None
    split: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


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
        return read_object(path, size, start, size) if size else b""
    with open(path, "rb", buffering=0, opener=regular) as file:
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
    return open(path, "rb", opener=regular)


def is_distant(path: str) -> bool:
    """Return whether a pack is an object of a store."""
    return "://" in path


KEPT = 4
NOT_AN_ARRAY = (
    OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, SyntaxError, IndexError,
    OverflowError, RuntimeError, ImportError, pickle.UnpicklingError, tokenize.TokenError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What the libraries raise for a file that holds no arrays, or damaged ones."""
_open: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_one_at_a_time = threading.RLock()  # members may be read by several threads


def kept_open(read: Callable[..., Any], path: str, *more: Any) -> Any:
    """Return `read(path, *more)`, from before where the file is still the same."""
    status = None if is_distant(path) else os.stat(path)
    same = (status.st_size, status.st_mtime_ns) if status else ()
    key = (read, path, more, same)
    with _one_at_a_time:
        if key in _open:
            _open.move_to_end(key)
            return _open[key]
        _open[key] = read(path, *more)
        while len(_open) > KEPT:
            _open.popitem(last=False)
        return _open[key]


def encode_member(find: Callable[[int], Any], index: str, limit: int) -> bytes:
    """Return `find(index)`, an image as an array, as PNG; raises ReadingError, OSError."""
    from audit.sources.python_objects import encode_picture

    try:
        picture = find(int(index))
        if picture.nbytes > limit:
            raise ReadingError(
                "bomb", f"the image has {picture.nbytes:,} bytes; max_bytes is {limit:,}"
            )
        return encode_picture(picture, index)
    except UsageError as error:
        raise ReadingError("unsupported", str(error)) from None
    except NOT_AN_ARRAY as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ReadingError("corrupt", f"the array cannot be read: {error}") from None
