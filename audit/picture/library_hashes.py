"""Further perceptual hashes on request, made by the `imagehash` library itself.

`phash` and `dhash` are measured always, by kernels of our own that equal the library bit for bit.
The others are for those who compare with an index that was made with them, or who want further
candidates for near-duplicates: `[measure] hashes = ["whash", ...]` in audit.toml stores each as a
column of `features`. Like every feature they are taken from the feature picture (at most 384 px),
so anyone can make them again.

Cost: 1 to 10 ms a picture and hash, crop_resistant up to 100 ms, beside 1.5 ms for all the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from audit.records import Column

if TYPE_CHECKING:
    from audit.picture.pixels import Pixels

LIBRARY_HASHES: tuple[Column, ...] = (
    Column("whash", "UBIGINT", "imagehash.whash (64 bits, Haar) of the feature picture"),
    Column("average_hash", "UBIGINT", "imagehash.average_hash (64 bits) of the feature picture"),
    Column("phash_simple", "UBIGINT", "imagehash.phash_simple (64 bits) of the feature picture"),
    Column("dhash_vertical", "UBIGINT", "imagehash.dhash_vertical (64 bits), feature picture"),
    Column("colorhash", "VARCHAR", "imagehash.colorhash (42 bits) of the feature picture, hex"),
    Column(
        "crop_resistant",
        "VARCHAR",
        "imagehash.crop_resistant_hash of the feature picture: a dhash (hex) a segment, by commas",
    ),
)
# Columns whose bits can be compared, as further candidates of the near-duplicate search.
COMPARABLE_HASHES = tuple(column.name for column in LIBRARY_HASHES if column.type == "UBIGINT")


def library_columns(names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of these hashes, in the order of LIBRARY_HASHES."""
    return tuple(column for column in LIBRARY_HASHES if column.name in names)


def compute_library_hashes(picture: Pixels, names: Sequence[str]) -> dict[str, int | str]:
    """Return these hashes of a feature picture, uint8 (h, w, 3), by column name."""
    if not names:
        return {}
    import imagehash
    from PIL import Image

    image = Image.fromarray(picture)
    values: dict[str, int | str] = {}
    for column in library_columns(names):
        function = "crop_resistant_hash" if column.name == "crop_resistant" else column.name
        text = str(getattr(imagehash, function)(image))
        # the library prints the bits row by row, most significant first: so does big-endian hex
        values[column.name] = int(text, 16) if column.type == "UBIGINT" else text
    return values
