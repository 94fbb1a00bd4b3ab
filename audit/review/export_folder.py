"""The folder of an export: files are made aside, and moved to their places when all are whole.

No file that is in the way is replaced: a record keeps the hash of what was written, so that the
next export replaces its own files, and refuses where one was edited by hand. Files of an earlier
export that the new one has not are taken away.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from audit.errors import UsageError

SCHEMA = "audit-annotations/1"
RECORD = "annotations-export.json"


@contextmanager
def open_stage(out: Path) -> Iterator[Path]:
    """Yield a folder beside the places of the files; it is gone afterwards.

    So is `out` where it was made for this and nothing came of it.
    """
    stage, made = out / f".annotations.{os.getpid()}.part", not out.exists()
    try:
        stage.mkdir(parents=True)
        yield stage
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written ({error.strerror or error}): choose another place."
        ) from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if made:
            with suppress(OSError):  # it holds something
                out.rmdir()


def move_to_place(stage: Path, out: Path, record: dict[str, object], *, replace: bool) -> int:
    """Move the files to their places, all after a look at each; returns how many were removed."""
    names = sorted(str(p.relative_to(stage)) for p in stage.rglob("*") if p.is_file())
    written = {name: _digest(stage / name) for name in names}
    earlier = _earlier(out / RECORD)
    for name in (*names, *earlier):
        _refuse(out / name, earlier.get(name), written.get(name), replace)
    if (out / RECORD).exists() and not earlier and not replace:
        raise UsageError(f"{out / RECORD} is no record of an export: choose another folder.")
    gone = [name for name in earlier if name not in written]
    for name in gone:
        (out / name).unlink(missing_ok=True)
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(stage / name, out / name)
    part = stage / RECORD
    part.write_text(json.dumps({**record, "sha256": written}, ensure_ascii=False) + "\n", "utf-8")
    os.replace(part, out / RECORD)
    return len(gone)


def _refuse(path: Path, wrote: str | None, now: str | None, replace: bool) -> None:
    """Raise UsageError for a file in the way that no export wrote, or that was edited since."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder, and an export needs a file there.")
    if replace or not path.exists():
        return
    if wrote is None:
        raise UsageError(
            f"{path} exists, and an export replaces nobody's file: choose another folder, or allow "
            "it with --replace."
        )
    if _digest(path) not in (wrote, now):
        raise UsageError(
            f"{path} is not what the last export wrote there: keep it under another name, or allow "
            "replacing it with --replace."
        )


def _earlier(record: Path) -> dict[str, str]:
    """Return what an earlier export into this folder wrote: {name: hash}."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            return {}
        hashes = {str(name): str(digest) for name, digest in found["sha256"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: digest for name, digest in hashes.items() if plain_path(name) == name}


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None


def plain_path(text: str) -> str:
    """Return a relative path without the parts that would lead out of the folder."""
    parts = [p for p in text.split("/") if p not in ("", ".", "..")]
    return "/".join(parts)
