"""Rows of a manifest file, one form for CSV, JSONL and Parquet, with line numbers.

CSV and JSONL are read by the standard library line by line: flat memory, about 1 to 3 microseconds
per row, and every error can name its line, which the vectorised readers cannot. Parquet comes in
batches from polars, imported only here and only then.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from audit.errors import UsageError

FORMATS = {
    "csv": "csv", "tsv": "csv", "txt": "csv",
    "jsonl": "jsonl", "ndjson": "jsonl",
    "parquet": "parquet", "pq": "parquet", "parq": "parquet",
}  # fmt: skip
_PEEK_LINES = 1000
_BATCH = 50_000
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
Row = tuple[int, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Table:
    """A manifest's columns, and how its rows are read again and again.

    `embedded` are Parquet columns that hold bytes (pictures inside the table): never read.
    """

    path: str
    format: str
    columns: tuple[str, ...]
    delimiter: str = ","
    embedded: tuple[str, ...] = ()

    def rows(self, wanted: Sequence[int]) -> Iterator[Row]:
        """Yield (line or row number from 1, values of the wanted columns, by column number)."""
        if self.format == "csv":
            return self._csv_rows(wanted)
        names = [self.columns[i] for i in wanted]
        return self._jsonl_rows(names) if self.format == "jsonl" else self._parquet_rows(names)

    def where(self, number: int) -> str:
        """Return the place of a row for a message."""
        unit = "row" if self.format == "parquet" else "line"
        return f"{os.path.basename(self.path)}, {unit} {number:,}"

    def _csv_rows(self, wanted: Sequence[int]) -> Iterator[Row]:
        reader = csv.reader(text_lines(self.path), delimiter=self.delimiter, strict=True)
        width = len(self.columns)
        try:
            next(reader)
            for values in reader:
                if len(values) == width:
                    yield reader.line_num, [values[i] for i in wanted]
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

    def _jsonl_rows(self, names: Sequence[str]) -> Iterator[Row]:
        for number, line in enumerate(text_lines(self.path), 1):
            if line.strip():
                record = _record(line, self.where(number))
                yield number, [record.get(name) for name in names]

    def _parquet_rows(self, names: Sequence[str]) -> Iterator[Row]:
        import polars as pl

        number = 0
        scan = pl.scan_parquet(self.path, glob=False).select(names)
        for batch in scan.collect_batches(chunk_size=_BATCH):
            for values in zip(*(column.to_list() for column in batch), strict=True):
                number += 1
                yield number, values


def open_table(path: str) -> Table:
    """Recognise the format and read the columns; raises UsageError with the fix."""
    extension = os.path.splitext(path)[1].lower().lstrip(".")
    form = FORMATS.get(extension)
    if form is None:
        raise UsageError(
            f"{path} is a file but not a manifest: give a folder of images, or a table with a "
            f"`path` column as {', '.join('.' + known for known in FORMATS)}{_hint(extension)}."
        )
    try:
        if os.path.getsize(path) == 0:
            raise UsageError(f"{path} is empty: a manifest needs a header and one row per image.")
        return {"csv": _open_csv, "jsonl": _open_jsonl, "parquet": _open_parquet}[form](path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None


def text_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file; raises UsageError naming the first line that is not."""
    with open(path, "rb") as file:
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


def _hint(extension: str) -> str:
    if extension == "json":
        return "; for a COCO file give the folder that contains it and the images"
    return "; unpack it first" if extension in ("gz", "zip", "zst", "bz2", "xz") else ""


def _open_csv(path: str) -> Table:
    header = next(text_lines(path)).rstrip("\r\n")
    delimiter = max(",;\t", key=header.count)
    try:
        # A quoted name may hold a line break: the reader knows, the first line does not.
        reader = csv.reader(text_lines(path), delimiter=delimiter, strict=True)
        names = next(reader, [])
    except csv.Error as error:
        raise UsageError(f"{path}: the header cannot be read as CSV ({error}).") from None
    return Table(path, "csv", _unique(names, path), delimiter)


def _open_jsonl(path: str) -> Table:
    columns: dict[str, None] = {}
    for number, line in enumerate(text_lines(path), 1):
        if number > _PEEK_LINES:
            break
        if line.strip():
            columns.update(dict.fromkeys(_record(line, f"{os.path.basename(path)}, line {number}")))
    return Table(path, "jsonl", tuple(columns))


def _open_parquet(path: str) -> Table:
    import polars as pl

    try:
        schema = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(f"{path} is not a readable Parquet file ({first}).") from None
    bytes_in = tuple(name for name, dtype in schema.items() if "Binary" in repr(dtype))
    columns = tuple(name for name in schema if name not in bytes_in)
    return Table(path, "parquet", columns, embedded=bytes_in)


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if _SURROGATE.search(line):
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{where} contains half a surrogate pair (\\ud800 to \\udfff), which is not valid "
            "text: write the file as UTF-8, and unusual file names as file:// URIs."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{where} is not valid JSON ({error}): write one object per line and nothing else."
        ) from None
    if not isinstance(record, dict):
        raise UsageError(
            f'{where} is JSON but not an object: write {{"path": "a.jpg", "label": "cat"}}, '
            "one per line."
        )
    return record


def _unique(names: Sequence[str], path: str) -> tuple[str, ...]:
    cleaned = tuple(name.strip() or f"unnamed_{i}" for i, name in enumerate(names, 1))
    twice = sorted({name for name in cleaned if cleaned.count(name) > 1})
    if twice:
        raise UsageError(f"{path}: the column {twice[0]!r} occurs twice in the header: rename one.")
    return cleaned
