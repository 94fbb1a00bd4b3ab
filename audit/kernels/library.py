"""The library of C kernels, and the table of its functions with types and shapes.

Every call is checked against the table, because C reads and writes whatever memory it is given.
`find_kernel` returns None where the library is missing or was built from other sources.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.kernels.build import LIBRARY, source_hash

Kernel = Callable[..., Any]
MOST_SHAPES = 4096  # combinations of shapes that a kernel remembers as checked
START = ctypes.c_char * 0
PATH_VARIABLE = "AUDIT_KERNELS"  # the path of another library, or `off`
NUMBERS: dict[str, tuple[np.dtype[Any], type[Any]]] = {
    "u8": (np.dtype(np.uint8), ctypes.c_uint8),
    "bool": (np.dtype(np.bool_), ctypes.c_bool),
    "i16": (np.dtype(np.int16), ctypes.c_int16),
    "i32": (np.dtype(np.int32), ctypes.c_int32),
    "i64": (np.dtype(np.int64), ctypes.c_int64),
    "u64": (np.dtype(np.uint64), ctypes.c_uint64),
    "f32": (np.dtype(np.float32), ctypes.c_float),
    "f64": (np.dtype(np.float64), ctypes.c_double),
}
ENTRIES: dict[str, str] = {
    "fill_statistics": (
        "u8 stack n h w 3, out u8 luma n h w, out f64 numbers n 13, out i64 counts n 256, "
        "out i64 spreads n 256, out i16 scratch 4 w"
    ),
    "align_batch": (
        "u8 grey n 32 32, u8 colour n 8 8 3, i64 pairs m 2, i64 orientations m, f64 starts s 6, "
        "i64 margins s, f64 abandon, out f64 maps m 6, out f64 scores m 14"
    ),
    "pass_batch": (
        "u8 grey n 32 32, i64 pairs m 2, i64 orientations m, f64 starts s 6, i64 n_steps, "
        "f64 needed m, out bool passed m"
    ),
    "best_orientation": "f32 parts 8 n, out f32 similarity n",
    "offer_rows": (
        "f32 table h w, i64 rows h, i64 columns w, out f32 best n k, out i64 index n k, "
        "bool distinct"
    ),
    "compare_rows": (
        "u64 codes n, u64 others o, bool later, i64 radius, i64 bounds b, i64 tasks t, "
        "i64 edges t 2, out i32 first h, out i32 second h, out u8 distance h, out i64 count t"
    ),
    "compare_buckets": (
        "i64 radius, u64 shifts c, u64 fields c, i64 reach c, u64 codes n, i32 rows n, "
        "i32 starts s, i64 masks m, i64 chunk, i64 bounds b, i64 tasks t, i64 edges t 2, "
        "out i32 first h, out i32 second h, out u8 distance h, out i64 count t"
    ),
    "reduce_rows": "u8 luma h w, i64 bounds target 2, i32 weights target taps, "
    "out u8 reduced target w",
    "cut_patches": (
        "f32 images n h w channels, i64 stride, f32 floor, "
        "out f32 patches n down across side side channels"
    ),
    "pool_codes": (
        "out f32 pooled n 2 2 words, out f32 products n places places words, "
        "f32 white n places places length, f32 norms words"
    ),
}
"""Arguments of each function, by commas: [out] type name sizes. Without sizes it is a number.

A size is a number, or a name that has one value in a call. C gets the arguments, then every named
size as int64, in the order of their first use.
"""


class Argument(NamedTuple):
    """One argument of a kernel: `sizes` are numbers or names, none for a number."""

    kind: str
    name: str
    written: bool
    sizes: tuple[int | str, ...]


def find_kernel(name: str) -> Kernel | None:
    """Return a function of the library, None without one: the caller takes its plain form."""
    return load_kernels().get(name)


def available() -> bool:
    """Say whether the library is there and was built from the sources beside it."""
    return bool(load_kernels())


def missing_sentence() -> str:
    """Return the message for a missing library: the cost, and how to build it; else nothing."""
    if available():
        return ""
    return (
        "The compiled kernels are missing or outdated: this scan takes two to four times as long. "
        "Install a C compiler (or `pip install 'dataset-preflight[compiler]'`), then run "
        "`python -m audit.kernels.build`."
    )


@cache
def load_kernels() -> dict[str, Kernel]:
    """Return the functions of the library by name, none where there is no library."""
    path = os.environ.get(PATH_VARIABLE) or str(LIBRARY)
    try:
        library = ctypes.CDLL(str(Path(path).resolve()))
        library.source_hash.restype = ctypes.c_char_p
        if library.source_hash().decode() != source_hash():
            return {}
        return {name: _checked(library, name, entry) for name, entry in ENTRIES.items()}
    except (OSError, AttributeError):
        return {}


def _parse(entry: str) -> list[Argument]:
    arguments = []
    for text in entry.split(", "):
        words = text.split()
        written = words[0] == "out"
        kind, name, *sizes = words[written:]
        parsed = tuple(int(size) if size.isdigit() else size for size in sizes)
        arguments.append(Argument(kind, name, written, parsed))
    return arguments


def _checked(library: ctypes.CDLL, name: str, entry: str) -> Kernel:
    arguments = _parse(entry)
    names = {size for argument in arguments for size in argument.sizes if isinstance(size, str)}
    function = library[name]
    in_c = [ctypes.c_void_p if a.sizes else NUMBERS[a.kind][1] for a in arguments]
    function.argtypes = [*in_c, *[ctypes.c_int64] * len(names)]
    function.restype = None
    arrays = [at for at, argument in enumerate(arguments) if argument.sizes]
    match = partial(_match_sizes, name, [arguments[at] for at in arrays])
    sizes_of = lru_cache(MOST_SHAPES)(match)

    def call(*values: Any) -> None:
        if len(values) != len(arguments):
            raise ValueError(f"{name}: {len(values)} arguments for {len(arguments)}")
        passed = list(values)
        for at in arrays:
            passed[at] = _address(name, arguments[at], values[at])
        function(*passed, *sizes_of(*[values[at].shape for at in arrays]))

    return call


def _address(kernel: str, argument: Argument, array: Any) -> int:
    """Return the address of an array; ValueError for a wrong type or order, or read-only output."""
    if not isinstance(array, np.ndarray) or array.dtype != NUMBERS[argument.kind][0]:
        raise ValueError(f"{kernel}: {argument.name} must be an array of {argument.kind}")
    flags = array.flags
    if not flags.c_contiguous or (argument.written and not flags.writeable):
        raise ValueError(f"{kernel}: {argument.name} must be contiguous, and writable if written")
    if not flags.writeable:
        return int(array.ctypes.data)
    buffer: Any = array
    return ctypes.addressof(START.from_buffer(buffer))  # a quarter of the time of `array.ctypes`


def _match_sizes(
    kernel: str, arguments: Sequence[Argument], *shapes: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the named sizes of arrays of these shapes; ValueError where they disagree."""
    sizes: dict[str, int] = {}
    for argument, shape in zip(arguments, shapes, strict=True):
        pairs = zip(argument.sizes, shape, strict=False)
        wanted = (s if isinstance(s, int) else sizes.setdefault(s, length) for s, length in pairs)
        if len(shape) != len(argument.sizes) or tuple(wanted) != shape:
            raise ValueError(f"{kernel}: {argument.name} does not fit with the shape {shape}")
    return tuple(sizes.values())
