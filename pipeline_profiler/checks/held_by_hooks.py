"""Redirect writes of Python to scratch, and prevent deletions, where overlays do not exist.

Programs that the script starts and compiled code are not held back; programs are listed. Standard
library alone.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
AS_THEY_ARE = ("/dev/", "/proc/", "/sys/")


def hold(scratch: str) -> None:
    """Replace what writes, in this process and in every Python that it starts."""
    plain = {name: getattr(os, name) for name in ("open", "stat", "mkdir", "unlink", "rmdir")}
    plain_open = builtins.open
    os.makedirs(scratch, exist_ok=True)
    log = plain["open"](f"{scratch}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(text: str) -> None:
        os.write(log, f"{text}\n".encode(errors="replace"))

    def copied(path: Any) -> str | None:
        """The place of a path in scratch; None for what is left as it is."""
        if isinstance(path, int):
            return None
        full = os.path.abspath(os.fsdecode(path))
        known = full.startswith((*AS_THEY_ARE, f"{scratch}/", os.path.dirname(scratch) + "/"))
        return None if known else scratch + full

    def seen(path: Any) -> Any:
        """Where a path is read: in scratch, if the script has written it."""
        place = copied(path)
        try:
            return path if place is None or not plain["stat"](place) else place
        except OSError:
            return path

    def written(path: Any, keep: bool) -> Any:
        """Where a path is written; `keep`: what is there already comes along."""
        place = copied(path)
        if place is None:
            return path
        there = seen(path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if keep and there == path and os.path.isfile(path):
            with plain_open(path, "rb") as old, plain_open(place, "wb") as new:
                shutil.copyfileobj(old, new)
        note(f"+ {os.path.abspath(os.fsdecode(path))}")
        return place

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        changes = any(letter in mode for letter in "wax+")
        place = written(file, "w" not in mode) if changes else seen(file)
        return plain_open(place, mode, *args, **kwargs)

    def opened_low(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        held = flags & WRITES and not kwargs.get("dir_fd")
        place = written(path, not flags & os.O_TRUNC) if held else seen(path)
        return int(plain["open"](place, flags, *args, **kwargs))

    def deleted(plain_delete: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> None:
        place = seen(path)
        if place != path or copied(path) is None:
            plain_delete(place, *args, **kwargs)
        else:
            note(f"- {os.path.abspath(os.fsdecode(path))}")

    def renamed(source: Any, target: Any, **_: Any) -> None:
        from_place, to_place = seen(source), written(target, keep=False)
        shutil.copyfile(from_place, to_place) if os.path.isfile(from_place) else None
        deleted(plain["unlink"], source)

    def made(path: Any, *args: Any, **kwargs: Any) -> None:
        place = copied(path)
        if place is None or os.path.exists(path):
            plain["mkdir"](path, *args, **kwargs)
        else:
            os.makedirs(place)

    def started(event: str, args: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            said = args[1] if event == "subprocess.Popen" else args[0]
            words = said if isinstance(said, list | tuple) else [said]
            note(f"! {' '.join(os.fsdecode(w) for w in words)[:200]}")

    replaced: dict[tuple[Any, str], Any] = {
        (builtins, "open"): opened,
        (io, "open"): opened,
        (os, "open"): opened_low,
        (os, "mkdir"): made,
        (os, "rename"): renamed,
        (os, "replace"): renamed,
        (os, "stat"): lambda path, **kwargs: plain["stat"](seen(path), **kwargs),
        (shutil, "rmtree"): functools.partial(deleted, shutil.rmtree),
    }
    replaced |= {
        (os, name): functools.partial(deleted, getattr(os, name))
        for name in ("unlink", "remove", "rmdir")
    }
    for (owner, name), value in replaced.items():
        setattr(owner, name, value)
    sys.addaudithook(started)
