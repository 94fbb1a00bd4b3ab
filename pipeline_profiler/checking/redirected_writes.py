"""Writes of the user's code that go to a scratch folder, so that nothing of the user's changes.

For a process that ends afterwards: what a rank opens to be written is noted and lies beside, and
whoever reads it back finds it there. Files that compiled code opens, and folders that are made,
are not seen.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEVICES = ("/dev/", "/proc/")


@contextlib.contextmanager
def redirect_writes(paths: list[str]) -> Iterator[None]:
    """Let `open` and `torch.save` write beside until the block ends; collect what was named."""
    import torch

    real_open, real_save = builtins.open, torch.save
    moved: dict[str, str] = {}

    def beside(path: str, keeps: bool) -> str:
        if path not in moved:
            paths.append(path)
            moved[path] = str(Path(folder, str(len(moved))))
            if keeps and os.path.exists(path):
                with real_open(path, "rb") as old, real_open(moved[path], "wb") as new:
                    shutil.copyfileobj(old, new)
        return moved[path]

    def opened(file: Any, mode: str = "r", *others: Any, **named: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(file))
            own = path.startswith((*DEVICES, folder)) or "__pycache__" in path
            if set(mode) & set("wax+") and not own:
                file = beside(path, keeps="w" not in mode)
            else:
                file = moved.get(path, file)
        return real_open(file, mode, *others, **named)

    def save(content: Any, file: Any, *others: Any, **named: Any) -> None:
        if isinstance(file, str | os.PathLike):
            file = beside(os.path.abspath(os.fspath(file)), keeps=False)
        real_save(content, file, *others, **named)

    with tempfile.TemporaryDirectory() as folder:
        builtins.open, io.open, torch.save = opened, opened, save  # type: ignore[assignment]
        try:
            yield
        finally:
            builtins.open, io.open, torch.save = real_open, real_open, real_save
