"""NumPy arrays of pictures, `.npy` and `.npz`, and HDF5: a member is one entry of the first axis.

An array is (n, height, width[, channels]) of whole numbers, or of 0 to 1; labels are an array of
one number or word each: `y` beside `x`, `labels` beside `images`, `y_train` beside `x_train`.
Arrays of Python objects are not opened: reading them could run what they contain.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from audit.errors import UsageError
from audit.sources.names import split_word
from audit.sources.packs.members import (
    NOT_AN_ARRAY,
    DamagedPackError,
    PackMember,
    encode_member,
    kept_open,
)
from dataset_preflight.foundation.files import regular

NAME = "arrays"
NAMED = False
_PICTURES = re.compile(r"^(x|images?|imgs?|pictures?|data|features|arr_0)$", re.IGNORECASE)
_PARTS = re.compile(r"[_/.\- ]")
_LABELS = re.compile(r"^(y|labels?|targets?|class(es)?|arr_1)$", re.IGNORECASE)


def recognises(path: str) -> bool:
    """Return whether a file is called an array."""
    return path.lower().endswith((".npy", ".npz", ".h5", ".hdf5"))


def list_members(path: str) -> Iterator[PackMember]:
    """Yield the pictures of every array that holds some, arrays by name."""
    try:
        arrays = kept_open(open_arrays, path)
        names = [name for name in sorted(arrays) if _holds_pictures(arrays[name], name)]
    except NOT_AN_ARRAY as error:
        raise DamagedPackError(f"it cannot be read as an array: {error}") from None
    if not names:
        shapes = ", ".join(f"{name} {tuple(arrays[name].shape)}" for name in sorted(arrays))
        raise DamagedPackError(
            f"none of its arrays (n, height, width[, channels]) are images: {shapes or 'none'}"
        )
    for name in names:
        labels, split = _labels_of(arrays, name), _split_of(name)
        each = int(arrays[name][:1].nbytes)
        for index in range(len(arrays[name])):
            label = None if labels is None else _text(labels[index])
            yield PackMember("", f"{index}+{name}", each, label, split)


def read_member(path: str, key: str, limit: int) -> bytes:
    """Return a picture as PNG: `index + name of the array`."""
    index, _, name = key.partition("+")
    return encode_member(lambda row: kept_open(open_arrays, path)[name][row], index, limit)


def open_arrays(path: str) -> Mapping[str, Any]:
    """Return the arrays of a file by name, '' for a single one; those of .npz are all read."""
    import numpy as np

    lower = path.lower()
    if lower.endswith(".npy"):
        return {"": np.load(path, mmap_mode="r", allow_pickle=False)}
    if lower.endswith(".npz"):
        # opened here: NumPy leaves open what it cannot read
        with (
            open(path, "rb", opener=regular) as opened,
            np.load(opened, allow_pickle=False) as file,
        ):
            return {name: file[name] for name in file.files}
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError(
            f"{os.path.basename(path)} is HDF5, which needs a library: pip install "
            "'dataset-preflight[hdf5]'."
        ) from None
    found: dict[str, Any] = {}
    file = h5py.File(path, "r")
    file.visititems(lambda name, item: found.update({name: item} if hasattr(item, "shape") else {}))
    return found


def _holds_pictures(array: Any, name: str) -> bool:
    word = _without_split(name)
    if len(array.shape) == 4:
        return 1 in (array.shape[1], array.shape[3]) or bool({3, 4} & {*array.shape[1::2]})
    named = not word or _PICTURES.match(word) is not None
    return named and len(array.shape) == 3 and min(array.shape[1:]) > 4


def _labels_of(arrays: Mapping[str, Any], name: str) -> Any:
    """Return the labels that belong to an array of pictures: as many, of the same split."""
    n, split = len(arrays[name]), _split_of(name)
    for other in sorted(arrays):
        array = arrays[other]
        flat = len(array.shape) == 1 or (len(array.shape) == 2 and array.shape[1] == 1)
        named = _split_of(other) == split and _LABELS.match(_without_split(other))
        if flat and named and len(array) == n:
            return array[:].reshape(-1)
    return None


def _split_of(name: str) -> str | None:
    return next(filter(None, map(split_word, _PARTS.split(name))), None)


def _without_split(name: str) -> str:
    parts = [part for part in _PARTS.split(name) if part and split_word(part) is None]
    return parts[-1] if parts else ""


def _text(value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
