"""How a command ends: an exit code and one sentence, never a traceback.

0 clean; 1 findings at or above `--fail-on`, a bound exceeded, a failed check, or damage that `audit
verify` found; 2 the caller can fix it (partial results are saved); 3 a check, rule or reader broke
and the rest ran; 4 the machine or the program failed; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

from dataset_preflight.foundation.terminal import write_message


class ExitCode(IntEnum):
    """What a command ends with."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    BROKEN_PART = 3
    NO_RESULT = 4
    INTERRUPTED = 130


# A broken part hides findings, so it comes before them; without a result there is neither.
PRECEDENCE = (
    ExitCode.INTERRUPTED,
    ExitCode.NO_RESULT,
    ExitCode.USAGE,
    ExitCode.BROKEN_PART,
    ExitCode.FINDINGS,
    ExitCode.CLEAN,
)


def strongest(*codes: ExitCode) -> ExitCode:
    """Return the code that a command ends with where all of these apply."""
    return min((*codes, ExitCode.CLEAN), key=PRECEDENCE.index)


def end_process() -> NoReturn:
    """End the process of a user's script, with its workers: nothing of it runs after this."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@dataclass(frozen=True, slots=True)
class Ending:
    """The sentences of one program; `unchanged`: what a failure leaves; `keep`: controls."""

    program: str
    unchanged: str = ""
    keep: str = "\n"

    def end(self, sentence: str, code: ExitCode) -> ExitCode:
        """Say a sentence after the program's name; returns the code."""
        write_message(f"{self.program}: {sentence}", keep=self.keep)
        return code

    def machine_failed(self, said: str) -> ExitCode:
        """Say that the machine failed, and how."""
        after = f" {self.unchanged}." if self.unchanged else ""
        sentence = f"no result, because the machine failed: {said}.{after}"
        return self.end(sentence, ExitCode.NO_RESULT)

    def program_failed(self, said: str) -> ExitCode:
        """Say that this program failed: a traceback in front of a user is a bug."""
        after = "Please report this;"
        if self.unchanged:
            after = f"{self.unchanged}; please report this."
        sentence = f"no result, because this program failed: {said}. {after} `--trace` shows the "
        return self.end(f"{sentence}traceback.", ExitCode.NO_RESULT)
