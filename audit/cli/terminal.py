"""What `audit` prints, and where it cannot: the one place that writes to stdout and stderr.

Names, labels and messages come from strangers, so whatever is printed for a person goes through
`visible`, which leaves no character that moves a cursor, colours a screen or turns a line around.
JSON documents are for programs and stay exact; JSON escapes the controls of a terminal by itself.

stdout belongs to the answer. Where nobody reads it any more (`| head`), the command goes on and
ends as it would have; where it cannot be written (closed, or a full disk), there is no answer, and
that is `OutputError`. stderr is for the person: a sentence that cannot be written there is lost.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

from audit.printable import visible

STYLE = re.compile(r"(\x1b\[[0-9;]*m)")  # colours, as rich writes them


class OutputError(Exception):
    """stdout cannot be written; the text says why."""


def prepare_streams() -> None:
    """Make standard output and error safe to use, whatever the caller left of them."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Else the next file opened, perhaps a database, is what a library prints into.
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as we live
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    """Return whether a person sees stdout directly."""
    return sys.stdout is not None and sys.stdout.isatty()


def width() -> int:
    """Return the columns to fill, 60 to 120."""
    return min(120, max(60, shutil.get_terminal_size((100, 24)).columns))


def write_text(text: str, *, styled: bool = False) -> None:
    """Write lines of an answer for a person; `styled`: colours in it are ours, and stay."""
    _write([_safe(text, styled), "\n"])


def write_parts(pieces: Iterable[str]) -> None:
    """Write a document for programs as it is, in UTF-8."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8")
    _write(pieces)


def write_message(text: str) -> None:
    """Tell the person something, on stderr."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(_safe(text, False) + "\n")
        sys.stderr.flush()


def close_streams() -> None:
    """Let nothing that is still buffered fail after the exit code is known."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except (OSError, ValueError):
                _discard(stream)


def _safe(text: str, styled: bool) -> str:
    lines = text.split("\n")
    if not styled:
        return "\n".join(map(visible, lines))
    # The odd parts are what the expression matched: the colours.
    split = [STYLE.split(line) for line in lines]
    return "\n".join(
        "".join(part if i % 2 else visible(part) for i, part in enumerate(parts)) for parts in split
    )


def _write(pieces: Iterable[str]) -> None:
    if sys.stdout is None:
        raise OutputError(os.strerror(errno.EBADF))
    for piece in pieces:  # what makes the pieces may fail too: that is no failure of stdout
        try:
            sys.stdout.write(piece)
        except BrokenPipeError:
            _discard(sys.stdout)
        except OSError as error:
            _discard(sys.stdout)
            raise OutputError(error.strerror or str(error)) from None
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise OutputError(error.strerror or str(error)) from None


def _discard(stream: TextIO) -> None:
    """Send what a stream still holds, and whatever follows, nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
