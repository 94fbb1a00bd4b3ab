"""The tables that exports write: the kept and the dropped samples, changes, pairs, scores.

Copies are paired with the first of their set only, because all pairs of a set are quadratic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from audit.checking.runner import configure_checks
from audit.decisions.decisions import SEPARATOR, tagged_samples
from audit.decisions.waivers import Applied
from audit.results.finding_index import index_findings
from audit.results.grouping import OPEN
from audit.results.reader import RunReader, reads
from audit.run import run_version
from audit.run.store import Store, identifier

COLUMNS = (
    "a", "b", "split_a", "split_b", "label_a", "label_b", "kind", "distance", "similarity",
    "transformation", "score", "verified", "path_a", "path_b",
)  # fmt: skip
MANIFEST = ("id", "path", "split", "label", "group")

# A row per verified pair. `distance`: bits of the perceptual hash; `similarity`: a correlation;
# `score`: log odds; `transformation`: what turns a into b.
PAIRS = """
    WITH files AS (
        SELECT i.id, i.uri, i.split, i.label, i.content_hash, i.pixel_hash, p.blank,
            min(i.id) OVER (PARTITION BY i.content_hash) AS first_bytes,
            min(i.id) OVER (PARTITION BY i.pixel_hash) AS first_pixels
        FROM images i JOIN pictures p USING (id) WHERE i.pixel_hash IS NOT NULL
    ), paired AS (
        SELECT first_bytes AS x, id AS y, 'bytes' AS kind, 0 AS distance, 1.0 AS similarity,
            'same bytes' AS transformation, NULL::DOUBLE AS score
        FROM files WHERE content_hash IS NOT NULL AND id <> first_bytes
        UNION ALL
        SELECT first_pixels, id, 'pixels', 0, 1.0, 'same pixels, other bytes', NULL
        FROM files WHERE id = first_bytes AND id <> first_pixels AND NOT blank
        UNION ALL
        SELECT x.id, y.id, 'near', p.distance, p.similarity, p.transformation, p.score
        FROM pairs p
        JOIN files x ON x.pixel_hash = p.a AND x.id = x.first_pixels
        JOIN files y ON y.pixel_hash = p.b AND y.id = y.first_pixels
    )
    SELECT x AS a, y AS b, s.split AS split_a, t.split AS split_b, s.label AS label_a,
        t.label AS label_b, kind, distance, similarity, transformation, score, true AS verified,
        s.uri AS path_a, t.uri AS path_b
    FROM paired JOIN samples s ON s.id = x JOIN samples t ON t.id = y
    ORDER BY list_position(['bytes', 'pixels', 'near'], kind), a, b
"""
TAGS = f"""
    LEFT JOIN (SELECT id, string_agg(tag, '{SEPARATOR}' ORDER BY tag) AS tags FROM tags
    GROUP BY id) t ON t.id = s.id
"""
# `{extra}`: tags, and the other columns of a manifest.
KEPT = """
    SELECT s.id, s.uri AS path, coalesce(d.split, s.split) AS split,
        coalesce(d.label, s.label, l.labels) AS label, s.group_key AS "group"{extra}
    FROM measurements.main.samples s LEFT JOIN decided d ON d.id = s.id
    LEFT JOIN (SELECT sample_id, to_json(list(label ORDER BY label))::VARCHAR AS labels
        FROM several_labels GROUP BY sample_id) l ON l.sample_id = s.id {join}
    WHERE NOT coalesce(d.dropped, false) ORDER BY s.rowid
"""
# What was dropped, why and by whom, and the codes of its findings.
LEFT_OUT = """
    WITH codes AS (
        SELECT m.sample_id, string_agg(DISTINCT f.code, ' ' ORDER BY f.code) AS findings
        FROM judged.main.finding_samples m JOIN judged.main.findings f USING (fingerprint)
        SEMI JOIN decided d ON d.id = m.sample_id GROUP BY m.sample_id
    )
    SELECT s.id, s.uri AS path, s.split, s.label, d.why AS reason, c.findings, d.by, d.at
    FROM measurements.main.samples s JOIN decided d ON d.id = s.id
    LEFT JOIN codes c ON c.sample_id = s.id WHERE d.dropped ORDER BY s.rowid
