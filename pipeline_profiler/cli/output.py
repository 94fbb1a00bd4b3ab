"""Where results go: checked before a measurement, and never over a file of another program.

A file is replaced only if its content shows that this program wrote it. A session that cannot be
saved goes to the folder for temporary files, then to the working folder.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from dataset_preflight.foundation import terminal
from dataset_preflight.foundation.ending import Ending, ExitCode
from dataset_preflight.foundation.terminal import LAYOUT
from pipeline_profiler.profiling.record.session import (
    ProfileError,
    open_unpacked,
    write_packed,
    write_whole,
)

# Results on stdout, whose failure is an exit code, and the way on stderr. Line ends and tabs of a
# text stay: reports and tracebacks are made of them.

ENDING = Ending("pipeline-profiler", keep=LAYOUT)


def say(text: str) -> None:
    """A line on stderr, as far as there is one."""
    terminal.write_message(text, keep=LAYOUT)


def show(text: str) -> ExitCode:
    """The result on stdout, followed by a line end; NO_RESULT, and why, where it did not arrive."""
    try:
        terminal.write_text(text, keep=LAYOUT)
    except terminal.OutputError as error:
        if error.closed:
            sentence = "stdout is closed, so the result cannot be printed."
        else:
            sentence = f"the result cannot be printed ({error})."
        return ENDING.end(sentence, ExitCode.NO_RESULT)
    return ExitCode.CLEAN


HEAD_BYTES = 600
MARKS = re.compile(
    rb"""^\s*\{\s*"schema"\s*:\s*"(profile(-compare)?|checks)/|"generator"\s*:\s*"pipeline-profiler"|"""
    rb"""<meta name="generator" content="pipeline-profiler">|^<!-- pipeline-profiler report -->|"""
    rb"""^pipeline-profiler report\n|^\x89PNG\r\n.{1,100}tEXtSoftware\x00pipeline-profiler""",
    re.DOTALL,
)


class UnsavedError(OSError):
    """The session could be saved nowhere; `packed` is its text."""

    def __init__(self, reason: str, packed: bytes) -> None:
        """Keep the text, which is now the only copy."""
        super().__init__(reason)
        self.packed = packed


def check_output(path: str, inputs: Iterable[str] = ()) -> None:
    """Raise ProfileError if `path` cannot be written, is an input or of another program."""
    if not path or "\0" in path:
        raise ProfileError("-o takes the name of a file.")
    try:
        target = Path(os.path.realpath(path))  # fails in a working folder that was deleted
        for name in inputs:
            if os.path.realpath(name) == str(target):
                raise ProfileError(f"{path} is read by this command: choose another name for -o.")
        _check_target(target, path)
        _check_folder(target.parent)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: str, error: OSError) -> ProfileError:
    return ProfileError(f"{path} cannot be written ({_reason(error)}): choose another place.")


def check_session_output(path: str, inputs: Iterable[str] = ()) -> None:
    """`check_output` for both names that a session may get: it is packed above 1 MB."""
    check_output(path, inputs)
    if not path.endswith(".gz"):
        check_output(f"{path}.gz", inputs)


def _check_target(target: Path, path: str) -> None:
    try:
        state = target.stat()
    except FileNotFoundError:
        return
    if stat.S_ISDIR(state.st_mode):
        raise ProfileError(f"{path} is a folder: give the name of a file.")
    if not stat.S_ISREG(state.st_mode):
        raise ProfileError(f"{path} is no regular file: give the name of a file.")
    if not state.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise ProfileError(f"{path} is read-only: choose another name.")
    if not is_ours(target):
        raise ProfileError(
            f"{path} exists and was not written by pipeline-profiler: choose another name."
        )


def _check_folder(folder: Path) -> None:
    """Write a nameless file into the nearest folder there is: rights alone do not tell."""
    while not folder.exists():
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder):
        pass


def is_ours(path: Path) -> bool:
    """Return whether a file is empty, or a session, report or grid of this program."""
    try:
        with open_unpacked(path) as file:
            head = file.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return False
    return not head or MARKS.search(head) is not None


def write_session(packed: bytes, path: str) -> tuple[Path, bool]:
    """Save a session; return (path, whether it is the chosen one), or raise UnsavedError."""
    try:
        return write_as_asked(packed, path), True
    except (OSError, ProfileError) as error:
        reason = _reason(error)
    say(f"pipeline-profiler: {path} cannot be written ({reason}).")
    name = Path(path).name.removesuffix(".gz").removesuffix(".json") or "profile"
    for find in (tempfile.gettempdir, os.getcwd):
        try:
            number, made = tempfile.mkstemp(".json", f"{name}-", find())
            os.close(number)
            return _fill(packed, Path(made)), False
        except OSError:
            continue
    raise UnsavedError(reason, packed)


def write_as_asked(packed: bytes, path: str) -> Path:
    """Save at `path`, or at `path`.gz if large, in place of both; OSError or ProfileError."""
    check_session_output(path)  # a file may have come while it was measured
    saved = write_packed(packed, path)
    asked = Path(path)
    if saved != asked and asked.is_file() and not asked.is_symlink() and is_ours(asked):
        asked.unlink()
    return saved


def _fill(packed: bytes, path: Path) -> Path:
    """Write over an empty file made for this, which goes where it was not needed."""
    saved = None
    try:
        saved = write_packed(packed, path)
        return saved
    finally:
        if saved != path:
            path.unlink()


def write_report(blob: bytes, path: str) -> Path:
    """Write a report; ProfileError where it cannot be written."""
    check_output(path)
    try:
        write_whole(blob, Path(path))
    except OSError as error:
        raise _unwritable(path, error) from None
    return Path(path)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
