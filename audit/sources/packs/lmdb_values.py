"""LMDB databases of pictures: a member is a value, its name the key, `class/name` as in a folder.

The pages are read here by ranges, not by the library of LMDB: that maps the file into memory, where
a database that was cut ends the process by a signal, and it cannot read from a store. A value that
is no picture is left out; a pickle is never opened, because it can run what it contains. Cost:
about 10 microseconds an entry, and one read of 32 bytes where the key has no extension.
"""

from __future__ import annotations

import csv
import io
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO

from audit.sources.formats import HEAD_BYTES, KINDS, extension_of_name, looks_like_image
from audit.sources.packs.members import DamagedPackError, PackMember, open_pack
from audit.sources.packs.tar_shards import read_member as read_member  # a range as well
from preflight.files import regular

NAME = "lmdb"
NAMED = True
LABEL_TABLE = "labels.csv"
_KEYS = ("key", "id", "name", "file", "filename", "path", "image")
_LABELS = ("label", "class", "class_name", "target", "category")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE = struct.Struct("<QHHHH")  # number, pad, flags, end of the offsets of nodes, start of nodes
_NODE = struct.Struct("<HHHH")  # size, its high half, flags, bytes of the key
_META = struct.Struct("<IIQQ")  # magic, version, address, size of the map
_TREE = struct.Struct("<IHH5Q")  # page size (of the first), flags, depth, counts of pages, entries
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_ON_PAGES, _TREE_INSIDE, _REPEATED = 1, 2, 4  # where a node's value is
_NO_PAGE = (1 << 64) - 1
_PAGE_SIZES = tuple(1 << n for n in range(9, 17))


@dataclass(slots=True)
class _Database:
    """An open database: bytes of a page, its first page, and what could not be read of it."""

    file: IO[bytes]
    size: int
    page_bytes: int
    root: int
    pages_lost: int = 0
    behind_end: int = 0
    repeated: int = 0
    seen: set[int] = field(default_factory=set)

    def read(self, start: int, size: int) -> bytes:
        """Return a range; what lies behind the end is missing."""
        if not 0 <= start < self.size:
            return b""
        self.file.seek(start)
        return self.file.read(size)


@dataclass(frozen=True, slots=True)
class _Value:
    """A key with the place of its value; `head` is how it begins, None where the name tells."""

    name: str
    start: int
    size: int
    head: bytes | None


def recognises(path: str) -> bool:
    """Return whether a file is called an LMDB database, or a `.mdb` that starts as one."""
    lower = path.lower()
    if lower.endswith(".lmdb") or os.path.basename(lower) == "data.mdb":
        return True
    try:
        with open(path if lower.endswith(".mdb") else os.devnull, "rb", opener=regular) as file:
            return file.read(20)[16:] == struct.pack("<I", _MAGIC)
    except OSError:
        return False


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the values by their keys, those that are no pictures included."""
    labels, problem = _read_labels(path)
    n = packed = labelled = 0
    with open_pack(path) as file:
        database = _open_database(file)
        for value in _values(database):
            n += 1
            label = labels.get(value.name)
            labelled += label is not None
            picture = value.head is None or looks_like_image(value.head)
            # a value behind the end is a picture that cannot be read
            picture = picture or (not value.head and value.size > 0)
            if not picture and not value.name.startswith("__"):
                packed += _is_packed(value.head or b"")
            key = f"{value.start}+{value.size}"
            yield PackMember(value.name, key, value.size, label, is_picture=picture)
    said = _damage(database)
    if packed:
        said.append(
            f"{packed:,} of its {n:,} values are pickled or packed (msgpack) objects, not the "
            "bytes of pictures: they are not opened, because a pickle can run what it contains"
        )
    if problem:
        said.append(problem)
    elif labels and n and not labelled:
        said.append(f"{LABEL_TABLE} beside it names none of its {n:,} keys")
    if said:
        raise DamagedPackError("; ".join(said))


def _damage(database: _Database) -> list[str]:
    said = []
    if database.pages_lost or database.behind_end:
        said.append(
            f"{database.pages_lost:,} of its pages and {database.behind_end:,} of its values are "
            f"damaged or lie behind its end at byte {database.size:,}"
        )
    if database.repeated:
        said.append(f"{database.repeated:,} of its keys have several values, which are not read")
    return said


def _is_packed(head: bytes) -> bool:
    """Return whether bytes start as a pickle, or as an array or map of msgpack."""
    if len(head) < 2:
        return False
    pickled = head[0] == 0x80 and 2 <= head[1] <= 5
    return pickled or 0x81 <= head[0] <= 0x9F or 0xDC <= head[0] <= 0xDF


def _open_database(file: IO[bytes]) -> _Database:
    """Return a database by the newer of its two first pages; raises DamagedPackError."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(2 * _PAGE_SIZES[-1])
    found = [meta for at in (0, *_PAGE_SIZES) if (meta := _meta(head, at)) is not None]
    if not found:
        small = len(head) >= 16 and struct.unpack_from("<I", head, 12)[0] == _MAGIC
        raise DamagedPackError(
            "it was written on a machine of 32 bits: copy it there with mdb_dump and mdb_load"
            if small
            else f"neither of its first two pages is that of an LMDB database, and it has {size:,} "
            "bytes"
        )
    _, version, page_bytes, root = max(found)
    if version != _VERSION:
        raise DamagedPackError(f"it has version {version} of the format; {_VERSION} is read")
    return _Database(file, size, page_bytes, root)


