"""Bytes on disk <-> the JSON document of a session, with limits on what is read.

A file comes from anywhere: a few megabytes of gzip may hold gigabytes, and a short text may hold
millions of empty lists. Both are counted before anything is built from them, so reading needs at
most about a gigabyte. Writing makes the file appear whole or not at all. Standard library only.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_profiler.record.errors import ProfileError

GZIP_ABOVE_BYTES = 1_000_000
GZIP_HEAD = b"\x1f\x8b"
MOST_BYTES = 128_000_000  # of JSON text: 300,000 steps and more
MOST_VALUES = 12_000_000  # commas
MOST_CONTAINERS = 1_000_000  # lists and objects, which cost most memory by the byte


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a file, unpacked; ProfileError with the fix for anything else."""
    try:
        with open(path, "rb") as file:
            blob = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ProfileError(f"No session at {path}: record one with `run ... -o {path}`.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unreadable(path, error) from None
    return parse_document(blob, str(path))


def parse_document(blob: bytes, where: str) -> dict[str, Any]:
    """The JSON object in these bytes, plain or gzip; `where` is how a message calls them."""
    try:
        text = _unpack(blob)
        _refuse_large(text, where)
        data = json.loads(text, parse_constant=_refuse_constant)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _unreadable(where, error) from None
    except RecursionError:
        raise _unreadable(where, ValueError("nested too deeply")) from None
    if not isinstance(data, dict):
        raise ProfileError(f"{where} is JSON but not a session: give a file that `run` saved.")
    return data


def _unpack(blob: bytes) -> bytes:
    if blob[:2] != GZIP_HEAD:
        return blob
    with gzip.GzipFile(fileobj=io.BytesIO(blob)) as packed:
        return packed.read(MOST_BYTES + 1)


def _refuse_large(text: bytes, where: str) -> None:
    problem = describe_excess(text)
    if problem:
        raise ProfileError(f"{where} is not read: {problem}. Record with fewer --steps.")


def describe_excess(text: bytes) -> str:
    """Which limit a document breaks, in words; '' for none."""
    if len(text) > MOST_BYTES:
        return f"it holds more than {MOST_BYTES / 1e6:.0f} MB of text, the most a session may have"
    counts = (
        (text.count(b","), MOST_VALUES, "values"),
        (text.count(b"[") + text.count(b"{"), MOST_CONTAINERS, "rows"),
    )
    for count, most, name in counts:
        if count > most:
            return f"it holds {count:,} {name}, and a session may have {most:,}"
    return ""


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def _unreadable(where: object, error: Exception) -> ProfileError:
    said = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
    return ProfileError(f"{where} is not a readable session ({said}): record it again with `run`.")


# ---- writing ----


def pack_document(document: Mapping[str, Any]) -> bytes:
    """The document as JSON; without its recorded runs where they are more than is read back."""
    text = _encode(document)
    problem = describe_excess(text)
    if problem:
        note = f"The recorded runs are left out of this file: {problem}."
        text = _encode({**document, "runs": [], "notes": [*document.get("notes", ()), note]})
    return text


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def write_packed(text: bytes, path: str | os.PathLike[str]) -> Path:
    """Write atomically; above 1 MB as gzip with `.gz` added. Returns the path written."""
    target = Path(path)
    if len(text) > GZIP_ABOVE_BYTES or target.suffix == ".gz":
        text = gzip.compress(text, compresslevel=4)
        target = target if target.suffix == ".gz" else Path(f"{target}.gz")
    write_whole(text, target)
    return target


def write_whole(blob: bytes, target: Path) -> None:
    """Make the file appear whole or not at all; its folder is made, a link is written through."""
    real = Path(os.path.realpath(target))
    draft = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(blob)
        draft.replace(real)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