"""
# The kept samples with another label or split than the scan saw.
CHANGED = """
    SELECT s.id, s.uri AS path, s.label AS label_before, coalesce(d.label, s.label) AS label,
        s.split AS split_before, coalesce(d.split, s.split) AS split, d.why AS reason, d.by, d.at
    FROM measurements.main.samples s JOIN decided d ON d.id = s.id
    WHERE NOT d.dropped AND (coalesce(d.label, s.label) IS DISTINCT FROM s.label
        OR coalesce(d.split, s.split) IS DISTINCT FROM s.split) ORDER BY s.rowid
"""
# Every measured feature, one row per sample, as scanned; labels where judged.
SCORES = """
    SELECT i.id AS sample_id, i.uri AS path, i.split, i.label,
        i.* EXCLUDE (id, uri, split, label, source, mtime_ns, ctime_ns, subject),
        l.label_quality, l.suggested_label
    FROM images i LEFT JOIN label_scores l ON l.sample_id = i.id ORDER BY i.id
"""


# Each table with its query; `_manifest` and the decisions that do not apply are made otherwise.
TABLES: Mapping[str, str] = {
    "manifest": KEPT,
    "quarantine": LEFT_OUT,
    "changes": CHANGED,
    "pairs": PAIRS,
    "scores": SCORES,
    "stale": "",
}


# Where each sample is and what it holds, in the order of the listing.
LISTED = """
    SELECT s.id, s.uri, s.source, s.split AS split_before, s.label AS label_before, s.n_bytes,
        s.mtime_ns, f.content_hash, f.pixel_hash, f.format, f.status, f.error_kind, p.unit
    FROM measurements.main.samples s
    LEFT JOIN measurements.main.features f ON f.sample_id = s.id
    LEFT JOIN measurements.main.pictures p ON p.id = s.id ORDER BY s.rowid
"""
VERIFIED_PAIRS = "SELECT a, b FROM measurements.main.pairs"  # hashes of pixels
_CLASSES = """
    SELECT sample_id, CASE WHEN kind IN ('folder', 'column') THEN 'pictures' ELSE 'objects' END,
        label, sum(n)::BIGINT FROM labels WHERE trim(coalesce(label, '')) <> '' GROUP BY ALL
