"""The files that a training reads, by the loader that reads them.

An audit hook of Python sees every `open`, in the process and in its workers; `cv2.imread` and
datasets of Keras, which read in C, are wrapped. Each process appends `loader TAB path` at the
first open of a file. Loader 0 stands for reads before and outside of loaders.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WRITES = frozenset("wax+")
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR
NO_DATA = re.compile(r"\.(py|pyc|so|pth|egg-link)$|/(pymp-|__editable__|[^/]*\.dist-info)")
SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/")
KIND, LISTED = "#", "?"  # begin lines: what a loader is for, and a file that its dataset lists


@dataclass
class OpenedFiles:
    """Absolute paths of the files that were read.

    `complete`: a whole epoch of training was; `evaluated`: a whole evaluation was.
    """

    train: set[str] = field(default_factory=set)
    evaluation: set[str] = field(default_factory=set)
    other: set[str] = field(default_factory=set)  # before a loader, or of a loader of unknown use
    complete: bool = False
    evaluated: bool = False

    @property
    def all(self) -> set[str]:
        """The files of every loader."""
        return self.train | self.evaluation | self.other


class FileLog:
    """Appends the files that this process and its forks open to a file."""

    def __init__(self, path: str) -> None:
        self.loader = 0
        self._seen: set[int] = set()  # hashes: paths of a large dataset would fill the memory
        self._prefix = (*SYSTEM, sys.prefix, sys.base_prefix)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def start(self) -> None:
        """Record from now on; an audit hook cannot be removed."""
        sys.addaudithook(self._hook)

    def add(self, path: Any) -> None:
        """Record one file that is read."""
        try:
            key = hash((self.loader, path))
            if key in self._seen:
                return
            self._seen.add(key)
            text = os.fsdecode(path)
            if not text.startswith("/"):
                text = os.path.abspath(text)
            if not (text.startswith(self._prefix) or NO_DATA.search(text)):
                os.write(self._file, os.fsencode(f"{self.loader}\t{text}\n"))
        except (OSError, TypeError, ValueError):
            return  # a full disk must not end a training

    def add_loader(self, loader: int, kind: str, epochs: int, listed: Any) -> None:
        """Record what a loader is for (train, evaluation), its complete epochs, and its dataset.

        `listed`: rows of the dataset that begin with a path. They count for a loader without opens.
        """
        lines = [f"{KIND}{loader}\t{kind}\t{epochs}\n"]
        with contextlib.suppress(TypeError, ValueError, IndexError):
            rows = (os.path.abspath(os.fsdecode(row[0])) for row in listed)
            lines += [f"{LISTED}{loader}\t{path}\n" for path in rows]
        with contextlib.suppress(OSError):
            os.write(self._file, "".join(lines).encode("utf-8", "surrogateescape"))

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open":
            return
        path, mode, flags = arguments
        reads = not flags & WRITE_FLAGS if mode is None else not WRITES & set(mode)
        if reads and not isinstance(path, int):
            self.add(path)


_LOG: FileLog | None = None


def start_log(path: str) -> FileLog | None:
    """Start to record into a file, once in a process; return the log, None without a path."""
    global _LOG
    if path and _LOG is None:
        _LOG = FileLog(path)
        _LOG.start()
    return _LOG


def current_log() -> FileLog | None:
    """Return the log of this process."""
    return _LOG


def hook_cv2(module: Any) -> None:
    """Record what `cv2.imread` reads."""
    _wrap(module, "imread", lambda log, path, _: log.add(path))


def hook_keras_images(module: Any) -> None:
    """Record the files of `image_dataset_from_directory`, which TensorFlow reads."""

    def add(log: FileLog, _: Any, made: Any) -> None:
        for dataset in made if isinstance(made, tuple) else (made,):
            for path in getattr(dataset, "file_paths", ()):
                log.add(path)

    _wrap(module, "image_dataset_from_directory", add)


def _wrap(module: Any, name: str, record: Callable[[FileLog, Any, Any], None]) -> None:
    plain = getattr(module, name)

    @functools.wraps(plain)
    def reading(path: Any, *args: Any, **kwargs: Any) -> Any:
        result = plain(path, *args, **kwargs)
        if _LOG is not None:
            record(_LOG, path, result)
        return result

    setattr(module, name, reading)


def read_opened(path: Path) -> OpenedFiles:
    """Return the files that a training read; empty where nothing was recorded."""
    found, kinds = OpenedFiles(), dict[str, str]()
    opened, listed = list[tuple[str, str]](), list[tuple[str, str]]()
    text = path.read_bytes().decode("utf-8", "surrogateescape") if path.is_file() else ""
    for line in text.split("\n")[:-1]:
        loader, _, rest = line.partition("\t")
        if loader.startswith(KIND):
            kind, _, epochs = rest.partition("\t")
            kinds[loader[1:]] = kind
            found.complete |= kind == "train" and int(epochs) > 0
            found.evaluated |= kind == "evaluation" and int(epochs) > 0
        elif loader.startswith(LISTED):
            listed.append((loader[1:], rest))
        else:
            opened.append((loader, rest))
    readers = {loader for loader, _ in opened}
    for loader, name in opened + [row for row in listed if row[0] not in readers]:
        kind = kinds.get(loader, "")
        files = {"train": found.train, "evaluation": found.evaluation}.get(kind, found.other)
        files.add(name)
    return found
