"""What the user chose about vectors and labels: light, because every scan reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from audit.errors import UsageError

LABELS_VERSION = 2
"""Raised when the tables of labels mean something else: a scan then makes them again."""


_FILES = {"embeddings": "embeddings", "predictions": "predictions"}


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """Where vectors and probabilities come from.

    `embeddings` and `predictions`: files of the user's own, by path (`audit.embeddings.given`).
    Without them: the built-in vectors, and the model that they teach. `boxes`: what a detector
    predicts (`audit.annotations.box_results`).
    """

    embeddings: Path | None = None
    predictions: Path | None = None
    boxes: Path | None = None

    def check_files(self) -> None:
        """Raise UsageError for a file that is not there, before anything is measured."""
        for name, option in (*_FILES.items(), ("boxes", "predictions")):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise UsageError(f"{path} is no file: check the path given to --{option}.")

    def identity(self) -> dict[str, str | int]:
        """Return what decides the result: names, and size and time of the files."""
        made: dict[str, str | int] = {"version": LABELS_VERSION}
        for name in (*_FILES, "boxes"):
            path = getattr(self, name)
            if path is not None:
                made[name] = _file_identity(path)
        return made


def _file_identity(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return str(path)
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
