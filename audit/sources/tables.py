"""Tables of strangers: texts in CSV, the usual names of box columns, columns with types.

A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@`, and readers strip blanks. So a text
that begins so, is empty, has blanks at its ends, or begins with an apostrophe is written after one
more apostrophe; only a table with the empty column `MARK` has it taken off again. A text column
becomes integer, real, Boolean, date or time only if every value reads as one without loss: `007`
and integers too long for the type stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from dataset_preflight.foundation.terminal import visible

if TYPE_CHECKING:
    import polars as pl


# It begins with an apostrophe and goes on with a letter, so that no escaped name can be equal.
MARK = "'a leading apostrophe is no part of a text (audit-export/1)"
_BLANK = r"[\s\x1c-\x1f\x85]"
# For polars as for `re`; numbers are safe in a spreadsheet, and a signed one begins so.
ESCAPED = rf"^(?:['=+\-@]|{_BLANK})|{_BLANK}\z|^\z"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\z"
_ESCAPED = re.compile(ESCAPED.replace(r"\z", r"\Z"))
_NUMBER = re.compile(NUMBER.replace(r"\z", r"\Z"))


def original_text(cell: str) -> str | None:
    """Return what a cell of a table with `MARK` stands for: None if empty."""
    return (cell[1:] if cell[0] == "'" else cell) if cell else None


def neutralise(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame for CSV, texts and headers escaped; a column `MARK` where any needs it."""
    import polars as pl

    text = pl.col(pl.String)
    odd = [n for n in frame.columns if _ESCAPED.search(n) and not _NUMBER.search(n)]
    if not count_escaped(frame) and not odd:
        return frame
    safe = frame.with_columns(
        pl.when(_needs_apostrophe(text)).then(pl.lit("'") + text).otherwise(text).name.keep()
    )
    return safe.rename({name: f"'{name}" for name in odd}).with_columns(
        pl.lit(None, pl.String).alias(MARK)
    )


def count_escaped(frame: pl.DataFrame) -> int:
    """Return how many cells of a frame need an apostrophe."""
    import polars as pl

    marked = frame.select(_needs_apostrophe(pl.col(pl.String)).fill_null(False))
    return sum(int(column.sum()) for column in marked)


def _needs_apostrophe(text: pl.Expr) -> pl.Expr:
    return text.str.contains(ESCAPED) & ~text.str.contains(NUMBER)


# The four columns, and what they are.
BOXES: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "corners": (
        ("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"),
        ("x1", "y1", "x2", "y2"), ("left", "top", "right", "bottom"),
        ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"),
    ),
    "xywh": (
        ("bbox_x", "bbox_y", "bbox_width", "bbox_height"), ("x", "y", "w", "h"),
        ("bbox_x", "bbox_y", "bbox_w", "bbox_h"), ("x", "y", "box_width", "box_height"),
    ),
}  # fmt: skip


