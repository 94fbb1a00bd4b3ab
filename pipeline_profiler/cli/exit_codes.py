"""Exit codes of `pipeline-profiler`: what they mean, and which one wins where several apply.

0 clean; 1 the `--fail-on` bound is exceeded, or a check of loader or training failed; 2 the caller
can fix it (usage, a loader or step that raises, hangs or ends early; what was measured is saved);
3 a diagnosis rule or a check broke and the others ran; 4 the machine or this program failed and
there is no result; 130 interrupted.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command ends with."""

    CLEAN = 0
    EXCEEDED = 1
    USAGE = 2
    BROKEN_RULE = 3
    NO_RESULT = 4
    INTERRUPTED = 130


# A failed rule may hide a cause, so it comes before a bound; without a result there is neither.
PRECEDENCE = (
    ExitCode.INTERRUPTED,
    ExitCode.NO_RESULT,
    ExitCode.USAGE,
    ExitCode.BROKEN_RULE,
    ExitCode.EXCEEDED,
    ExitCode.CLEAN,
)


def strongest(*codes: ExitCode) -> ExitCode:
    """Return the code that a command ends with where all of these apply."""
    return min((*codes, ExitCode.CLEAN), key=PRECEDENCE.index)
