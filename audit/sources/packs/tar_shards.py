"""Tar archives, shards of WebDataset among them: a member is a range of bytes of the file.

Data is skipped by seeking; behind a damaged header the next sound one is looked for. An archive
that is compressed as a whole has no ranges: it is named, with the fix.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator

from audit.sources.packs.members import DamagedPackError, PackMember, open_pack, read_range
from audit.sources.readings import ReadingError

NAME = "tar"
NAMED = True
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_BLOCK = 512


def recognises(path: str) -> bool:
    """Return whether a file is called a tar archive."""
    return path.lower().endswith((".tar", *COMPRESSED))


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the regular files of an archive in its order."""
    if path.lower().endswith(COMPRESSED):
        raise DamagedPackError(
            "it is compressed as a whole, so that no image in it can be read by itself: unpack "
            f"the compression alone (gunzip -k {os.path.basename(path)}) and scan the .tar"
        )
    lost, first_lost, end = 0, -1, 0
    with open_pack(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:", ignore_zeros=True) as archive:
                while (entry := archive.next()) is not None:
                    archive.members = []  # type: ignore[attr-defined]  # kept, they fill the memory
                    if gap := _damaged_bytes(path, end, entry.offset):
                        lost, first_lost = lost + gap, end if first_lost < 0 else first_lost
                    stored = entry.size if entry.isreg() or entry.type == tarfile.AREGTYPE else 0
                    end = entry.offset_data + -(-stored // _BLOCK) * _BLOCK
                    if entry.isreg() and not entry.issparse():
                        key = f"{entry.offset_data}+{entry.size}"
                        yield PackMember(entry.name, key, entry.size)
        except tarfile.TarError as error:
            if end <= size:
                raise DamagedPackError(f"at byte {end:,} of {size:,}: {error}") from None
    if end > size:
        raise DamagedPackError(f"it ends at byte {size:,}, within a member that goes on to {end:,}")
    if end == size and end:
        raise DamagedPackError(
            f"it ends at byte {size:,} without the mark of an end: it may be cut after a member"
        )
    gap = _damaged_bytes(path, end, size)
    lost, first_lost = lost + gap, end if gap and first_lost < 0 else first_lost
    if lost:
        raise DamagedPackError(f"{lost:,} bytes from byte {first_lost:,} on hold no readable entry")


def _damaged_bytes(path: str, start: int, end: int) -> int:
    """Return how many bytes of a gap are something: zeros end an archive, or pad it."""
    if end <= start:
        return 0
    with open_pack(path) as file:
        file.seek(start)
        while data := file.read(min(1 << 20, end - start)):
            if data.strip(b"\0"):
                return end - start
            start += len(data)
    return 0


def read_member(path: str, key: str, limit: int) -> bytes:
    """Return the bytes of a member: `start+size`."""
    start, _, size = key.partition("+")
    if int(size) > limit:
        raise ReadingError("bomb", f"the member has {int(size):,} bytes; max_bytes is {limit:,}")
    return read_range(path, int(start), int(size))
