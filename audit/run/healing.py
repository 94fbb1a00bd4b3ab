"""Healing: what a writer puts right before it works, under the lock of the run.

Nothing is lost by it: a build that cannot be read would stop every scan at its first statement, so
it goes, and its files are measured again; CURRENT is a name, and is found again from the finished
generations; a generation or a findings file that a killed process had finished but not yet named
is named now, so that none of it is made again. The ledger of decisions is never touched.

Only damage is healed. A lock, a full disk, a missing permission or another version is an error of
its own, and leaves every file as it is. Without damage it costs a few looks at the folder.

Verifying reads each part to its end (100 MB take about 0.1 s) and compares it with the digest that
was recorded when it was written. A repair moves aside what a scan or a re-check makes again, into
RUN/damaged-<time>/; nothing is deleted but names.
"""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from audit.errors import DamagedError, RunError
from audit.run import digests, run_version
from audit.run.run_version import KEPT, MEASUREMENTS, POINTER, RunVersion
from audit.run.store import Store


def heal_run(run: Path) -> list[str]:
    """Put right what can be, for a writer that holds the run; returns what was done, in words.

    Raises RunError where the run cannot be written, is locked or was written by another version.
    """
    if not run.is_dir():
        return []
    try:
        _remove_drafts(run)
        return [*_heal_building(run), *_heal_pointer(run)]
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise RunError(
            f"{run} cannot be written ({error.strerror}): get write access to it, or work on a "
            "copy of it."
        ) from None


def _remove_drafts(run: Path) -> None:
    """Remove what a killed writer left half-written: it has a name that no reader opens."""
    folders = ("", "gen-*/", "signatures/", "vectors/*/")
    for folder in folders:
        run_version.remove_files(run.glob(f"{folder}.*{digests.DRAFT}"))
    built = (p for p in run.glob("gen-*/*") if run_version.BUILT.fullmatch(p.name))
    run_version.remove_files(built)


def _heal_building(run: Path) -> list[str]:
    folder = run / "building"
    if not (folder.exists() or folder.is_symlink()):
        return []
    if findings := _sealed_findings(folder):
        run_version.publish_sealed(run, findings)
        return ["the generation that a killed scan had finished is published"]
    if damage := find_building_damage(run):
        if not folder.is_dir() or folder.is_symlink():
            aside = set_aside(run, folder)
            return [f"{folder} moved to {aside.name}/: {damage}"]
        run_version.discard_building(run)
        return [f"the unfinished scan in {folder} was discarded: {damage}"]
    return []


def _sealed_findings(folder: Path) -> str:
    """Return the findings file of a build that was finished to the last step, "" if it was not."""
    try:
        sealed = digests.read_seal(folder) if folder.is_dir() else None
    except DamagedError:
        return ""
    if not sealed or any(digests.find_damage(folder / name) for name in sealed):
        return ""
    findings = [name for name in sealed if run_version.FINDINGS.fullmatch(name)]
    return max(findings, default="") if MEASUREMENTS in sealed else ""


def find_building_damage(run: Path) -> str:
    """Return why the unfinished scan of a run cannot be gone on with, "" if it can.

    Raises LockedError and RunError for what is no damage.
    """
    folder = run / "building"
    if not folder.is_dir():
        return "it is not a folder"
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
        said = run_version.read_pointer(run)
    except DamagedError as error:
        found = run_version.find_whole(run)
        if found is None:
            return []  # what is left of it may help a person; a scan will write it anew
        run_version.make_current(run, found)
        return [f"{error.what}: found again as {found.name}"]
    newest = _newest(run)
    if newest is None or (said and newest == (said.path.name, said.findings.name)):
        return []
    found = run_version.find_whole(run)
    if found is None or (said and _order(found) <= _order(said)):
        return []
    run_version.make_current(run, found)
    return [f"{found.name} was finished but not published: {POINTER} names it now"]


def _newest(run: Path) -> tuple[str, str] | None:
    """Return the names of the newest generation and its newest findings file, whole or not."""
    for folder in reversed(run_version.list_versions(run)):
        for findings in reversed(run_version.list_findings(folder)):
            return folder.name, findings.name
    return None


def _order(found: RunVersion) -> list[tuple[int, str]]:
    # longer names first: gen-10000 comes after gen-9999
    return [(len(path.name), path.name) for path in (found.path, found.findings)]


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


# ---- verifying ----


SOUND, DAMAGED, UNFINISHED, ABSENT = "sound", "damaged", "unfinished", "absent"
SCAN = "the next `audit scan` of its source into this run"
RECHECK = "`audit recheck`, or the next scan"


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """A part of a run as it was found.

    `state` is sound, damaged, unfinished (what a killed command left; nothing is lost) or absent;
    `detail` says how much there is or what is wrong; `lost` what cannot be had again, and `remade`
    what makes the rest again: both empty but for damage.
    """

    name: str
    state: str
    detail: str
    lost: str = ""
    remade: str = ""


