"""Put listed files out of the page cache without root, and verify that they are gone.

`posix_fadvise(DONTNEED)` is advice, and drops no dirty pages (fsync first), pages that another
process maps, or tmpfs. mincore on a sample of the files and the bytes from the block device verify
it. Opt-in, because other jobs lose their cache of these files.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

CHECKED_FILES = 50
_MAX_RESIDENT = 0.05


def refuse(files: Sequence[str]) -> str:
    """Why the cold arm cannot run, as a sentence with the fix; '' when it can."""
    if not hasattr(os, "posix_fadvise"):
        return "this system has no posix_fadvise; measure the cold loader on Linux."
    if not files:
        return "the dataset does not list its files; name them: --set measure.files='DIR/**/*.jpg'."
    if _filesystem(files[0]) in ("tmpfs", "ramfs"):
        return f"{files[0]} lies on a memory file system, which is never cold; use a disk."
    evict(files[:CHECKED_FILES])
    share = resident(files[:CHECKED_FILES])
    if share is not None and share > _MAX_RESIDENT:
        return (
            f"{share:.0%} of the checked files stayed in memory (mapped by a live process, or not "
            "yours); close what maps them, or copy the data set."
        )
    return ""


def evict(files: Sequence[str]) -> list[str]:
    """Drop the files' pages; returns sentences about files that could not be opened."""
    missed = 0
    for path in files:
        try:
            with open(path, "rb", buffering=0) as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            missed += 1
    return [f"{missed} of {len(files)} files could not be put out of the cache."] if missed else []


def resident(files: Sequence[str]) -> float | None:
    """Share of the files' pages in memory by mincore; None where the system does not tell."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        counts = [_resident_pages(libc, path) for path in files]
    except (OSError, AttributeError, ValueError):
        return None
    pages = sum(total for _, total in counts)
    return sum(held for held, _ in counts) / pages if pages else None


def _resident_pages(libc: ctypes.CDLL, path: str) -> tuple[int, int]:
    size = os.path.getsize(path)
    if size == 0:
        return 0, 0
    pages = -(-size // mmap.PAGESIZE)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        vector = (ctypes.c_ubyte * pages)()
        anchor = ctypes.c_char.from_buffer(view)
        try:
            address = ctypes.c_void_p(ctypes.addressof(anchor))
            if libc.mincore(address, ctypes.c_size_t(size), vector) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            del anchor
        return sum(1 for flag in vector if flag & 1), pages


def _filesystem(path: str) -> str:
    """Type of the file system that holds `path`; '' unknown."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real = os.path.realpath(path)
    held = [(len(at), kind) for at, kind in mounts if real.startswith(at.rstrip("/") + "/")]
    return max(held, default=(0, ""))[1]
