"""A run directory: immutable versions and the pointer to the current version.

    RUN/CURRENT                        names the current version and its findings file
    RUN/gen-0001/measurements.duckdb   what the source listed and a scan measured
    RUN/gen-0001/findings-0001.duckdb  what the checks found
    RUN/building/                      the next version, while a scan is at work

DuckDB admits one writing process or many readers, so nothing that is published ever changes: a scan
builds beside, then renames and replaces CURRENT, each atomically; a re-check adds a findings file.
The last two of each stay, or as many as RUN/keep says. Where CURRENT names no version that opens,
readers take the newest that opens, with a `notice`. A scan makes damaged data again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import DamagedError, RunError
from audit.run.store import AGAIN, ANY_DATABASE, Store
from audit.run.synced_files import DRAFT, sync, write_synced
from audit.run.tables import FINDINGS_TABLES, MEASUREMENT_TABLES, SCHEMA_VERSION
from dataset_preflight.foundation.files import (
    SpecialFileError,
    read_regular,
    refuse_special,
    regular,
)
from dataset_preflight.foundation.terminal import nearest_path

if TYPE_CHECKING:
    import pyarrow as pa

MEASUREMENTS = "measurements.duckdb"
POINTER = "CURRENT"
KEEP = "keep"
MIN_KEPT_VERSIONS = 2
MAX_SPILL = "2GB"
VERSION = re.compile(r"gen-\d{4,}")
FINDINGS = re.compile(r"findings-\d{4,}\.duckdb")
BUILT = re.compile(FINDINGS.pattern + r"\.building(\.wal|\.tmp)?")
MADE = re.compile(
    rf"(measurements\.duckdb|{FINDINGS.pattern})(\.wal|\.tmp)?|{BUILT.pattern}|\..*{DRAFT}"
)


@dataclass(frozen=True, slots=True)
class RunVersion:
    """A version of a run: the paths of its folder and of its findings.

    `notice`: why it is not the version that CURRENT names, in sentences; "" where it is.
    """

    path: Path
    findings: Path
    notice: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Its folder and its findings file."""
        return f"{self.path.name}/{self.findings.name}"

    @property
    def measurements(self) -> Path:
        """Path of the measurements database."""
        return self.path / MEASUREMENTS

    @property
    def key(self) -> str:
        """What names its data: it changes with every scan and re-check."""
        # a run that was made again has the same names, and a copy the same times
        status = self.findings.stat()
        return f"{self.findings}@{status.st_mtime_ns}.{status.st_ino}"


def current(run: Path) -> RunVersion | None:
    """Return the version that CURRENT names or the newest that opens; None before the first.

    Raises DamagedError where no version opens, and RunError where another schema wrote it.
    """
    named, fault = _read_named(run)
    if not fault:
        return named
    for version in reversed(list_published(run)):
        with contextlib.suppress(DamagedError):
            require_opens(version.measurements, version.findings)
            said = (
                f"{fault}. This is {version.name}, the newest version that opens. Scan the source "
                "again into this run to publish a new version."
            )
            return replace(version, notice=said)
    raise DamagedError(f"{run}: {fault}, and no version opens", AGAIN)


def _read_named(run: Path) -> tuple[RunVersion | None, str]:
    """Return what CURRENT names, and what is wrong with it: "" where it opens, or without it."""
    named = None
    try:
        named = read_pointer(run)
        if named is None:
            return None, f"{POINTER} is missing" if list_versions(run) else ""
        require_opens(named.measurements, named.findings)
    except DamagedError as error:
        return named, error.what.replace(f"{run}/", "")
    return named, ""


def read_pointer(run: Path) -> RunVersion | None:
    """Return what CURRENT names, None without it; raises DamagedError, RunError."""
    pointer = run / POINTER
    try:
        said = json.loads(read_regular(pointer))
        _refuse_other_schema(run, int(said["schema"]))
        name, findings = said["generation"], said["findings"]
        if not (VERSION.fullmatch(name) and FINDINGS.fullmatch(findings)):
            raise ValueError
    except FileNotFoundError:
        return None
    except (IsADirectoryError, SpecialFileError) as error:
        raise DamagedError(f"{pointer} is damaged ({error.strerror})", AGAIN) from None
    except OSError as error:
        raise RunError(
            f"{pointer} cannot be read ({error.strerror}): check its disk and permissions."
        ) from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise DamagedError(f"{pointer} is damaged (it names no version)", AGAIN) from None
    return RunVersion(run / name, run / name / findings)


