"""The document `checks/1` of a run of checks: written, told for a terminal, read for the app.

The text opens with what failed, causes before symptoms, each with its likely causes and the next
step; then what could not be told; what passed is one line each. Format: docs/checks-training.md.
A saved document comes from anywhere: what has another type than it should have is left out or
shown as text; a picture is only taken where its bytes begin as a PNG does.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline_profiler.checks.check import Judgement
from pipeline_profiler.checks.runner import CheckReport, CheckResult
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.profiling.record.session import parse_document

WIDTH = 100
FOUNDATION = "TRAIN003"  # a training that cannot learn one batch by heart


def checks_document(report: CheckReport, subject: str) -> dict[str, Any]:
    """Plain data; `subject` is what was examined, as typed."""
    counts = {str(j): _count(report, j) for j in Judgement}
    return {
        "schema": "checks/1",
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


def headline(report: CheckReport, subject: str) -> str:
    """One sentence: what failed first, and how many said what."""
    counts = ", ".join(f"{_count(report, j)} {j.replace('_', ' ')}" for j in Judgement)
    if report.failed:
        first, more = report.failed[0].check, len(report.failed) - 1
        others = f" and {more} more" if more else ""
        return f"FAIL  {subject}: {first.code} {first.name}{others} ({counts})"
    done = "nothing failed" if report.results else "nothing was checked"
    return f"{verdict_word(report).upper()}  {subject}: {done} ({counts})"


def verdict_word(report: CheckReport) -> str:
    """The whole run in a word: fail, pass or cannot tell."""
    if report.failed:
        return "fail"
    return "pass" if _count(report, Judgement.PASS) else "cannot tell"


def _count(report: CheckReport, judgement: Judgement) -> int:
    return sum(r.answer.judgement is judgement for r in report.results)


def checks_text(report: CheckReport, subject: str) -> str:
    """The report for a terminal."""
    return "\n".join([headline(report, subject), *_lines(report)])


def _lines(report: CheckReport) -> Iterator[str]:
    for result in report.failed:
        check, answer = result.check, result.answer
        yield ""
        yield from _wrapped(f"FAIL {check.code} {check.name}: {answer.sentence}", 5)
        if answer.causes:
            yield from _wrapped(f"     likely: {'; '.join(answer.causes)}.", 13)
        yield from _wrapped(f"     next:   {answer.next}", 13)
    if FOUNDATION in [r.check.code for r in report.failed]:
        yield f"\nUntil {FOUNDATION} passes, what passed below rests on sand."
    for judgement, mark in ((Judgement.CANNOT_TELL, "?"), (Judgement.PASS, "ok")):
        alike: dict[str, list[CheckResult]] = {}  # those that stopped at one error are one entry
        for result in report.results:
            if result.answer.judgement is judgement:
                alike.setdefault(result.answer.sentence, []).append(result)
        if alike:
            yield ""
        for sentence, results in alike.items():
            names = ", ".join(f"{r.check.code} {r.check.name}" for r in results)
            yield from _wrapped(f"{mark:<3} {names}: {sentence}", 4)
            if results[0].answer.next:
                yield from _wrapped(f"    {results[0].answer.next}", 4)
    if report.broken:
        broken = ", ".join(result.check.code for result in report.broken)
        yield f"\nBroken checks: {broken} (--trace shows why)."
    if report.ended:
        yield f"\n{report.ended}"


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, replace_whitespace=False)


# ---- a saved document, typed and bounded ----

MOST_CHECKS, MOST_TEXT, MOST_VALUE = 500, 4000, 300
WORDS = {str(j): j.replace("_", " ") for j in Judgement}
FIRST = ("fail", "cannot tell", "pass")


@dataclass(frozen=True)
class SavedAnswer:
    """One check's answer: `verdict` in words, `numbers` as texts by name, `evidence` as saved."""

    code: str
    name: str
    verdict: str
    sentence: str
    causes: tuple[str, ...]
    next: str
    numbers: tuple[tuple[str, str], ...]
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedChecks:
    """A document: failed answers first, in the order of their causes."""

    subject: str
    answers: tuple[SavedAnswer, ...]
    ended: str
    grid: bytes | None  # a PNG

    def count(self, verdict: str) -> int:
        """How many answers have a verdict."""
        return sum(answer.verdict == verdict for answer in self.answers)

    @property
    def verdict(self) -> str:
        """The whole document in a word."""
        if self.count("fail"):
            return "fail"
        return "pass" if self.count("pass") else "cannot tell"


def parse_checks(blob: bytes, where: str) -> SavedChecks:
    """The document in these bytes; ProfileError in a sentence for anything else."""
    try:
        document = parse_document(blob, where)
    except ProfileError:
        raise ProfileError(f"{where} is no readable document of checks.") from None
    if document.get("schema") != "checks/1":
        raise ProfileError(
            f"{where} is no document checks/1: write one with `check-loader ... -o x.json`."
        )
    listed = document.get("checks")
    entries = [e for e in listed if isinstance(e, Mapping)] if isinstance(listed, list) else []
    answers = [_answer(entry) for entry in entries[:MOST_CHECKS]]
    failed = [str(code) for code in _list(document.get("failed"))]
    order = {code: place for place, code in enumerate(failed)}
    answers.sort(key=lambda a: (FIRST.index(a.verdict), order.get(a.code, len(order)), a.code))
    return SavedChecks(
        _text(document.get("subject")),
        tuple(answers),
        _text(document.get("ended")),
        _png(document.get("grid")),
    )


def _answer(entry: Mapping[str, Any]) -> SavedAnswer:
    evidence = entry.get("evidence")
    evidence = evidence if isinstance(evidence, Mapping) else {}
    return SavedAnswer(
        _text(entry.get("code")),
        _text(entry.get("name")),
        WORDS.get(str(entry.get("verdict")), "cannot tell"),
        _text(entry.get("sentence")),
        tuple(_text(cause) for cause in _list(entry.get("causes"))[:20]),
        _text(entry.get("next")),
        tuple((str(k)[:80], _value(v)) for k, v in list(evidence.items())[:60]),
        evidence,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:MOST_TEXT] if isinstance(value, str) else ""


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_VALUE else f"{text[: MOST_VALUE - 1]}…"


def _png(value: Any) -> bytes | None:
    if not isinstance(value, str):
        return None
    try:
        blob = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None
    return blob if blob.startswith(b"\x89PNG\r\n\x1a\n") else None


def number_series(answer: SavedAnswer, name: str) -> list[float]:
    """A list of finite numbers of the evidence; empty where it is none."""
    values = _list(answer.evidence.get(name))
    numbers = all(type(v) in (int, float) and math.isfinite(v) for v in values)
    return [float(v) for v in values] if numbers else []
