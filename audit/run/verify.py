"""Verify what scans wrote: CURRENT, the generations, an unfinished build; and repair it.

Each part is read to its end and compared with the digest that was recorded when it was written.
What a scan or a re-check makes again is moved aside by a repair, into RUN/damaged-<time>/, so that
they do; nothing is deleted but names. Reading 100 MB takes about 0.1 s.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from audit.errors import DamagedError, RunError
from audit.run import digests, generations
from audit.run.generations import KEPT, MEASUREMENTS, POINTER
from audit.run.healing import find_building_damage, heal_run, set_aside

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
    kept = generations.list_generations(run)[-KEPT:]
    parts = [part for folder in kept for part in _check_generation(folder)]
    return [pointer, *parts, *_check_building(run)]


def _check_pointer(run: Path) -> CheckedPart:
    try:
        said = generations.read_pointer(run)
    except DamagedError as error:
        found = generations.find_whole(run)
        again = f"a repair: it will name {found.path.name}" if found else SCAN
        return CheckedPart(POINTER, DAMAGED, _said(run, error), "nothing", again)
    if said is None:
        if generations.list_generations(run):
            return CheckedPart(POINTER, DAMAGED, "it is missing", "nothing", "a repair")
        return CheckedPart(POINTER, ABSENT, "no finished scan yet")
    generations.current(run)  # refuses a newer version
    return CheckedPart(POINTER, SOUND, f"{said.path.name}, {said.findings.name}")


def _said(run: Path, error: DamagedError) -> str:
    return error.what.replace(f"{run}/", "")


def _check_generation(folder: Path) -> list[CheckedPart]:
    names = {MEASUREMENTS} | {path.name for path in folder.glob("*.duckdb")}
    with suppress(DamagedError):
        names |= set(digests.read_seal(folder) or ())
    return [_check_seal(folder), *(_checked(folder / name) for name in sorted(names))]


def _checked(path: Path) -> CheckedPart:
    name = f"{path.parent.name}/{path.name}"
    if damage := digests.find_damage(path):
        again = SCAN if path.name == MEASUREMENTS else RECHECK
        return CheckedPart(name, DAMAGED, damage, "nothing", again)
    return CheckedPart(name, SOUND, f"{path.stat().st_size:,} bytes")


def _check_seal(folder: Path) -> CheckedPart:
    name = f"{folder.name}/{digests.SEAL}"
    try:
        sealed = digests.read_seal(folder)
    except DamagedError as error:
        lost = "the digests of its databases"
        return CheckedPart(name, DAMAGED, _said(folder, error), lost, "a repair, if they read well")
    if sealed is None:
        return CheckedPart(name, ABSENT, "written without digests: every table was read instead")
    return CheckedPart(name, SOUND, f"{len(sealed)} digests")


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
    return [CheckedPart("building", UNFINISHED, "the next scan goes on with it")]


# ---- repair ----


def repair_scans(run: Path) -> list[str]:
    """Make CURRENT again and move aside what a scan makes again; returns what was done.

    The caller holds the run. Raises as `heal_run` does.
    """
    done = heal_run(run)
    for folder in generations.list_generations(run):
        done += _repair_generation(run, folder)
    done += heal_run(run)
    try:
        generations.read_pointer(run)
    except DamagedError:
        aside = set_aside(run, run / POINTER)
        done.append(f"{POINTER} named nothing that is left: moved to {aside.name}/")
    return done


def _repair_generation(run: Path, folder: Path) -> list[str]:
    databases = [path for path in folder.glob("*.duckdb") if path.name != MEASUREMENTS]
    if digests.find_damage(folder / MEASUREMENTS):
        aside = set_aside(run, folder)
        return [f"{folder.name} moved to {aside.name}/: {SCAN} measures again what is lacking"]
    bad = [path for path in databases if digests.find_damage(path)]
    if bad:
        aside = set_aside(run, *bad)
        names = ", ".join(path.name for path in bad)
        done = [f"{folder.name}/{names} moved to {aside.name}/: {RECHECK} makes findings again"]
    else:
        done = []
    if _seal_differs(folder):
        if (folder / digests.SEAL).is_dir():
            set_aside(run, folder / digests.SEAL)
        digests.write_seal(folder)
        done.append(f"{folder.name}/{digests.SEAL} written again")
    return done


def _seal_differs(folder: Path) -> bool:
    """Say whether a seal is damaged or names what is gone; one that never was stays away."""
    try:
        sealed = digests.read_seal(folder)
    except DamagedError:
        return True
    return sealed is not None and any(not (folder / name).exists() for name in sealed)
