"""What a command says: results on stdout, whose failure is an exit code, and the way on stderr.

Line ends and tabs of a text stay: reports and tracebacks are made of them.
"""

from __future__ import annotations

from preflight import terminal
from preflight.ending import Ending, ExitCode
from preflight.terminal import LAYOUT

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
