"""Errors that the caller can fix; each message gives the remedy.

AuditError
├── UsageError          a bad path, option, column, code or file the user gave (exit code 2)
├── MissingExtraError   an optional dependency is not installed; says which extra to install
├── RunError            a run directory that is absent, damaged, or from another version
│   ├── LockedError     another process is writing this run
│   └── DamagedError    a file of the run is not what was written; says what makes it again
├── CheckContractError  a check file breaks the contract; says file and rule
└── MachineError        the machine gave out: disk, memory, files open at once (exit code 4)

A problem in the *data* is never one of these: it is a Finding. And a problem of the *machine* is
never a Finding: `find_machine_error` tells it from what a decoder says of a file.
"""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path

LONGEST_ERROR = 500


class AuditError(Exception):
    """Base of every error that a user can fix; `str(error)` is one sentence with the fix."""


class UsageError(AuditError):
    """The call itself is wrong: a path, option, column or code that does not exist."""


class MissingExtraError(AuditError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"This needs the package {package!r}: install it with "
            f"`pip install 'dataset-preflight[{extra}]'`."
        )


class RunError(AuditError):
    """The run directory cannot be used as it is."""


class LockedError(RunError):
    """Another process is writing to this run."""


class DamagedError(RunError):
    """A file of the run is not what was written to it; `what` says it without the fix."""

    def __init__(self, what: str, fix: str) -> None:
        """Say what is damaged, and what makes it again."""
        super().__init__(f"{what}: {fix}")
        self.what = what


class CheckContractError(AuditError):
    """A file in checks/ does not follow the contract of `audit.checking.check`."""


class MachineError(AuditError):
    """The machine ran out of something; the same command goes on when there is more of it.

    `out_of_memory` may yet be one file's doing, where the machine has enough.
    """

    out_of_memory = False


# What runs out, and what the user can do about it.
EXHAUSTED = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("your disk quota is used up", "free some space"),
    errno.EFBIG: ("a file may not grow any more", "raise the limit with `ulimit -f unlimited`"),
    errno.EMFILE: ("too many files are open at once", "raise the limit with `ulimit -n 4096`"),
    errno.ENFILE: ("the system has too many files open", "close other programs"),
    errno.ENOMEM: ("the machine has no memory left", "close other programs or use fewer --jobs"),
}


def find_machine_error(error: BaseException) -> MachineError | None:
    """Return the machine's problem that is behind an error, None where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MachineError):
            return seen
        number = _exhausted(seen)
        if number:
            reason, fix = EXHAUSTED[number]
            found = MachineError(
                f"The work stopped because {reason} ({os.strerror(number)}): {fix}, then run the "
                "same command again; what was done is kept."
            )
            found.out_of_memory = number == errno.ENOMEM
            return found
        seen = seen.__cause__ or seen.__context__
    return None


def _exhausted(error: BaseException) -> int:
    """Return the error number of what ran out, 0 where an error says nothing of that kind."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and number is not None:
        return number if number in EXHAUSTED else 0
    # databases and writers of tables have errors of their own, and quote the system's words
    text = str(error)
    if text.startswith("database or disk is full"):  # SQLite
        return errno.ENOSPC
    return next((known for known in EXHAUSTED if os.strerror(known) in text), 0)


def error_place(error: BaseException, preferred: str | None = None) -> str:
    """Return `file.py:line` where an error was raised.

    The innermost frame that lies in the file `preferred`, because a check's own line says more than
    the line of the library it called; else the innermost frame of all.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == preferred]
    chosen = (own or frames)[-1:]
    return f"{Path(chosen[0].filename).name}:{chosen[0].lineno}" if chosen else "unknown place"


def error_text(error: BaseException) -> str:
    """Return `ValueError: the first line of its text`, at most 500 characters."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0]}"[:LONGEST_ERROR]


def error_trace(error: BaseException) -> str:
    """Return the whole traceback as text."""
    return "".join(traceback.format_exception(error))
