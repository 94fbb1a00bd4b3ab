"""Images with an open finding or a decision, as labelling tools get them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from audit.results.finding_index import index_findings
from audit.results.grouping import OPEN
from audit.results.reader import RunReader
from audit.run.run_version import with_own_tables

_ROWS = f"""
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
        with_own_tables(store)
        store.create_from("decided", results.decisions.applied.effective)
        where, which = "AND (found.prints IS NOT NULL OR d.id IS NOT NULL)", ""
        if codes:
            store.create_from("chosen", pl.DataFrame({"code": codes}, {"code": pl.String}))
            which = "WHERE EXISTS (SELECT 1 FROM chosen c WHERE starts_with(f.code, c.code))"
            where = "AND found.prints IS NOT NULL"
        if samples is not None:
            store.create_from("requested", pl.DataFrame({"id": samples}, {"id": pl.String}))
            where = "AND i.id IN (SELECT id FROM requested)"
        return store.query(_ROWS.format(where=where, which=which))
