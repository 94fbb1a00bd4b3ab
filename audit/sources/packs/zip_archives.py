"""Zip archives: a member is found by the offset of its own header, and unpacked in memory.

The directory at the end lists the members; where it is missing or damaged, the headers before the
members are followed as far as they go. The checksum of each member is compared when it is read.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator

from audit.sources.packs.members import DamagedPackError, PackMember, open_pack, read_range
from audit.sources.readings import ReadingError

NAME = "zip"
NAMED = True
# signature, version, flags, method, time, date, crc, packed size, size, length of name, of extra
_LOCAL = struct.Struct("<4s5H3L2H")
_SIGNATURE = b"PK\x03\x04"
_ENCRYPTED, _SIZES_LATER, _UTF8 = 0x1, 0x8, 0x800


def recognises(path: str) -> bool:
    """Return whether a file is called a zip archive."""
    return path.lower().endswith(".zip")


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the files of an archive in the order of its directory."""
    try:
        with open_pack(path) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, RuntimeError, struct.error) as error:
        found = list(_without_directory(path))
        yield from found
        raise DamagedPackError(
            f"its directory cannot be read ({error}); {len(found):,} members were found by "
            "their own headers"
        ) from None
    for entry in entries:
        if not entry.is_dir():
            key = f"{entry.header_offset}+{entry.compress_size}+{entry.file_size}+{entry.CRC}"
            yield PackMember(entry.filename, key, entry.file_size)


def _without_directory(path: str) -> Iterator[PackMember]:
    offset = 0
    with open_pack(path) as file:
        while True:
            file.seek(offset)
            head = file.read(_LOCAL.size)
            if len(head) < _LOCAL.size or head[:4] != _SIGNATURE:
                return
            fields = _LOCAL.unpack(head)
            flags, crc, packed, size, n_name, n_extra = fields[2], *fields[6:]
            if flags & _SIZES_LATER and not packed:
                return
            name = file.read(n_name).decode("utf-8" if flags & _UTF8 else "cp437", "replace")
            if not name.endswith("/"):
                yield PackMember(name, f"{offset}+{packed}+{size}+{crc}", size)
            offset += _LOCAL.size + n_name + n_extra + packed


def read_member(path: str, key: str, limit: int) -> bytes:
    """Return the bytes of a member: `header offset + packed size + size + checksum`."""
    offset, packed, size, crc = map(int, key.split("+"))
    if max(size, packed) > limit:
        raise ReadingError("bomb", f"the member has {size:,} bytes; max_bytes is {limit:,}")
    head = read_range(path, offset, _LOCAL.size)
    fields = _LOCAL.unpack(head)
    if fields[0] != _SIGNATURE:
        raise ReadingError("truncated", "the archive's directory points to no member here")
    if fields[2] & _ENCRYPTED:
        raise ReadingError("unsupported", "the member is encrypted")
    stored = read_range(path, offset + _LOCAL.size + fields[9] + fields[10], packed)
    data = _unpacked(stored, fields[3], size)
    if len(data) != size or zlib.crc32(data) != crc:
        raise ReadingError("corrupt", "the member's checksum differs from what the archive says")
    return data


def _unpacked(stored: bytes, method: int, size: int) -> bytes:
    if method == zipfile.ZIP_STORED:
        return stored
    if method != zipfile.ZIP_DEFLATED:
        raise ReadingError("unsupported", f"the member is packed by method {method}")
    try:
        # never more than it says: what unpacks to more is a bomb, or damaged
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(stored, size + 1)
    except zlib.error as error:
        raise ReadingError("corrupt", f"the member cannot be unpacked: {error}") from None
