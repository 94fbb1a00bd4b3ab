"""How bounding boxes fit their images, from the stored signatures: the table `box_fits`.

For each annotation file: whether the boxes would fit better mirrored, moved or on the neighbouring
image (`audit.statistics.box_fit`). No file is opened: 2,000 images take about a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from audit.neighbors.pairs.signature_store import load_signatures
from audit.run.store import Store
from audit.statistics.box_fit import LEAST as LEAST_CELLS
from audit.statistics.box_fit import (
    SIDE,
    better_elsewhere,
    gains_elsewhere,
    integral_planes,
)

TABLE = "box_fits"
LEAST = 30
"""Pictures with boxes from which a file is judged."""
MOST = 2_000
"""Pictures of a file that are looked at, in stretches of `STRETCH`: neighbours stay neighbours."""
STRETCH = 25
EACH = 12
"""Boxes of a picture that are looked at: they count as one."""
_SQL = f"""
    WITH listed AS (
        SELECT file, image_key, sample_id, min(entry) AS place
        FROM annotated_images WHERE sample_id IS NOT NULL GROUP BY file, image_key, sample_id
    ), boxed AS (
        SELECT b.file, b.sample_id, b.entry, l.place, p.unit, i.content_hash,
            b.x / b.picture_width AS x0, b.y / b.picture_height AS y0,
            (b.x + b.width) / b.picture_width AS x1, (b.y + b.height) / b.picture_height AS y1,
            dense_rank() OVER (PARTITION BY b.file ORDER BY l.place, b.sample_id) - 1 AS rank
        FROM boxes b JOIN listed l USING (file, image_key, sample_id)
        JOIN images i ON i.id = b.sample_id JOIN pictures p ON p.id = b.sample_id
        WHERE b.width > 0 AND b.height > 0 AND NOT b.crowd AND i.status = 'ok'
            AND b.picture_width > 0
    ), chosen AS (
        SELECT * FROM boxed QUALIFY rank // {STRETCH}
            % ceil((1 + max(rank) OVER (PARTITION BY file)) / {MOST})::BIGINT = 0
    )
    SELECT * FROM chosen ORDER BY file, place, sample_id, entry
"""


def relate_box_fits(store: Store, run: Path) -> None:
    """Compare where boxes lie with where else they could."""
    store.execute(f"DELETE FROM {TABLE}")
    if not store.scalar("SELECT count(*) FROM annotation_files"):
        return
    finite = pl.all_horizontal(pl.col("^[xy][01]$").is_finite())
    listed = store.query(_SQL).filter(finite)
    for (file,), boxes in listed.partition_by("file", as_dict=True).items():
        if rows := _fits(run, boxes):
            store.append(TABLE, [{"file": file, **row} for row in rows])


def _fits(run: Path, boxes: pl.DataFrame) -> list[dict[str, Any]]:
    """Return a row for each other position of all boxes of a file."""
    pictures = boxes["content_hash"].unique(maintain_order=True)
    if len(pictures) < LEAST:
        return []
    table, found = load_signatures(run, pictures)
    numbers = {name: number for number, name in enumerate(pictures.to_list())}
    at = boxes["content_hash"].replace_strict(numbers, return_dtype=pl.Int64).to_numpy()
    size, trim = (table[name][at].astype(float) for name in ("size", "trim"))
    kept = np.maximum(size - trim[:, :2] - trim[:, 2:], 1)
    corners = boxes.select("x0", "y0", "x1", "y1").to_numpy() * np.tile(size, 2)
    cells = (corners - np.tile(trim[:, :2], 2)) / np.tile(kept, 2) * SIDE
    # of smaller boxes the planes show too little
    usable = found[at] & ((cells[:, 2:] - cells[:, :2]).min(1) >= LEAST_CELLS)
    nth = boxes.filter(usable).select(pl.int_range(pl.len()).over("sample_id")).to_series()
    usable[usable] = nth.to_numpy() < EACH
    boxes, at, cells = boxes.filter(usable), at[usable], cells[usable]
    unit = np.unique(boxes["unit"].to_numpy(), return_inverse=True)[1]
    sums = integral_planes(table["grey"], table["colour"])
    gains = gains_elsewhere(sums, at, cells)
    if len(np.unique(unit)) < LEAST:
        return []
    return [{"boxes": len(unit), "elsewhere": one.name, "gain_z": one.z, "share": one.share,
             "units": one.n} for one in better_elsewhere(gains, unit)]  # fmt: skip
