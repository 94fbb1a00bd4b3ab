"""The report as JSON, schema `audit-report/1`: the contract that other programs rely on.

One document, yielded in pieces, so that a million findings pass through a few megabytes of memory.
`docs/report.md` describes every field; a field is added, never renamed, within a schema version.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from audit.records import FailedPart
from audit.report.collect import stream_findings
from audit.report.contents import SCHEMA, CheckSummary, Fold, Report, ReportedFinding

# Made once: `json.dumps` makes one for each call that is not plain.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# Of each fold, findings that are told whole. Those of 60,000 files would take 30 MB, nearly all of
# it one sentence and the same figures again and again; without these they take 10.
TOLD_WHOLE = 1000


def to_json(report: Report, found: Iterable[ReportedFinding] | None = None) -> Iterator[str]:
    """Yield the pieces of the JSON document, a line a finding; `found`: default, all of the run."""
    head = {
        "schema": SCHEMA,
        "run": report.run,
        "dataset": dataset_facts(report),
        "boxes": None if report.boxes is None else asdict(report.boxes),
        "summary": report.summary,
        "costs": [asdict(cost) for cost in report.costs],
        "waived": len(report.waived),
        "failed_checks": [_failed_part(part) for part in report.failed_checks],
        "failed_readers": [_failed_part(part) for part in report.failed_readers],
        "folds": [_fold_facts(check, fold) for check in report.checks for fold in check.folds],
    }
    yield dumped(head)[:-1] + ',"findings":['
    told: Counter[str] = Counter()
    for number, one in enumerate(stream_findings(report) if found is None else found):
        told[one.fold] += 1
        whole = not one.fold or told[one.fold] <= TOLD_WHOLE
        facts = finding_facts(one) if whole else _short_facts(one)
        yield (",\n" if number else "\n") + dumped(facts)
    tail = {"completeness": list(report.completeness), "timing": _timing(report)}
    yield "\n]," + dumped(tail)[1:] + "\n"


def dumped(value: Any) -> str:
    """Return strict JSON: NaN and infinities, which JSON lacks, become null."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_finite(value))


def finding_facts(finding: ReportedFinding) -> dict[str, Any]:
    """Return a finding as the contract has it."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "sample_ids": finding.sample_ids,
        "message": finding.message,
        "evidence": finding.evidence,
        "action": finding.action,
        "fingerprint": finding.fingerprint,
        **({"fold": finding.fold} if finding.fold else {}),
    }


def _short_facts(finding: ReportedFinding) -> dict[str, Any]:
    """Return a finding of a large fold: every field, but no sentence and no figures."""
    return finding_facts(finding) | {"message": "", "evidence": {}}


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


def _timing(report: Report) -> dict[str, Any]:
    # A time means nothing without the machine and the program that it was taken with.
    return {
        "created": report.created, "tool": report.tool, "machine": report.machine, **report.timing
    }  # fmt: skip


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
