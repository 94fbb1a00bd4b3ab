"""The one place that prints: controls escaped, and a stream that fails is an exit code.

stdout belongs to the result, stderr to everything said on the way. A closed or full stdout must
not end in a traceback, and must not look like success either; a reader that has seen enough
(`| head`) is no failure.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from pipeline_profiler.cli.exit_codes import ExitCode
from pipeline_profiler.report.controls import escape_controls


def say(text: str) -> None:
    """A line on stderr, as far as there is one."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:  # print(file=None) would go to stdout
            sys.stderr.write(_encodable(escape_controls(text), sys.stderr.encoding) + "\n")
            sys.stderr.flush()


def show(text: str) -> ExitCode:
    """The result on stdout, followed by a line end; NO_RESULT, and why, where it did not arrive."""
    if sys.stdout is None:
        say("pipeline-profiler: stdout is closed, so the result cannot be printed.")
        return ExitCode.NO_RESULT
    try:
        sys.stdout.write(_encodable(escape_controls(text), sys.stdout.encoding) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # `report S | head`: the reader has seen enough
        _silence_stdout()
    except (OSError, ValueError) as error:
        _silence_stdout()
        why = getattr(error, "strerror", None) or error
        say(f"pipeline-profiler: the result cannot be printed ({why}).")
        return ExitCode.NO_RESULT
    return ExitCode.CLEAN


def _encodable(text: str, encoding: str | None) -> str:
    """What the stream's encoding has no character for is shown as an escape."""
    name = encoding or "utf-8"
    return text.encode(name, "backslashreplace").decode(name)


def _silence_stdout() -> None:
    """What is still buffered would fail again at the interpreter's exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_closed_streams() -> None:
    """Put /dev/null where a standard stream is closed: the next file opened would take its number.

    A session written to number 1 or 2 would then receive whatever a worker prints.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno == errno.EBADF:
                with contextlib.suppress(OSError):
                    os.open(os.devnull, os.O_RDWR)
