"""What to do first: three findings of three kinds, the most severe first.

The order is the severity of the worst finding, then how much the kind of problem falsifies a result
(leaks and wrong labels change the number that is reported; a dark image hardly does), then how many
files are concerned. One step a family, so that three steps are three different problems.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from audit.records import Severity
from audit.report.contents import CheckSummary, Report

FAMILIES = ("SPLIT", "LABEL", "BOX", "DUP", "FILE", "DIST", "IMG")
STEPS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: the check, how severe, how many findings and files, its worst finding."""

    code: str
    name: str
    severity: Severity
    findings: int
    files: int
    message: str
    fingerprint: str


def first_steps(report: Report, settled: frozenset[str] = frozenset()) -> tuple[Step, ...]:
    """Return up to three steps; `settled` fingerprints need nothing any more."""
    steps = [s for check in report.checks if (s := _step(check, settled)) is not None]
    chosen: dict[str, Step] = {}
    for step in sorted(steps, key=_severity_order):
        chosen.setdefault(family(step.code), step)
    return tuple(chosen.values())[:STEPS]


def _step(check: CheckSummary, settled: frozenset[str]) -> Step | None:
    worst = check.counts.worst
    left = [e.finding for e in check.examples if e.finding.fingerprint not in settled]
    if worst in (None, Severity.INFO) or not left:
        return None
    one = left[0]
    return Step(
        check.code, check.name, one.severity, check.counts.total, check.n_files, one.message,
        one.fingerprint,
    )  # fmt: skip


def family(code: str) -> str:
    """Return the letters of a code: DUP for DUP003."""
    return re.sub(r"\d+$", "", code)


def _severity_order(step: Step) -> tuple[int, int, int, str]:
    name = family(step.code)
    rank = FAMILIES.index(name) if name in FAMILIES else len(FAMILIES)
    return step.severity.rank, rank, -step.files, step.code
