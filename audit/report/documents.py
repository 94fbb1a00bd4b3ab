"""The report for programs: JSON of schema `audit-report/1`, SARIF 2.1.0 and JUnit XML, in pieces.

Within a schema version of JSON, fields are added and never renamed (`docs/findings.md`). In SARIF a
finding about the whole dataset points at the root folder: readers refuse a result without location.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any
from urllib.parse import quote, quote_from_bytes
from xml.etree import ElementTree

from audit.records import FailedPart, Severity, finite
from audit.results.formatting import (
    ICONS,
    counted,
    fold_line,
    list_command,
    named_ids,
    severity_counts,
)
from audit.results.report_data import (
    LOCATED,
    SCHEMA,
    CheckSummary,
    ExpectationOutcome,
    Fold,
    Report,
    ReportedFinding,
)
from audit.results.run_report import SETTLED_AS, stream_findings
from audit.sources.manifest_rows import FORMATS
from audit.sources.paths import path_of
from dataset_preflight.foundation.terminal import visible

# Made once: `json.dumps` makes one for each call that is not plain.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# Complete findings of a fold; the others have no sentence and no figures.
TOLD_WHOLE = 1000


def to_json(report: Report, found: Iterable[ReportedFinding] | None = None) -> Iterator[str]:
    """Yield the pieces of the JSON document, a line a finding; `found`: default, all of the run."""
    wrong = report.wrong_labels
    head = {
        "schema": SCHEMA,
        "run": report.run,
        "notice": report.version.notice,
        "dataset": dataset_facts(report),
        "boxes": None if report.boxes is None else asdict(report.boxes),
        "summary": report.summary | ({"wrong_labels": asdict(wrong)} if wrong else {}),
        "do_first": [
            asdict(thing)
            | {"points": round(thing.points, 3)}
            | {"command": list_command(report, ",".join(thing.codes))}
            for thing in report.first
        ],
        "costs": [asdict(cost) for cost in report.costs],
        **{status: report.n_settled.get(status, 0) for status in SETTLED_AS},
        "failed_checks": [_failed_part(part) for part in report.failed_checks],
        "failed_readers": [_failed_part(part) for part in report.failed_readers],
        "folds": [_fold_facts(check, fold) for check in report.checks for fold in check.folds],
    }
    yield dumped(head)[:-1] + ',"findings":['
    told: Counter[str] = Counter()
    for number, one in enumerate(stream_findings(report) if found is None else found):
        told[one.fold] += 1
        whole = not one.fold or told[one.fold] <= TOLD_WHOLE
        # of a large fold: every field, but no sentence and no figures
        short = {} if whole else {"message": "", "evidence": {}}
        yield (",\n" if number else "\n") + dumped(finding_facts(one) | short)
    # A time means nothing without the machine and the program that it was taken with.
    taken_with = {"created": report.created, "tool": report.tool, "machine": report.machine}
    tail = {"completeness": list(report.completeness), "timing": taken_with | dict(report.timing)}
    yield "\n]," + dumped(tail)[1:] + "\n"


def dumped(value: Any) -> str:
    """Return strict JSON: NaN and infinities, which JSON lacks, become null."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(finite(value))


def finding_facts(finding: ReportedFinding) -> dict[str, Any]:
    """Return a finding as the contract has it."""
    names = ("code", "name", "severity", "sample_ids", "message", "evidence", "action")
    some = (name for name in ("fold", "same_as") if getattr(finding, name))
    return {name: getattr(finding, name) for name in (*names, "fingerprint", *some)}


def _fold_facts(check: CheckSummary, fold: Fold) -> dict[str, Any]:
    return {
        "fold": fold.name,
        "code": check.code,
        "severity": fold.severity,
        "splits": list(fold.splits),
        "n_findings": fold.n_findings,
        "n_files": fold.n_files,
        "n_split_files": fold.n_of,
        "n_short": max(fold.n_findings - TOLD_WHOLE, 0),
    }


def _failed_part(part: FailedPart) -> dict[str, str]:
    return {"code": part.code, "name": part.name, "error": part.error, "place": part.place}


