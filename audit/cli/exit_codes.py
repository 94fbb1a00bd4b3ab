"""Exit codes of `audit`: what they mean, and which one wins where several apply.

0 nothing at or above `--fail-on`; 1 findings, or damage that `audit verify` found; 2 the caller can
fix it (usage, lock, missing extra, no such run); 3 a check or a source reader broke and the rest
ran; 4 the machine or this program failed and there is no result; 130 interrupted.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """What a command ends with."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    BROKEN_PART = 3
    NO_RESULT = 4
    INTERRUPTED = 130


class FailOn(StrEnum):
    """The least severe finding that makes the exit code 1, of all or of those a baseline lacks."""

    ERROR = "error"
    WARNING = "warning"
    NEW_ERROR = "new:error"
    NEW_WARNING = "new:warning"
    NEVER = "never"

    @property
    def only_new(self) -> bool:
        """Whether only findings count that the baseline has not."""
        return self.value.startswith("new:")

    @property
    def severity(self) -> str | None:
        """The severity that it names; None for never."""
        return None if self is FailOn.NEVER else self.value.removeprefix("new:")


# A broken check hides findings, so it comes before them; without a result there is neither.
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
