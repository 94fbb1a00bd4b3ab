"""numba's decorators with types: mypy still sees the function that is compiled.

Compilation takes a few seconds once; the result is cached for every later process: beside the
package, in the user's cache folder where that cannot be written, else in a folder of this user in
the temporary files. Where nothing at all can be written, every process compiles for itself.

Importing numba takes half a second and a hundred modules, so this file imports it where it is used
(`load_numba`, without SciPy, which would take as long again):
`@compiled_on_first_call` waits for the first call, which is right beside ordinary code.

In a kernel, arrays are copied number by number: an array assigned to a slice makes numba compile
the message of its ValueError as well, three to five seconds on an empty cache.
"""

from __future__ import annotations

import importlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, update_wrapper
from pathlib import Path
from threading import RLock, get_ident
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


_LINKING = RLock()


@cache
def load_numba() -> Any:
    """Return the module numba, loaded without SciPy's linear algebra.

    numba asks at its first compilation whether there is a BLAS, by importing `scipy.linalg`: 0.3 s
    in every process. The answer only decides how its `correlate` and `convolve` multiply.
    """
    refusal = _Refusal()
    sys.meta_path.insert(0, refusal)
    try:
        numba = importlib.import_module("numba")
        importlib.import_module("numba.np.arraymath")
    finally:
        sys.meta_path.remove(refusal)
    return numba


class _Refusal:
    """Finds no `scipy.linalg` for the thread that made it; other threads import what they like."""

    def __init__(self) -> None:
        self._thread = get_ident()

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "scipy.linalg" and get_ident() == self._thread:
            raise ImportError("scipy.linalg is not needed to compile")


def _compile(
    function: Callable[P, R], settings: dict[str, bool], *, cache: bool = False
) -> Callable[P, R]:
    # division by zero is no error: to look for it at every pixel keeps loops from being vectorised
    njit = load_numba().njit(**settings, error_model="numpy", cache=cache)
    return cast(Callable[P, R], njit(function))


def _compile_cached(function: Callable[P, R], settings: dict[str, bool]) -> Callable[P, R]:
    """Compile a function with its result kept on disk, wherever that is possible."""
    numba = load_numba()
    try:
        return _compile(function, settings, cache=True)
    except RuntimeError:  # numba found no folder that it may write
        folder = _private_folder()
        if folder is None or str(folder) == numba.config.CACHE_DIR:
            return _compile(function, settings)
        numba.config.CACHE_DIR = str(folder)
        return _compile_cached(function, settings)


def _private_folder() -> Path | None:
    """Return a folder among the temporary files that this user alone may write, or None.

    What lies in it is loaded as code, so a folder that somebody else made is not used.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"dataset-preflight-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    ours = status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
    return folder if ours and stat.S_ISDIR(status.st_mode) else None


class FirstCallKernel(Generic[P, R]):
    """A function that numba compiles when it is called for the first time."""

    def __init__(self, function: Callable[P, R], fastmath: bool) -> None:
        """Keep the function; nothing is imported or compiled yet."""
        update_wrapper(self, function)
        self._function, self._fastmath = function, fastmath
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

    def plain(self, names: dict[str, Any]) -> Callable[P, R]:
        """Return the function in plain Python, which finds other functions in `names`."""
        return cast(Callable[P, R], FunctionType(self._function.__code__, names))

    def link(self) -> Callable[P, R]:
        """Return numba's dispatcher of this function, made once; compiling waits for its call.

        numba looks up the names in a function's body when it compiles it, and cannot call an object
        of this class. So every kernel that the function's module names, itself included, is
        replaced by its dispatcher.
        """
        if self._dispatcher is None:
            self._dispatcher = _compile_cached(
                self._function, {"nogil": True, "fastmath": self._fastmath}
            )
            names = self._function.__globals__
            for name, value in list(names.items()):
                if isinstance(value, FirstCallKernel):
                    names[name] = value.link()
        return self._dispatcher


def compiled_on_first_call(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call, without the interpreter lock, and cache it on disk."""
    return FirstCallKernel(function, fastmath=False)


def summed_in_any_order(function: Callable[P, R]) -> Callable[P, R]:
    """Like `compiled_on_first_call`, for sums of floats whose last bits do not matter: several
    numbers are added at a time.
    """
    return FirstCallKernel(function, fastmath=True)


def is_on_disk(kernel: Callable[..., Any]) -> bool:
    """Say whether an earlier process has kept the code of a kernel; nothing is compiled."""
    dispatcher: Any = kernel.link() if isinstance(kernel, FirstCallKernel) else kernel
    folder = dispatcher.stats.cache_path
    return bool(folder) and any(Path(folder).glob(f"*.{dispatcher.__name__}-*.nbi"))


def plain_functions(names: Mapping[str, Any], **replaced: Any) -> dict[str, Any]:
    """Return the functions of a module that wait to be compiled, as plain Python, by name.

    `names` are the globals of the module, before any of its kernels was called; the functions call
    each other as plain ones, and those in `replaced`. For input so small that loading the compiled
    code would take longer: the result is the same by construction.
    """
    space = {**names, **replaced}
    for name, value in names.items():
        if isinstance(value, FirstCallKernel) and name not in replaced:
            space[name] = value.plain(space)
    return space
