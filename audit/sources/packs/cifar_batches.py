"""The batches that CIFAR-10 and CIFAR-100 are published in, pickled for Python or binary.

A pickle is opened with an allowance for arrays alone: any other object in it is refused, and
nothing in it can run. Class names come from batches.meta beside it (or its text for binary files).
"""

from __future__ import annotations

import io
import os
import pickle
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from audit.sources.packs.members import (
    NOT_AN_ARRAY,
    DamagedPackError,
    PackMember,
    encode_member,
    kept_open,
)
from dataset_preflight.foundation.files import regular

NAME = "cifar"
NAMED = False
_PICKLED = re.compile(r"^(data_batch_\d+|test_batch)$")
_BINARY = re.compile(r"^(data_batch_\d+|test_batch|train|test)\.bin$")
SIDE = 32
_PIXELS = 3 * SIDE * SIDE
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class Batch(NamedTuple):
    """Pictures (height, width, 3) uint8, a class number and a file name each; class names."""

    pictures: list[Any]
    labels: list[int]
    files: list[str]
    classes: list[str]


def recognises(path: str) -> bool:
    """Return whether a file is called a batch, and starts as one."""
    name = os.path.basename(path)
    if _BINARY.match(name):
        size = os.path.getsize(path)
        return bool(size) and (size % (_PIXELS + 1) == 0 or size % (_PIXELS + 2) == 0)
    if not _PICKLED.match(name) and name not in ("train", "test"):
        return False
    try:
        with open(path, "rb", opener=regular) as file:
            return file.read(1) == b"\x80"
    except OSError:
        return False


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the pictures in order, with their class by name."""
    try:
        batch = kept_open(open_batch, path)
    except NOT_AN_ARRAY as error:
        raise DamagedPackError(f"it cannot be read as a CIFAR batch: {error}") from None
    split = "test" if os.path.basename(path).startswith("test") else "train"
    for index, number in enumerate(batch.labels):
        label = batch.classes[number] if 0 <= number < len(batch.classes) else str(number)
        more = {"file": batch.files[index]} if index < len(batch.files) else {}
        yield PackMember("", str(index), batch.pictures[index].nbytes, label, split, more)


def read_member(path: str, key: str, limit: int) -> bytes:
    """Return a picture as PNG: its index."""
    return encode_member(lambda index: kept_open(open_batch, path).pictures[index], key, limit)


def open_batch(path: str) -> Batch:
    """Return a batch, whole; raises pickle.UnpicklingError, ValueError, KeyError."""
    import numpy as np

    if path.endswith(".bin"):
        data = np.fromfile(path, np.uint8)
        wide = _PIXELS + (1 if len(data) % (_PIXELS + 1) == 0 else 2)
        rows = data.reshape(-1, wide)
        labels, files = rows[:, wide - _PIXELS - 1].tolist(), []
        pictures = [_picture(row[-_PIXELS:], None) for row in rows]
    else:
        found = _unpickled(path)
        labels, files = found.get("labels", found.get("fine_labels")), found.get("filenames", [])
        # written by other programs, pictures may be of other sizes than 32 x 32
        sizes = found.get("image_sizes", [None] * len(found["data"]))
        pairs = zip(found["data"], sizes, strict=True)
        pictures = [_picture(np.asarray(row, np.uint8), size) for row, size in pairs]
        if not isinstance(labels, list) or len(labels) != len(pictures):
            raise ValueError("it has not one label for each image")
    return Batch(pictures, [int(n) for n in labels], [str(n) for n in files], _classes(path))


def _picture(row: Any, size: Any) -> Any:
    height, width = size or (SIDE, SIDE)
    return row.reshape(3, int(height), int(width)).transpose(1, 2, 0)


def _classes(path: str) -> list[str]:
    folder = os.path.dirname(path)
    for name, key in (("batches.meta", "label_names"), ("meta", "fine_label_names")):
        try:
            return [str(word) for word in _unpickled(os.path.join(folder, name))[key]]
        except NOT_AN_ARRAY:
            continue
    for name in ("batches.meta.txt", "fine_label_names.txt"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8", opener=regular) as file:
                return file.read().split()
        except (OSError, UnicodeDecodeError):
            continue
    return []


class _Arrays(pickle.Unpickler):
    """An unpickler that makes arrays, lists, dictionaries and texts, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it wants to make a {module}.{name}, which is no array")


def _unpickled(path: str) -> dict[str, Any]:
    with open(path, "rb", opener=regular) as file:
        found = _Arrays(io.BytesIO(file.read()), encoding="bytes").load()
    if not isinstance(found, dict):
        raise ValueError("it holds no dictionary")
    lists = {k: [_word(v) for v in x] if isinstance(x, list) else x for k, x in found.items()}
    return {_word(key): value for key, value in lists.items()}


def _word(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
