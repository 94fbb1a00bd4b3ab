"""A run directory: immutable generations and the pointer to the current one.

    RUN/CURRENT                        names the current generation and its findings file
    RUN/gen-0001/measurements.duckdb   what the source listed and a scan measured
    RUN/gen-0001/findings-0001.duckdb  what the checks said
    RUN/building/                      the next generation, while a scan is at work

DuckDB admits one writing process or many readers, and a reader that holds a file keeps its old
content. So nothing that is published ever changes: a scan builds beside, then renames and replaces
CURRENT, each atomically; a re-check adds a findings file. The last two of each stay, for
comparison.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from audit.errors import LockedError, RunError
from audit.run.store import SCHEMA_VERSION, Store, Tracer

MEASUREMENTS = "measurements.duckdb"
KEPT = 2


@dataclass(frozen=True, slots=True)
class Generation:
    """The published generation of a run: paths of its two databases, and its schema version."""

    path: Path
    findings: Path
    schema: int = SCHEMA_VERSION

    @property
    def measurements(self) -> Path:
        """Path of the measurements database."""
        return self.path / MEASUREMENTS


def current(run: Path) -> Generation | None:
    """Return the published generation of a run, None if nothing was published yet.

    It may have an older schema: readers use `require`, a scan that wants its rows
    `find_reusable`. Raises RunError where CURRENT is damaged or of a newer version.
    """
    pointer = run / "CURRENT"
    if not pointer.exists():
        return None
    try:
        said = json.loads(pointer.read_text())
        generation, version = run / said["generation"], int(said["schema"])
        found = Generation(generation, generation / said["findings"], version)
    except (ValueError, KeyError, TypeError, OSError):
        raise RunError(f"{pointer} is damaged: scan again into this run or another.") from None
    if version > SCHEMA_VERSION:
        raise RunError(
            f"{run} was written by a newer version (schema {version}, this one reads "
            f"{SCHEMA_VERSION}): upgrade with `pip install -U dataset-preflight`."
        )
    return found


def require(run: Path) -> Generation:
    """Return the published generation for reading; raises RunError that says how to make one."""
    if not run.is_dir():
        raise RunError(f"There is no run at {run}: make one with `audit scan SOURCE --out {run}`.")
    generation = current(run)
    if generation is None:
        raise RunError(f"{run} holds no finished scan yet: run `audit scan SOURCE --out {run}`.")
    if generation.schema < SCHEMA_VERSION:
        # every reader comes through here, so that none has to know the columns of older versions
        raise RunError(
            f"{run} was made by version 0.1: scan its source again into it; decisions stay."
        )
    return generation


def find_reusable(run: Path) -> Generation | None:
    """Return the generation whose rows a new scan may take over, None if there is none.

    An older schema is not: its files are measured again, and it stays until the scan publishes.
    """
    generation = current(run)
    return None if generation is None or generation.schema < SCHEMA_VERSION else generation


def open_run(run: Path, tracer: Tracer | None = None) -> Store:
    """Open the current generation for reading: its tables, the `images` view and the findings."""
    return open_generation(require(run), tracer)


def open_generation(generation: Generation, tracer: Tracer | None = None) -> Store:
    """Open one generation for reading, whatever is published meanwhile."""
    store = Store.memory(tracer)
    try:
        store.attach(generation.measurements, "measurements")
        store.attach(generation.findings, "judged")
        store.execute("SET search_path = 'measurements.main,judged.main'")
    except BaseException:
        store.close()
        raise
    return store


def open_for_users(run: Path) -> Store:
    """Open the current generation for SQL that a user wrote: it reads the run and nothing else.

    The measurements are the connection's own database, opened read-only: in a database of memory
    a user could attach the same file again, for writing.
    """
    generation = require(run)
    store = Store.open(generation.measurements)
    try:
        store.attach(generation.findings, "judged")
        store.execute("SET search_path = 'measurements.main,judged.main'")
        store.lock_for_reading()
    except BaseException:
        store.close()
        raise
    return store


def building(run: Path) -> Path:
    """Return the folder where the next generation is built, making it if absent."""
    folder = run / "building"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{run} cannot be written ({error.strerror}): choose another place with --out."
        ) from None
    return folder


def discard_building(run: Path) -> None:
    """Remove an unfinished generation."""
    shutil.rmtree(run / "building", ignore_errors=True)


def publish(run: Path, findings: str) -> Generation:
    """Make `building/` the current generation: sync, rename, replace CURRENT, prune."""
    number = 1 + max((_number(path) for path in run.glob("gen-*")), default=0)
    target = run / f"gen-{number:04d}"
    for path in (run / "building").iterdir():
        _sync(path)
    (run / "building").rename(target)
    _point(run, target.name, findings)
    _prune(sorted(run.glob("gen-*"), key=_number), keep=target)
    return Generation(target, target / findings)


def next_findings(generation: Generation) -> str:
    """Return the name of the generation's next findings file."""
    taken = [_number(path) for path in generation.path.glob("findings-*.duckdb")]
    return f"findings-{1 + max(taken, default=0):04d}.duckdb"


def publish_findings(run: Path, generation: Generation, built: Path, name: str) -> Generation:
    """Make a re-check's findings current."""
    _sync(built)
    target = generation.path / name
    built.rename(target)
    _point(run, generation.path.name, name)
    _prune(sorted(generation.path.glob("findings-*.duckdb"), key=_number), keep=target)
    return Generation(generation.path, target)


def _point(run: Path, generation: str, findings: str) -> None:
    document = {"schema": SCHEMA_VERSION, "generation": generation, "findings": findings}
    fresh = run / "CURRENT.new"
    fresh.write_text(json.dumps(document) + "\n")
    _sync(fresh)
    os.replace(fresh, run / "CURRENT")
    _sync(run)


def _number(path: Path) -> int:
    match = re.search(r"-(\d+)", path.name)
    return int(match[1]) if match else 0


def _prune(paths: list[Path], keep: Path) -> None:
    for path in paths[:-KEPT]:
        if path == keep:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            # Windows refuses to unlink a file that a reader holds open; the next scan tries again.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    flags = os.O_RDONLY
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    except OSError:  # some file systems cannot sync folders
        return
    finally:
        os.close(descriptor)


__all__ = [
    "MEASUREMENTS", "Generation", "LockedError", "building", "current", "discard_building",
    "find_reusable", "next_findings", "open_for_users", "open_run", "publish", "publish_findings",
    "require",
]  # fmt: skip
