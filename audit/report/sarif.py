"""The report as SARIF 2.1.0, which code hosts and editors read: a rule a check, a result a finding.

The first sample of a finding is its location, the others are related locations (at most 100, the
property `n_samples` has the count). A finding about the whole dataset points at the root folder,
because most readers refuse a result without a location. Source: OASIS, SARIF Version 2.1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from audit.records import Severity
from audit.report.collect import findings
from audit.report.contents import SCHEMA, CheckSummary, Found, Report
from audit.report.document import dumped

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
RELATED = 100
ABSOLUTE = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+://|/|[A-Za-z]:/)")


def to_sarif(report: Report, found: Iterable[Found] | None = None) -> Iterator[str]:
    """Yield the pieces of the SARIF log, a line a result; `found`: default, all of the run."""
    rules = sorted(report.checks, key=lambda check: check.code)
    places = {check.code: index for index, check in enumerate(rules)}
    head = {
        # First, so that the head of the file says whose it is.
        "properties": {"schema": SCHEMA, "completeness": list(report.completeness)},
        "tool": {"driver": _driver(report, rules)},
        "originalUriBaseIds": {
            _base(name): {"uri": _folder_uri(root)} for name, root in report.dataset.roots.items()
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
    }
    opening = dumped({"$schema": SCHEMA_URI, "version": "2.1.0"})[:-1]
    yield f'{opening}, "runs": [{dumped(head)[:-1]}, "results": ['
    for number, one in enumerate(findings(report) if found is None else found):
        result = _result(one, places, report.dataset.roots)
        yield (",\n" if number else "\n") + dumped(result)
    yield "\n]}]}\n"


def _invocation(report: Report) -> dict[str, Any]:
    """Return whether the audit is complete; each part that failed is a notification."""
    notes = [{"level": "error", "message": {"text": part.sentence()}} for part in report.failed]
    return {"executionSuccessful": not notes, "toolExecutionNotifications": notes}


def _driver(report: Report, rules: Iterable[CheckSummary]) -> dict[str, Any]:
    name, _, version = report.tool.partition(" ")
    found = {"name": name, "rules": [_rule(check) for check in rules]}
    return found | ({"version": version} if version else {})


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


def _result(found: Found, places: Mapping[str, int], roots: Mapping[str, str]) -> dict[str, Any]:
    located = [_location(sample, roots) for sample in found.sample_ids[: RELATED + 1]]
    result: dict[str, Any] = {
        "ruleId": found.code,
        "level": LEVELS[found.severity],
        "message": {"text": found.message},
        "locations": located[:1] or [_root_location(roots)],
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


def _location(sample: str, roots: Mapping[str, str]) -> dict[str, Any]:
    source, colon, rest = sample.partition(":")
    if colon and source and source in roots:
        return _physical({"uri": quote(rest), "uriBaseId": _base(source)})
    if ABSOLUTE.match(sample):
        prefix = "" if "://" in sample else "file://" + "/" * (not sample.startswith("/"))
        return _physical({"uri": prefix + quote(sample, safe=":/?&=%#" if not prefix else "/:")})
    # A colon in the first part of a relative reference would read as a scheme.
    return _physical({"uri": quote(sample), "uriBaseId": _base(next(iter(roots), ""))})


def _root_location(roots: Mapping[str, str]) -> dict[str, Any]:
    return _physical({"uri": "./", "uriBaseId": _base(next(iter(roots), ""))})


def _physical(artifact: dict[str, str]) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": artifact}}


def _base(source: str) -> str:
    return "ROOT_" + re.sub(r"[^A-Za-z0-9]", "_", source).upper() if source else "ROOT"


def _folder_uri(root: str) -> str:
    if "://" in root:
        return root.rstrip("/") + "/"
    return Path(root).absolute().as_uri().rstrip("/") + "/"
