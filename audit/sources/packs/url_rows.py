"""Parquet with the addresses of pictures in a column, as LAION and img2dataset: a member is a row.

The pictures are fetched when they are read, some at a time (`audit.sources.web_answers`). A sample
names its row, never its address: an address may hold a key, and runs are passed on. Metadata has it
without password and query. Tables that list paths, and those with boxes, are manifests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from audit.errors import UsageError
from audit.sources.object_store import check_address, read_object
from audit.sources.packs.members import PackMember
from audit.sources.packs.parquet_rows import (
    LABELS,
    NO_TABLE,
    PATHS,
    SPLITS,
    columns_of,
    damaged_group,
    first_taken,
    open_parquet,
    picture_column,
    plain_columns,
    read_value,
    text_columns,
)
from audit.sources.readings import ReadingError
from audit.sources.tables import number_columns
from audit.sources.web_answers import fetch_picture, shown_address

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "urls"
NAMED = False
IS_FETCHED = True
ADDRESSES = ("url", "image_url", "img_url")
STORES = ("s3", "s3a", "gs", "gcs", "hf", "abfs", "abfss", "az", "adl", "oss")
"""What else than http and https may be read, by fsspec: stores, and no files."""
_OTHER_PATHS = ("image", "img", "image_file", "uri")
_ADDRESS = re.compile(r"\s*[A-Za-z][\w+.-]*://\S+\s*")
_ROWS = 10_000  # as Python objects at a time


def recognises(path: str) -> bool:
    """Return whether a file is Parquet with a column of addresses."""
    schema = columns_of(path)
    if schema is None or picture_column(schema) is not None or _address_column(schema) is None:
        return False
    texts = {name.lower() for name in text_columns(schema)}
    boxed = number_columns([name.strip().lower() for name in schema.names])
    return not boxed and texts.isdisjoint((*PATHS, *_OTHER_PATHS))


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the rows in order; how many bytes an address gives is not known."""
    import pyarrow as pa

    group = 0
    try:
        file = open_parquet(path)
        column = _address_column(file.schema_arrow)
        assert column is not None
        columns = [column, *plain_columns(file.schema_arrow, column)]
        for group in range(file.num_row_groups):
            table, number = file.read_row_group(group, columns=columns), 0
            for batch in table.to_batches(max_chunksize=_ROWS):
                for row in batch.to_pylist():
                    url = row.pop(column)
                    label, split = first_taken(row, LABELS), first_taken(row, SPLITS)
                    yield PackMember(
                        "", f"{group}+{number}+{column}", -1,
                        None if label is None else str(label),
                        None if split is None else str(split),
                        {"url": shown_address(url or ""), **_without_keys(row)},
                    )  # fmt: skip
                    number += 1
    except (*NO_TABLE, pa.ArrowException) as error:
        raise damaged_group(group, error) from None


def read_member(path: str, key: str, limit: int) -> bytes:
    """Return what the address of a row gives: `row group + row + column`."""
    url = read_value(path, key, _row_group)
    if not url:
        raise ReadingError("missing", "the row has no address")
    if url.partition("://")[0].lower() not in STORES or "::" in url:
        return fetch_picture(url, limit)
    try:
        check_address(url)
        return read_object(url, limit)
    except UsageError as error:
        raise ReadingError("unsupported", str(error)) from None


def _without_keys(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with every other address in it as it may be kept."""
    return {
        name: shown_address(value)
        if isinstance(value, str) and _ADDRESS.fullmatch(value)
        else value
        for name, value in row.items()
    }


def _row_group(path: str, group: int, column: str) -> pa.ChunkedArray:
    return open_parquet(path).read_row_group(group, columns=[column]).column(0)


def _address_column(schema: pa.Schema) -> str | None:
    """Return the column of texts that is called an address, None without one."""
    texts = text_columns(schema)
    named = {name.lower(): name for name in reversed(texts)}
    return next((named[name] for name in ADDRESSES if name in named), None)
