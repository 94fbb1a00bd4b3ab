"""IDX files, as MNIST is published: one file of pictures, one of labels beside it, .gz or not.

A member is one picture of 8-bit grey. The labels are those of the file that is called the same
with `labels` for `images` and idx1 for idx3.
"""

from __future__ import annotations

import gzip
import os
import re
import struct
from collections.abc import Iterator
from typing import Any

from audit.sources.packs.members import (
    NOT_AN_ARRAY,
    DamagedPackError,
    PackMember,
    encode_member,
    kept_open,
)

NAME = "idx"
NAMED = False
_FILE = re.compile(r"images[-.]idx3[-.]ubyte(\.gz)?$", re.IGNORECASE)
_PICTURES, _LABELS = 0x803, 0x801
_MOST = 1 << 32  # bytes that a file may hold when it is unpacked


def recognises(path: str) -> bool:
    """Return whether a file is called one of pictures."""
    return _FILE.search(path) is not None


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the pictures in order, with their labels where there are any."""
    try:
        pictures, short = kept_open(open_idx, path, _PICTURES)
    except NOT_AN_ARRAY as error:
        raise DamagedPackError(f"it cannot be read: {error}") from None
    labels, problem = _labels(path, len(pictures))
    problem = "; ".join(filter(None, [short, problem]))
    name = os.path.basename(path).lower()
    split = "test" if name.startswith(("t10k", "test")) or "-test-" in name else "train"
    for index in range(len(pictures)):
        label = str(labels[index]) if labels is not None else None
        yield PackMember("", str(index), int(pictures[index].nbytes), label, split)
    if problem:
        raise DamagedPackError(problem)


def _labels(path: str, n: int) -> tuple[Any, str]:
    name = os.path.basename(path)
    other = re.sub("idx3", "idx1", re.sub("images", "labels", name), flags=re.IGNORECASE)
    beside = os.path.join(os.path.dirname(path), other)
    if not os.path.exists(beside):
        return None, f"no file {other} lies beside it, so that its pictures have no labels"
    try:
        labels, _ = kept_open(open_idx, beside, _LABELS)
    except NOT_AN_ARRAY as error:
        return None, f"its labels in {other} cannot be read: {error}"
    if len(labels) != n:
        return None, f"it has {n:,} pictures and {other} {len(labels):,} labels"
    return labels, ""


def open_idx(path: str, magic: int) -> tuple[Any, str]:
    """Return an IDX file as an array, and what is wrong with its length, '' where nothing is.

    Raises ValueError where it is no such file.
    """
    import numpy as np

    opener = gzip.open if path.lower().endswith(".gz") else open
    with opener(path, "rb") as file:
        data = file.read(_MOST)
    axes = magic & 0xFF
    head = 4 * (1 + axes)
    if len(data) < head or struct.unpack_from(">I", data)[0] != magic:
        raise ValueError("it does not start as an IDX file of 8-bit numbers")
    shape = struct.unpack_from(f">{axes}I", data, 4)
    each = int(np.prod(shape[1:], dtype=object))
    if not each:
        raise ValueError(f"its pictures have the shape {shape[1:]}")
    held = min((len(data) - head) // each, shape[0])
    problem = "" if held == shape[0] else f"it says {shape[0]:,} entries and holds {held:,}"
    return np.frombuffer(data, np.uint8, held * each, head).reshape(held, *shape[1:]), problem


def read_member(path: str, key: str, limit: int) -> bytes:
    """Return a picture as PNG: its index."""
    return encode_member(lambda index: kept_open(open_idx, path, _PICTURES)[0][index], key, limit)