def _refuse_other_schema(run: Path, schema: int) -> None:
    reads = f"(schema {schema}, this one reads {SCHEMA_VERSION})"
    if schema > SCHEMA_VERSION:
        raise RunError(f"{run} was written by a newer version {reads}: upgrade dataset-preflight.")
    if schema < SCHEMA_VERSION:
        raise RunError(
            f"{run} was written by an older version {reads}: scan into a new run; "
            f"`audit scan --decisions-from {run}` carries its decisions."
        )


def require_opens(*paths: Path) -> None:
    """Raise DamagedError where a database does not open or lacks a table; RunError as `current`."""
    state = []
    for path in paths:
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise DamagedError(f"{path} is missing", AGAIN) from None
        except OSError as error:
            raise RunError(
                f"{path} cannot be opened ({error.strerror}): check its disk and permissions."
            ) from None
        state += [status.st_mtime_ns, status.st_size, status.st_ino]
    _open_once(paths, *state)


@lru_cache(maxsize=256)
def _open_once(paths: tuple[Path, ...], *_state: int) -> None:
    with Store.memory() as store:
        for number, path in enumerate(paths):
            store.attach(path, f"database{number}")
            try:
                names = store.table_names(f"database_name = 'database{number}'")
                if "meta" in names:
                    sql = f"SELECT value FROM database{number}.meta WHERE key = 'schema_version'"
                    _refuse_other_schema(path.parents[1], int(store.scalar(sql) or SCHEMA_VERSION))
            except DamagedError as error:
                raise DamagedError(f"{path} {_damage(path, error)}", AGAIN) from None
            _require_tables(path, names)


def _damage(path: Path, error: DamagedError) -> str:
    """Return what is wrong, without the name of the database."""
    return error.what.removeprefix(f"{path} ").removeprefix(f"{ANY_DATABASE} ")


def _require_tables(path: Path, names: Iterable[str]) -> None:
    tables = MEASUREMENT_TABLES if path.name == MEASUREMENTS else FINDINGS_TABLES
    if missing := sorted(set(tables) - set(names)):
        raise DamagedError(f"{path} is damaged (it has no table {missing[0]})", AGAIN)


def find_damage(path: Path, *, whole: bool = True) -> str:
    """Return what is wrong with a database, "" where every table reads to its end.

    Unless it is `whole`, it may lack tables. Raises RunError where it may not be opened.
    """
    try:
        with Store.open(path) as store:
            if whole:
                _require_tables(path, store.table_names())
            store.read_everything()
    except DamagedError as error:
        return _damage(path, error)
    return ""


def list_versions(run: Path) -> list[Path]:
    """Return the folders of finished versions, oldest first."""
    return sorted((p for p in run.glob("gen-*") if VERSION.fullmatch(p.name)), key=_number)


def list_findings(folder: Path) -> list[Path]:
    """Return the findings files of a version, oldest first."""
    return sorted((p for p in folder.iterdir() if FINDINGS.fullmatch(p.name)), key=_number)


def list_published(run: Path) -> list[RunVersion]:
    """Return what a run still holds, oldest first: each findings file of each version."""
    folders = list_versions(run)
    return [RunVersion(folder, file) for folder in folders for file in list_findings(folder)]


def find_version(place: Path) -> tuple[Path, RunVersion]:
    """Return the run and the version that RUN, RUN/gen-0003 (with its newest findings) or
    RUN/gen-0003/findings-0001.duckdb names; raises RunError where it is absent.
    """
    named = VERSION.fullmatch(place.name) or FINDINGS.fullmatch(place.name)
    if not named or (place / POINTER).exists():  # a run may have the name of a version
        return place, require(place)
    run = place.parent if VERSION.fullmatch(place.name) else place.parent.parent
    published = list_published(run)
    found = [version for version in published if place in (version.path, version.findings)]
    if not found:
        names = ", ".join(version.name for version in published) or "none"
        raise RunError(f"{run} has no {place.relative_to(run)}. Available: {names}.")
    return run, found[-1]


def require(run: Path) -> RunVersion:
    """Return the published version for reading; raises RunError that says how to make one."""
    if not run.is_dir():
        refuse_special(run)
        raise RunError(
            f"There is no run at {run}: create it with `audit scan SOURCE --out "
            f"{run}`.{nearest_path(run)}"
        )
    version = current(run)
    if version is None:
        raise RunError(f"{run} has no finished scan yet: run `audit scan SOURCE --out {run}`.")
    return version


