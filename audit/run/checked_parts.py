"""The parts of a run as `audit verify` finds them: every database read to its end.

DuckDB verifies a checksum with every block that it reads, so a database that reads to its end is
whole. 100 MB take about 0.1 s.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from audit.errors import DamagedError, RunError
from audit.run.run_version import (
    MEASUREMENTS,
    POINTER,
    count_kept,
    find_building_damage,
    find_damage,
    list_findings,
    list_versions,
    read_pointer,
    require_opens,
)

SOUND, DAMAGED, UNFINISHED, ABSENT = "sound", "damaged", "unfinished", "absent"
SCAN = "the next `audit scan` of its source into this run"
RECHECK = "`audit recheck`, or the next scan"
OLDER = "no scan: it is kept for `audit diff` only, and you can delete it"


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """A part of a run: `state` is sound, damaged, unfinished (nothing is lost) or absent.

    `detail` says how much there is or what is wrong; `lost` what cannot be had again, and `remade`
    what makes the rest again: both empty but for damage.
    """

    name: str
    state: str
    detail: str
    lost: str = ""
    remade: str = ""


def check_versions(run: Path) -> list[CheckedPart]:
    """Return the state of CURRENT, of every database of the versions that stay, and of a build.

    Raises RunError where another schema wrote the run, OSError where the machine cannot read.
    """
    parts, named = [_check_pointer(run)], None
    with suppress(DamagedError):
        named = read_pointer(run)
    is_needed = named is None
    for folder in list_versions(run)[-count_kept(run) :]:
        is_needed = is_needed or (named is not None and folder == named.path)
        parts.append(_check_database(folder / MEASUREMENTS, SCAN if is_needed else OLDER))
        for path in list_findings(folder):
            again = RECHECK if named is None or path == named.findings else OLDER
            parts.append(_check_database(path, again))
    return parts + _check_building(run)


def _check_pointer(run: Path) -> CheckedPart:
    try:
        named = read_pointer(run)
        if named is None:
            if list_versions(run):
                raise DamagedError("it is missing", "")
            return CheckedPart(POINTER, ABSENT, "no finished scan yet")
        require_opens(named.measurements, named.findings)
    except DamagedError as error:
        return CheckedPart(POINTER, DAMAGED, error.what.replace(f"{run}/", ""), "nothing", SCAN)
    return CheckedPart(POINTER, SOUND, f"{named.path.name}, {named.findings.name}")


def _check_database(path: Path, remade: str) -> CheckedPart:
    name = f"{path.parent.name}/{path.name}"
    if damage := find_damage(path):
        return CheckedPart(name, DAMAGED, damage, "nothing", remade)
    return CheckedPart(name, SOUND, f"{path.stat().st_size:,} bytes")


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
