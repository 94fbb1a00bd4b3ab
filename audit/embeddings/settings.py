"""What the user chose about vectors and labels: light, because every scan reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import UsageError

if TYPE_CHECKING:
    from audit.embeddings.embedder import Embedder

LABELS_VERSION = 7
"""Raised when the tables of labels mean something else: a scan then makes them again."""


# The option that gives each file: boxes are predictions too.
_FILES = {"embeddings": "embeddings", "predictions": "predictions", "boxes": "predictions"}


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """Where vectors and probabilities come from.

    `embeddings` and `predictions`: files of the user's own, by path (`audit.embeddings.vectors`).
    `embedder`: a model that gives the vectors. Without them: the built-in vectors, and the
    classifier that they teach. `boxes`: what a detector predicts, boxes or masks
    (`audit.annotations.box_doubts`).
    """

    embeddings: Path | None = None
    predictions: Path | None = None
    boxes: Path | None = None
    embedder: Embedder | None = None

    def check_files(self) -> None:
        """Raise UsageError for what cannot be, before anything is measured."""
        if self.embeddings is not None and self.embedder is not None:
            raise UsageError("--embeddings and --embedder exclude each other: use one.")
        for name, option in _FILES.items():
            path = getattr(self, name)
            masks = option == "predictions" and path is not None and path.is_dir()
            if path is not None and not path.is_file() and not masks:
                raise UsageError(f"{path} does not exist: check the path given to --{option}.")

    def identity(self) -> dict[str, str | int]:
        """Return what decides the result: names, and size and time of the files."""
        made: dict[str, str | int] = {"version": LABELS_VERSION}
        for name in _FILES:
            path = getattr(self, name)
            if path is not None:
                made[name] = file_identity(path)
        if self.embedder is not None:
            made["embedder"] = self.embedder.identity
        return made


def file_identity(path: Path) -> str:
    """Return the place, size and time of a file, or of the newest of a folder's, as text."""
    try:
        status = path.stat()
        if path.is_dir():
            all_of_it = [one.stat() for one in path.rglob("*.png")]
            size = sum(one.st_size for one in all_of_it)
            newest = max((one.st_mtime_ns for one in all_of_it), default=0)
            return f"{path.resolve()} {len(all_of_it)} {size} {newest}"
    except OSError:
        return str(path)
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