def check_scans(run: Path) -> list[CheckedPart]:
    """Return the state of CURRENT, of every database of the last generations, and of a build.

    What is older than the generations that stay is a rest that the next scan removes: not looked
    at. Raises RunError where a newer version wrote the run, OSError where the machine cannot read.
    """
    pointer = _check_pointer(run)
    kept = run_version.list_versions(run)[-KEPT:]
    parts = [part for folder in kept for part in _check_generation(folder)]
    return [pointer, *parts, *_check_building(run)]


def _check_pointer(run: Path) -> CheckedPart:
    try:
        said = run_version.read_pointer(run)
    except DamagedError as error:
        found = run_version.find_whole(run)
        again = f"a repair: it will name {found.path.name}" if found else SCAN
        return CheckedPart(POINTER, DAMAGED, _said(run, error), "nothing", again)
    if said is None:
        if run_version.list_versions(run):
            return CheckedPart(POINTER, DAMAGED, "it is missing", "nothing", "a repair")
        return CheckedPart(POINTER, ABSENT, "no finished scan yet")
    return CheckedPart(POINTER, SOUND, f"{said.path.name}, {said.findings.name}")


def _said(run: Path, error: DamagedError) -> str:
    return error.what.replace(f"{run}/", "")


def _check_generation(folder: Path) -> list[CheckedPart]:
    names = {MEASUREMENTS} | {path.name for path in folder.glob("*.duckdb")}
    seal = f"{folder.name}/{digests.SEAL}"
    try:
        sealed = digests.read_seal(folder)
        if sealed is None:
            said = "written without digests: every table was read instead"
            parts = [CheckedPart(seal, ABSENT, said)]
        else:
            parts = [CheckedPart(seal, SOUND, f"{len(sealed)} digests")]
            names |= set(sealed)
    except DamagedError as error:
        lost, again = "the digests of its databases", "a repair, if they read well"
        parts = [CheckedPart(seal, DAMAGED, _said(folder, error), lost, again)]
    for path in (folder / name for name in sorted(names)):
        name = f"{folder.name}/{path.name}"
        if damage := digests.find_damage(path):
            again = SCAN if path.name == MEASUREMENTS else RECHECK
            parts.append(CheckedPart(name, DAMAGED, damage, "nothing", again))
        else:
            parts.append(CheckedPart(name, SOUND, f"{path.stat().st_size:,} bytes"))
    return parts


def _check_building(run: Path) -> list[CheckedPart]:
    folder = run / "building"
    if not (folder.exists() or folder.is_symlink()):
        return []
    try:
        damage = find_building_damage(run)
    except RunError as error:  # a scan is at work on it, or it may not be opened for writing
        return [CheckedPart("building", UNFINISHED, str(error))]
    if damage:
        return [CheckedPart("building", DAMAGED, damage, "nothing", SCAN)]
    return [CheckedPart("building", UNFINISHED, "the next scan continues it")]


def repair_scans(run: Path) -> list[str]:
    """Make CURRENT again and move aside what a scan makes again; returns what was done.

    The caller holds the run. Raises as `heal_run` does.
    """
    done = heal_run(run)
    for folder in run_version.list_versions(run):
        done += _repair_generation(run, folder)
    done += heal_run(run)
    try:
        run_version.read_pointer(run)
    except DamagedError:
        aside = set_aside(run, run / POINTER)
        done.append(f"{POINTER} named no existing generation: moved to {aside.name}/")
    return done


def _repair_generation(run: Path, folder: Path) -> list[str]:
    bad, done = [path for path in folder.glob("*.duckdb") if digests.find_damage(path)], []
    if not (folder / MEASUREMENTS).exists() or folder / MEASUREMENTS in bad:
        aside = set_aside(run, folder)
        return [f"{folder.name} moved to {aside.name}/: {SCAN} measures the missing files again"]
    if bad:
        aside = set_aside(run, *bad)
        names = ", ".join(path.name for path in bad)
        done = [f"{folder.name}/{names} moved to {aside.name}/: {RECHECK} makes findings again"]
    try:
        sealed = digests.read_seal(folder) or {}
        differs = any(not (folder / name).exists() for name in sealed)
    except DamagedError:
        differs = True
    if differs:  # one that never was stays away
        if (folder / digests.SEAL).is_dir():
            set_aside(run, folder / digests.SEAL)
        digests.write_seal(folder)
        done.append(f"{folder.name}/{digests.SEAL} written again")
    return done
