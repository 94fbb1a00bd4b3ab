"""Packs kept open by the process that reads their members: opening one costs more than a member.

And what is read of those that hold numbers: a picture of an array, as PNG.
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
from collections.abc import Callable
from typing import Any

from audit.errors import UsageError
from audit.sources.packs.members import is_distant
from audit.sources.reading_error import ReadingError

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
        opened = read(path, *more)
        _open[key] = opened
        while len(_open) > KEPT:
            _open.popitem(last=False)
        return opened


def encode_member(find: Callable[[int], Any], index: str, limit: int) -> bytes:
    """Return `find(index)`, a picture as an array, as PNG.

    Raises ReadingError: bomb above `limit` bytes, unsupported where a library is missing, corrupt
    for what the file holds; OSError where the system cannot read it.
    """
    from audit.sources.python_objects import encode_picture

    try:
        picture = find(int(index))
        if picture.nbytes > limit:
            raise ReadingError(
                "bomb", f"the picture has {picture.nbytes:,} bytes; max_bytes is {limit:,}"
            )
        return encode_picture(picture, index)
    except UsageError as error:
        raise ReadingError("unsupported", str(error)) from None
    except NOT_AN_ARRAY as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ReadingError("corrupt", f"the array cannot be read: {error}") from None
