"""The end of a measurement on one screen: verdict, causes with what to do, where the rest is.

`run`, `tune`, `sweep` and `watch` end with it; everything else is `pipeline-profiler report`.
"""

from __future__ import annotations

import textwrap

from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.profiling.watching.conclusion import parts_line
from pipeline_profiler.report.render import section_text
from pipeline_profiler.report.section import share_text
from pipeline_profiler.report.sections import (
    split_causes,
    sweep_points,
    tuning_trials,
    unexplained,
    verdict,
)

SHOWN = 3


def to_screen(session: Session, width: int = 96) -> str:
    """Return the verdict, the first causes and what to do about each, in some twenty lines."""
    shown, unsure = split_causes(session.results.get("causes") or [])
    lines = [line for text in verdict(session).lines for line in _folded(text, "", width)]
    for cause in shown[:SHOWN]:
        share = f", {share_text(cause)} of the step" if cause.get("share") is not None else ""
        lines += _folded(f"{cause['name']}{share}: {cause['cause']} ({cause['code']})", "  ", width)
        lines += _folded(f"-> {cause['next']}", "    ", width)
    also = [f"{cause['name']} {share_text(cause)}" for cause in shown[SHOWN:]]
    lines += _folded(f"also: {', '.join(also)}", "  ", width) if also else []
    lines += _folded(unexplained(session), "  ", width)
    names = ", ".join(str(cause["name"]) for cause in unsure)
    lines += _folded(f"not shown to cost time: {names}", "  ", width) if unsure else []
    lines += parts_line(session.results.get("phases") or {}, session)
    answers = (sweep_points(session), tuning_trials(session))
    tables = [section_text(section) for section in answers if section is not None]
    return "\n".join([*lines, *(f"\n{table}" for table in tables)]).rstrip() + "\n"


def _folded(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
