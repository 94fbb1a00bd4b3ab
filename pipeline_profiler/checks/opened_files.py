"""Which files Python opens in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Listener = Callable[[str, str], None]  # of a file's name and the mode in which it is opened
_listeners: list[Listener] = []
_hooked: list[bool] = []


def _listen(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(args[0], str):
        for listener in _listeners:
            listener(args[0], args[1] or "")


def listen(listener: Listener) -> Callable[[], None]:
    """Call a function for each file that Python opens; return the function that ends it."""
    if not _hooked:  # a hook stays for good
        sys.addaudithook(_listen)
        _hooked.append(True)
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)
