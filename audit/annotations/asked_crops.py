"""Which boxes are cut out while pictures are measured: the table `boxed`, there for a scan alone.

What the numbers of a file mean is settled when the sizes of its pictures are known, which is after
they were decoded. So boxes are cut as the format of their file says; where another meaning is
settled on, crops fit no box and nothing is said of them.

Of very many boxes only those of some pictures are asked for: a half, a quarter, ..., always those
of the same pictures, so that a set may grow and its pictures need not be read again.
"""

from __future__ import annotations

import math

from audit.annotations.settling import reading_case
from audit.picture.crops import CROPS_VERSION, LEAST_BOXES, MOST_OF_PICTURE
from audit.run.store import Store

MOST = 20_000
"""Boxes that are asked for, at most: with their background they take 20 s and 40 MB on disk."""

_MATCHED = """
    CREATE OR REPLACE TEMP TABLE numbered AS
    WITH matched AS (
        SELECT file, image_key, min_by(sample_id, entry) AS sample_id FROM annotated_images
        WHERE sample_id IS NOT NULL GROUP BY file, image_key
    )
    SELECT m.sample_id AS id, n.v1 AS a, n.v2 AS b, n.v3 AS c, n.v4 AS d,
        regexp_replace(f.form, ' [a-z]+$', '') AS bare, ends_with(f.form, 'share') AS shares
    FROM annotations n JOIN matched m ON m.file = n.file AND m.image_key = n.image_key
    JOIN annotation_files f ON f.file = n.file
    WHERE n.kind <> 'label' AND isfinite(v1) AND isfinite(v2) AND isfinite(v3) AND isfinite(v4)
"""
_ASKED = """
    CREATE OR REPLACE TABLE boxed AS
    WITH placed AS (
        SELECT DISTINCT id, {x} AS x, {y} AS y, {w} AS w, {h} AS h, shares FROM numbered
        WHERE ('0x' || left(md5(id), 8))::UBIGINT % {part} = 0
    ), ordered AS (
        SELECT *, md5(concat_ws(' ', x, y, w, h, shares)) AS code FROM placed WHERE x IS NOT NULL
    )
    SELECT id, left(md5('{version}' || string_agg(code, '' ORDER BY code)), 16) AS digest,
        list([x, y, w, h, shares::DOUBLE] ORDER BY code) AS boxes
    FROM ordered GROUP BY id
"""


def ask_for_crops(store: Store) -> bool:
    """Make the table `boxed` (id, digest, boxes) of pictures with boxes; say if there is any."""
    store.execute("DROP TABLE IF EXISTS boxed")
    if int(store.scalar("SELECT count(*) FROM annotations WHERE kind <> 'label'")) < LEAST_BOXES:
        return False
    store.execute(_MATCHED)
    n = store.scalar(
        f"SELECT sum(least(n, {MOST_OF_PICTURE})) FROM (SELECT count(*) AS n FROM numbered "
        "GROUP BY id)"
    )
    part = 2 ** max(0, math.ceil(math.log2(max(int(n or 0), 1) / MOST)))
    numbers = {name: reading_case(at) for at, name in enumerate("xywh")}
    store.execute(_ASKED.format(**numbers, part=part, version=CROPS_VERSION))
    store.execute("DROP TABLE numbered")
    return bool(store.scalar("SELECT count(*) FROM boxed"))
