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


def _no_objects() -> pl.DataFrame:
    return pl.DataFrame(schema={"class": pl.String, "n": pl.Int64})


@dataclass(frozen=True)
class RunFindings:
    """What of a run, or of a version, is compared; taken before a scan replaces it."""

    run: Path
    samples: pl.DataFrame
    findings: pl.DataFrame
    ran: frozenset[str]
    objects: pl.DataFrame = field(default_factory=_no_objects)
    vectors: str = ""
    open: Counts = field(default_factory=Counts)

    @classmethod
    def of(cls, place: Path) -> RunFindings:
        """Read a run or a version of one, with the decisions of today; RunError without any."""
        results = open_reader(*run_version.find_version(place))
        with results.connection(index_findings) as store:
            return cls(
                place,
                store.query(SAMPLES),
                store.query(FINDINGS).drop("place"),
                frozenset(str(row["code"]) for row in store.rows(RAN)),
                store.query(OBJECTS),
                _vectors(store.meta()),
                count_open(store),
            )


def _vectors(meta: Mapping[str, str]) -> str:
    """Return what gave the vectors of a run: it names the model or file, empty if built in."""
    used = json.loads(meta.get("related_as") or "{}").get("labels") or {}
    given = {name: used[name] for name in ("embedder", "embeddings", "predictions") if name in used}
    return json.dumps(given, sort_keys=True) if given else ""


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
