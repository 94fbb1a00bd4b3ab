"""The plan of a new dataset as a document: every file that goes there, and what stays out and why.

`audit-plan/1` is JSON: where each file is, what is in it (BLAKE3-256), its split and label, and its
place below the new folder. Who reads it needs neither the run nor this program. Cost: about 300
bytes a file.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import blake3

from audit.errors import UsageError

PLAN_SCHEMA = "audit-plan/1"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file of the new dataset: `source` is its path or file:// address now, `target` its path
    below the new folder.

    `content_hash` is BLAKE3-256, hex; `mtime_ns` is -1 where it is not known. A file that is no
    sample, as one of annotations, has no `id`.
    """

    source: str
    target: str
    content_hash: str
    n_bytes: int
    mtime_ns: int = -1
    id: str | None = None
    split: str | None = None
    label: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A sample that does not go into the new dataset, and why."""

    id: str
    source: str
    reason: str


@dataclass(frozen=True)
class DatasetPlan:
    """A new dataset, planned from a run and the decisions about it.

    `roots` are the folders of the source, by name; `layout` is how targets are named (keep,
    folders); `notes` are sentences about what cannot go along.
    """

    run: str
    generation: str
    decisions: str
    roots: Mapping[str, str]
    layout: str
    files: tuple[PlannedFile, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    splits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.n_bytes for file in self.files)

    @property
    def samples(self) -> list[PlannedFile]:
        """The files that are samples."""
        return [file for file in self.files if file.id is not None]

    def document(self) -> str:
        """Return the plan as JSON, one line for each file."""
        head = {k: v for k, v in asdict(self).items() if k not in ("files", "left_out")}
        lines = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in head.items()]
        lines += [_array("files", self.files), _array("left_out", self.left_out)]
        return "{" + ",\n".join([f'"schema": "{PLAN_SCHEMA}"', *lines]) + "}\n"

    @cached_property
    def identity(self) -> str:
        """32 hex digits that name this plan: a hash of its document."""
        return blake3.blake3(self.document().encode()).hexdigest()[:32]

    def write(self, path: Path, *, replace: bool = False) -> None:
        """Write the document, whole or not at all; raises UsageError where a file is in the way."""
        if path.is_dir() or (path.exists() and not replace and not _is_plan(path)):
            raise UsageError(f"{path} exists and is no plan: choose another name.")
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(self.document(), encoding="utf-8")
            os.replace(part, path)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()


def _array(name: str, rows: tuple[Any, ...]) -> str:
    texts = [json.dumps(asdict(row), ensure_ascii=False) for row in rows]
    return f'"{name}": [' + "".join(f"\n{t}," for t in texts).removesuffix(",") + "]"


def _is_plan(path: Path) -> bool:
    with path.open("rb") as file:
        return PLAN_SCHEMA.encode() in file.read(200)


def read_plan(path: Path) -> DatasetPlan:
    """Read a plan; raises UsageError for a file that is none."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        if given.pop("schema") != PLAN_SCHEMA:
            raise ValueError(f"its schema is not {PLAN_SCHEMA}")
        files = tuple(PlannedFile(**row) for row in given.pop("files"))
        left_out = tuple(LeftOut(**row) for row in given.pop("left_out"))
        given["notes"] = tuple(given["notes"])
        plan = DatasetPlan(**given, files=files, left_out=left_out)
        for file in files:
            _refuse_strange(file)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path} is no plan ({why}): write one with `audit export RUN --plan plan.json`."
        ) from None
    return plan


def _refuse_strange(file: PlannedFile) -> None:
    """Raise ValueError for a target that would lead out of the folder, or for numbers as texts."""
    parts = file.target.split("/")
    if "\0" in file.target or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"the target {file.target!r} is no path below a folder")
    if parts[0] == ".preflight":
        raise ValueError(f"the target {file.target!r} is the receipt's place")
    if not (isinstance(file.n_bytes, int) and isinstance(file.content_hash, str)):
        raise ValueError(f"{file.target!r} has no size or no hash")
