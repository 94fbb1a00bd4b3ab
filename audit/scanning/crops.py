"""The table `crops`: which boxes of which pictures were cut, and what of it a new scan keeps.

A crop belongs to the content of its picture and to the boxes that were asked for with it. A
picture whose boxes are others than before is read again, whole: its old crops are forgotten.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from audit.run.annotation_tables import CROP_NAME
from audit.run.reuse import PREVIOUS
from audit.run.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


def store_crops(store: Store, signatures: pa.Table) -> None:
    """Store what the names of crops among signatures say, each once: copies share theirs."""
    edge = "split_part(split_part(content_hash, '/', 4), ',', {})::INTEGER"
    with store.frame_as("signatures", signatures.select(["content_hash"])):
        store.execute(
            "INSERT INTO crops SELECT split_part(content_hash, '/', 1), "
            "split_part(content_hash, '/', 2), split_part(content_hash, '/', 3), "
            f"{', '.join(edge.format(n) for n in range(1, 5))} "
            "FROM signatures WHERE contains(content_hash, '/') EXCEPT FROM crops"
        )


def pictures_to_cut(store: Store, signed: pa.Table | None) -> list[str]:
    """Return measured samples whose boxes were not cut, or were others: they are to be read again.

    `signed` are the signatures that are stored, None for all. Asks this scan and the one before.
    """
    measured, cut = "FROM features", "FROM crops"
    if PREVIOUS in store.attached:
        measured += " UNION ALL FROM previous.features"
        if store.columns("previous.crops"):
            cut += " UNION ALL FROM previous.crops"
    columns = "sample_id, content_hash, status, phash"
    measured = measured.replace("FROM", f"SELECT {columns} FROM")
    known = nullcontext() if signed is None else store.frame_as("signed", signed)
    lost = (
        ""
        if signed is None
        else f"HAVING bool_and({CROP_NAME} IN (SELECT content_hash FROM signed))"
    )
    with known:
        return [
            row["id"]
            for row in store.rows(
                f"SELECT DISTINCT b.id FROM boxed b JOIN ({measured}) f ON f.sample_id = b.id "
                f"ANTI JOIN (SELECT content_hash, digest FROM ({cut}) c "
                f"GROUP BY content_hash, digest {lost}) c "
                "ON c.content_hash = f.content_hash AND c.digest = b.digest "
                "WHERE f.status IN ('ok', 'damaged') AND f.phash IS NOT NULL ORDER BY b.id"
            )
        ]


def keep_crops(store: Store) -> None:
    """Take over the crops of pictures whose rows were kept; forget those of other boxes."""
    store.execute("DELETE FROM crops WHERE digest NOT IN (SELECT digest FROM boxed)")
    if PREVIOUS in store.attached and store.columns("previous.crops"):
        store.execute(
            "INSERT INTO crops SELECT DISTINCT c.* FROM previous.crops c "
            "JOIN boxed b ON b.digest = c.digest "
            "JOIN features f ON f.sample_id = b.id AND f.content_hash = c.content_hash "
            "EXCEPT FROM crops"
        )


def leave_uncut(store: Store, table: str, signatures: pa.Table) -> None:
    """Delete rows of features of pictures of which these signatures hold no crops, or others."""
    with store.frame_as("signatures", signatures.select(["content_hash"])):
        store.execute(
            f"DELETE FROM {table} f USING boxed b WHERE b.id = f.sample_id AND f.phash IS NOT NULL "
            "AND concat_ws('/', f.content_hash, b.digest) NOT IN (SELECT concat_ws('/', "
            "split_part(content_hash, '/', 1), split_part(content_hash, '/', 2)) FROM signatures)"
        )