def _meta(head: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Return transaction, version, page size and root of one of the first pages, None for others.

    The second lies at the page size, so that one at another place is no such page.
    """
    body = at + _PAGE.size
    if len(head) < body + _META.size + 2 * _TREE.size + 16:
        return None
    magic, version, _, _ = _META.unpack_from(head, body)
    trees = body + _META.size
    page_bytes = _TREE.unpack_from(head, trees)[0]
    if magic != _MAGIC or page_bytes not in _PAGE_SIZES or at not in (0, page_bytes):
        return None
    root = _TREE.unpack_from(head, trees + _TREE.size)[-1]
    transaction = struct.unpack_from("<Q", head, trees + 2 * _TREE.size + 8)[0]
    return transaction, version, page_bytes, root


def _values(database: _Database) -> Iterator[_Value]:
    """Yield the values of a database in the order of their keys, those of databases inside too."""
    waiting = [(database.root, "")]
    while waiting:
        number, prefix = waiting.pop()
        if number == _NO_PAGE:
            continue
        page = _page(database, number)
        if page is None:
            database.pages_lost += 1
            continue
        flags = _PAGE.unpack_from(page)[2]
        inside = []
        for at, low, high, kind, n_key in _nodes(database, page):
            key = page[at + _NODE.size : at + _NODE.size + n_key]
            if flags & _BRANCH:
                inside.append((low | high << 16 | kind << 32, prefix))
                continue
            if not n_key:  # LMDB stores no empty key: the node was overwritten
                database.behind_end += 1
                continue
            start = number * database.page_bytes + at + _NODE.size + n_key
            data = page[at + _NODE.size + n_key :]
            if kind & _REPEATED:
                database.repeated += 1
            elif kind & _TREE_INSIDE:
                if len(data) >= _TREE.size:
                    inside.append((_TREE.unpack_from(data)[-1], f"{prefix}{_name(key)}/"))
            elif kind & _ON_PAGES and len(data) >= 8:
                first = struct.unpack_from("<Q", data)[0]
                start = first * database.page_bytes + _PAGE.size
                yield _value(database, prefix + _name(key), start, low | high << 16, None)
            else:
                size = low | high << 16
                yield _value(database, prefix + _name(key), start, size, data[:size])
        waiting += reversed(inside)


def _page(database: _Database, number: int) -> bytes | None:
    """Return a page of keys, None where it is none, or was met before."""
    if number in database.seen:
        return None
    database.seen.add(number)
    page = database.read(number * database.page_bytes, database.page_bytes)
    if len(page) < database.page_bytes:
        return None
    own, _, flags, lower, _ = _PAGE.unpack_from(page)
    sound = own == number and _PAGE.size <= lower <= len(page)
    return page if sound and flags & (_BRANCH | _LEAF) in (_BRANCH, _LEAF) else None


def _nodes(database: _Database, page: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield place, size (low, high), flags and bytes of the key of the nodes of a page."""
    lower = _PAGE.unpack_from(page)[3]
    for place in range(_PAGE.size, lower - 1, 2):
        at = struct.unpack_from("<H", page, place)[0]
        if at + _NODE.size > len(page) or at < lower:
            database.behind_end += 1
            continue
        low, high, kind, n_key = _NODE.unpack_from(page, at)
        if at + _NODE.size + n_key > len(page):
            database.behind_end += 1
            continue
        yield at, low, high, kind, n_key


def _value(database: _Database, name: str, start: int, size: int, data: bytes | None) -> _Value:
    """Return a value; `data` holds it where it lies beside its key."""
    if start + size > database.size:
        database.behind_end += 1
        start = min(start, database.size)
    kind = KINDS.get(extension_of_name(name))
    if kind is not None:
        return _Value(name, start, size, None if kind == "image" else b"-")
    head = data if data is not None else database.read(start, min(size, HEAD_BYTES))
    return _Value(name, start, size, head[:HEAD_BYTES])


def _name(key: bytes) -> str:
    """Return a key as a path; one that is no text, or no path, by its bytes."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    sound = text.isprintable() and all(part not in ("", ".", "..") for part in text.split("/"))
    return text if sound else f"0x{key.hex()}"


def _read_labels(path: str) -> tuple[Mapping[str, str], str]:
    """Return the labels by key of `labels.csv` beside a database, and what is wrong with it."""
    folder, name = os.path.split(path)
    places = [folder, os.path.dirname(folder)] if name.lower() == "data.mdb" else [folder]
    for place in places:
        try:
            with (
                open_pack(f"{place}/{LABEL_TABLE}") as file,
                io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text,
            ):
                return _label_rows(text), ""
        except FileNotFoundError:
            continue
        except (OSError, ValueError, csv.Error) as error:
            return {}, f"{LABEL_TABLE} beside it cannot be read: {error}"
    return {}, ""


def _label_rows(file: io.TextIOWrapper) -> Mapping[str, str]:
    """Return {key: label} of a table; raises ValueError without the two columns."""
    reader = csv.reader(file)
    header = [cell.strip().lower() for cell in next(reader, [])]
    keys, labels = (
        next((header.index(name) for name in names if name in header), -1)
        for names in (_KEYS, _LABELS)
    )
    if keys < 0 or labels < 0:
        raise ValueError(f"it needs a header with the columns {_KEYS[0]} and {_LABELS[0]}")
    rows = (row for row in reader if len(row) > max(keys, labels))
    return {row[keys].strip(): row[labels].strip() for row in rows if row[labels].strip()}
