"""Tables of boxes: CSV files whose columns name a picture and the four numbers of a box.

The columns are found by their usual names. A table that lists exactly boxes that another file of
the dataset holds is read all the same: BOX022 compares them.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from audit.annotations.box_columns import LABEL, PICTURE
from audit.annotations.discovery import AnnotationGroup
from audit.annotations.outcome import ReadOutcome
from audit.annotations.problems import ProblemLog
from audit.annotations.sink import Sink
from audit.sources.box_names import first_column, number_columns


def read_box_table(group: AnnotationGroup, sink: Sink) -> ReadOutcome:
    """Read a CSV file of boxes into the tables."""
    problems = ProblemLog(group.file)
    frame = read_csv_text(group, problems)
    names = frame.columns if frame is not None else []
    picture, numbers = first_column(names, PICTURE), number_columns(names)
    if frame is None or picture is None or numbers is None:
        sink.add_problems(problems)
        return ReadOutcome("corners px", complete=False)
    form, columns = numbers
    label = first_column(names, LABEL)
    sides = ("width", "height") if form == "corners" and {"width", "height"} <= set(names) else ()
    rows = frame.with_columns(
        image_key=pl.col(picture),
        category_key=pl.col(label) if label else pl.lit("object"),
        **{f"v{i}": pl.col(c).cast(pl.Float64, strict=False) for i, c in enumerate(columns, 1)},
        declared_width=pl.col("width").cast(pl.Float64, strict=False) if sides else pl.lit(None),
        declared_height=pl.col("height").cast(pl.Float64, strict=False) if sides else pl.lit(None),
    )
    note_texts(rows, columns, problems)
    add_rows(group.file, rows, sink)
    sink.add_problems(problems)
    return ReadOutcome(f"{form} px", objects=rows.height)


def read_manifest_boxes(group: AnnotationGroup, sink: Sink) -> ReadOutcome:
    """Read the boxes of a manifest, whose rows name samples; a row without numbers has no box."""
    problems = ProblemLog(group.file)
    assert group.manifest is not None
    form, rows = group.manifest.box_rows()
    numbers = [f"n{i}" for i in range(1, 5)]
    names = ["line", "image_key", "file_name", *numbers, "category_key", "width", "height"]
    schema = dict.fromkeys(names, pl.String) | {"line": pl.Int64}
    frame = pl.DataFrame(list(rows), schema=schema, orient="row").with_row_index("entry")
    frame = frame.with_columns(
        pl.col("category_key").fill_null("object"), pl.col("entry").cast(pl.Int64),
        pl.col("width", "height").cast(pl.Float64, strict=False),
        **{f"v{i}": pl.col(f"n{i}").cast(pl.Float64, strict=False) for i in range(1, 5)},
    )  # fmt: skip
    given = frame.filter(pl.any_horizontal(pl.col(numbers).is_not_null()))
    columns = group.manifest.box_columns
    note_texts(given.rename(dict(zip(numbers, columns, strict=True))), columns, problems)
    pictures = frame.unique("image_key", keep="first", maintain_order=True)
    kept = ("image_key", "file_name", "line", "entry", "width", "height")
    sink.add_frame("annotated_images", pictures.select(*kept, file=pl.lit(group.file)))
    add_objects(group.file, given, sink)
    sink.add_problems(problems)
    return ReadOutcome(f"{form} px", objects=given.height)


def read_csv_text(group: AnnotationGroup, problems: ProblemLog) -> pl.DataFrame | None:
    """Return a CSV file as texts, with `line`; names of columns in lower case. None: unreadable."""
    path = group.path(group.names[0])
    try:
        frame = pl.read_csv(
            path, infer_schema=False, encoding="utf8-lossy", truncate_ragged_lines=True,
            raise_if_empty=False,
        )  # fmt: skip
    except (pl.exceptions.PolarsError, OSError) as error:
        said = str(error).partition("\n")[0][:120]
        problems.add("malformed", f"the table cannot be read ({said})")
        return None
    if _ragged(path):
        problems.add("malformed", "a line has more columns than the header", "see the last lines")
    lower = [name.strip().lower() for name in frame.columns]
    if len(set(lower)) < len(lower):
        problems.add("duplicate-key", "two columns have the same name")
        return None
    frame = frame.rename(dict(zip(frame.columns, lower, strict=True)))
    texts = frame.with_columns(pl.all().str.strip_chars())
    return texts.with_row_index("line").with_columns(pl.col("line").cast(pl.Int64) + 2)


def _ragged(path: str) -> bool:
    try:
        pl.read_csv(path, infer_schema=False, encoding="utf8-lossy", raise_if_empty=False)
    except pl.exceptions.PolarsError:
        return True
    return False


def note_texts(rows: pl.DataFrame, columns: Sequence[str], problems: ProblemLog) -> None:
    """Note cells that are no numbers."""
    for i, column in enumerate(columns, 1):
        bad = rows.filter(pl.col(f"v{i}").is_null())
        for row in bad.head(20).iter_rows(named=True):
            said = f"`{column}` is {str(row[column])[:40]!r}, no number"
            problems.add("wrong-type", said, f"line {row['line']}", row["image_key"])
        if bad.height > 20:
            problems.add("wrong-type", f"`{column}` is no number", count=bad.height - 20)


def add_rows(file: str, rows: pl.DataFrame, sink: Sink) -> None:
    """Append annotations (`image_key`, `category_key`, `v1`..`v4`, `line`), pictures, classes."""
    rows = rows.with_columns(entry=pl.col("line") - 2)
    pictures = rows.group_by("image_key", maintain_order=True).agg(
        pl.col("entry", "line").first(), width=pl.col("declared_width").first(),
        height=pl.col("declared_height").first(),
    )  # fmt: skip
    named = pictures.with_columns(file=pl.lit(file), file_name=pl.col("image_key"))
    sink.add_frame("annotated_images", named)
    add_objects(file, rows, sink)


def add_objects(file: str, rows: pl.DataFrame, sink: Sink) -> None:
    """Append annotations, and the classes that they use, unless a column `label` says otherwise."""
    rows = rows.with_columns(file=pl.lit(file))
    crowd = pl.col("crowd") if "crowd" in rows.columns else pl.lit(False)
    sink.add_frame(
        "annotations",
        rows.select(
            "file", "image_key", "entry", "line", "category_key", "v1", "v2", "v3", "v4",
            crowd=crowd, kind=pl.lit("box"),
        ),
    )  # fmt: skip
    if "label" in rows.columns:
        return
    used = rows.filter(pl.col("category_key").is_not_null()).unique(
        "category_key", keep="first", maintain_order=True
    )
    sink.add_frame(
        "categories",
        used.select("file", "category_key", "entry", label="category_key", declared=pl.lit(False)),
    )
