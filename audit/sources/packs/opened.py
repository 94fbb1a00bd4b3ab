"""Packs kept open by the process that reads their members: opening one costs more than a member."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from audit.sources.packs.members import is_distant

KEPT = 4
_open: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def kept_open(read: Callable[..., Any], path: str, *more: Any) -> Any:
    """Return `read(path, *more)`, from before where the file is still the same."""
    status = None if is_distant(path) else os.stat(path)
    same = (status.st_size, status.st_mtime_ns) if status else ()
    key = (read, path, more, same)
    if key in _open:
        _open.move_to_end(key)
        return _open[key]
    opened = read(path, *more)
    _open[key] = opened
    while len(_open) > KEPT:
        _open.popitem(last=False)
    return opened
