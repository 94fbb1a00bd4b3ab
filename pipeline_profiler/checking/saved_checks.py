"""A saved document `checks/1`, read for the app: whatever the file holds, typed and bounded.

The document comes from anywhere. What has another type than it should have is left out or shown as
text; a picture is only taken where its bytes begin as a PNG does.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline_profiler.checking.check import Judgement
from pipeline_profiler.record.errors import ProfileError
from pipeline_profiler.record.session_file import parse_document

MOST_CHECKS, MOST_TEXT, MOST_VALUE = 500, 4000, 300
PNG_HEAD = b"\x89PNG\r\n\x1a\n"
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
    return blob if blob.startswith(PNG_HEAD) else None


def number_series(answer: SavedAnswer, name: str) -> list[float]:
    """A list of finite numbers of the evidence; empty where it is none."""
    values = answer.evidence.get(name)
    if not isinstance(values, list) or not all(_is_number(value) for value in values):
        return []
    return [float(value) for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
