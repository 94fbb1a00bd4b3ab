"""Parquet with the bytes of pictures in a column, as Hugging Face writes it: a member is a row.

The column holds bytes, or a record of `bytes` and `path`. Class numbers get the names in the file's
own metadata.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from audit.sources.packs.members import (
    DamagedPackError,
    PackMember,
    is_distant,
    kept_open,
    open_pack,
)
from audit.sources.readings import ReadingError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

NAME = "parquet"
NAMED = False
_LABELS = ("label", "labels", "class", "class_name", "target", "fine_label", "category")
_ENDINGS = (".parquet", ".pq")
_PATHS = {
    "path", "file", "filename", "file_name", "image_path", "file_path", "filepath", "img_path",
}  # fmt: skip
_SPLITS = ("split", "subset", "partition")
_NO_TABLE = (OSError, ValueError, RuntimeError)  # what pyarrow raises for a damaged file


def recognises(path: str) -> bool:
    """Return whether a file is Parquet with a column of pictures."""
    import pyarrow as pa

    schema = _columns_of(path)
    if schema is None or _picture_column(schema) is None:
        return False
    texts = (f.name.lower() for f in schema if f.type in (pa.string(), pa.large_string()))
    return _PATHS.isdisjoint(texts)  # else it is a manifest


def is_unreadable(path: str) -> bool:
    """Return whether a file is called a table and cannot be opened as one: nobody knows of what."""
    return path.lower().endswith(_ENDINGS) and _columns_of(path) is None


def _columns_of(path: str) -> pa.Schema | None:
    """Return the columns of a Parquet file, None for any other and for one that is damaged."""
    import pyarrow as pa

    with contextlib.suppress(*_NO_TABLE, pa.ArrowException):
        return _open_parquet(path).schema_arrow if path.lower().endswith(_ENDINGS) else None
    return None


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the rows in order; a null picture is a member of no bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    group = 0
    try:
        file = _open_parquet(path)
        column = _picture_column(file.schema_arrow)
        assert column is not None
        others = _plain_columns(file.schema_arrow, column)
        names = _class_names(file.schema_arrow)
        for group in range(file.num_row_groups):
            sizes = pc.binary_length(_bytes_column(path, group, column)).to_pylist()
            rows = file.read_row_group(group, columns=others).to_pylist()
            rows = rows or [{} for _ in sizes]
            for number, (size, row) in enumerate(zip(sizes, rows, strict=True)):
                label, split = _first_taken(row, _LABELS), _first_taken(row, _SPLITS)
                yield PackMember(
                    "", f"{group}+{number}+{column}", size or 0, _named(label, names),
                    None if split is None else str(split), row,
                )  # fmt: skip
    except (*_NO_TABLE, pa.ArrowException) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedPackError(f"row group {group} cannot be read: {text}") from None


def read_member(path: str, key: str, limit: int) -> bytes:
    """Return the bytes of a row's picture: `row group + row + column`."""
    import pyarrow as pa

    group, number, column = key.split("+", 2)
    try:
        data = kept_open(_bytes_column, path, int(group), column)[int(number)].as_py()
    except (*_NO_TABLE, pa.ArrowException, IndexError) as error:
        raise ReadingError("corrupt", f"its row group cannot be read: {error}") from None
    if data is None:
        raise ReadingError("empty", "the row has no image")
    if len(data) > limit:
        raise ReadingError("bomb", f"the row has {len(data):,} bytes; max_bytes is {limit:,}")
    return bytes(data)


def _open_parquet(path: str) -> pq.ParquetFile:
    """Return a table, on this machine or in a store; raises `_NO_TABLE`, ArrowException."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(open_pack(path) if is_distant(path) else path)


def _bytes_column(path: str, group: int, column: str) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    table = _open_parquet(path).read_row_group(group, columns=[column])
    values = table.column(0)
    return pc.struct_field(values, "bytes") if _is_record(values.type) else values


def _picture_column(schema: pa.Schema) -> str | None:
    """Return the first column of bytes that is called a picture, or is the only one of bytes."""
    import pyarrow as pa

    found = [
        f.name
        for f in schema
        if pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type) or _is_record(f.type)
    ]
    called = [name for name in found if any(word in name.lower() for word in ("im", "pic", "jpg"))]
    return called[0] if called else found[0] if len(found) == 1 else None


def _is_record(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind)) and kind.get_field_index("bytes") >= 0


def _plain_columns(schema: pa.Schema, but: str) -> list[str]:
    """Return the columns of numbers and words, but one; and of lists of labels."""
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string,
             pa.types.is_large_string, pa.types.is_dictionary)  # fmt: skip

    def plain(field: pa.Field) -> bool:
        listed = pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
        kind = field.type.value_type if listed and field.name in _LABELS else field.type
        return any(test(kind) for test in tests)

    return [f.name for f in schema if f.name != but and plain(f)]


def _class_names(schema: pa.Schema) -> list[str]:
    """Return the names that the file's notes give to class numbers."""
    try:
        notes = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = notes["info"]["features"]
        named = (_names_of(features[name]) for name in _LABELS if name in features)
        return [str(name) for name in next(filter(None, named), [])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _names_of(feature: Any) -> Any:
    """Return the names of a ClassLabel, or of a sequence of it, as its notes are written."""
    if isinstance(feature, list):
        feature = feature[0]
    return feature.get("names") or (feature.get("feature") or {}).get("names")


def _first_taken(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Take the first of some names out of a row; None without any."""
    return next((row.pop(name) for name in names if name in row), None)


def _named(label: Any, names: list[str]) -> str | None:
    if isinstance(label, list):
        return json.dumps([_named(item, names) for item in label], ensure_ascii=False)
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(names):
        return names[label]
    return None if label is None else str(label)
