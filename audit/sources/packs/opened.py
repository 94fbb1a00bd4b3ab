"""Packs kept open by the process that reads their members: opening one costs more than a member."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

KEPT = 4
_open: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def kept_open(open_pack: Callable[..., Any], path: str, *more: Any) -> Any:
    """Return `open_pack(path, *more)`, from before where the file is still the same."""
    status = os.stat(path)
    key = (open_pack, path, more, status.st_size, status.st_mtime_ns)
    if key in _open:
        _open.move_to_end(key)
        return _open[key]
    opened = open_pack(path, *more)
    _open[key] = opened
    while len(_open) > KEPT:
        _open.popitem(last=False)
    return opened