def require_measured(run: Path) -> RunVersion:
    """Return the version to derive findings from, never one older than damaged measurements.

    Its own findings may be damaged or gone. Raises RunError as `require` does.
    """
    folders = list_versions(run)
    if not folders:
        return require(run)
    named, fault = _read_named(run)
    require_opens(folders[-1] / MEASUREMENTS)
    return _continued(folders[-1], named, fault)


@dataclass(frozen=True, slots=True)
class Reusable:
    """What a scan finds of a run: the newest `version` whose measurements read to their end.

    `damaged` are the folders after it, and `notice` says what does not open; `is_current`: whether
    CURRENT names the version.
    """

    version: RunVersion | None
    damaged: list[Path]
    notice: str = ""
    is_current: bool = False


def find_reusable(run: Path) -> Reusable:
    """Return what a new scan may take over; raises RunError where another schema wrote the run."""
    named, fault = _read_named(run)
    damaged = list[Path]()
    for folder in reversed(list_versions(run)):
        damage = find_damage(folder / MEASUREMENTS)
        if not damage:
            version = _continued(folder, named, fault)
            return Reusable(version, damaged, version.notice, not fault and version == named)
        damaged.append(folder)
        fault = fault or f"{folder.name}/{MEASUREMENTS} {damage}"
    return Reusable(None, damaged, f"{fault}: every file is read again." * bool(fault))


def _continued(folder: Path, named: RunVersion | None, fault: str) -> RunVersion:
    """Return a version with the findings that CURRENT names, or else its newest."""
    if not fault and named is not None and named.path == folder:
        return named
    findings = [folder / "findings-0001.duckdb", *list_findings(folder)]
    notice = f"{fault}: continued from {folder.name}." * bool(fault)
    return RunVersion(folder, findings[-1], notice)


def open_run(run: Path) -> Store:
    """Open the current version for reading: its tables, the `images` view and the findings."""
    return open_version(require(run))


def open_version(version: RunVersion) -> Store:
    """Open one version for reading, whatever is published meanwhile."""
    paths = {"measurements": version.measurements, "judged": version.findings}
    return _with_both(Store.memory(), paths)


_held: dict[str, Store] = {}  # by the key of a version
_holding = threading.Lock()


def hold(key: str, version: RunVersion) -> Store:
    """Open a version for `open_beside` of this process, until it is let go."""
    store = open_version(version)
    with _holding:
        _held[key] = store
    return store


def let_go(key: str) -> None:
    """Close what was held; who uses it still can do so to the end."""
    with _holding:
        _held.pop(key).close()


def open_held(key: str) -> Store | None:
    """Open another connection to what is held, None where it is not."""
    with _holding:
        held = _held.get(key)
        store = held and held.beside()
    return _ready(store) if store else None


def open_beside(version: RunVersion) -> Store:
    """Open a version as `open_version` does: in a fiftieth of the time where it is held."""
    with contextlib.suppress(OSError):
        if store := open_held(version.key):
            return store
    return open_version(version)


def open_for_users(
    version: RunVersion, tags: pa.Table | None = None, threads: int | None = None
) -> Store:
    """Open a version for SQL that a user wrote: it reads the run, `tags` and nothing else.

    The measurements are the connection's own database, opened read-only: in a database of memory
    a user could attach the same file again, for writing. `threads` limits the disk as well.
    """
    store = _with_both(Store.open(version.measurements), {"judged": version.findings})
    if threads is not None:
        store.execute(f"SET threads = {threads}")
        store.execute(f"SET max_temp_directory_size = '{MAX_SPILL}'")
    if tags is not None:
        with store.frame_as("incoming", tags):
            store.execute("CREATE TEMP TABLE tags AS SELECT * FROM incoming")
    store.lock_for_reading()
    return store


def _with_both(store: Store, paths: Mapping[str, Path]) -> Store:
    """Attach what a store lacks of the two databases, or close it."""
    try:
        for name, path in paths.items():
            store.attach(path, name)
        return _ready(store)
    except BaseException:
        store.close()
        raise


def with_own_tables(store: Store) -> Store:
    """Let what is made in memory come before the tables of the run."""
    store.execute("SET search_path = 'memory.main,measurements.main,judged.main'")
    return store


def _ready(store: Store) -> Store:
    store.execute("SET search_path = 'measurements.main,judged.main'")
    return store


