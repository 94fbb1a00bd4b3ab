"""Which files this process opens: by Python, OpenCV or torchvision; the hook stays for good."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

_opened: list[str] | None = None  # files that are opened while somebody listens


def _listen(event: str, args: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(args[0], str):
        _opened.append(args[0])


_hooked: list[bool] = []


@contextlib.contextmanager
def note_opened() -> Iterator[list[str]]:
    """Names of files that this process opens inside, by Python, OpenCV or torchvision."""
    global _opened
    if not _hooked:  # a hook stays for good
        sys.addaudithook(_listen)
        _hooked.append(True)
    found = _opened = []
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
        _opened = None
        for module, name, function in plain:
            setattr(module, name, function)


def _noting(function: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    def read(path: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(str(path))
        return function(path, *args, **kwargs)

    return read
