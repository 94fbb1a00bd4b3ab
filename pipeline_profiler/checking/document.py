"""The document `checks/1` of a run of checks, and its text for a terminal.

The text opens with what failed, causes before symptoms, each with its likely causes and the next
step; then what could not be told; what passed is one line each. Format: docs/checks-training.md.
"""

from __future__ import annotations

import base64
import json
import math
import textwrap
from collections.abc import Iterator
from typing import Any

from pipeline_profiler.checking.check import Judgement
from pipeline_profiler.checking.runner import CheckReport, CheckResult

CHECKS_SCHEMA = "checks/1"
WIDTH = 100
FOUNDATION = "TRAIN003"  # a training that cannot learn one batch by heart


def checks_document(report: CheckReport, subject: str) -> dict[str, Any]:
    """Plain data; `subject` is what was examined, as typed."""
    counts = {str(j): _count(report, j) for j in Judgement}
    return {
        "schema": CHECKS_SCHEMA,
        "generator": "pipeline-profiler",
        "subject": subject,
        "summary": counts,
        "failed": [r.check.code for r in report.failed],
        "checks": [_entry(result) for result in report.results],
        "broken": [r.check.code for r in report.broken],
        "ended": report.ended,
        "interrupted": report.interrupted,
        "seconds": round(report.seconds, 2),
    }


def _entry(result: CheckResult) -> dict[str, Any]:
    answer = result.answer
    return {
        "code": result.check.code,
        "name": result.check.name,
        "verdict": str(answer.judgement),
        "sentence": answer.sentence,
        "causes": list(answer.causes),
        "next": answer.next,
        "evidence": {key: _plain(value) for key, value in answer.evidence.items()},
        "seconds": round(result.seconds, 3),
    }


def _plain(value: Any) -> Any:
    """What JSON can hold: numpy's numbers as Python's, no NaN, everything else as text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | bool | type(None)) else str(value)


def checks_json(report: CheckReport, subject: str, grid: bytes | None = None) -> str:
    """The document as text; with `grid`, a PNG of what the model gets, for the app."""
    document = checks_document(report, subject)
    if grid is not None:
        document["grid"] = base64.b64encode(grid).decode()
    return json.dumps(document, indent=1, allow_nan=False)


def checks_text(report: CheckReport, subject: str) -> str:
    """The report for a terminal."""
    return "\n".join([headline(report, subject), *_lines(report)])


def headline(report: CheckReport, subject: str) -> str:
    """One sentence: what failed first, and how many said what."""
    counts = ", ".join(f"{_count(report, j)} {j.replace('_', ' ')}" for j in Judgement)
    if report.failed:
        first = report.failed[0].check
        what = f"{first.code} {first.name}"
        more = len(report.failed) - 1
        return f"FAIL  {subject}: {what}{f' and {more} more' if more else ''} ({counts})"
    done = "nothing failed" if report.results else "nothing was checked"
    return f"{verdict_word(report).upper()}  {subject}: {done} ({counts})"


def verdict_word(report: CheckReport) -> str:
    """The whole run in a word: fail, pass or cannot tell."""
    if report.failed:
        return "fail"
    return "pass" if _count(report, Judgement.PASS) else "cannot tell"


def _count(report: CheckReport, judgement: Judgement) -> int:
    return sum(r.answer.judgement is judgement for r in report.results)


def _lines(report: CheckReport) -> Iterator[str]:
    for result in report.failed:
        yield from _failed_lines(result)
    if FOUNDATION in [r.check.code for r in report.failed]:
        yield f"\nUntil {FOUNDATION} passes, what passed below rests on sand."
    for judgement, mark in ((Judgement.CANNOT_TELL, "?"), (Judgement.PASS, "ok")):
        chosen = [r for r in report.results if r.answer.judgement is judgement]
        if chosen:
            yield ""
        for alike in _by_sentence(chosen):
            names = ", ".join(f"{r.check.code} {r.check.name}" for r in alike)
            yield from _wrapped(f"{mark:<3} {names}: {alike[0].answer.sentence}", 4)
            if alike[0].answer.next:
                yield from _wrapped(f"    {alike[0].answer.next}", 4)
    if report.broken:
        broken = ", ".join(result.check.code for result in report.broken)
        yield f"\nBroken checks: {broken} (--trace shows why)."
    if report.ended:
        yield f"\n{report.ended}"


def _by_sentence(results: list[CheckResult]) -> list[list[CheckResult]]:
    """Checks that stopped at the same error are one entry."""
    groups: dict[str, list[CheckResult]] = {}
    for result in results:
        groups.setdefault(result.answer.sentence, []).append(result)
    return list(groups.values())


def _failed_lines(result: CheckResult) -> Iterator[str]:
    check, answer = result.check, result.answer
    yield ""
    yield from _wrapped(f"FAIL {check.code} {check.name}: {answer.sentence}", 5)
    if answer.causes:
        yield from _wrapped(f"     likely: {'; '.join(answer.causes)}.", 13)
    yield from _wrapped(f"     next:   {answer.next}", 13)


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, replace_whitespace=False)
