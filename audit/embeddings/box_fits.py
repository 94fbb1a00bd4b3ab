"""How boxes fit the pictures they lie on, from the stored signatures: `box_fits` and `box_parts`.

For each annotation file, and for parts of it that have a name (a class, a split, a folder, a size,
the pictures from some entry on), whether the boxes would fit better mirrored, moved or on the
neighbouring picture (`audit.statistics.box_fit`). No file is opened: 2,000 pictures take about a
second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from audit.neighbors.pairs.signature_store import load_signatures
from audit.run.store import Store
from audit.statistics.box_fit import LEAST as LEAST_CELLS
from audit.statistics.box_fit import (
    SIDE,
    Floats,
    Ints,
    better_elsewhere,
    gains_elsewhere,
    gains_on_others,
    integral_planes,
)
from audit.statistics.box_parts import ANY, BLOCKS, CLASS, NEAR, RUNS, find_parts, shares_turned
from audit.statistics.box_parts import LEAST as LEAST_PART

TABLES = ("box_fits", "box_parts")
LEAST = 30
"""Pictures with boxes from which a file is judged."""
MOST = 2_000
"""Pictures of a file that are looked at, in stretches of `STRETCH`: neighbours stay neighbours."""
STRETCH = 25
EACH = 12
"""Boxes of a picture that are looked at: they count as one."""
VALUES = 200
"""Values of a column from which it names no part."""
FOLDERS, KEYS = 7, 50
"""Levels of folders and keys of attributes that are looked at."""
NAMES = {
    "whose names begin with {}": r"^([^_\-. ]+)[_\-. ]",
    "whose names begin with {} ": r"^([A-Za-z]+)",
    "whose names end in {}": r"([_\-. ][^_\-. ]+)\.[^.]*$",
    "whose names end in {} ": r"(\.[^.]*)$",
}
_SQL = f"""
    WITH listed AS (
        SELECT file, image_key, sample_id, min(entry) AS place,
            any_value(attributes) AS of_picture
        FROM annotated_images WHERE sample_id IS NOT NULL GROUP BY file, image_key, sample_id
    ), boxed AS (
        SELECT b.file, b.label, b.sample_id, b.image_key, b.entry, l.place, l.of_picture, p.unit,
            i.content_hash, i.split, i.width, i.height, i.orientation,
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
    SELECT c.*, a.attributes FROM chosen c LEFT JOIN annotations a
        ON a.file = c.file AND a.image_key = c.image_key AND a.entry = c.entry
    ORDER BY c.file, place, c.sample_id, c.entry
"""


def relate_box_fits(store: Store, run: Path) -> None:
    """Compare where boxes lie with where else they could."""
    for table in TABLES:
        store.execute(f"DELETE FROM {table}")
    if not store.scalar("SELECT count(*) FROM annotation_files"):
        return
    finite = pl.all_horizontal(pl.col("^[xy][01]$").is_finite())
    listed = store.query(_SQL).filter(finite)
    for (file,), boxes in listed.partition_by("file", as_dict=True).items():
        for table, rows in zip(TABLES, _fits(run, boxes), strict=True):
            if rows:
                store.append(table, [{"file": file, **row} for row in rows])


Rows = list[dict[str, Any]]


def _fits(run: Path, boxes: pl.DataFrame) -> tuple[Rows, Rows]:
    """Return a row for each place of all boxes of a file, and for each part."""
    pictures = boxes["content_hash"].unique(maintain_order=True)
    if len(pictures) < LEAST:
        return [], []
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
    fits = []
    if len(np.unique(unit)) >= LEAST:
        fits = [{"boxes": len(unit), "elsewhere": one.name, "gain_z": one.z, "share": one.share,
                 "units": one.n} for one in better_elsewhere(gains, unit)]  # fmt: skip
    return fits, list(_of_parts(boxes, gains, unit, sums, at, cells))


# ---- parts ----


def _of_parts(
    boxes: pl.DataFrame, gains: Mapping[str, Floats], unit: Ints, sums: Floats, at: Ints,
    cells: Floats,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a row for each part that fits better elsewhere, and for shares that nothing names."""
    named, columns = named_parts(boxes)
    left = np.ones(len(unit), bool)
    gains = {**gains, **dict(zip((ANY, NEAR), gains_on_others(sums, at, cells), strict=True))}
    for part in find_parts(gains, unit, columns):
        within = part.holds(columns) & left
        left &= ~within
        if part.column in RUNS:
            ids = boxes.filter(within).sort(part.column, maintain_order=True)["sample_id"]
            said = f"from about {ids[0]} to {ids[-1]} in the order of {RUNS[part.column]}"
        else:
            said = part.column.format(named[part.column][part.first]).strip()
        yield {"part": said, "boxes": int(within.sum()), **part.row}
    columns = {name: code[left] for name, code in columns.items()}
    for one in shares_turned(sums, at[left], cells[left], unit[left], columns):
        yield {"elsewhere": one.name, "boxes": int(left.sum()), "units": one.n, "share": one.share,
               "gain_z": one.z}  # fmt: skip


def named_parts(boxes: pl.DataFrame) -> tuple[dict[str, list[Any]], dict[str, Ints]]:
    """Return the values of each column that may name a part, and all codes with those of runs."""
    named: dict[str, list[Any]] = {}
    columns: dict[str, Ints] = {}
    for values in _columns(boxes):
        pictures = pl.DataFrame({"value": values, "unit": boxes["unit"]}).drop_nulls()
        frequent = pictures.group_by("value").agg(pl.col("unit").n_unique())
        kinds = frequent.filter(pl.col("unit") >= LEAST_PART)["value"].sort().to_list()
        if 0 < len(kinds) <= VALUES and values.n_unique() > 1:
            codes = {kind: code for code, kind in enumerate(kinds)}
            code = values.replace_strict(codes, default=-1, return_dtype=pl.Int64)
            named[values.name], columns[values.name] = kinds, code.to_numpy()
    for name in RUNS:
        place = boxes[name].rank("dense").to_numpy().astype(np.int64) - 1
        columns[name] = place * BLOCKS // (int(place.max(initial=0)) + 1)
    return named, columns


def _columns(boxes: pl.DataFrame) -> Iterator[pl.Series]:
    """Yield what may name a part of the boxes; its name has a gap for the value."""
    wide, high, steps = pl.col("width"), pl.col("height"), pl.col("sample_id").str.split("/")
    yield from boxes.select(
        pl.col("label").alias(CLASS),
        pl.when(wide > high).then(pl.lit("wider than high")).when(wide < high)
        .then(pl.lit("higher than wide")).otherwise(pl.lit("square")).alias("that are {}"),
        pl.col("split").alias("of split {}"),
        pl.col("orientation").replace(1, None).alias("that EXIF turns ({})"),
        pl.format("{} x {}", wide, high).alias("of {} px"),
        *(
            pl.when(steps.list.len() > depth)
            .then(steps.list.head(depth).list.join("/"))
            .alias("in {}/" + " " * depth)
            for depth in range(1, FOLDERS)
        ),
        *(steps.list.last().str.extract(of).alias(words) for words, of in NAMES.items()),
    )  # fmt: skip
    for column, of in (("attributes", "whose boxes have"), ("of_picture", "with")):
        yield from _attributes(boxes[column], of)


def _attributes(texts: pl.Series, of: str) -> Iterator[pl.Series]:
    read: dict[str, Mapping[str, Any]] = {}
    for text in texts.drop_nulls().unique()[:1000]:
        try:
            said = json.loads(text)
        except ValueError:
            continue
        if isinstance(said, dict):
            read[text] = said
    for key in sorted({key for said in read.values() for key in said})[:KEYS]:
        values = {text: str(said[key]) for text, said in read.items() if key in said}
        told = key.replace("{", "{{").replace("}", "}}")
        column = texts.replace_strict(values, default=None, return_dtype=pl.String)
        yield column.alias(f"{of} {told} = {{}}")
