"""Tables of a run for evaluation subsets: images, labels, suspected labels, leaked images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from audit.results.reader import reads
from audit.run.store import Store, identifier

LABEL_LISTS = (
    "SELECT sample_id, list(label ORDER BY label) FROM several_labels GROUP BY 1 ORDER BY 1"
)
TRAIN = ["train", "training"]
_MEMBERS = "SELECT sample_id FROM findings f JOIN finding_samples s USING (fingerprint)"
# A subject `id@hash` is about one picture; renaming a whole class is not a mislabel of it.
# BOX003 and BOX006: one of its boxes has a wrong class.
_SUSPECTED = f"""
    {_MEMBERS}
    WHERE (f.action = 'relabel' OR f.code IN ('BOX003', 'BOX006')) AND f.subject LIKE '%@%'
"""
_NEAR_TRAIN = f"""
    {_MEMBERS} WHERE f.code = 'SPLIT001' AND f.fingerprint IN (
        SELECT t.fingerprint FROM finding_samples t JOIN images i ON i.id = t.sample_id
        WHERE list_contains({TRAIN}, i.split))
"""
_BOXES = """
    SELECT b.file, b.sample_id, coalesce(b.label, b.category_key) AS label,
        coalesce(b.crowd, false) AS crowd,
        CASE WHEN t THEN stored_x ELSE x END AS x, CASE WHEN t THEN stored_y ELSE y END AS y,
        CASE WHEN t THEN stored_width ELSE b.width END AS width,
        CASE WHEN t THEN stored_height ELSE b.height END AS height, b.area
    FROM (SELECT b.*, f.frame = 'stored' AS t FROM boxes b JOIN annotation_files f USING (file)) b
    WHERE b.file IN (SELECT unnest(?::VARCHAR[])) AND b.sample_id IS NOT NULL
        AND b.width > 0 AND b.height > 0
    ORDER BY b.file, b.entry
"""


@dataclass(frozen=True, slots=True)
class EvaluationTables:
    """View `images`; labels by sample_id; samples with a wrong label; samples also in training."""

    images: pl.DataFrame
    label_lists: pl.DataFrame
    suspected: set[str]
    near_train: set[str]


@reads()
def read_evaluation(store: Store) -> EvaluationTables:
    """Return what the eligible set of an evaluation is made of."""
    wanted = [c for c in store.columns("images") if c not in {"mtime_ns", "ctime_ns"}]
    return EvaluationTables(
        store.query(f"SELECT {', '.join(map(identifier, wanted))} FROM images ORDER BY id"),
        store.query(LABEL_LISTS),
        set(store.query(_SUSPECTED)["sample_id"]),
        set(store.query(_NEAR_TRAIN)["sample_id"]),
    )


@reads()
def read_annotated_objects(
    store: Store, sample_ids: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the images, the boxes and the classes of the annotation files that list some samples.

    Images: file, image_key, entry, file_name, sample_id, each sample once. Boxes: file, sample_id,
    label, crowd, x, y, width, height (px), area. Classes: category_key, label, entry.
    """
    listed = store.query(
        "SELECT file, image_key, min(entry) AS entry, min_by(file_name, entry) AS file_name, "
        "min_by(sample_id, entry) AS sample_id FROM annotated_images "
        "WHERE sample_id IS NOT NULL GROUP BY file, image_key ORDER BY file, entry"
    )
    # The file with most images of the set; another one for those that it does not list.
    listed = listed.filter(pl.col("sample_id").is_in(list(sample_ids)))
    listed = (
        listed.with_columns(size=pl.len().over("file"))
        .sort("size", "file", "entry", descending=[True, False, False])
        .unique("sample_id", keep="first", maintain_order=True)
    )
    files = listed["file"].unique().to_list()
    kinds = store.query(
        "SELECT category_key, min_by(label, entry) AS label, min(entry) AS entry "
        "FROM categories WHERE file IN (SELECT unnest(?::VARCHAR[])) "
        "GROUP BY file, category_key ORDER BY file, entry",
        [files],
    )
    return listed, store.query(_BOXES, [files]), kinds


_UNITS = """
    SELECT i.id AS sample_id, i.pixel_hash, coalesce(g.representative, i.pixel_hash) AS unit, held
    FROM images i LEFT JOIN groups g ON g.pixel_hash = i.pixel_hash
    LEFT JOIN (SELECT sample_id, list(DISTINCT label ORDER BY label) AS held FROM labels
        WHERE trim(label) <> '' GROUP BY sample_id) l ON l.sample_id = i.id
    WHERE i.pixel_hash IS NOT NULL
"""


@reads()
def read_units(store: Store) -> pl.DataFrame:
    """Return sample_id, pixel_hash, unit (its duplicate group) and held (its classes, a list)."""
    return store.query(_UNITS)
