"""A rule that raises costs its own cause, never the diagnosis.

Every rule runs inside `run_rules`. What it raises becomes a `FailedRule`: a value that is saved
with the session, stands in the first lines of each report and turns the exit code into 3. A
diagnosis with a failed rule may miss a cause, which is why it must be seen.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pipeline_profiler.diagnose.evidence import Evidence
from pipeline_profiler.diagnose.finding import Diagnosis

Rule = Callable[[Evidence], Diagnosis | None]
_PACKAGE = Path(__file__).resolve().parents[1]


class FailedRuleData(TypedDict):
    """One entry of `failed_rules` in a session file."""

    rule: str
    error: str
    text: str
    at: str


@dataclass(frozen=True, slots=True)
class FailedRule:
    """A rule that raised: its name, the error, and where."""

    rule: str
    error: str  # the type
    text: str
    at: str  # file:line, the file as a path below the package
    trace: str  # the traceback, for --trace; not saved, as it holds the machine's paths

    def as_dict(self) -> FailedRuleData:
        """Plain data for the session."""
        return {"rule": self.rule, "error": self.error, "text": self.text, "at": self.at}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Causes by the position of their rule, and the rules that raised."""

    causes: list[tuple[int, Diagnosis]]
    failed: list[FailedRule]


def run_rules(rules: Sequence[Rule], evidence: Evidence) -> Outcome:
    """Ask every rule; one that raises is reported and the next one is asked."""
    outcome = Outcome([], [])
    for position, rule in enumerate(rules):
        try:
            cause = rule(evidence)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other rules still count
            outcome.failed.append(_failed(rule, error))
            continue
        if cause is not None:
            outcome.causes.append((position, cause))
    return outcome


def _failed(rule: Rule, error: Exception) -> FailedRule:
    frames = traceback.extract_tb(error.__traceback__)
    # the innermost frame of this package: below it lies numpy, above it this file
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    frame = own[-1] if len(own) > 1 else frames[-1]
    path = Path(frame.filename)
    file = path.relative_to(_PACKAGE).as_posix() if path.is_relative_to(_PACKAGE) else path.name
    return FailedRule(
        rule=rule.__name__,
        error=type(error).__name__,
        text=str(error),
        at=f"{file}:{frame.lineno}",
        trace="".join(traceback.format_exception(error)),
    )
