"""Which splits show the same pictures: the overlap matrix, by the rule of SPLIT001.

A sample of one split *also occurs* in another where that other has its bytes, its pixels, its group
of near-duplicates or a verified pair. Pictures of one colour are left out, as all are alike. One
query a split; on 1,000,000 samples about 0.5 s each.
"""

from __future__ import annotations

import polars as pl

from audit.run.store import Store

SEEN_IN = """
    WITH placed AS (
        SELECT * FROM pictures WHERE split IS NOT NULL AND pixel_hash IS NOT NULL AND NOT blank
    ), seen AS (SELECT * FROM placed WHERE split = ?),
    near AS (
        SELECT b AS pixel_hash FROM pairs SEMI JOIN seen ON seen.pixel_hash = pairs.a
        UNION SELECT a FROM pairs SEMI JOIN seen ON seen.pixel_hash = pairs.b
    )
    SELECT split AS of, ? AS in, count(*) FILTER (
            WHERE unit IN (SELECT unit FROM seen) OR pixel_hash IN (SELECT pixel_hash FROM near)
        ) AS shared
    FROM placed WHERE split <> ? GROUP BY split ORDER BY split
"""
SIZES = """
    SELECT split AS of, count(*) AS files FROM pictures
    WHERE split IS NOT NULL AND pixel_hash IS NOT NULL GROUP BY split ORDER BY split
"""
MATRIX = pl.Schema(
    {"of": pl.String, "in": pl.String, "shared": pl.Int64, "files": pl.Int64, "share": pl.Float64}
)


def overlap_matrix(store: Store) -> pl.DataFrame:
    """Return `of, in, shared, files, share`: of the files of one split, those also in another."""
    sizes = store.query(SIZES)
    names = sizes["of"].to_list()
    if len(names) < 2:
        return pl.DataFrame(schema=MATRIX)
    parts = [store.query(SEEN_IN, [name, name, name]) for name in names]
    joined = pl.concat(parts).join(sizes, on="of")
    share = pl.col("shared") / pl.col("files")
    return joined.with_columns(share=share).sort("of", "in").select(MATRIX.names())
