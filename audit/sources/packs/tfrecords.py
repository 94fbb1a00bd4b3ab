"""TFRecord shards of tf.train.Example: a member is the range of bytes of its encoded picture.

A record is a length, its checksum, the Example, its checksum; the image is the feature whose bytes
start as one. TensorFlow takes seconds to load and hides where the bytes lie.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

from audit.sources.formats import HEAD_BYTES, looks_like_image
from audit.sources.packs.members import DamagedPackError, PackMember, open_pack
from audit.sources.packs.tar_shards import read_member as read_member  # a range as well

NAME = "tfrecord"
NAMED = False
FILES = re.compile(r"\.(tfrecords?|record|tfrec)(-\d+-of-\d+)?$", re.IGNORECASE)
LABELS = (
    "image/class/text", "class/text", "label_name", "class_name", "label", "image/class/label",
    "class", "target", "image/label",
)  # fmt: skip
_HEAD = struct.Struct("<QI")
_CHECKSUM_BYTES = 4
_LONGEST_TEXT = 200  # bytes of a feature that is a word


def recognises(path: str) -> bool:
    """Return whether a file is called a TFRecord."""
    return FILES.search(path) is not None


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the picture of every record, with its label and its other words and numbers."""
    offset = without = 0
    with open_pack(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        while offset < size:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                raise DamagedPackError(f"it ends at byte {size:,}, within the head of a record")
            length, checksum = _HEAD.unpack(head)
            if masked_crc(head[:8]) != checksum:
                raise DamagedPackError(
                    f"the record at byte {offset:,} of {size:,} has a damaged head: what follows "
                    "cannot be found"
                )
            start = offset + _HEAD.size
            if start + length + _CHECKSUM_BYTES > size:
                raise DamagedPackError(
                    f"it ends at byte {size:,}, within the record at byte {offset:,}"
                )
            if (member := _member(file.read(length), start)) is not None:
                yield member
            without += member is None
            offset = start + length + _CHECKSUM_BYTES
            file.seek(offset)
    if without:
        raise DamagedPackError(f"{without:,} of its records hold no encoded image")


def _member(record: bytes, start: int) -> PackMember | None:
    try:
        features = example_features(record)
    except (IndexError, ValueError, struct.error):
        return None
    ranges = (v for values in features.values() for v in values if isinstance(v, tuple))
    pictures = (r for r in ranges if looks_like_image(record[r[0] : r[0] + min(r[1], HEAD_BYTES)]))
    if (picture := next(pictures, None)) is None:
        return None
    at, n = picture
    words = {name: _single(record, values) for name, values in features.items()}
    words = {name: value for name, value in words.items() if value is not None}
    label = next((words.pop(name) for name in LABELS if name in words), None)
    return PackMember("", f"{start + at}+{n}", n, None if label is None else str(label), more=words)


def _single(record: bytes, values: list[Any]) -> Any:
    """Return the value of a feature that has exactly one, short enough to be a word."""
    if len(values) != 1:
        return None
    if not isinstance(values[0], tuple):
        return values[0]
    at, n = values[0]
    if n > _LONGEST_TEXT:
        return None
    try:
        return record[at : at + n].decode()
    except UnicodeDecodeError:
        return None


def example_features(record: bytes) -> dict[str, list[Any]]:
    """Return the features of an Example: (offset, length) for bytes, numbers as they are."""
    found: dict[str, list[Any]] = {}
    for _, start, end in _parts(record, 0, len(record), 1):
        for _, first, last in _parts(record, start, end, 1):
            name, values = "", list[Any]()
            for number, at, stop in _parts(record, first, last):
                if number == 1:
                    name = record[at:stop].decode("utf-8", "replace")
                elif number == 2:
                    values = _values(record, at, stop)
            found[name] = values
    return found


def _values(record: bytes, start: int, end: int) -> list[Any]:
    values: list[Any] = []
    for kind, at, stop in _parts(record, start, end):
        for _, first, last in _parts(record, at, stop, 1):
            if kind == 1:
                values.append((first, last - first))
            elif kind == 2:
                values += struct.unpack_from(f"<{(last - first) // 4}f", record, first)
            elif last < 0:  # one number that is not packed
                values.append(_signed(first))
            else:
                while first < last:
                    number, first = _varint(record, first)
                    values.append(_signed(number))
    return values


def _parts(record: bytes, at: int, end: int, only: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield (field, start, end) of every field; of a bare number (field, value, -1)."""
    while at < end:
        tag, at = _varint(record, at)
        field, wire = tag >> 3, tag & 7
        if wire == 2:
            length, at = _varint(record, at)
            if at + length > end:
                raise ValueError("a field that is longer than what holds it")
            part, at = (field, at, at + length), at + length
        elif wire == 0:
            value, at = _varint(record, at)
            part = (field, value, -1)
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            part, at = (field, at, at + width), at + width
        else:
            raise ValueError("no field of this kind")
        if not only or field == only:
            yield part


def _varint(record: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = record[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of a few bytes, rotated and offset as TFRecord stores it."""
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