def first_column(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    """Return the first of the wanted names that is a column."""
    return next((name for name in wanted if name in names), None)


def number_columns(names: Sequence[str]) -> tuple[str, tuple[str, str, str, str]] | None:
    """Return what the four columns of a box are, and which."""
    for form, choices in BOXES.items():
        for choice in choices:
            if set(choice) <= set(names):
                return form, choice
    return None


_BATCH = 50_000
_EXACT = 1 << 53  # beyond this a real number skips integers
_KEY = "sample_id"


def typed_frame(
    rows: Iterable[tuple[str, Sequence[Any]]],
    columns: Sequence[str],
    *,
    from_text: bool,
    exact: bool = False,
) -> pl.DataFrame:
    """Return a frame of `sample_id` and `columns`, whose names are made distinct for SQL.

    `from_text`: infer types from text (CSV), without blanks at its ends unless it is `exact`.
    """
    import polars as pl

    names = [_KEY, *_distinct(columns)]
    parts, stream = [], iter(rows)
    while batch := list(islice(stream, _BATCH)):
        values = zip(*((key, *map(_plain, cells)) for key, cells in batch), strict=True)
        parts.append(pl.DataFrame(list(map(_series, names, values))))
    if not parts:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    frame = pl.concat(_same_types(parts), how="vertical_relaxed")
    if not from_text:
        return frame
    typed = (_inferred(frame[name]) for name in names[1:])
    if exact:
        typed = (t if t.dtype != pl.String else frame[t.name].cast(pl.String) for t in typed)
    return frame.with_columns(typed)


def joined_frames(frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    """Return the rows of all frames, columns by name; texts where types disagree; None of none."""
    import polars as pl

    if len(frames) < 2:
        return frames[0] if frames else None
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError:
        return pl.concat([f.cast(pl.String) for f in frames], how="diagonal")


def _series(name: str, values: Sequence[Any]) -> pl.Series:
    import polars as pl

    kinds = {type(value) for value in values} - {type(None)}
    mixed = len(kinds) > 1 and not kinds <= {int, float}
    most = _EXACT if float in kinds else (1 << 63) - 1
    if mixed or (int in kinds and any(isinstance(v, int) and abs(v) > most for v in values)):
        return pl.Series(name, [None if v is None else _text(v) for v in values], pl.String)
    return pl.Series(name, values, strict=False)


def _same_types(parts: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return the parts with columns of one type; where parts disagree beyond numbers, text."""
    import polars as pl

    mixed = []
    for name in parts[0].columns:
        columns = [part[name] for part in parts if part.schema[name] != pl.Null()]
        numeric = all(c.dtype.is_numeric() and _is_exact_as_real(c) for c in columns)
        if not numeric and len({column.dtype for column in columns}) > 1:
            mixed.append(name)
    return [part.with_columns(pl.col(mixed).cast(pl.String)) for part in parts] if mixed else parts


def _is_exact_as_real(column: pl.Series) -> bool:
    if not column.dtype.is_integer():
        return True
    return bool(column.is_between(-_EXACT, _EXACT).all())


def _inferred(column: pl.Series) -> pl.Series:
    import polars as pl

    text = column.cast(pl.String).str.strip_chars()
    text = text.set(text == "", None)
    present = text.drop_nulls()
    if present.is_empty():
        return text
    if not present.str.contains(r"^[+-]?0\d").any():
        if present.cast(pl.Int64, strict=False).null_count() == 0:
            return text.cast(pl.Int64)
        long_integer = present.str.contains(r"^[+-]?\d{16,}$").any()
        if not long_integer and present.cast(pl.Float64, strict=False).null_count() == 0:
            return text.cast(pl.Float64)
    if present.str.to_lowercase().is_in(["true", "false"]).all():
        return text.str.to_lowercase() == "true"
    return _as_time(text, present)


def _as_time(text: pl.Series, present: pl.Series) -> pl.Series:
    if present.str.contains(r"^\d{4}-\d\d-\d\d$").all():
        read = text.str.to_date("%Y-%m-%d", strict=False)
    elif present.str.contains(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d$").all():
        spaced = text.str.replace("T", " ")
        read = spaced.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
    else:
        return text
    return read if read.null_count() == text.len() - present.len() else text


def _plain(value: Any) -> Any:
    """Return nested values as JSON text: DuckDB's shell and the app show text, not structures."""
    return _text(value) if isinstance(value, list | dict | tuple) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _distinct(columns: Sequence[str]) -> list[str]:
    taken, names = {_KEY}, []
    for column in columns:
        name, number = column or "unnamed", 2
        while name.lower() in taken:
            name, number = f"{column or 'unnamed'}_{number}", number + 1
        taken.add(name.lower())
        names.append(name)
    return names


def visible_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table for what draws text as it is: names and cells `visible`."""
    import polars as pl

    shown = frame.with_columns(pl.col(pl.String).map_elements(visible, pl.String))
    names = list(map(visible, shown.columns))
    if len(set(names)) == len(names):  # else two columns would have one name
        shown.columns = names
    return shown
