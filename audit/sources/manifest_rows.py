"""Rows of a manifest file, one form for CSV, JSONL and Parquet, with line numbers.

CSV and JSONL are read line by line, so that every error can name its line; opening JSONL reads it
once for the keys. A list without a header, as ImageNet's train.txt, has a path up to the extension
of an image, then maybe a label; numbers get their names from a file of class names beside.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from audit.errors import UsageError
from audit.sources.formats import KINDS, OBJECT_INSTEAD, pack_advice
from audit.sources.tables import MARK, original_text
from dataset_preflight.foundation.files import regular

FORMATS = {
    "csv": "csv", "tsv": "csv", "txt": "csv", "lst": "csv",
    "jsonl": "jsonl", "ndjson": "jsonl",
    "parquet": "parquet", "pq": "parquet", "parq": "parquet",
}  # fmt: skip
MOST_COLUMNS = 1000  # of a JSONL file: keys that are really values would be columns without end
_BATCH = 50_000
_SEPARATOR = re.compile(r"sep=([,;\t|])")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
Row = tuple[int, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Table:
    """A manifest's columns, and how its rows are read.

    `embedded` are Parquet columns that hold bytes: never read. `left_out` says, in sentences, what
    else of the file is not read. `mark` is the column `audit.sources.tables.MARK`, -1 without it.
    """

    path: str
    format: str
    columns: tuple[str, ...]
    delimiter: str = ","
    embedded: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    mark: int = -1
    before: int = 0
    """Lines before the header: `sep=;`, which tells Excel what stands between fields."""

    @property
    def underscored(self) -> list[str]:
        """The names of the columns in lower case, with `_` for blanks."""
        return [column.strip().lower().replace(" ", "_") for column in self.columns]

    def rows(self, wanted: Sequence[int]) -> Iterator[Row]:
        """Yield (line or row number from 1, values of the wanted columns, by column number)."""
        if self.format == "csv":
            return self._csv_rows(wanted)
        if self.format == "list":
            rows = list_rows(self.path, text_lines(self.path))
            return ((number, [cells[i] for i in wanted]) for number, *cells in rows)
        names = [self.columns[i] for i in wanted]
        if self.format == "parquet":
            return self._parquet_rows(names)
        return ((n, [record.get(name) for name in names]) for n, record in _records(self.path))

    def where(self, number: int) -> str:
        """Return the place of a row for a message."""
        unit = "row" if self.format == "parquet" else "line"
        return f"{os.path.basename(self.path)}, {unit} {number:,}"

    def _csv_rows(self, wanted: Sequence[int]) -> Iterator[Row]:
        reader = csv.reader(text_lines(self.path), delimiter=self.delimiter, strict=True)
        width = len(self.columns)
        cell_text = original_text if self.mark >= 0 else str
        try:
            for values in islice(reader, 1 + self.before, None):
                if len(values) == width:
                    yield reader.line_num, [cell_text(values[i]) for i in wanted]
                elif values and any(value.strip() for value in values):
                    raise UsageError(
                        f"{self.where(reader.line_num)}: {len(values)} fields, but the header has "
                        f"{width}. Quote values that contain {self.delimiter!r}, or delete the "
                        "line."
                    )
        except csv.Error as error:
            raise UsageError(
                f"{self.where(reader.line_num)} cannot be read as CSV ({error}): correct the "
                "quotes there, or save the table again with a CSV writer."
            ) from None

    def _parquet_rows(self, names: Sequence[str]) -> Iterator[Row]:
        import polars as pl

        number = 0
        try:
            scan = pl.scan_parquet(self.path, glob=False).select(names)
            for batch in scan.collect_batches(chunk_size=_BATCH):
                for values in zip(*(column.to_list() for column in batch), strict=True):
                    number += 1
                    yield number, values
        # Schema and pages are separate: a file with a sound footer may hold a page that is not.
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise UsageError(
                f"{self.path} is damaged: it cannot be read beyond row {number:,} "
                f"({_first_line(error)}). Copy or write it again."
            ) from None


def open_table(path: str) -> Table:
    """Recognise the format and read the columns; raises UsageError with the fix."""
    extension = _extension(path)
    form = FORMATS.get(extension)
    if form is None and pack_advice(os.path.basename(path)) == OBJECT_INSTEAD:
        raise UsageError(f"{path} is not a manifest. {OBJECT_INSTEAD}.")
    if form is None:
        raise UsageError(
            f"{path} is a file but not a manifest: give a folder of images, or a table with a "
            f"`path` column as {', '.join('.' + known for known in FORMATS)}{_hint(extension)}."
        )
    try:
        if os.path.getsize(path) == 0:
            raise UsageError(f"{path} is empty: a manifest needs a header and one row per image.")
        table = {"csv": _open_csv, "jsonl": _open_jsonl, "parquet": _open_parquet}[form](path)
        if damaged := next((name for name in table.columns if "\0" in name), None):
            raise UsageError(f"{path}: the column name {damaged!r} contains a NUL: rename it.")
        return table
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None


def text_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file; raises UsageError naming the first line that is not."""
    with open(path, "rb", opener=regular) as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{os.path.basename(path)}, line {number:,} is not UTF-8 (byte "
                    f"{error.object[error.start]:#04x} at {error.start + 1}): save the file as "
                    "UTF-8, for example with `iconv -f LATIN1 -t UTF-8`."
                ) from None
            yield line


