"""The receipt of a new folder: what was begun and what is done, one JSON line each, synced to disk.

`DIR/.preflight/receipt.jsonl` says enough to go on after a kill and to take everything back. Before
a batch of files is made, their names are written down; after it, that they are whole. The last line
may be cut where the machine died: it then says nothing. One writer at a time holds its lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit.applying.targets import RECEIPT_FOLDER
from audit.errors import LockedError, UsageError

RECEIPT_SCHEMA = "audit-receipt/1"
RECEIPT = "receipt.jsonl"


@dataclass(slots=True)
class Receipt:
    """An open receipt: `plan` names its plan, `how` is copy, hardlink or symlink.

    `begun` and `done` are targets, with the hash of their content.
    """

    file: int
    plan: str
    how: str
    made_folder: bool
    begun: dict[str, str] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)

    def begin(self, files: Sequence[tuple[str, str]]) -> None:
        """Write down what is going to be made: target and hash."""
        self._append({"begun": files})
        self.begun.update(files)

    def finish(self, files: Sequence[tuple[str, str]]) -> None:
        """Write down that files are whole and in their places."""
        self._append({"done": files})
        self.done.update(files)

    def _append(self, line: dict[str, Any]) -> None:
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode()
        while data:  # a full disk may take a part of it
            data = data[os.write(self.file, data) :]
        os.fsync(self.file)


def receipt_path(folder: Path) -> Path:
    """Return where the receipt of a folder is."""
    return folder / RECEIPT_FOLDER / RECEIPT


@contextmanager
def open_receipt(
    folder: Path, plan: str | None = None, how: str = "copy", made_folder: bool = False
) -> Iterator[Receipt]:
    """Open the receipt of a folder, begun for `plan` where there is none.

    Raises UsageError where there is none and no plan, LockedError where another holds it.
    """
    path = receipt_path(folder)
    if plan is None and not path.is_file():
        raise UsageError(f"{folder} has no receipt ({path}): `audit apply` did not make it.")
    path.parent.mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o644)
    try:
        _take_lock(file, folder)
        lines = _whole_lines(file)
        if not lines and plan is not None:
            receipt = Receipt(file, plan, how, made_folder)
            head = {"schema": RECEIPT_SCHEMA, "plan": plan, "how": how, "made_folder": made_folder}
            receipt._append(head)
        else:
            receipt = _read(file, lines, path)
        yield receipt
    finally:
        os.close(file)


def _take_lock(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{folder} is being written by another `audit apply`: wait for it, or stop it."
        ) from None


def _whole_lines(file: int) -> list[dict[str, Any]]:
    """Return the lines of a receipt; a last one that was cut is taken off."""
    with open(file, "rb", closefd=False) as reader:
        data = reader.read()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.ftruncate(file, len(whole))
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError:
        return [{}]


def _read(file: int, lines: Sequence[dict[str, Any]], path: Path) -> Receipt:
    try:
        head = lines[0]
        if head["schema"] != RECEIPT_SCHEMA:
            raise ValueError(head["schema"])
        receipt = Receipt(file, head["plan"], head["how"], head["made_folder"])
        for line in lines[1:]:
            receipt.begun.update(line.get("begun", ()))
            receipt.done.update(line.get("done", ()))
    except (KeyError, ValueError, IndexError, TypeError):
        raise UsageError(f"{path} is no receipt of `audit apply`: choose another folder.") from None
    return receipt
