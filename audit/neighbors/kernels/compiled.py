"""numba's decorators with types: `@compiled()` is `@njit`, and mypy still sees the function.

Compilation takes a few seconds once; the result is cached beside the package (or in numba's cache
folder where that cannot be written) for every later process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.extending import intrinsic

P = ParamSpec("P")
R = TypeVar("R")


MOST_THREADS = 16
"""Beyond that the tables that each thread keeps cost more than it saves."""


def usable_threads() -> int:
    """Return how many Python threads to share work among: as many as numba would use."""
    return max(1, min(int(numba.get_num_threads()), MOST_THREADS))


def compiled(
    *, parallel: bool = False, fastmath: bool = False, nogil: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function; `parallel` and `nogil` kernels are entry points and cached on disk."""
    decorate = numba.njit(
        parallel=parallel, fastmath=fastmath, nogil=nogil, cache=parallel or nogil
    )
    return cast(Callable[[Callable[P, R]], Callable[P, R]], decorate)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into its callers."""
    return cast(Callable[P, R], numba.njit(inline="always")(function))


def emitted(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Let a function write the instructions itself (numba's `intrinsic`)."""
    return cast(Callable[[Any], Any], intrinsic(function))