"""


@dataclass(frozen=True, slots=True)
class Tables:
    """What there is to export of a run; each table is made when it is asked for."""

    store: Store
    decided: Applied

    def table(self, name: str) -> pl.DataFrame:
        """Return one of `TABLES`."""
        if name == "stale":
            return self.decided.stale
        if name == "manifest":
            return self._manifest()
        frame = self.store.query(TABLES[name])
        return frame.select(COLUMNS) if name == "pairs" else frame

    def _manifest(self) -> pl.DataFrame:
        own = [c for c in self.store.columns("metadata") if c != "sample_id"]
        tagged = self.store.scalar("SELECT count(*) FROM tags")
        ours = (*MANIFEST, "tags") if tagged else MANIFEST
        named = {c: _free_name(c, (*ours, *own)) if c in ours else c for c in own}
        extra = "".join(f", x.{identifier(c)} AS {identifier(new)}" for c, new in named.items())
        join = "LEFT JOIN metadata x ON x.sample_id = s.id" if own else ""
        if tagged:
            extra, join = f", t.tags{extra}", f"{join} {TAGS}"
        return self.store.query(KEPT.format(extra=extra, join=join))

    def classes_of(self, known: pl.DataFrame) -> dict[str, dict[tuple[str, str], int]] | None:
        """Return the classes of each sample, with how many; None where each is of one at most."""
        sql = "SELECT DISTINCT sample_id FROM several_labels"
        several = set(self.store.query(sql)["sample_id"])
        if not several and not self.store.scalar("SELECT count(*) FROM object_labels"):
            return None
        held: dict[str, dict[tuple[str, str], int]] = {}
        decided = known.filter(pl.col("label").is_not_null())
        for sample, label in decided.select("id", "label").iter_rows():
            if sample not in several or not label.startswith("["):
                held[sample] = {("pictures", label): 1}
        own = set(held)
        for sample, of, label, n in self.store.query(_CLASSES).iter_rows():
            if of == "objects" or sample not in own:
                held.setdefault(sample, {})[of, label] = n
        return held

    def torn_sequences(self, samples: pl.DataFrame) -> list[tuple[str, ...]]:
        """Return the members of each group, numbered sequence and burst that these splits tear."""
        (leakage,) = configure_checks(["SPLIT002"], {})
        self.store.show_split_as(samples)
        return [finding.sample_ids for finding in leakage.check.find(self.store, leakage.params)]


@contextlib.contextmanager
def open_tables(results: RunReader) -> Iterator[Tables]:
    """Open what there is to export of a run, with the decisions as they are now."""
    with results.connection() as store:
        run_version.with_own_tables(store)
        store.create_from("decided", results.decisions.applied.effective)
        store.create_from("tags", tagged_samples(results.run, results.version))
        yield Tables(store, results.decisions.applied)


def _free_name(name: str, taken: Sequence[str]) -> str:
    """Return `name_2`, or the next number that is no column yet."""
    lowered = {other.lower() for other in taken}
    number = 2
    while f"{name}_{number}".lower() in lowered:
        number += 1
    return f"{name}_{number}"


@reads()
def annotation_formats(store: Store) -> list[str]:
    """Return the formats of the annotation files of a run, by name."""
    if not store.columns("annotation_files"):
        return []
    names = store.query("SELECT DISTINCT format FROM annotation_files ORDER BY format")["format"]
    return [str(name) for name in names]


# Images with an open finding or a decision, as labelling tools get them.
_REVIEWED = f"""
    WITH found AS (
        SELECT m.sample_id, list(f.fingerprint ORDER BY f.fingerprint) AS prints,
            list(f.code || ': ' || f.message ORDER BY f.code, f.fingerprint) AS said
        FROM {OPEN} f JOIN judged.main.finding_samples m USING (fingerprint)
        {{which}} GROUP BY m.sample_id
    )
    SELECT i.id, i.uri, i.content_hash, i.width, i.height,
        coalesce(d.label, i.label) AS label, coalesce(d.dropped, false) AS dropped, d.verb,
        coalesce(found.prints, []) AS prints, coalesce(found.said, []) AS said
    FROM images i LEFT JOIN found ON found.sample_id = i.id LEFT JOIN decided d ON d.id = i.id
    WHERE i.content_hash IS NOT NULL {{where}} ORDER BY i.id
"""


def read_review_rows(
    results: RunReader, samples: Sequence[str] | None = None, codes: Sequence[str] = ()
) -> pl.DataFrame:
    """Return id, uri, content_hash, width, height, label, dropped, verb, fingerprints and texts.

    Of images with an open finding or a decision, by id, or of `samples`; `codes` may be prefixes.
    """
    with results.connection(index_findings) as store:
        run_version.with_own_tables(store)
        store.create_from("decided", results.decisions.applied.effective)
        where, which = "AND (found.prints IS NOT NULL OR d.id IS NOT NULL)", ""
        if codes:
            store.create_from("chosen", pl.DataFrame({"code": codes}, {"code": pl.String}))
            which = "WHERE EXISTS (SELECT 1 FROM chosen c WHERE starts_with(f.code, c.code))"
            where = "AND found.prints IS NOT NULL"
        if samples is not None:
            store.create_from("requested", pl.DataFrame({"id": samples}, {"id": pl.String}))
            where = "AND i.id IN (SELECT id FROM requested)"
        return store.query(_REVIEWED.format(where=where, which=which))