def _extension(path: str) -> str:
    return os.path.splitext(path)[1].lower().lstrip(".")


def _hint(extension: str) -> str:
    if extension == "json":
        return "; for a COCO file give the folder that contains it and the images"
    return "; unpack it first" if extension in ("gz", "zip", "zst", "bz2", "xz") else ""


def _open_csv(path: str) -> Table:
    header, second = (line.rstrip("\r\n") for line in islice(chain(text_lines(path), [""]), 2))
    stated = _SEPARATOR.fullmatch(header) if second else None
    if _extension(path) in ("txt", "lst") and split_line(header) is not None:
        return Table(path, "list", ("path", "label"))
    delimiter = stated[1] if stated else max(",;\t|", key=header.count)
    before = int(stated is not None)
    try:
        if exported := _exported_header(path):
            columns = tuple(original_text(name) or "" for name in _distinct(exported, path))
            return Table(path, "csv", columns, mark=exported.index(MARK))
        names = _header(path, delimiter, before)
    except csv.Error as error:
        raise UsageError(f"{path}: the header cannot be read as CSV ({error}).") from None
    cleaned = [name.strip() or f"unnamed_{i}" for i, name in enumerate(names, 1)]
    return Table(path, "csv", _distinct(cleaned, path), delimiter, before=before)


def _header(path: str, delimiter: str, before: int = 0) -> list[str]:
    # A quoted name may hold a line break: the reader knows, the first line does not.
    lines = islice(text_lines(path), before, None)
    return next(csv.reader(lines, delimiter=delimiter, strict=True), [])


def _exported_header(path: str) -> list[str]:
    """Return the header of a table with `MARK`, as it stands; of any other, nothing."""
    try:
        names = _header(path, ",")  # an export's delimiter, whatever its column names hold
    except csv.Error:
        return []
    return names if MARK in names else []


def _open_jsonl(path: str) -> Table:
    """Collect the keys of all lines; beyond `MOST_COLUMNS`, only how many lines have more."""
    columns: dict[str, None] = {}
    n_more, example, where = 0, "", 0
    for number, record in _records(path):
        if record.keys() <= columns.keys():
            continue
        room = MOST_COLUMNS - len(columns)
        fresh = [key for key in record if key not in columns]
        columns.update(dict.fromkeys(fresh[:room]))
        if fresh[room:]:
            n_more += 1
            example, where = (example, where) if where else (fresh[room], number)
    left_out = (
        f"{os.path.basename(path)} has more than {MOST_COLUMNS:,} different keys: keys beyond the "
        f"first {MOST_COLUMNS:,} are skipped, on {n_more:,} lines (first: {example!r}, line "
        f"{where:,}). If keys are values, write them as the values of one key."
    )
    return Table(path, "jsonl", tuple(columns), left_out=(left_out,) if n_more else ())


