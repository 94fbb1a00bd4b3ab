"""The document `checks/1` of a run of checks: written, printed, and read for the app.

Format: docs/check.md. A saved document is not trusted: values of another type are left out or shown
as text, and an image must be a PNG.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

from pipeline_profiler.checks.check import Judgement
from pipeline_profiler.checks.runner import CheckReport, CheckResult
from pipeline_profiler.checks.user_code import short_place
from pipeline_profiler.checks.user_source import Fix, Site, fix_of, site_of, unified_diff
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.profiling.record.session import parse_document

T = TypeVar("T")
WIDTH = 100
PNG = b"\x89PNG\r\n\x1a\n"
STATES = ("failed", "passed", "inconclusive", "not applicable", "skipped")
LISTED = ("failed", "inconclusive", "passed", "not applicable", "skipped")  # order of every list
MARKS = {"absent": "not applicable", "skipped": "skipped"}  # evidence of an inconclusive result
# about the loader for evaluation beside the other
OF_TWO = ("LOAD013", "LOAD018", "LOAD019", "LOAD020")
FOUNDATION = "TRAIN003"  # a training that cannot learn one batch by heart


def checks_document(report: CheckReport, subject: str) -> dict[str, Any]:
    """Plain data; `subject` is what was checked, as typed."""
    return {
        "schema": "checks/1",
        "generator": "pipeline-profiler",
        "subject": subject,
        "kind": report.kind,
        "summary": counts_of(report),
        "failed": [r.check.code for r in report.failed],
        "checks": [_entry(result, report) for result in report.results],
        "unreached": list(report.unreached),
        "broken": [r.check.code for r in report.broken],
        "ended": report.ended,
        "interrupted": report.interrupted,
        "seconds": round(report.seconds, 2),
    }


def _entry(result: CheckResult, report: CheckReport) -> dict[str, Any]:
    answer, (site, fix) = result.answer, _located(result, report)
    return {
        "code": result.check.code,
        "name": result.check.name,
        "verdict": state_of(result),
        "sentence": answer.sentence,
        "causes": list(answer.causes),
        "next": answer.next,
        "place": short_place(place_of(result, report)),
        "location": site and {"path": site.path, **vars(site.at)},
        "diff": unified_diff([fix]),
        "evidence": {k: plain_value(v) for k, v in answer.evidence.items() if k != "place"},
        "seconds": round(result.seconds, 3),
    }


# what a failed check is about, for the line of the user's file
ABOUT = {
    "model": (4, 5, 25, 46),
    "loss": (1, 20, 21, 41),
    "optimizer": (3, 15),
    "schedule": (14,),
    "evaluate": (24,),
    "evaluation": (24,),
}


def place_of(result: CheckResult, report: CheckReport) -> str:
    """`/src/train.py:57:8-57:20` where the line is known that a check is about; else ''."""
    code, evidence = result.check.code, result.answer.evidence
    if "place" in evidence:
        return str(evidence["place"])
    if code.startswith("LOAD"):
        parts = ("model", "evaluation") if evidence.get("at_model") else ("loader", "eval_loader")
        return report.places.get(parts[code in OF_TWO], "")
    if "about" in evidence:
        return report.places.get(evidence["about"], "")
    number = int(code[-3:])
    places = (report.places.get(p, "") for p, codes in ABOUT.items() if number in codes)
    return next(filter(None, places), "")


def _located(result: CheckResult, report: CheckReport) -> tuple[Site | None, Fix]:
    """Return where a check points, and its short fix if it failed."""
    site, step = map(site_of, (place_of(result, report), report.places.get("optimizer", "")))
    failed = result.answer.judgement is Judgement.FAIL
    return site, fix_of(result.check.code, result.answer, site, step) if site and failed else {}


def checks_diff(report: CheckReport) -> str:
    """Return the short fixes of all failed checks as one unified diff."""
    return unified_diff(_located(result, report)[1] for result in report.failed).rstrip("\n")


def plain_value(value: Any) -> Any:
    """Return what JSON can hold: numbers of Python, no NaN, everything else as text."""
    if isinstance(value, dict):
        return {str(k): plain_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(v) for v in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | bool | type(None)) else str(value)


def checks_json(report: CheckReport, subject: str, with_grid: bool = False) -> str:
    """The document as text; with the grid of what the model gets, for the app."""
    document = checks_document(report, subject)
    if with_grid and report.grid is not None:
        document["grid"] = base64.b64encode(report.grid).decode()
    return json.dumps(document, indent=1, allow_nan=False)


ENTERS = "Images as they enter the model, with labels"
HTML = """<!doctype html>
<meta charset="utf-8"><meta name="generator" content="pipeline-profiler"><title>Checks</title>
<pre>{}</pre>{}
"""


def checks_file(report: CheckReport, subject: str, path: str) -> str:
    """Return the content of a file: HTML or Markdown by its suffix, else the JSON document."""
    if not path.endswith((".html", ".md")):
        return f"{checks_json(report, subject, with_grid=True)}\n"
    text = checks_text(report, subject, full=True)
    url = f"data:image/png;base64,{base64.b64encode(report.grid or b'').decode()}"
    if path.endswith(".html"):
        image = f'<h2>{ENTERS}</h2><img alt="" src="{url}">' if report.grid else ""
        return HTML.format(escape(text), image)
    image = f"\n![{ENTERS}]({url})\n" if report.grid else ""
    return f"<!-- pipeline-profiler report -->\n\n{textwrap.indent(text, '    ')}\n{image}"


def state_of(result: CheckResult) -> str:
    """Return the state of a check: one of `STATES`."""
    judgement, evidence = result.answer.judgement, result.answer.evidence
    if judgement is not Judgement.INCONCLUSIVE:
        return str(judgement)
    return next((state for mark, state in MARKS.items() if evidence.get(mark)), str(judgement))


def count_states(states: Sequence[str]) -> dict[str, int]:
    """Return the number of checks in each of `STATES`."""
    return {state: states.count(state) for state in STATES}


def counts_text(counts: Mapping[str, int]) -> str:
    """Return `1 failed, 40 passed, ...`, as every face prints it."""
    return ", ".join(f"{n} {state}" for state, n in counts.items())


def overall_state(counts: Mapping[str, int]) -> str:
    """Return the state of the whole run: failed, passed or inconclusive."""
    return next((state for state in ("failed", "passed") if counts[state]), "inconclusive")


def counts_of(report: CheckReport) -> dict[str, int]:
    """Return the number of checks of a run in each state."""
    return count_states([state_of(result) for result in report.results])


def checks_text(report: CheckReport, subject: str, full: bool = False) -> str:
    """The report for a terminal; `full`: also the checks that did not fail."""
    return "\n".join([f"Checks of {report.kind} {subject}", *_lines(report, full)])


def _lines(report: CheckReport, full: bool) -> Iterator[str]:
    for result in report.failed:
        check, answer, (site, fix) = result.check, result.answer, _located(result, report)
        at = f"{site.path}:{site.at.lineno}" if site else short_place(place_of(result, report))
        yield ""
        yield from _wrapped(f"{at} {check.code} {check.name}: {answer.sentence}".lstrip(), 2)
        yield from site.marked() if site else ()
        if answer.causes:
            yield from _wrapped(f"  Likely cause: {'; '.join(answer.causes)}.", 4)
        yield from _wrapped(f"  Next: {answer.next}{' (--diff prints it)' * bool(fix)}", 4)
    if FOUNDATION in [r.check.code for r in report.failed]:
        yield f"\nFix {FOUNDATION} first: until it passes, the passed checks are not reliable."
    yield ""
    for sentence in dict.fromkeys(r.answer.sentence for r in report.results if r.users):
        yield from _wrapped(f"Your code failed: {sentence}", 2)
    if broken := ", ".join(result.check.code for result in report.broken):
        yield f"Checks that failed with an internal error: {broken} (--trace shows it)."
    if report.unreached:
        yield from _wrapped(f"Not reached by the script: {', '.join(report.unreached)}.", 2)
    yield from _wrapped(report.ended, 0)
    for state in LISTED[1:] if full else ("inconclusive",):
        yield from _of_state(state, report, full)
    counts = counts_text(counts_of(report))
    yield counts if full or not report.results else f"{counts} (--full lists all checks)"


def _of_state(state: str, report: CheckReport, full: bool) -> Iterator[str]:
    """Yield a line for the checks of a state with equal sentences; `full`: the whole sentence."""
    results = [result for result in report.results if state_of(result) == state]
    if results:
        yield state.capitalize()
    for sentence in dict.fromkeys(result.answer.sentence for result in results):
        same = [result for result in results if result.answer.sentence == sentence]
        names = ", ".join(f"{r.check.code} {r.check.name}" for r in same)
        yield from _wrapped(f"  {names}: {sentence}", 4, None if full else 1)
        if full and same[0].answer.next:
            yield from _wrapped(f"    {same[0].answer.next}", 4)
    if results:
        yield ""


def _wrapped(text: str, indent: int, most: int | None = None) -> list[str]:
    layout: Any = {"subsequent_indent": " " * indent, "max_lines": most, "placeholder": " ..."}
    return textwrap.wrap(text, WIDTH, replace_whitespace=False, **layout)


MOST_CHECKS, MOST_TEXT, MOST_VALUE = 500, 4000, 300


@dataclass(frozen=True)
class SavedAnswer:
    """The answer of a check; `numbers`: its evidence as texts, by name."""

    code: str
    name: str
    verdict: str
    sentence: str
    causes: tuple[str, ...]
    next: str
    numbers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SavedChecks:
    """A document: failed answers first, in the order of their causes."""

    subject: str
    answers: tuple[SavedAnswer, ...]
    ended: str
    grid: bytes | None  # a PNG

    @property
    def counts(self) -> dict[str, int]:
        """The number of checks in each state."""
        return count_states([answer.verdict for answer in self.answers])


def parse_checks(blob: bytes, where: str) -> SavedChecks:
    """The document in these bytes; ProfileError in a sentence for anything else."""
    try:
        document = parse_document(blob, where)
    except ProfileError:
        raise ProfileError(f"{where} is no readable document of checks.") from None
    if document.get("schema") != "checks/1":
        raise ProfileError(
            f"{where} is no document checks/1: write one with `pipeline-profiler check ... -o "
            "x.json`."
        )
    entries = [e for e in _typed(document.get("checks"), list) if isinstance(e, dict)]
    failed = list(map(str, _typed(document.get("failed"), list)))
    order = {code: number for number, code in enumerate(failed)}
    answers = [_answer(entry) for entry in entries[:MOST_CHECKS]]
    answers.sort(key=lambda a: (LISTED.index(a.verdict), order.get(a.code, len(order)), a.code))
    subject, ended = _text(document.get("subject")), _text(document.get("ended"))
    return SavedChecks(subject, tuple(answers), ended, _png(document.get("grid")))


def _answer(entry: Mapping[str, Any]) -> SavedAnswer:
    state, evidence = entry.get("verdict"), _typed(entry.get("evidence"), dict)
    return SavedAnswer(
        _text(entry.get("code")),
        _text(entry.get("name")),
        state if state in STATES else "inconclusive",
        _text(entry.get("sentence")),
        tuple(map(_text, _typed(entry.get("causes"), list)[:20])),
        _text(entry.get("next")),
        tuple((str(k)[:80], _number_text(v)) for k, v in list(evidence.items())[:60]),
    )


def _typed(value: Any, kind: type[T]) -> T:
    """Return a value of this type, or an empty one instead."""
    return value if isinstance(value, kind) else kind()


def _text(value: Any) -> str:
    return _typed(value, str)[:MOST_TEXT]


def _number_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_VALUE else f"{text[: MOST_VALUE - 1]}…"


def _png(value: Any) -> bytes | None:
    with contextlib.suppress(ValueError):
        blob = base64.b64decode(_typed(value, str), validate=True)
        return blob if blob.startswith(PNG) else None
    return None
