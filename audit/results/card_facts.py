"""What a data card says beyond a report: licences, decisions, a hash of the list of samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import blake3

from audit.results.reader import open_reader
from audit.results.report_data import Report
from audit.run.store import Store, identifier

LICENCE_COLUMNS = ("licence", "license")  # of a manifest, whatever their case
_LISTED = """
    SELECT s.id, f.content_hash, s.split, s.label FROM measurements.main.samples s
    LEFT JOIN measurements.main.features f ON f.sample_id = s.id ORDER BY s.id
"""
_PATTERNS = """
    SELECT regexp_extract(id, '\\.[^./]+$') AS ending, count(*) AS n FROM images
    WHERE format IS NOT NULL GROUP BY ALL ORDER BY n DESC, ending
"""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card says beyond a report: `licences` and `decisions` are counts by name.

    `list_hash`: BLAKE3-256, hex, of a line of JSON a sample by id: id, content hash, split, class.
    `endings`: of files that are pictures, the most frequent first.
    """

    licences: Mapping[str, int]
    decisions: Mapping[str, int]
    n_stale: int
    list_hash: str
    endings: tuple[str, ...]


def collect_facts(report: Report, licence: str = "") -> CardFacts:
    """Return the facts of a card; `licence` is that of all files and goes before a manifest's."""
    results = open_reader(report.version.path.parent, report.version)
    applied = results.decisions.applied
    verbs = applied.effective["verb"].to_list()
    verbs += applied.settled.filter(applied.settled["status"] == "waived")["verb"].to_list()
    with results.connection() as store:
        digest = blake3.blake3()
        for row in store.pages(_LISTED):
            digest.update(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        return CardFacts(
            {licence: report.dataset.n_samples} if licence else _licences(store),
            {verb: verbs.count(verb) for verb in sorted(set(verbs))},
            applied.stale.height,
            digest.hexdigest(),
            tuple(row["ending"] for row in store.rows(_PATTERNS) if row["ending"]),
        )


def _licences(store: Store) -> dict[str, int]:
    for name in store.columns("metadata"):
        if name.lower() in LICENCE_COLUMNS:
            text = f"trim({identifier(name)}::VARCHAR)"
            sql = f"SELECT {text}, count(*) FROM metadata WHERE {text} <> '' GROUP BY 1"
            sql += " ORDER BY 2 DESC, 1"
            return dict(store.query(sql).iter_rows())
    return {}
