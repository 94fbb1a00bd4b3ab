"""The report as SARIF 2.1.0, which code hosts and editors read: a rule a check, a result a finding.

The first sample of a finding is its location, the others are related locations (at most 100, the
property `n_samples` has the count). A location is the uri of the file, percent-encoded and relative
to its root where it lies below one; the sample's id, which need not be a path, stands beside it as
a logical location. A finding about the whole dataset points at the root folder, because most
readers refuse a result without a location. Source: OASIS, SARIF Version 2.1.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any
from urllib.parse import quote, quote_from_bytes

from audit.records import Severity
from audit.report.collect import stream_findings
from audit.report.contents import LOCATED, SCHEMA, CheckSummary, Report, ReportedFinding
from audit.report.document import dumped
from audit.sources.manifest_rows import FORMATS
from audit.sources.paths import path_of

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")  # a per cent sign that encodes nothing


def to_sarif(report: Report, found: Iterable[ReportedFinding] | None = None) -> Iterator[str]:
    """Yield the pieces of the SARIF log, a line a result; `found`: default, all of the run."""
    rules = sorted(report.checks, key=lambda check: check.code)
    places = {check.code: index for index, check in enumerate(rules)}
    bases = _bases(report.dataset.roots)
    head = {
        # First, so that the head of the file says whose it is.
        "properties": {"schema": SCHEMA, "completeness": list(report.completeness)},
        "tool": {"driver": _driver(report, rules)},
        "originalUriBaseIds": {
            base: {"uri": f"{_file_uri(folder)}/"} for folder, base in bases.items()
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
    }
    opening = dumped({"$schema": SCHEMA_URI, "version": "2.1.0"})[:-1]
    yield f'{opening}, "runs": [{dumped(head)[:-1]}, "results": ['
    for number, one in enumerate(stream_findings(report) if found is None else found):
        result = _result(one, places, bases)
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


def _result(
    found: ReportedFinding, places: Mapping[str, int], bases: Mapping[str, str]
) -> dict[str, Any]:
    files = zip_longest(found.sample_ids[:LOCATED], found.uris[:LOCATED], fillvalue="")
    located = [_location(sample, uri, bases) for sample, uri in files]
    # Code hosts match results between runs by these fingerprints, not by line numbers.
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


def _location(sample: str, uri: str, bases: Mapping[str, str]) -> dict[str, Any]:
    found = _physical(_artifact(uri, bases)) if uri else _root_location(bases)
    return {**found, "logicalLocations": [{"fullyQualifiedName": sample}]}


def _artifact(uri: str, bases: Mapping[str, str]) -> dict[str, str]:
    path = path_of(uri)
    if path is None:
        return {"uri": _STRAY.sub("%25", quote(uri, safe="%/:?#[]@!$&'()*+,;=~"))}
    inside = [folder for folder in bases if path.startswith(folder.rstrip("/") + "/")]
    if not inside:
        return {"uri": _file_uri(path)}
    folder = max(inside, key=len)
    relative = path[len(folder.rstrip("/")) + 1 :]
    # Quoted with its colons: one in the first part of a relative reference reads as a scheme.
    return {"uri": quote_from_bytes(os.fsencode(relative)), "uriBaseId": bases[folder]}


def _root_location(bases: Mapping[str, str]) -> dict[str, Any]:
    return _physical({"uri": "./", "uriBaseId": next(iter(bases.values()), "ROOT")})


def _physical(artifact: dict[str, str]) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": artifact}}


def _bases(roots: Mapping[str, str]) -> dict[str, str]:
    """Return {folder: the name of its base}: ROOT, or ROOT_ and the source, each only once."""
    bases: dict[str, str] = {}
    for source, root in roots.items():
        plain = "ROOT_" + re.sub(r"[^A-Za-z0-9]", "_", source).upper() if source else "ROOT"
        name, number = plain, 2
        while name in bases.values():
            name, number = f"{plain}_{number}", number + 1
        bases.setdefault(_folder(path_of(root) or root), name)
    return bases


def _folder(root: str) -> str:
    """Return where a root's files lie: that of a manifest is its folder."""
    is_table = root.rpartition(".")[2].lower() in FORMATS and not os.path.isdir(root)
    return os.path.dirname(root) if is_table else root


def _file_uri(path: str) -> str:
    return "file://" + quote_from_bytes(os.fsencode(os.path.abspath(path))).rstrip("/")
