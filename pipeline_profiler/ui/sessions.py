"""Which sessions the page may open: those named on the command line, found nearby, or uploaded.

A link names one of these and never a path.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path

from pipeline_profiler.profiling.record.session import open_unpacked

FOLDERS = (".", "sessions", "runs", "sample_data/sessions")
ENDINGS = (".json", ".json.gz")
HEAD = 400  # bytes that tell a session from other JSON


def nearby(schema: bytes = b"profile/") -> dict[str, Path]:
    """Return files of a schema by name: those given, then those found, the latest first."""
    given = [Path(word) for word in sys.argv[1:] if word.endswith(ENDINGS)]
    found = [p for folder in FOLDERS for p in sorted(Path(folder).glob("*.json*"))]
    sessions: dict[str, Path] = {}
    for path in dict.fromkeys(p.resolve() for p in (*given, *found)):
        if path.name.endswith(ENDINGS) and looks_like_one(path, schema):
            sessions[_free_name(path, sessions)] = path
    # Names are given before the sorting: a link goes on naming the same file when another is newer.
    named = {path.resolve(): place for place, path in enumerate(given)}

    def rank(name: str) -> tuple[float, float]:
        path = sessions[name]
        return named.get(path, math.inf), -path.stat().st_mtime

    return {name: sessions[name] for name in sorted(sessions, key=rank)}


def _free_name(path: Path, taken: Mapping[str, Path]) -> str:
    """Return the file's name, with as many of its folders as tell it from those before it."""
    name = title(path.name)
    for folder in path.parents:
        if name not in taken:
            break
        name = f"{folder.name}/{name}"
    return name


def title(name: str) -> str:
    """Return a file name without its endings."""
    return name.removesuffix(".gz").removesuffix(".json")


def looks_like_one(path: Path, schema: bytes = b"profile/") -> bool:
    """Say whether a file begins as a session (a document of the schema) of any version does."""
    try:
        with open_unpacked(path) as file:
            head = file.read(HEAD)
    except (OSError, EOFError):
        return False
    return b'"schema"' in head and b'"' + schema in head