def dataset_facts(report: Report) -> dict[str, Any]:
    """Return the dataset's counts; a file without split or class is counted under ""."""
    data = report.dataset
    return {
        "name": data.name,
        "roots": dict(data.roots),
        "layout": asdict(data.layout),
        "n_samples": data.n_samples,
        "n_bytes": data.n_bytes,
        "split": {split or "": n for split, n in data.by_split().items()},
        "class": {label or "": n for label, n in data.by_class().items()},
        "split_class": [asdict(count) for count in data.classes],
        "format": dict(data.formats),
        "status": dict(data.status),
        "sizes": [asdict(spread) for spread in data.sizes],
        "skipped": [asdict(skipped) for skipped in data.skipped],
        "notes": list(data.notes),
        "n_notes": data.n_notes,
    }


LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")  # a per cent sign that encodes nothing


def to_sarif(report: Report, found: Iterable[ReportedFinding] | None = None) -> Iterator[str]:
    """Yield the pieces of the SARIF log, a line a result; `found`: default, all of the run.

    A fault that two checks report is one result.
    """
    rules = sorted(report.checks, key=lambda check: check.code)
    places = {check.code: index for index, check in enumerate(rules)}
    bases = _bases(report.dataset.roots)
    notes = [{"level": "error", "message": {"text": part.sentence()}} for part in report.failed]
    name, _, version = report.tool.partition(" ")
    driver = {"name": name, "rules": [_rule(check) for check in rules]}
    head = {
        # First, so that the head of the file says whose it is.
        "properties": {"schema": SCHEMA, "completeness": list(report.completeness)},
        "tool": {"driver": driver | ({"version": version} if version else {})},
        "originalUriBaseIds": {
            base: {"uri": f"{_file_uri(folder)}/"} for folder, base in bases.items()
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
    }
    opening = dumped({"$schema": SCHEMA_URI, "version": "2.1.0"})[:-1]
    yield f'{opening}, "runs": [{dumped(head)[:-1]}, "results": ['
    every = stream_findings(report) if found is None else found
    for number, finding in enumerate(finding for finding in every if not finding.same_as):
        result = _result(finding, places, bases)
        yield (",\n" if number else "\n") + dumped(result)
    yield "\n]}]}\n"


def _rule(check: CheckSummary) -> dict[str, Any]:
    worst = check.counts.worst or Severity.WARNING
    rule: dict[str, Any] = {
        "id": check.code,
        "name": check.name,
        "shortDescription": {"text": check.name.replace("-", " ")},
        "defaultConfiguration": {"level": LEVELS[worst]},
    }
    if check.page:
        rule["help"] = {"text": check.page, "markdown": check.page}
    return rule


def _result(
    found: ReportedFinding, places: Mapping[str, int], bases: Mapping[str, str]
) -> dict[str, Any]:
    files = zip_longest(found.sample_ids[:LOCATED], found.uris[:LOCATED], fillvalue="")
    located = [
        (_physical(_artifact(uri, bases)) if uri else _root_location(bases))
        | {"logicalLocations": [{"fullyQualifiedName": sample}]}
        for sample, uri in files
    ]
    # Code hosts match results between runs by these fingerprints.
    result: dict[str, Any] = {
        "ruleId": found.code,
        "level": LEVELS[found.severity],
        "message": {"text": found.message},
        "locations": located[:1] or [_root_location(bases)],
        "partialFingerprints": {"auditFinding/v1": found.fingerprint},
        "properties": {
            "action": found.action,
            "evidence": found.evidence,
            "n_samples": found.n_samples,
        },
    }
    if found.code in places:
        result["ruleIndex"] = places[found.code]
    if located[1:]:
        result["relatedLocations"] = located[1:]
    return result


def _artifact(uri: str, bases: Mapping[str, str]) -> dict[str, str]:
    path = path_of(uri)
    if path is None:
        return {"uri": _STRAY.sub("%25", quote(uri, safe="%/:?#[]@!$&'()*+,;=~"))}
    inside = [folder for folder in bases if path.startswith(folder.rstrip("/") + "/")]
    if not inside:
        return {"uri": _file_uri(path)}
    folder = max(inside, key=len)
    relative = path[len(folder.rstrip("/")) + 1 :]
    # Colons are quoted: in the first part of a relative reference they read as a scheme.
    return {"uri": quote_from_bytes(os.fsencode(relative)), "uriBaseId": bases[folder]}


def _root_location(bases: Mapping[str, str]) -> dict[str, Any]:
    return _physical({"uri": "./", "uriBaseId": next(iter(bases.values()), "ROOT")})


def _physical(artifact: dict[str, str]) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": artifact}}


def _bases(roots: Mapping[str, str]) -> dict[str, str]:
    bases: dict[str, str] = {}
    for source, root in roots.items():
        plain = "ROOT_" + re.sub(r"[^A-Za-z0-9]", "_", source).upper() if source else "ROOT"
        name, number = plain, 2
        while name in bases.values():
            name, number = f"{plain}_{number}", number + 1
        place = path_of(root) or root
        is_table = place.rpartition(".")[2].lower() in FORMATS and not os.path.isdir(place)
        bases.setdefault(os.path.dirname(place) if is_table else place, name)
    return bases


def _file_uri(path: str) -> str:
    return "file://" + quote_from_bytes(os.fsencode(os.path.abspath(path))).rstrip("/")


# Characters that XML 1.0 cannot hold, not even escaped.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> Iterator[str]:
    """Yield the document; expectations are in it where `report.expected` has them."""
    root = ElementTree.Element(
        "testsuites", name=_plain(f"audit of {visible(report.dataset.name)}")
    )
    suites = [_checks_suite(report)]
    suites += [_expectations_suite(report.expected)] if report.expected else []
    for suite in suites:
        suite.set("tests", str(len(suite.findall("testcase"))))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
        root.append(suite)
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, 0)) for suite in suites)))
    ElementTree.indent(root)
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {SCHEMA} -->\n'
    yield ElementTree.tostring(root, encoding="unicode") + "\n"


