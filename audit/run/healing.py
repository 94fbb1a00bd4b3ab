"""Healing: what a writer puts right before it works, under the lock of the run.

Nothing is lost by it: a build that cannot be read would stop every scan at its first statement, so
it goes, and its files are measured again; CURRENT is a name, and is found again from the finished
generations; a generation or a findings file that a killed process had finished but not yet named
is named now, so that none of it is made again. The ledger of decisions is never touched.

Only damage is healed. A lock, a full disk, a missing permission or a newer version is an error of
its own, and leaves every file as it is. Without damage it costs a few looks at the folder.
"""

from __future__ import annotations

import errno
import shutil
from datetime import UTC, datetime
from pathlib import Path

from audit.errors import DamagedError, RunError
from audit.run import digests, generations
from audit.run.generations import MEASUREMENTS, POINTER, Generation
from audit.run.store import Store
from audit.run.tables import SCHEMA_VERSION

REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def heal_run(run: Path) -> list[str]:
    """Put right what can be, for a writer that holds the run; returns what was done, in words.

    Raises RunError where the run cannot be written, is locked or was written by a newer version.
    """
    if not run.is_dir():
        return []
    try:
        return [*_remove_drafts(run), *_heal_building(run), *_heal_pointer(run)]
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        raise RunError(
            f"{run} cannot be written ({error.strerror}): get write access to it, or work on a "
            "copy of it."
        ) from None


def _remove_drafts(run: Path) -> list[str]:
    """Remove what a killed writer left half-written: it has a name that no reader opens."""
    for pattern in (
        "*.new",
        "gen-*/*.new",
        "gen-*/*.building*",
        "signatures/*.new",
        "vectors/*/*.new",
    ):
        for path in run.glob(pattern):
            path.unlink()
    return []


# ---- building ----


def _heal_building(run: Path) -> list[str]:
    folder = run / "building"
    if not (folder.exists() or folder.is_symlink()):
        return []
    if findings := _sealed_findings(folder):
        generations.publish_sealed(run, findings)
        return ["the generation that a killed scan had finished is published"]
    if damage := find_building_damage(run):
        generations.discard_building(run)
        return [f"the unfinished scan in {folder} was thrown away: {damage}"]
    return []


def _sealed_findings(folder: Path) -> str:
    """Return the findings file of a build that was finished to the last step, "" if it was not."""
    try:
        sealed = digests.read_seal(folder) if folder.is_dir() else None
    except DamagedError:
        return ""
    if not sealed or any(digests.find_damage(folder / name) for name in sealed):
        return ""
    findings = [name for name in sealed if generations.FINDINGS.fullmatch(name)]
    return max(findings, default="") if MEASUREMENTS in sealed else ""


def find_building_damage(run: Path) -> str:
    """Return why the unfinished scan of a run cannot be gone on with, "" if it can.

    Raises LockedError and RunError for what is no damage.
    """
    folder = run / "building"
    if not folder.is_dir():
        return "it is no folder"
    if not (folder / MEASUREMENTS).exists():
        return ""
    try:
        # for writing: rows that are still in its write-ahead log count too
        with Store.create(folder / MEASUREMENTS) as store:
            store.read_everything()
    except DamagedError as error:
        return error.what
    return ""


# ---- CURRENT ----


def _heal_pointer(run: Path) -> list[str]:
    if (run / POINTER).is_dir():
        set_aside(run, run / POINTER)
    try:
        said = generations.read_pointer(run)
    except DamagedError as error:
        return _find_again(run, error.what)
    if said is not None and said.schema > SCHEMA_VERSION:
        return []  # whoever reads it next says so
    newest = _newest(run)
    if newest is None or (said and newest == (said.path.name, said.findings.name)):
        return []
    found = generations.find_whole(run)
    if found is None or (said and _order(found) <= _order(said)):
        return []
    generations.make_current(run, found)
    return [f"{_named(found)} was finished and not yet named: {POINTER} names it now"]


def _find_again(run: Path, damage: str) -> list[str]:
    found = generations.find_whole(run)
    if found is None:
        return []  # what is left of it may help a person; a scan will write it anew
    generations.make_current(run, found)
    return [f"{damage}: found again as {_named(found)}"]


def _newest(run: Path) -> tuple[str, str] | None:
    """Return the names of the newest generation and its newest findings file, whole or not."""
    for folder in reversed(generations.list_generations(run)):
        for findings in reversed(generations.list_findings(folder)):
            return folder.name, findings.name
    return None


def _order(found: Generation) -> list[tuple[int, str]]:
    # longer names first: gen-10000 comes after gen-9999
    return [(len(path.name), path.name) for path in (found.path, found.findings)]


def _named(found: Generation) -> str:
    return f"{found.path.name}/{found.findings.name}"


# ---- what is moved aside ----


def set_aside(run: Path, *paths: Path) -> Path:
    """Move damaged files and folders into a new RUN/damaged-<time>/, made here; return it."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    folder = run / f"damaged-{stamp}"
    folder.mkdir()
    for path in paths:
        target = folder / path.relative_to(run)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    return folder
