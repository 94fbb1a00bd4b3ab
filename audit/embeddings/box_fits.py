"""How boxes fit the pictures they lie on, from the stored signatures; into the table `box_fits`.

For each annotation file, and for each class of it, whether its boxes would fit better mirrored,
moved or on the neighbouring picture (`audit.statistics.box_fit`). No file is opened: 2,000 pictures
take about a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from audit.neighbors.pairs.signature_store import load_signatures
from audit.run.store import Store
from audit.statistics.box_fit import LEAST as LEAST_CELLS
from audit.statistics.box_fit import SIDE, fit_elsewhere, integral_planes

TABLE = "box_fits"
LEAST = 30
"""Pictures with boxes from which a file or a class is judged."""
MOST = 2_000
"""Pictures of a file that are looked at, the first ones: neighbours stay neighbours."""
_SQL = """
    WITH listed AS (
        SELECT file, image_key, sample_id, min(entry) AS place FROM annotated_images
        WHERE sample_id IS NOT NULL GROUP BY file, image_key, sample_id
    )
    SELECT b.file, b.label, b.sample_id, l.place, p.unit, i.content_hash,
        b.x / b.picture_width AS x0, b.y / b.picture_height AS y0,
        (b.x + b.width) / b.picture_width AS x1, (b.y + b.height) / b.picture_height AS y1
    FROM boxes b JOIN listed l USING (file, image_key, sample_id)
    JOIN images i ON i.id = b.sample_id JOIN pictures p ON p.id = b.sample_id
    WHERE b.width > 0 AND b.height > 0 AND NOT b.crowd AND i.status = 'ok' AND b.picture_width > 0
    QUALIFY dense_rank() OVER (PARTITION BY b.file ORDER BY l.place, b.sample_id) <= ?
    ORDER BY b.file, l.place, b.sample_id, b.entry
"""


def relate_box_fits(store: Store, run: Path) -> None:
    """Compare where boxes lie with where else they could."""
    store.execute(f"DELETE FROM {TABLE}")
    if not store.scalar("SELECT count(*) FROM annotation_files"):
        return
    finite = pl.all_horizontal(pl.col("^[xy][01]$").is_finite())
    listed = store.query(_SQL, [MOST]).filter(finite)
    for (file,), boxes in listed.partition_by("file", as_dict=True).items():
        rows = [{"file": file, **row} for row in _fits(run, boxes)]
        if rows:
            store.append(TABLE, rows)


def _fits(run: Path, boxes: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row for each place of all boxes of a file, and of those of each class."""
    pictures = boxes["content_hash"].unique(maintain_order=True)
    if len(pictures) < LEAST:
        return
    table, found = load_signatures(run, pictures)
    sums = integral_planes(table["grey"], table["colour"])
    numbers = {name: number for number, name in enumerate(pictures.to_list())}
    at = boxes["content_hash"].replace_strict(numbers, return_dtype=pl.Int64).to_numpy()
    unit = np.unique(boxes["unit"].to_numpy(), return_inverse=True)[1]
    size, trim = (table[name][at].astype(float) for name in ("size", "trim"))
    kept = np.maximum(size - trim[:, :2] - trim[:, 2:], 1)
    corners = boxes.select("x0", "y0", "x1", "y1").to_numpy() * np.tile(size, 2)
    cells = (corners - np.tile(trim[:, :2], 2)) / np.tile(kept, 2) * SIDE
    # of smaller boxes the planes show too little
    usable = found[at] & ((cells[:, 2:] - cells[:, :2]).min(1) >= LEAST_CELLS)
    labels = boxes["label"].fill_null("").to_numpy()
    for label in (None, *np.unique(labels[usable])):
        of = usable if label is None else usable & (labels == label)
        if len(np.unique(unit[of])) >= LEAST:
            for one in fit_elsewhere(sums, at[of], cells[of], unit[of]).values():
                yield {"label": label, "boxes": int(of.sum()), "elsewhere": one.name,
                       "gain_z": one.z, "share": one.share, "units": one.n}  # fmt: skip