def _checks_suite(report: Report) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name="checks", timestamp=report.created)
    properties = ElementTree.SubElement(suite, "properties")
    for severity, n in report.counts.items():
        name = f"findings.{severity.value}"
        ElementTree.SubElement(properties, "property", name=name, value=str(n))
    for check in sorted(report.checks, key=lambda c: c.code):
        suite.append(_check_case(report, check))
    for part in report.failed:
        name = f"{part.code} {part.name}".strip()
        suite.append(_case("checks", name, "error", part.error, part.sentence()))
    for name in report.not_run:
        suite.append(_case("checks", name, "skipped", "excluded by --checks"))
    return suite


def _check_case(report: Report, check: CheckSummary) -> ElementTree.Element:
    said = "\n".join([*_finding_lines(report, check), check.completeness])
    tag, message = "system-out" if said.strip() else "", None
    if check.counts.error:
        where = f" in {counted(check.n_files, 'file')}" if check.n_files else ""
        tag, message = "failure", f"{severity_counts(check.counts)}{where}"
    case = _case("checks", f"{check.code} {check.name}", tag, message, said)
    case.set("time", f"{check.seconds:.3f}")
    return case


def _finding_lines(report: Report, check: CheckSummary) -> Iterator[str]:
    """Yield the worst findings as lines, and how many more there are."""
    for fold in check.folds:
        yield f"{ICONS[fold.severity]} {fold_line(fold)}"
    for example in check.worst:
        found = example.finding
        yield f"{ICONS[found.severity]} {named_ids(found.sample_ids, found.n_samples)}: " + visible(
            found.message
        )
    if check.counts.total and (check.folds or check.n_single > len(check.worst)):
        yield f"full list: {list_command(report, check.code)}"


def _expectations_suite(outcomes: Sequence[ExpectationOutcome]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name="expectations")
    for one in outcomes:
        unmet = "inconclusive: " if one.met is None else "not met: "
        said = (None, one.message) if one.met else (f"{unmet}{one.message}", "")
        tag = "system-out" if one.met else "failure"
        suite.append(_case("expectations", one.name, tag, *said))
    return suite


def _case(
    suite: str, name: str, tag: str, message: str | None, text: str = ""
) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"audit.{suite}", name=_plain(name))
    if tag:
        said = {} if message is None else {"message": _plain(message)}
        ElementTree.SubElement(case, tag, said).text = _plain(text)
    return case


def _plain(text: str) -> str:
    """Return text with what XML cannot hold as escapes."""
    return _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
