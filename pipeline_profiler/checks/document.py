"""The document `checks/1` of a run of checks: written, printed, and read for the app.

Format: docs/check.md. A saved document is not trusted: values are shown as text, and an image must
be a PNG.
"""

from __future__ import annotations

import base64
import json
import math
import textwrap
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from pipeline_profiler.checks.check import Judgement
from pipeline_profiler.checks.runner import CheckReport, CheckResult
from pipeline_profiler.checks.user_code import short_place
from pipeline_profiler.checks.user_source import Fix, Site, fix_of, site_of, unified_diff
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.profiling.record.session import parse_document

WIDTH = 100
MOST_VALUE = 300  # characters of evidence in the app
PNG = b"\x89PNG\r\n\x1a\n"
STATES = ("failed", "passed", "inconclusive", "not applicable", "skipped")
LISTED = ("failed", "inconclusive", "passed", "not applicable", "skipped")  # order of every list
MARKS = {"absent": "not applicable", "skipped": "skipped"}  # evidence of an inconclusive result
# about the loader for evaluation beside the other
OF_TWO = ("LOAD013", "LOAD018", "LOAD020")
FOUNDATION = "TRAIN003"  # a training that cannot learn one batch by heart
ABOUT = {  # what a failed check is about, for the line of the user's file
    "model": (4, 5, 25, 46),
    "loss": (1, 20, 21, 41),
    "optimizer": (3, 15),
    "schedule": (14,),
    "evaluate": (24,),
    "evaluation": (24,),
}
TEXTS = ("code", "name", "verdict", "sentence", "next")  # of a check, in the app


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
    grid = base64.b64encode(report.grid).decode() if with_grid and report.grid else None
    document = checks_document(report, subject) | ({"grid": grid} if grid else {})
    return json.dumps(document, indent=1, allow_nan=False)


HEADS = {  # of pages; HTML in Markdown is HTML
    ".html": '<!doctype html>\n<meta charset="utf-8"><meta name="generator" '
    'content="pipeline-profiler"><title>Checks</title>',
    ".md": "<!-- pipeline-profiler report -->",
}


def checks_file(report: CheckReport, subject: str, path: str) -> str:
    """Return the content of a file: HTML or Markdown by its suffix, else the JSON document."""
    head = HEADS.get(Path(path).suffix)
    if head is None:
        return f"{checks_json(report, subject, with_grid=True)}\n"
    url = f"data:image/png;base64,{base64.b64encode(report.grid or b'').decode()}"
    image = f'<h2>Images as they enter the model, with labels</h2><img alt="" src="{url}">'
    text = escape(checks_text(report, subject, full=True))
    return f"{head}\n<pre>{text}</pre>{image * bool(report.grid)}\n"


def state_of(result: CheckResult) -> str:
    """Return the state of a check: one of `STATES`."""
    marks = (state for mark, state in MARKS.items() if result.answer.evidence.get(mark))
    return next(marks, str(result.answer.judgement))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return `1 failed, 40 passed, ...`, as every face prints it."""
    return ", ".join(f"{n} {state}" for state, n in counts.items())


def overall_state(counts: Mapping[str, int]) -> str:
    """Return the state of the whole run: failed, passed or inconclusive."""
    return next((state for state in ("failed", "passed") if counts[state]), "inconclusive")


def counts_of(report: CheckReport) -> dict[str, int]:
    """Return the number of checks of a run in each state."""
    states = [state_of(result) for result in report.results]
    return {state: states.count(state) for state in STATES}


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
    by_sentence: dict[str, list[CheckResult]] = {}
    for result in report.results:
        if state_of(result) == state:
            by_sentence.setdefault(result.answer.sentence, []).append(result)
    yield from [state.capitalize()] if by_sentence else ()
    for sentence, results in by_sentence.items():
        names = ", ".join(f"{r.check.code} {r.check.name}" for r in results)
        yield from _wrapped(f"  {names}: {sentence}", 4, None if full else 1)
        yield from _wrapped(f"    {results[0].answer.next}", 4) if full else ()
    yield from [""] if by_sentence else ()


def _wrapped(text: str, indent: int, most: int | None = None) -> list[str]:
    layout: Any = {"subsequent_indent": " " * indent, "max_lines": most, "placeholder": " ..."}
    return textwrap.wrap(text, WIDTH, replace_whitespace=False, **layout)


def parse_checks(blob: bytes, where: str) -> dict[str, Any]:
    """Return what the app shows of a document, failed checks first; ProfileError if it is none."""
    try:
        document = parse_document(blob, where)
        failed, checks = list(map(str, document["failed"])), list(map(_shown, document["checks"]))
        grid = base64.b64decode(document.get("grid", ""), validate=True)
        subject, ended, schema = (str(document[key]) for key in ("subject", "ended", "schema"))
    except (ProfileError, KeyError, ValueError, TypeError, AttributeError):
        schema = ""
    if schema != "checks/1":
        raise ProfileError(
            f"{where} is no readable document checks/1: write one with `pipeline-profiler check "
            "... -o x.json`."
        )
    failed += sorted(entry["code"] for entry in checks)
    checks.sort(key=lambda c: (LISTED.index(c["verdict"]), failed.index(c["code"])))
    states = [entry["verdict"] for entry in checks]
    counts = {state: states.count(state) for state in STATES}
    picture = grid if grid.startswith(PNG) else None
    return {
        "subject": subject,
        "ended": ended,
        "checks": checks,
        "summary": counts,
        "grid": picture,
    }


def _shown(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the app shows of a check, as texts."""
    shown: dict[str, Any] = {name: str(entry[name]) for name in TEXTS}
    if shown["verdict"] not in STATES:
        raise ValueError
    values = {
        k: f"{v:.6g}" if isinstance(v, float) else str(v) for k, v in entry["evidence"].items()
    }
    shown["evidence"] = [(name, textwrap.shorten(v, MOST_VALUE)) for name, v in values.items()]
    return shown | {"causes": list(map(str, entry["causes"]))}
