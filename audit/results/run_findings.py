"""What of a run version is compared with another: samples, findings, objects, checks that ran."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from audit.results.finding_index import STATUS, count_open, index_findings
from audit.results.reader import open_reader
from audit.results.report_data import Counts
from audit.run import run_version

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
