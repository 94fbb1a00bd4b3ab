"""Time read, decode and transform without a changed line of the user's code.

Hooks on `open`, PIL's `load`, http and fsspec reads and `transform` of a dataset time into the
active stages of the loading process, reversibly. What they cannot see stays in the stage "getitem".
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import io
import operator
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_profiler.profiling.record.stages import Proxy, active, stage

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "smb2", "9p", "virtiofs", "ceph", "lustre"),
    *("glusterfs", "beegfs", "gpfs", "afs", "orangefs", "pvfs2", "ncpfs", "davfs"),
}
LOCAL_FUSE = {"fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.mergerfs", "fuse.portal", "fuse.snapfuse",
              "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.exfat"}  # fmt: skip
MAX_FOLDERS = 4096  # that are remembered
TRANSFORM_ATTRIBUTES = (
    *("transform", "transforms", "target_transform", "augment", "augmentation", "preprocess"),
    *("pipeline", "tfm", "tfms", "aug"),
)
Undo = Callable[[], None]


def network_mounts(table: Path = MOUNTS) -> dict[int, str]:
    """Return the type of each mounted network file system (FUSE too), by its device number.

    Read from proc(5), mountinfo; elsewhere {}.
    """
    try:
        lines = table.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        # "id parent major:minor root place options [fields] - type source options"
        head, _, tail = line.partition(" - ")
        device = re.match(r"\d+ \d+ (\d+):(\d+) ", head)
        kind = tail.split(" ", 1)[0]
        if device and (kind in NETWORK or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)):
            found[os.makedev(int(device[1]), int(device[2]))] = kind
    return found


class NetworkFiles:
    """Decides whether paths lie on a network file system; looks once a folder."""

    def __init__(self, table: Path = MOUNTS) -> None:
        self._mounts = network_mounts(table)
        self._remote = functools.lru_cache(MAX_FOLDERS)(self._is_remote)

    def has(self, file: object) -> bool:
        """Whether a file (a path; anything else is not) is reached through a network."""
        if not self._mounts or not isinstance(file, str | os.PathLike):
            return False
        return self._remote(os.path.dirname(os.fspath(file)) or ".")

    def _is_remote(self, folder: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return os.stat(folder).st_dev in self._mounts
        return False


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


class TimedCall(Proxy):
    """A callable of the dataset with its time booked to a stage; else it is the original."""

    def __init__(self, name: str, call: Any) -> None:
        super().__init__(call)
        self.__dict__["_stage"] = stage(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what is wrapped, timed."""
        with self._stage:
            return self._inner(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)

    def __reduce__(self) -> tuple[Any, ...]:
        return TimedCall, (self._stage.name, self._inner)


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
        if active() is None:
            return original(file, *args, **kwargs)
        remote = network.has(file)
        with stage("read:remote latency" if remote else "read:open"):
            handle = original(file, *args, **kwargs)
        if type(handle) is not io.BufferedReader:
            return handle  # only a plain binary reader is exchanged without a visible difference
        return (_RemoteReader if remote else _TimedReader)(handle.detach())

    opening.__wrapped__ = original  # type: ignore[attr-defined]
    return opening


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
        ("cv2", "", "imread", "decode"),
        ("cv2", "", "imdecode", "decode"),
    )
    owners = [
        (getattr(loaded, owner, None) if owner else loaded, attribute, name)
        for module, owner, attribute, name in places
        if (loaded := sys.modules.get(module)) is not None
    ]
    return [
        (owner, attribute, name) for owner, attribute, name in owners if hasattr(owner, attribute)
    ]


def install(mounts: Path = MOUNTS) -> Undo:
    """Hook the open call and the libraries imported so far; returns the way back."""
    undo = contextlib.ExitStack()
    if not hasattr(builtins.open, "__wrapped__"):
        opening = _timed_open(builtins.open, NetworkFiles(mounts))
        undo.callback(_replace(builtins, "open", opening))
        undo.callback(_replace(io, "open", opening))
    for owner, attribute, name in _library_hooks():
        method = getattr(owner, attribute)
        if not hasattr(method, "__wrapped__"):
            undo.callback(_replace(owner, attribute, timed(name, method)))
    return undo.close


def hook_dataset(dataset: Any) -> Undo:
    """Time the callables a dataset (and what it wraps) keeps as its transform."""
    undo = contextlib.ExitStack()
    for holder in wrapped_chain(dataset):
        for name in TRANSFORM_ATTRIBUTES:
            call = vars(holder).get(name) if hasattr(holder, "__dict__") else None
            if callable(call) and not isinstance(call, TimedCall):
                undo.callback(_hook_steps(call))
                undo.callback(_replace(holder, name, TimedCall("transform", call)))
    return undo.close


def _hook_steps(compose: Any) -> Undo:
    """Open up a Compose: each of its steps becomes a stage of its own."""
    steps = getattr(compose, "transforms", None)
    if not isinstance(steps, list) or not all(callable(step) for step in steps):
        return lambda: None
    original = list(steps)
    names = [getattr(step, "__name__", type(step).__name__) for step in steps]
    steps[:] = [TimedCall(f"transform:{n}", step) for n, step in zip(names, steps, strict=True)]
    return lambda: operator.setitem(steps, slice(None), original)


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
