"""What the values of a row of the ledger may be: another program, or damage, may have changed them.

The chain of digests proves every row, but only `audit verify` reads it to its end. A reader checks
kinds and shapes alone, in microseconds a row, so that no value surprises what is derived from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from audit.records import Severity

SEVERITIES = {severity.value for severity in Severity}
FIXES = {"clip", "box", "drop", "size"}


def find_wrong_value(row: Sequence[Any]) -> str | None:
    """Return the name of the first value that no ledger holds, None where all are sound.

    `row`: id, at, by, verb, value, subject, kind, content_hash, note, undone, batch, evidence.
    """
    number, at, by, _, value, subject, kind, content, note, _, _, evidence = row
    texts = {"at": at, "by": by, "subject": subject, "kind": kind, "note": note}
    optional = {"value": value, "content_hash": content, "evidence": evidence}
    if not isinstance(number, int):
        return "id"
    for name, found in (*texts.items(), *optional.items()):
        if not (isinstance(found, str) or (found is None and name in optional)):
            return name
    return None if evidence is None or _is_evidence(evidence) else "evidence"


def _is_evidence(text: str) -> bool:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and _is_snapshot(found)


def _is_snapshot(found: Mapping[str, Any]) -> bool:
    """Say whether this may be what a decision kept of a finding, or the keeper of a drop."""
    members = found.get("members", [])
    return (
        isinstance(members, list)
        and all(_is_member(one) for one in (*members, found.get("keeper", ["", ""])))
        and ("members" not in found or isinstance(found.get("code"), str))
        and isinstance(found.get("subject", ""), str)
        and isinstance(found.get("evidence", {}), dict)
        and type(found.get("n_samples", 0)) is int
        and found.get("severity", Severity.INFO.value) in SEVERITIES
        and isinstance(found.get("fixes", []), list)
        and all(_is_fix(one) for one in found.get("fixes", []))
    )


def _is_fix(one: object) -> bool:
    """Say whether it may be what a decision changes of one annotation, class or entry."""
    if not isinstance(one, dict) or not {"what", "file", "before", "after"} <= one.keys():
        return False
    what, before, after = one["what"], one["before"], one["after"]
    if what == "rename":
        return isinstance(before, str) and isinstance(after, str)
    if not isinstance(one.get("image_key"), str):
        return False
    if what == "class":
        return isinstance(before, str | None) and isinstance(after, str)
    n = 2 if what == "size" else 4
    good = _is_numbers(before, n) and (what == "drop" or _is_numbers(after, n))
    return good and what in FIXES and _is_numbers(one.get("within", [0, 0]), 2)


def _is_numbers(value: object, n: int) -> bool:
    return (
        isinstance(value, list) and len(value) == n and all(type(v) in (int, float) for v in value)
    )


def _is_member(one: object) -> bool:
    """Say whether it is a sample id with a content hash, which a sample without bytes lacks."""
    return (
        isinstance(one, list)
        and len(one) == 2
        and isinstance(one[0], str)
        and isinstance(one[1], str | None)
    )
