"""Numbers and names of a run, or of one split of it, that expectations compare."""

from __future__ import annotations

from collections.abc import Mapping

from audit.results.finding_index import count_open, index_findings
from audit.results.grouping import OPEN
from audit.results.reader import reads
from audit.run.store import Store

OF_CODE = (
    f"SELECT count(*) FROM {OPEN} f WHERE f.code = ? AND (? OR EXISTS (SELECT 1 FROM "
    "finding_samples m JOIN samples s ON s.id = m.sample_id "
    "WHERE m.fingerprint = f.fingerprint AND s.split = ?))"
)
PART = "(? OR split = ?)"


def _select(what: str, table: str, where: str = "true") -> str:
    return f"SELECT {what} FROM {table} WHERE {where} AND {PART}"


_CLASSES = f"({_select('count(*) AS n', 'picture_labels', 'label IS NOT NULL')} GROUP BY label)"
_LEAKED = (
    "count(*) FILTER (WHERE id IN (SELECT m.sample_id FROM finding_samples m JOIN findings f "
    "USING (fingerprint) WHERE f.code = 'SPLIT001')) / nullif(count(*), 0)"
)
NUMBERS: Mapping[str, tuple[str, str]] = {
    "files": ("files", _select("count(*)", "samples")),
    "unlabelled": ("files without a class", _select("count(*)", "picture_labels", "label IS NULL")),
    "unreadable": (
        "files without an image", _select("count(*)", "images", "status = 'unreadable'"),
    ),
    "damaged": ("damaged files", _select("count(*)", "images", "status = 'damaged'")),
    "min_side": (
        "shorter side of the smallest image, px",
        _select("min(least(width, height))", "images"),
    ),
    "max_side": (
        "longer side of the largest image, px",
        _select("max(greatest(width, height))", "images"),
    ),
    "per_class": ("files of the smallest class", f"SELECT min(n) FROM {_CLASSES}"),
    "largest_over_smallest_class": (
        "files of the largest class divided by files of the smallest class",
        f"SELECT max(n) / min(n) FROM {_CLASSES}",
    ),
    "duplicate_share": (
        "share of the images that are copies of another image, near-duplicates included",
        _select("1 - count(DISTINCT unit) / count(*)", "pictures"),
    ),
    "leaked_share": (
        "share of the files outside training that are also in another split",
        _select(_LEAKED, "samples", "split IS NOT NULL AND split NOT IN ('train', 'training')"),
    ),
}  # fmt: skip
"""Of the files: what the number is, and its query (whole dataset?, split)."""
SEVERITIES = {"errors": "error", "warnings": "warning"}
NAMES: Mapping[str, str] = {
    "classes": _select("DISTINCT label", "picture_labels", "label IS NOT NULL"),
    "splits": _select("DISTINCT split", "samples", "split IS NOT NULL"),
    "formats": _select("DISTINCT format", "images", "format IS NOT NULL"),
}


@reads(index_findings)
def read_number(store: Store, name: str, split: str) -> float | None:
    """Return a number of `NUMBERS` or `SEVERITIES`, or the open findings of a code.

    `split`: "" for the whole run. None where there is nothing to count.
    """
    if name in SEVERITIES:
        return float(getattr(count_open(store, split or None), SEVERITIES[name]))
    place = [not split, split]
    if name in NUMBERS:
        value = store.scalar(NUMBERS[name][1], place)
    else:
        value = store.scalar(OF_CODE, [name, *place])
    return None if value is None else float(value)


@reads()
def list_names(store: Store, name: str, split: str) -> list[str]:
    """Return classes, splits or formats (`NAMES`) of a split, or of the run; sorted."""
    rows = store.query(f"{NAMES[name]} ORDER BY 1", [not split, split])
    return [str(value) for value in rows.to_series()]
