"""One writer a run: scan, recheck and repair exclude each other from the first look to the last.

The kernel's lock on `RUN/lock` counts; its text is for the message to the second writer. Every
writer opens the file for itself, so two threads exclude each other as two processes do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from audit.errors import LockedError, RunError
from audit.records import sample_id
from audit.run import run_version

NAME = "lock"
MARKER = ".preflight-run"
_MARK = b"dataset-preflight wrote this folder: audit scan replaces and removes files in it.\n"


def claim_run(run: Path) -> None:
    """Mark a folder as a run, before anything else is written to it; makes it where it is absent.

    Raises RunError for a folder that holds files and is no run, and where it cannot be written.
    """
    if run.exists() and not run.is_dir():
        raise RunError(f"{run} is a file: choose another path for the run.")
    marker = run / MARKER
    if marker.is_file() and not marker.is_symlink():
        return
    try:
        names = sorted(os.listdir(run)) if run.is_dir() else []
        if names and not run_version.is_run_folder(run):
            shown = ", ".join(map(sample_id, names[:3])) + (", ..." if len(names) > 3 else "")
            raise RunError(
                f"{run} is not empty and not a run (it contains {shown}): give a new or empty "
                "folder with --out. If it is a run that lost its scans, create the empty file "
                f"{marker}."
            )
        run.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(marker, flags, 0o644), "wb") as file:
            file.write(_MARK)
    except FileExistsError:
        return  # another process has made it, or it cannot be a file: the lock decides
    except OSError as error:
        raise _unwritable(run, error) from None


@contextlib.contextmanager
def hold_run(run: Path, purpose: str, *, enabled: bool = True) -> Iterator[None]:
    """Hold the run for writing; `purpose` is the verb that a second writer reads.

    Raises LockedError at once where another writer holds it, and RunError where the folder cannot
    be written, is no run or its file system has no locks. Without `enabled` nothing is locked.
    """
    claim_run(run)
    if not enabled:
        yield
        return
    descriptor = _open(run)
    try:
        _lock(descriptor, run)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = f"{purpose} by process {os.getpid()} since {since}\n".encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
        yield
    finally:
        os.close(descriptor)  # the lock goes with it


def _open(run: Path) -> int:
    try:
        return os.open(run / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unwritable(run, error) from None


def _unwritable(run: Path, error: OSError) -> RunError:
    return RunError(
        f"{run} cannot be written ({error.strerror}): get write access to it, work on a copy of "
        "it, or choose another path for a new run."
    )


def _lock(descriptor: int, run: Path) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        raise LockedError(
            f"{run} is being written ({holder or 'by another process'}): wait for it to finish, "
            "or stop it."
        ) from None
    except OSError as error:
        raise RunError(
            f"{run} is on a file system without locks ({error.strerror}): use a local folder, or "
            "--set scan.lock=false if you are sure that nobody else writes this run."
        ) from None
