"""The library of C kernels, and the table of its functions with types and shapes.

C reads and writes whatever memory it is pointed at, so every call is checked against the table: an
array of another type, order or shape is a ValueError. Where the library is missing, or was built
from other sources, `find_kernel` returns None, and the caller takes its plain form.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from audit.kernels.build import LIBRARY, source_hash

Kernel = Callable[..., Any]
MOST_SHAPES = 4096  # combinations of shapes that a kernel remembers as checked
START = ctypes.c_char * 0
PATH_VARIABLE = "AUDIT_KERNELS"  # the path of another library, or `off`
NUMBERS: dict[str, tuple[type[Any], Any]] = {
    "u8": (np.uint8, ctypes.c_uint8),
    "bool": (np.bool_, ctypes.c_bool),
    "u16": (np.uint16, ctypes.c_uint16),
    "i16": (np.int16, ctypes.c_int16),
    "i32": (np.int32, ctypes.c_int32),
    "u32": (np.uint32, ctypes.c_uint32),
    "i64": (np.int64, ctypes.c_int64),
    "u64": (np.uint64, ctypes.c_uint64),
    "f32": (np.float32, ctypes.c_float),
    "f64": (np.float64, ctypes.c_double),
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
        "i64 edges t+1, out i32 first h, out i32 second h, out u8 distance h, out i64 count t"
    ),
    "compare_buckets": (
        "i64 radius, u64 shifts c, u64 fields c, i64 reach c, u64 codes n, i32 rows n, "
        "i32 starts s, i64 masks m, i64 chunk, i64 bounds b, i64 tasks t, i64 edges t+1, "
        "out i32 first h, out i32 second h, out u8 distance h, out i64 count t"
    ),
    "reduce_rows": "u8 luma h w, i64 bounds target 2, i32 weights target taps, "
    "out u8 reduced target w",
    "cut_patches": "f32 images n h w channels, i64 side, i64 stride, f32 floor, "
    "out f32 patches n*((h-side)//stride+1)*((w-side)//stride+1) side*side*channels",
    "pool_codes": "out f32 pooled n 2 2 words, i64 places, "
    "out f32 products n*places*places words, f32 white n*places*places length, f32 norms words",
}
"""Arguments of each function, by commas: [out] type name sizes. Without sizes it is a number.

A size is a number, a name, or an expression of names and whole arguments that stand before it. C
gets the arguments, then every named size as int64, in the order of their first use. `-> type` is
what it returns.
"""


class Argument(NamedTuple):
    """One argument of a kernel: `sizes` are numbers, names or compiled expressions of names."""

    name: str
    dtype: np.dtype[Any]
    written: bool
    sizes: tuple[int | str | CodeType, ...]


def find_kernel(name: str) -> Kernel | None:
    """Return a function of the library, None without one: the caller takes its plain form."""
    return load_kernels().get(name)


def available() -> bool:
    """Say whether the library is there and was built from the sources beside it."""
    return bool(load_kernels())


def missing_sentence() -> str:
    """Return what a user should know of a library that is missing, empty where it is there."""
    if available():
        return ""
    return (
        "The compiled kernels are missing or outdated: this scan takes several times as long. "
        "Install a C compiler (or `pip install ziglang`) and run `python -m audit.kernels.build`."
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


def _parse(entry: str) -> tuple[list[Argument], str]:
    """Return the arguments of an entry of the table, and the type that it returns."""
    texts, _, returned = entry.partition(" -> ")
    arguments = []
    for text in texts.split(", "):
        words = text.split()
        written = words[0] == "out"
        kind, name, *sizes = words[written:]
        parsed = (int(s) if s.isdigit() else s if s.isidentifier() else _compile(s) for s in sizes)
        arguments.append(Argument(name, np.dtype(NUMBERS[kind][0]), written, tuple(parsed)))
    return arguments, returned


def _compile(expression: str) -> CodeType:
    return compile(expression, "<size>", "eval")


def _checked(library: ctypes.CDLL, name: str, entry: str) -> Kernel:
    """Return a function that checks its arguments and calls the one in C."""
    arguments, returned = _parse(entry)
    names = dict.fromkeys(s for a in arguments for s in a.sizes if isinstance(s, str))
    function = library[name]
    by_dtype = {np.dtype(kind): c_type for kind, c_type in NUMBERS.values()}
    in_c = [ctypes.c_void_p if a.sizes else by_dtype[a.dtype] for a in arguments]
    function.argtypes = [*in_c, *[ctypes.c_int64] * len(names)]
    function.restype = NUMBERS[returned][1] if returned else None

    known: dict[tuple[Any, ...], tuple[int, ...]] = {}
    places = [at for at, argument in enumerate(arguments) if argument.sizes]
    whole = [at for at, a in enumerate(arguments) if not a.sizes and a.dtype.kind == "i"]

    def call(*values: Any) -> Any:
        if len(values) != len(arguments):
            raise ValueError(f"{name}: {len(values)} arguments for {len(arguments)}")
        passed = list(values)
        for at in places:
            passed[at] = _address(name, arguments[at], values[at])
        key = (*[values[at].shape for at in places], *[values[at] for at in whole])
        sizes = known.get(key)
        if sizes is None:
            numbers = {arguments[at].name: int(values[at]) for at in whole}
            sizes = _match_sizes(name, [arguments[at] for at in places], key, numbers)
            if len(known) >= MOST_SHAPES:
                known.clear()
            known[key] = sizes
        return function(*passed, *sizes)

    return call


def _address(kernel: str, argument: Argument, array: Any) -> int:
    """Return where an array's numbers lie.

    Raises ValueError for another type or order, or a read-only array to be written.
    """
    if not isinstance(array, np.ndarray) or array.dtype != argument.dtype:
        raise ValueError(f"{kernel}: {argument.name} must be an array of {argument.dtype}")
    flags = array.flags
    if not flags.c_contiguous or (argument.written and not flags.writeable):
        raise ValueError(f"{kernel}: {argument.name} must be contiguous, and writable if written")
    if not flags.writeable:
        return int(array.ctypes.data)
    buffer: Any = array
    return ctypes.addressof(START.from_buffer(buffer))  # a quarter of the time of `array.ctypes`


def _match_sizes(
    kernel: str, arguments: Sequence[Argument], shapes: Sequence[Any], numbers: dict[str, int]
) -> tuple[int, ...]:
    """Return the named sizes of arrays of these shapes; ValueError where they disagree."""
    sizes: dict[str, int] = {}
    for argument, shape in zip(arguments, shapes, strict=False):
        fits = len(shape) == len(argument.sizes)
        for size, length in zip(argument.sizes, shape, strict=False):
            if isinstance(size, str):
                size = sizes.setdefault(size, length)
            elif isinstance(size, CodeType):
                size = _evaluate(size, numbers | sizes)
            fits = fits and size == length
        if not fits:
            raise ValueError(f"{kernel}: {argument.name} does not fit with the shape {shape}")
    return tuple(sizes.values())


def _evaluate(expression: CodeType, sizes: dict[str, int]) -> int:
    """Return a size, -1 where it divides by zero: no array has it."""
    try:
        return int(eval(expression, {"__builtins__": {}}, sizes))
    except ZeroDivisionError:
        return -1
