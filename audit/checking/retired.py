"""Codes of checks that no longer exist, with what to use instead; no code is used again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RETIRED: Mapping[str, str] = {
    "BOX030": "use `audit subset score`, which compares masks with predicted ones (mean IoU)",
    "BOX031": "compare boxes with a detector: `audit scan --predictions FILE` (BOX027 to BOX029)",
    "BOX032": "compare boxes with a detector: `audit scan --predictions FILE` (BOX027 to BOX029)",
    "DIST005": "use DIST004, which reports single properties that separate a class",
    "DIST010": "use DIST011, which reports images without objects",
    "DIST012": "use DIST004, which reports a class by its aspect ratio, or view its images in "
    "`audit app`",
    "IMG009": "order the table embedding_map by `isolation` in `audit sql`",
}


def retirement(code: str) -> str | None:
    """Return a sentence on a retired code and its replacement, None for any other code."""
    replacement = RETIRED.get(code.upper())
    return None if replacement is None else f"{code.upper()} was retired: {replacement}."


def without_retired(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a table of settings without the keys that are retired codes, and a note for each."""
    kept, notes = dict[str, Any](), list[str]()
    for key, value in table.items():
        if note := retirement(key):
            notes.append(f"{note} Its settings are ignored.")
        else:
            kept[key] = value
    return kept, notes
