"""Which files this process opens: by Python, OpenCV or torchvision; the hook stays for good."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
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


@contextlib.contextmanager
def note_opened() -> Iterator[list[str]]:
    """Names of files that this process opens inside, by Python, OpenCV or torchvision."""
    found = list[str]()
    end = listen(lambda name, _mode: found.append(name))
    readers = [
        (sys.modules.get("cv2"), "imread"),
        (sys.modules.get("torchvision.io.image"), "read_file"),
    ]
    plain = [(module, name, getattr(module, name)) for module, name in readers if module]
    for module, name, function in plain:
        setattr(module, name, _noting(function, found))
    try:
        yield found
    finally:
        end()
        for module, name, function in plain:
            setattr(module, name, function)


def _noting(function: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    def read(path: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(str(path))
        return function(path, *args, **kwargs)

    return read
