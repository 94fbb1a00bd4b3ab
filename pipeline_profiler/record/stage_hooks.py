"""Read, decode and transform without a line of the user's code changed.

Hooks go where Python loaders spend their time: `open` (files, told apart by whether their file
system lies behind a network), PIL's `load` (decoding is
lazy, so `Image.open` is not it), http and fsspec reads, and the callables a dataset keeps as
`transform` (a torchvision-style Compose is opened up). They time into the active stage stack and
are placed in the loading process only, reversibly. What they cannot see (a C reader, a home-made
decoder) stays in the stage "getitem", and stack samples put names to it.
"""

from __future__ import annotations

import builtins
import importlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_profiler.record.file_systems import MOUNTS, NetworkFiles
from pipeline_profiler.record.stages import active

TRANSFORM_ATTRIBUTES = (
    *("transform", "transforms", "target_transform", "augment", "augmentation", "preprocess"),
    *("pipeline", "tfm", "tfms", "aug"),
)
Undo = Callable[[], None]


def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, its time booked to stage `name`; nested calls of one stage count once."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        timer = active()
        if timer is None or timer.open_stage == name:
            return call(*args, **kwargs)
        timer.enter(name)
        try:
            result = call(*args, **kwargs)
            if type(result) is bytes:
                timer.received += len(result)
            return result
        finally:
            timer.leave()

    wrapper.__wrapped__ = call  # type: ignore[attr-defined]
    return wrapper


class TimedCall:
    """A callable of the dataset with its time booked to a stage; else it is the original."""

    def __init__(self, name: str, call: Any) -> None:
        """Time `call` under the stage `name`; written past `__setattr__`, which goes to `call`."""
        self.__dict__.update(_name=name, _call=call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what is wrapped, timed."""
        timer = active()
        if timer is None:
            return self._call(*args, **kwargs)
        timer.enter(self._name)
        try:
            return self._call(*args, **kwargs)
        finally:
            timer.leave()

    def __getattr__(self, name: str) -> Any:
        """Everything else reads through."""
        return getattr(self.__dict__["_call"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Attributes are written through."""
        setattr(self.__dict__["_call"], name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by what is wrapped."""
        return TimedCall, (self._name, self._call)


class _TimedReader(io.BufferedReader):
    """A real BufferedReader, so isinstance and fileno hold, with its reads booked to "read"."""


class _RemoteReader(io.BufferedReader):
    """The same for a file that comes through a network."""


for _method in ("read", "read1", "readinto", "readinto1", "readline", "peek"):
    _reading = getattr(io.BufferedReader, _method)
    setattr(_TimedReader, _method, timed("read:data", _reading))
    setattr(_RemoteReader, _method, timed("read:remote data", _reading))


def _timed_open(original: Callable[..., Any], network: NetworkFiles) -> Callable[..., Any]:
    def opening(file: Any, *args: Any, **kwargs: Any) -> Any:
        timer = active()
        if timer is None:
            return original(file, *args, **kwargs)
        remote = network.has(file)
        timer.enter("read:remote latency" if remote else "read:open")
        try:
            handle = original(file, *args, **kwargs)
        finally:
            timer.leave()
        if type(handle) is not io.BufferedReader:
            return handle  # only a plain binary reader is exchanged without a visible difference
        return (_RemoteReader if remote else _TimedReader)(handle.detach())

    opening.__wrapped__ = original  # type: ignore[attr-defined]
    return opening


def _all(undo: list[Undo]) -> Undo:
    def run() -> None:
        for step in reversed(undo):
            step()

    return run


def _replace(owner: Any, name: str, value: Any) -> Undo:
    original = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, original)


def _library_hooks() -> list[tuple[Any, str, str]]:
    """(owner, attribute, stage) for the libraries that are already imported."""
    if "PIL.Image" in sys.modules:
        # PIL imports its decoders at the first open, which with num_workers=0 comes after this
        importlib.import_module("PIL.ImageFile")
    places = (
        ("PIL.ImageFile", "ImageFile", "load", "decode"),
        ("http.client", "HTTPConnection", "connect", "read:remote latency"),
        ("http.client", "HTTPConnection", "getresponse", "read:remote latency"),
        ("http.client", "HTTPResponse", "read", "read:remote data"),
        ("fsspec.spec", "AbstractFileSystem", "cat_file", "read:remote data"),
        ("fsspec.spec", "AbstractFileSystem", "open", "read:remote latency"),
        ("fsspec.spec", "AbstractBufferedFile", "read", "read:remote data"),
    )
    hooks = []
    for module, owner, attribute, name in places:
        loaded = sys.modules.get(module)
        if loaded is not None and hasattr(getattr(loaded, owner, None), attribute):
            hooks.append((getattr(loaded, owner), attribute, name))
    for module, function, name in (("cv2", "imread", "decode"), ("cv2", "imdecode", "decode")):
        if hasattr(sys.modules.get(module), function):
            hooks.append((sys.modules[module], function, name))
    return hooks


def install(mounts: Path = MOUNTS) -> Undo:
    """Hook the open call and the libraries imported so far; returns the way back."""
    undo: list[Undo] = []
    if not hasattr(builtins.open, "__wrapped__"):
        opening = _timed_open(builtins.open, NetworkFiles(mounts))
        undo += [_replace(builtins, "open", opening), _replace(io, "open", opening)]
    for owner, attribute, name in _library_hooks():
        method = getattr(owner, attribute)
        if not hasattr(method, "__wrapped__"):
            undo.append(_replace(owner, attribute, timed(name, method)))
    return _all(undo)


def hook_dataset(dataset: Any) -> Undo:
    """Time the callables a dataset (and what it wraps) keeps as its transform."""
    undo: list[Undo] = []
    for holder in wrapped_chain(dataset):
        for name in TRANSFORM_ATTRIBUTES:
            call = vars(holder).get(name) if hasattr(holder, "__dict__") else None
            if callable(call) and not isinstance(call, TimedCall):
                undo += _hook_steps(call)
                undo.append(_replace(holder, name, TimedCall("transform", call)))
    return _all(undo)


def _hook_steps(compose: Any) -> list[Undo]:
    """Open up a Compose: each of its steps becomes a stage of its own."""
    steps = getattr(compose, "transforms", None)
    if not isinstance(steps, list) or not all(callable(step) for step in steps):
        return []
    original = list(steps)
    steps[:] = [TimedCall(f"transform:{_name_of(step)}", step) for step in steps]

    def undo() -> None:
        steps[:] = original

    return [undo]


def _name_of(call: Any) -> str:
    return getattr(call, "__name__", type(call).__name__)


def wrapped_chain(dataset: Any) -> list[Any]:
    """The dataset and what it wraps (Subset, first of a ConcatDataset), outermost first."""
    chain: list[Any] = []
    while dataset is not None and len(chain) < 8 and not any(dataset is link for link in chain):
        chain.append(dataset)
        parts = getattr(dataset, "datasets", None)
        dataset = getattr(
            dataset, "dataset", parts[0] if isinstance(parts, list) and parts else None
        )
    return chain
