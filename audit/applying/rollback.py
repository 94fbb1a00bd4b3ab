"""An apply taken back: exactly what it made goes, and nothing that was edited or added since."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from audit.applying.application import is_made, part_of
from audit.applying.receipt import Receipt, open_receipt, receipt_path


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """`removed` files; `kept` were edited since, by their paths below the folder."""

    folder: Path
    removed: int
    kept: tuple[str, ...]


def roll_back(folder: Path) -> RollbackResult:
    """Remove what `apply_plan` made in a folder; raises UsageError where it has no receipt."""
    with open_receipt(folder) as receipt:
        removed, kept = 0, []
        for target, content_hash in receipt.begun.items():
            place = folder / target
            if _leads_out(place.parent, folder):
                kept.append(target)
                continue
            part_of(place).unlink(missing_ok=True)
            if not os.path.lexists(place):
                continue
            if _is_untouched(place, content_hash, receipt):
                place.unlink()
                removed += 1
            else:
                kept.append(target)
        _remove_empty(folder, receipt.begun)
        if not kept:
            receipt_path(folder).unlink()
            _remove_folders(folder, receipt.made_folder)
    return RollbackResult(folder, removed, tuple(kept))


def _is_untouched(place: Path, content_hash: str, receipt: Receipt) -> bool:
    """Say whether a file is what was made; a link goes even where its source is gone."""
    if place.is_symlink():
        return receipt.how == "symlink"
    return is_made(place, content_hash)


def _leads_out(parent: Path, folder: Path) -> bool:
    """Say whether a folder on the way is a link."""
    return any(p.is_symlink() for p in (parent, *parent.parents) if p.is_relative_to(folder)
               and p != folder)  # fmt: skip


def _remove_empty(folder: Path, targets: Iterable[str]) -> None:
    above = {parent for target in targets for parent in PurePosixPath(target).parents}
    for name in sorted(above - {PurePosixPath(".")}, key=lambda p: -len(p.parts)):
        with contextlib.suppress(OSError):  # something else is in it
            (folder / name).rmdir()


def _remove_folders(folder: Path, made_folder: bool) -> None:
    with contextlib.suppress(OSError):
        receipt_path(folder).parent.rmdir()
        if made_folder:
            folder.rmdir()