def _records(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of the lines that are not blank; raises UsageError."""
    for number, line in enumerate(text_lines(path), 1):
        if line.strip():
            yield number, _record(line, path, number)


def _open_parquet(path: str) -> Table:
    import polars as pl

    try:
        schema = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise UsageError(f"{path} is not a readable Parquet file ({_first_line(error)}).") from None
    bytes_in = tuple(name for name, dtype in schema.items() if "Binary" in repr(dtype))
    columns = tuple(name for name in schema if name not in bytes_in)
    left_out = tuple(
        f"The column {name!r} of {os.path.basename(path)} contains bytes, and is skipped."
        for name in bytes_in
    )
    return Table(path, "parquet", columns, embedded=bytes_in, left_out=left_out)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _record(line: str, path: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
        # Looking for the two letters first is ten times as fast as the expression.
        if "\\u" in line and _SURROGATE.search(line):
            json.dumps(record, ensure_ascii=False).encode()
        if isinstance(record, dict):
            return record
        fault = 'is JSON but not an object: write {"path": "a.jpg", "label": "cat"}, one per line.'
    except UnicodeEncodeError:
        fault = (
            "contains half a surrogate pair (\\ud800 to \\udfff), which is not valid text: write "
            "the file as UTF-8, and unusual file names as file:// URIs."
        )
    except (ValueError, RecursionError) as error:
        fault = f"is not valid JSON ({error}): write one object per line and nothing else."
    raise UsageError(f"{os.path.basename(path)}, line {number:,} {fault}")


def _distinct(names: Sequence[str], path: str) -> tuple[str, ...]:
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        name = min(twice)
        raise UsageError(f"{path}: the column {name!r} occurs twice in the header: rename one.")
    return tuple(names)


FOLDERS = ("", "images", "JPEGImages", "data")
"""Where the paths of a list may begin, below its own folder."""
_PICTURES = "|".join(sorted(name for name, kind in KINDS.items() if kind == "image"))
_LINE = re.compile(
    rf"\s*(?P<path>.+?\.(?:{_PICTURES}))(?:[\s,;]+(?P<label>.*?))?\s*", re.IGNORECASE
)


def split_line(line: str) -> tuple[str, str | None] | None:
    """Return path and label of a line, None where it names no picture."""
    found = _LINE.fullmatch(line)
    return None if found is None else (found["path"], found["label"] or None)


def list_rows(path: str, lines: Iterator[str]) -> Iterator[tuple[int, str, str | None]]:
    """Yield (line number, path, label) of each line; a line that names no picture is a path."""
    names, below = _class_names(path), None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        listed, label = split_line(line) or (line.strip(), None)
        below = _folder(path, listed) if below is None else below
        if label is not None and label.isdecimal() and int(label) < len(names):
            label = names[int(label)]
        yield number, listed if os.path.isabs(listed) else os.path.join(below, listed), label


def _folder(path: str, listed: str) -> str:
    """Return the folder where the paths begin: the first in which the first path exists."""
    base = os.path.dirname(path)
    return next((f for f in FOLDERS if os.path.exists(os.path.join(base, f, listed))), "")


def _class_names(path: str) -> list[str]:
    """Return the class names of a file beside a list, [] without one."""
    for name in ("synsets.txt", "classes.txt", "labels.txt", "class_names.txt"):
        try:
            beside = os.path.join(os.path.dirname(path), name)
            with open(beside, encoding="utf-8", opener=regular) as file:
                return [line.strip() for line in file if line.strip()]
        except (OSError, UnicodeDecodeError):
            continue
    return []
