"""Tables of boxes: CSV files whose columns name a picture and the four numbers of a box.

Open Images is one with boxes in shares, classes by machine ids, and their names in another file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import polars as pl

from audit.annotations.discovery import LABEL, PICTURE, AnnotationGroup
from audit.annotations.sink import Reading
from audit.annotations.voc import CORNERS
from audit.sources.tables import first_column, number_columns
from dataset_preflight.foundation.files import refuse_special, regular


def read_box_table(reading: Reading) -> None:
    """Read a CSV file of boxes into the tables."""
    frame = read_csv_text(reading)
    names = frame.columns if frame is not None else []
    picture, numbers = first_column(names, PICTURE), number_columns(names)
    if frame is None or picture is None or numbers is None:
        reading.form, reading.complete = "corners px", False
        return
    form, columns = numbers
    label = first_column(names, LABEL)
    sized = form == "corners" and {"width", "height"} <= set(names)
    reading.form = f"{form} px"
    rows = frame.with_columns(
        image_key=pl.col(picture),
        category_key=pl.col(label) if label else pl.lit("object"),
        **{f"declared_{s}": _number(s) if sized else pl.lit(None) for s in ("width", "height")},
    )
    add_rows(rows, columns, reading)


def _number(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Float64, strict=False)


def _with_numbers(rows: pl.DataFrame, columns: Sequence[str], reading: Reading) -> pl.DataFrame:
    """Return rows with the numbers of a box, `v1` to `v4`; cells that are no numbers are noted."""
    rows = rows.with_columns(**{f"v{i}": _number(c) for i, c in enumerate(columns, 1)})
    for i, column in enumerate(columns, 1):
        bad = rows.filter(pl.col(f"v{i}").is_null())
        for row in bad.head(20).iter_rows(named=True):
            what = f"`{column}` is {str(row[column])[:40]!r}, not a number"
            reading.note("wrong-type", what, f"line {row['line']}", row["image_key"])
        if bad.height > 20:
            reading.note("wrong-type", f"`{column}` is not a number", count=bad.height - 20)
    return rows


def read_manifest_boxes(reading: Reading) -> None:
    """Read the boxes of a manifest, whose rows name samples; a row without numbers has no box."""
    manifest = reading.group.manifest
    assert manifest is not None
    form, rows = manifest.box_rows()
    reading.form = f"{form} px"
    numbers = manifest.box_columns
    names = ["line", "image_key", "file_name", *numbers, "category_key", "width", "height"]
    schema = dict.fromkeys(names, pl.String) | {"line": pl.Int64}
    frame = pl.DataFrame(list(rows), schema=schema, orient="row").with_row_index("entry")
    frame = frame.with_columns(
        pl.col("category_key").fill_null("object"),
        pl.col("entry").cast(pl.Int64),
        pl.col("width", "height").cast(pl.Float64, strict=False),
    )
    pictures = frame.unique("image_key", keep="first", maintain_order=True)
    columns = ("image_key", "file_name", "line", "entry", "width", "height")
    reading.add_frame("annotated_images", pictures.select(columns))
    given = frame.filter(pl.any_horizontal(pl.col(numbers).is_not_null()))
    add_objects(_with_numbers(given, numbers, reading), reading)


def read_csv_text(reading: Reading) -> pl.DataFrame | None:
    """Return a CSV file as texts, with `line`; names of columns in lower case. None: unreadable."""
    path = reading.group.path(reading.group.names[0])
    read = partial(
        pl.read_csv, path, infer_schema=False, encoding="utf8-lossy", raise_if_empty=False
    )
    try:
        refuse_special(path)
        try:
            frame = read()
        except pl.exceptions.PolarsError:
            frame = read(truncate_ragged_lines=True)
            what = "a line has more columns than the header"
            reading.note("malformed", what, "see the last lines")
    except (pl.exceptions.PolarsError, OSError) as error:
        said = str(error).partition("\n")[0][:120]
        reading.note("malformed", f"the table cannot be read ({said})")
        return None
    lower = [name.strip().lower() for name in frame.columns]
    if len(set(lower)) < len(lower):
        reading.note("duplicate-key", "two columns have the same name")
        return None
    frame = frame.rename(dict(zip(frame.columns, lower, strict=True)))
    texts = frame.with_columns(pl.all().str.strip_chars())
    return texts.with_row_index("line").with_columns(pl.col("line").cast(pl.Int64) + 2)


def add_rows(rows: pl.DataFrame, columns: Sequence[str], reading: Reading) -> None:
    """Append annotations (`image_key`, `category_key`, numbers, `line`), pictures, classes."""
    rows = _with_numbers(rows, columns, reading).with_columns(entry=pl.col("line") - 2)
    pictures = rows.group_by("image_key", maintain_order=True).agg(
        pl.col("entry", "line").first(), width=pl.col("declared_width").first(),
        height=pl.col("declared_height").first(),
    )  # fmt: skip
    named = pictures.with_columns(file_name=pl.col("image_key"))
    reading.add_frame("annotated_images", named)
    add_objects(rows, reading)


def add_objects(rows: pl.DataFrame, reading: Reading) -> None:
    """Append annotations, and the classes that they use, unless a column `label` says otherwise."""
    reading.objects = rows.height
    crowd = pl.col("crowd") if "crowd" in rows.columns else pl.lit(False)
    boxes = rows.select(
        "image_key", "entry", "line", "category_key", "v1", "v2", "v3", "v4", crowd=crowd,
        kind=pl.lit("box"),
    )  # fmt: skip
    reading.add_frame("annotations", boxes)
    if "label" in rows.columns:
        return
    used = rows.filter(pl.col("category_key").is_not_null()).unique(
        "category_key", keep="first", maintain_order=True
    )
    classes = used.select("category_key", "entry", label="category_key", declared=pl.lit(False))
    reading.add_frame("categories", classes)


def read_open_images(reading: Reading) -> None:
    """Read a file of boxes into the tables."""
    frame, reading.form = read_csv_text(reading), "corners share"
    if frame is None:
        reading.complete = False
        return
    crowd = pl.col("isgroupof") == "1" if "isgroupof" in frame.columns else pl.lit(False)
    rows = frame.with_columns(
        image_key=pl.col("imageid"), category_key=pl.col("labelname"),
        crowd=crowd.fill_null(False), declared_width=pl.lit(None), declared_height=pl.lit(None),
    )  # fmt: skip
    names = _class_names(reading.group)
    add_rows(rows.with_columns(label=pl.lit("")) if names else rows, CORNERS, reading)
    for entry, (key, label) in enumerate(names.items()):
        reading.add_class(entry, key, label, declared=True)


def _class_names(group: AnnotationGroup) -> dict[str, str]:
    """Return {machine id: name} of the file of class descriptions beside the boxes."""
    for name in group.descriptions:
        with open(group.path(name), encoding="utf-8-sig", errors="replace", opener=regular) as file:
            lines = file.read(64 << 20).splitlines()
        pairs = [line.split(",", 1) for line in lines if line.count(",")]
        named = {key.strip(): label.strip().strip('"') for key, label in pairs}
        named.pop("LabelName", None)
        return named
    return {}
