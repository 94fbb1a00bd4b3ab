"""numba's decorators with types: `@compiled()` is `@njit`, and mypy still sees the function.

Compilation takes a few seconds once; the result is cached beside the package (or in numba's cache
folder where that cannot be written) for every later process.

Importing numba takes half a second and a hundred modules, so this file imports it where it is used:
`@compiled()` compiles when its module is imported, which is right for modules that are kernels
and nothing else; `@compiled_on_first_call` waits for the first call, which is right beside
ordinary code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


MOST_THREADS = 16
"""Beyond that the tables that each thread keeps cost more than it saves."""
_LINKING = RLock()


def usable_threads() -> int:
    """Return how many Python threads to share work among: as many as numba would use."""
    import numba

    return max(1, min(int(numba.get_num_threads()), MOST_THREADS))


def compiled_kernel(
    *, parallel: bool = False, fastmath: bool = False, nogil: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function; `parallel` and `nogil` kernels are entry points and cached on disk."""
    import numba

    decorate = numba.njit(
        parallel=parallel, fastmath=fastmath, nogil=nogil, cache=parallel or nogil
    )
    return cast(Callable[[Callable[P, R]], Callable[P, R]], decorate)


class FirstCallKernel(Generic[P, R]):
    """A function that numba compiles when it is called for the first time."""

    def __init__(self, function: Callable[P, R]) -> None:
        """Keep the function; nothing is imported or compiled yet."""
        update_wrapper(self, function)
        self._function = function
        self._dispatcher: Callable[P, R] | None = None
        self._linked = False

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Call the compiled function."""
        if not self._linked:
            # Threads wait here: a kernel must not be compiled while names are being replaced.
            with _LINKING:
                self.link()
                self._linked = True
        assert self._dispatcher is not None
        return self._dispatcher(*arguments, **named)

    def link(self) -> Callable[P, R]:
        """Return numba's dispatcher of this function, made once; compiling waits for its call.

        numba looks up the names in a function's body when it compiles it, and cannot call an object
        of this class. So every kernel that the function's module names, itself included, is
        replaced by its dispatcher.
        """
        if self._dispatcher is None:
            import numba

            decorate = numba.njit(cache=True, nogil=True)
            self._dispatcher = cast(Callable[P, R], decorate(self._function))
            names = self._function.__globals__
            for name, value in list(names.items()):
                if isinstance(value, FirstCallKernel):
                    names[name] = value.link()
        return self._dispatcher


def compiled_on_first_call(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call, without the interpreter lock, and cache it on disk."""
    return FirstCallKernel(function)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into its callers."""
    import numba

    return cast(Callable[P, R], numba.njit(inline="always")(function))


def emitted(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Let a function write the instructions itself (numba's `intrinsic`)."""
    from numba.extending import intrinsic

    return cast(Callable[[Any], Any], intrinsic(function))