def building_folder(run: Path) -> Path:
    """Return the folder where the next version is built, making it if absent."""
    folder = run / "building"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{run} cannot be written ({error.strerror}): choose another path with --out."
        ) from None
    return folder


def remove_version(folder: Path) -> None:
    """Remove what a scan made in a folder, and the folder where nothing else is in it."""
    with contextlib.suppress(OSError):  # a file of a user's, or one that a reader holds open
        remove_files(p for p in folder.iterdir() if MADE.fullmatch(p.name))
        folder.rmdir()


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files, links and folders that bear names of this program."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_rests(run: Path) -> None:
    """Remove what a killed writer left half-written; RunError where the run cannot be written."""
    try:
        for folder in ("", "gen-*/", "signatures/", "vectors/*/"):
            remove_files(run.glob(f"{folder}.*{DRAFT}"))
        remove_files(p for p in run.glob("gen-*/*") if BUILT.fullmatch(p.name))
        if find_building_damage(run):
            if (run / "building").is_dir() and not (run / "building").is_symlink():
                remove_version(run / "building")
            else:
                (run / "building").unlink()
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise RunError(
            f"{run} cannot be written ({error.strerror}): get write access to it, or work on a "
            "copy of it."
        ) from None


def find_building_damage(run: Path) -> str:
    """Return why a scan cannot continue the unfinished version, "" if it can or there is none."""
    folder = run / "building"
    if not folder.is_dir() or folder.is_symlink():
        return "it is not a folder" if folder.exists() or folder.is_symlink() else ""
    if not (folder / MEASUREMENTS).exists():
        return ""
    return find_damage(folder / MEASUREMENTS, whole=False)


def is_run_folder(run: Path) -> bool:
    """Return whether a folder holds a scan, finished or not, or a CURRENT that a scan wrote."""
    for folder in (run / "building", *list_versions(run)):
        with (
            contextlib.suppress(OSError),
            open(folder / MEASUREMENTS, "rb", opener=regular) as file,
        ):
            if file.read(12)[8:] == b"DUCK":
                return True
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return "generation" in dict(json.loads(read_regular(run / POINTER)))
    return False


def publish(run: Path, findings: str) -> RunVersion:
    """Make `building/` the current version: sync, rename, replace CURRENT, prune."""
    built = run / "building"
    for path in (*built.iterdir(), built):
        sync(path)
    target = run / f"gen-{1 + max(map(_number, run.glob('gen-*')), default=0):04d}"
    built.rename(target)
    version = RunVersion(target, target / findings)
    make_current(run, version)
    _prune(list_versions(run), count_kept(run))
    return version


def make_current(run: Path, version: RunVersion) -> None:
    """Replace CURRENT, atomically and on disk."""
    sync(run)  # what it names, before it is named
    pointer = run / POINTER
    if pointer.is_dir() and not pointer.is_symlink():
        remove_files([pointer])
    named = {"generation": version.path.name, "findings": version.findings.name}
    write_synced(pointer, (json.dumps({"schema": SCHEMA_VERSION, **named}) + "\n").encode())


def next_findings(version: RunVersion) -> str:
    """Return the name of the version's next findings file."""
    taken = [_number(path) for path in version.path.glob("findings-*.duckdb")]
    return f"findings-{1 + max(taken, default=0):04d}.duckdb"


def publish_findings(run: Path, version: RunVersion, built: Path, name: str) -> RunVersion:
    """Make a re-check's findings current: sync, rename, replace CURRENT, prune."""
    sync(built)
    target = version.path / name
    built.rename(target)
    sync(version.path)
    published = RunVersion(version.path, target)
    make_current(run, published)
    _prune(list_findings(version.path), count_kept(run))
    return published


def _number(path: Path) -> int:
    match = re.search(r"-(\d+)", path.name)
    return int(match[1]) if match else 0


def keep_versions(run: Path, n: int) -> None:
    """Say how many versions of a run, and findings of each, stay from now on."""
    if n != count_kept(run) and run.is_dir():
        write_synced(run / KEEP, f"{n}\n".encode())


def count_kept(run: Path) -> int:
    """Return how many versions of a run, and findings of each, stay."""
    try:
        return max(MIN_KEPT_VERSIONS, int(read_regular(run / KEEP)))
    except (OSError, ValueError):
        return MIN_KEPT_VERSIONS


def _prune(paths: list[Path], n: int) -> None:
    for path in paths[:-n]:
        if path.is_dir():
            remove_version(path)
        else:
            # Windows refuses to unlink a file that a reader holds open; the next scan tries again.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
