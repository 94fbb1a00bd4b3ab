"""What of a run version is compared with another: samples, findings, objects, features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from audit.errors import UsageError
from audit.picture.features import FEATURE_ROW
from audit.results.finding_index import STATUS, count_open, index_findings
from audit.results.grouping import OPEN
from audit.results.reader import RunReader, open_reader, reads
from audit.results.report_data import Counts
from audit.run import run_version
from audit.run.store import Store, identifier

SAMPLES = """
    SELECT s.id, f.content_hash, s.split, coalesce(s.label, l.labels) AS label
    FROM samples s LEFT JOIN features f ON f.sample_id = s.id LEFT JOIN (
        SELECT sample_id, string_agg(label, '; ' ORDER BY label) AS labels FROM several_labels
        GROUP BY sample_id
    ) l ON l.sample_id = s.id ORDER BY s.id
"""
FINDINGS = f"""
    SELECT f.fingerprint, f.code, f.name, f.severity, f.message, f.n_samples,
        coalesce(list(m.sample_id ORDER BY m.position)
            FILTER (WHERE m.sample_id IS NOT NULL), []) AS ids, min(f.rowid) AS place,
        coalesce(any_value(t.status), 'open') AS status
    FROM findings f LEFT JOIN finding_samples m USING (fingerprint)
    LEFT JOIN {STATUS} t USING (fingerprint) GROUP BY ALL ORDER BY place
"""
OBJECTS = """
    SELECT label AS class, sum(n)::BIGINT AS n FROM object_labels WHERE label IS NOT NULL
    GROUP BY label ORDER BY label
"""
RAN = "SELECT code FROM check_runs"  # a check that failed is not among them


@dataclass(frozen=True)
class RunFindings:
    """What of a run, or of a version, is compared; taken before a scan replaces it."""

    run: Path
    samples: pl.DataFrame
    findings: pl.DataFrame
    ran: frozenset[str]
    objects: pl.DataFrame
    vectors: str = ""  # what gave the embeddings: the model or file; empty if built in
    open: Counts = field(default_factory=Counts)

    @classmethod
    def of(cls, place: Path) -> RunFindings:
        """Read a run or a version of one, with the decisions of today; RunError without any."""
        results = open_reader(*run_version.find_version(place))
        with results.connection(index_findings) as store:
            used = json.loads(store.meta().get("related_as") or "{}").get("labels") or {}
            names = [n for n in ("embedder", "embeddings", "predictions") if n in used]
            vectors = json.dumps({name: used[name] for name in names}, sort_keys=True)
            return cls(
                place,
                store.query(SAMPLES),
                store.query(FINDINGS).drop("place"),
                frozenset(str(row["code"]) for row in store.rows(RAN)),
                store.query(OBJECTS),
                vectors if names else "",
                count_open(store),
            )


def samples_of(place: Path) -> pl.DataFrame:
    """Return the samples of a run or of a version; raises RunError where there is none."""
    with open_reader(*run_version.find_version(place)).connection() as store:
        return store.query(SAMPLES)


BY_SAMPLE = ("several_labels", "object_labels", "box_images")
# One file an image; an image with two labels teaches neither.
LABELLED = """
    SELECT min(i.id) AS id, min_by(i.uri, i.id) AS uri,
        min_by(i.content_hash, i.id) AS content_hash, any_value(p.unit) AS unit,
        min(trim(i.label)) AS label, any_value(i.width) AS width, any_value(i.height) AS height
    FROM images i JOIN pictures p USING (id)
    WHERE i.status = 'ok' AND i.pixel_hash IS NOT NULL AND trim(coalesce(i.label, '')) <> ''
        AND NOT p.blank
    GROUP BY i.pixel_hash HAVING count(DISTINCT trim(i.label)) = 1 ORDER BY i.pixel_hash
"""


def read_feature_tables(results: RunReader, split: str, prefix: str) -> dict[str, pl.DataFrame]:
    """Return samples, features, labels and groups in one split, `prefix` before each id.

    Raises UsageError for a run that lacks measured columns.
    """
    columns = ", ".join(identifier(c.name) for c in FEATURE_ROW if c.name != "sample_id")
    with results.connection() as store:
        missing = {c.name for c in FEATURE_ROW} - store.columns("features").keys()
        if missing:
            raise UsageError(
                f"{results.run} was scanned by a version that did not measure "
                f"{', '.join(sorted(missing))}: scan its source into it again."
            )
        named = "SELECT * REPLACE (concat(?, id) AS id, ? AS split) FROM samples"
        measured = f"SELECT concat(?, sample_id) AS sample_id, {columns} FROM features"
        renamed = "SELECT * REPLACE (concat(?, sample_id) AS sample_id) FROM"
        return {
            "samples": store.query(named, [prefix, split]),
            "features": store.query(measured, [prefix]),
            **{table: store.query(f"{renamed} {table}", [prefix]) for table in BY_SAMPLE},
            "groups": store.query("SELECT * FROM groups"),
        }


@reads()
def read_labelled_images(store: Store) -> pl.DataFrame:
    """Return id, uri, content_hash, unit, label, width and height of the labelled images."""
    return store.query(LABELLED)


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
