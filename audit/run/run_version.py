"""A run directory: immutable generations and the pointer to the current one.

    RUN/CURRENT                        names the current generation and its findings file
    RUN/gen-0001/measurements.duckdb   what the source listed and a scan measured
    RUN/gen-0001/findings-0001.duckdb  what the checks said
    RUN/gen-0001/generation.json       the digests of both (`audit.run.digests`)
    RUN/building/                      the next generation, while a scan is at work

DuckDB admits one writing process or many readers, and a reader that holds a file keeps its old
content. So nothing that is published ever changes: a scan builds beside, then renames and replaces
CURRENT, each atomically; a re-check adds a findings file. The last two of each stay, for
comparison, or as many as RUN/keep says.

A folder gets the name of a generation, and a file that of findings, only when it is finished. So
CURRENT can be found again from the names where it is damaged or names what is not there: the newest
generation that is whole. Readers do that for themselves; only a writer (`audit.run.healing`)
changes files.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import DamagedError, RunError
from audit.run import digests
from audit.run.store import AGAIN, Store
from audit.run.tables import SCHEMA_VERSION
from preflight.files import read_regular, refuse_special, regular
from preflight.terminal import nearest_path

if TYPE_CHECKING:
    import pyarrow as pa

MEASUREMENTS = "measurements.duckdb"
POINTER = "CURRENT"
KEEP = "keep"
KEPT = 2
MAX_SPILL = "2GB"
GENERATION = re.compile(r"gen-\d{4,}")
FINDINGS = re.compile(r"findings-\d{4,}\.duckdb")
BUILT = re.compile(FINDINGS.pattern + r"\.building(\.wal|\.tmp)?")
MADE = re.compile(
    rf"(measurements\.duckdb|{FINDINGS.pattern})(\.wal|\.tmp)?|{BUILT.pattern}|"
    rf"generation\.json|\..*{digests.DRAFT}"
)


@dataclass(frozen=True, slots=True)
class RunVersion:
    """A generation of a run: paths of its two databases, and whether CURRENT names them."""

    path: Path
    findings: Path
    named: bool = field(default=True, compare=False)

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
        # the time too: a run that was deleted and made again has the same names again
        return f"{self.findings}@{self.findings.stat().st_mtime_ns}"


def current(run: Path) -> RunVersion | None:
    """Return the published generation of a run, None if nothing was published yet.

    Where CURRENT is missing, damaged or names what is not there, it is the newest generation that
    is whole. Raises DamagedError where there is none, and RunError where another version wrote it.
    """
    try:
        return read_pointer(run) or find_whole(run)
    except DamagedError as error:
        found = find_whole(run)
        if found is None:
            raise DamagedError(f"{error.what}, and no generation is intact", AGAIN) from None
        return found


def read_pointer(run: Path) -> RunVersion | None:
    """Return what CURRENT names, None without one.

    Raises DamagedError, and RunError where another version wrote it or it cannot be read.
    """
    pointer = run / POINTER
    if not pointer.exists():
        return None
    try:
        said = digests.read_document(pointer)
        version = int(said["schema"])
        if version != SCHEMA_VERSION:
            newer = version > SCHEMA_VERSION
            cure = "upgrade dataset-preflight"
            raise RunError(
                f"{run} was written by {'a newer' if newer else 'an older'} version (schema "
                f"{version}, this one reads {SCHEMA_VERSION}): "
                f"{cure if newer else 'scan into a new run'}."
            )
        generation, findings = said["generation"], said["findings"]
        if not (GENERATION.fullmatch(generation) and FINDINGS.fullmatch(findings)):
            raise ValueError
    except (ValueError, KeyError, TypeError, OverflowError):
        raise DamagedError(f"{pointer} is damaged (it names no generation)", AGAIN) from None
    except OSError as error:
        raise RunError(
            f"{pointer} cannot be read ({error.strerror}): check its disk and permissions."
        ) from None
    found = RunVersion(run / generation, run / generation / findings)
    for path in (found.measurements, found.findings):
        if not path.exists():
            missing = path.relative_to(run)
            raise DamagedError(f"{pointer} names {missing}, which does not exist", AGAIN)
    return found


def _read_if_whole(run: Path) -> RunVersion | None:
    with contextlib.suppress(DamagedError):
        return read_pointer(run)
    return None


def find_whole(run: Path) -> RunVersion | None:
    """Return the newest generation whose databases are whole, with its newest whole findings."""
    for folder in reversed(list_versions(run)):
        if digests.find_damage(folder / MEASUREMENTS):
            continue
        for findings in reversed(list_findings(folder)):
            if not digests.find_damage(findings):
                return RunVersion(folder, findings, named=False)
    return None


def list_versions(run: Path) -> list[Path]:
    """Return the folders of finished generations, oldest first."""
    return sorted((p for p in run.glob("gen-*") if GENERATION.fullmatch(p.name)), key=_number)


def list_findings(folder: Path) -> list[Path]:
    """Return the findings files of a generation, oldest first."""
    return sorted((p for p in folder.iterdir() if FINDINGS.fullmatch(p.name)), key=_number)


def list_published(run: Path) -> list[RunVersion]:
    """Return what is still there of a run, oldest first: each findings file of each generation."""
    folders = list_versions(run)
    return [RunVersion(folder, file) for folder in folders for file in list_findings(folder)]


def find_version(place: Path) -> tuple[Path, RunVersion]:
    """Return the run and the generation that a path names: RUN the published one, RUN/gen-0003 that
    with its newest findings, RUN/gen-0003/findings-0001.duckdb that with these.

    Raises RunError where it is not there, or is there no more.
    """
    named = GENERATION.fullmatch(place.name) or FINDINGS.fullmatch(place.name)
    if not named or (place / POINTER).exists():  # a run may have the name of a generation
        return place, require(place)
    run = place.parent if GENERATION.fullmatch(place.name) else place.parent.parent
    kept = list_published(run)
    found = [one for one in kept if place in (one.path, one.findings)]
    if not found:
        names = ", ".join(one.name for one in kept) or "none"
        raise RunError(f"{run} has no {place.relative_to(run)}. Available: {names}.")
    return run, found[-1]


def require(run: Path) -> RunVersion:
    """Return the published generation for reading; raises RunError that says how to make one."""
    if not run.is_dir():
        refuse_special(run)
        raise RunError(
            f"There is no run at {run}: create it with `audit scan SOURCE --out "
            f"{run}`.{nearest_path(run)}"
        )
    generation = current(run)
    if generation is None:
        raise RunError(f"{run} has no finished scan yet: run `audit scan SOURCE --out {run}`.")
    return generation


def require_whole(run: Path) -> RunVersion:
    """Return the generation to derive findings from, its measurements compared with their digest.

    Its own findings may be damaged or gone. Never an older one in place of damaged measurements:
    its findings would be about another state of the dataset. Raises RunError as `require` does.
    """
    found, named = find_reusable(run), _read_if_whole(run)
    if found is None or (named is not None and _number(named.path) > _number(found.path)):
        named = require(run)
        damage = digests.find_damage(named.measurements)
        raise DamagedError(f"{named.measurements} is damaged ({damage})", AGAIN)
    return found


def find_reusable(run: Path) -> RunVersion | None:
    """Return the generation whose rows a new scan may take over, None if there is none.

    The newest whose measurements are whole: its findings may be damaged or gone.
    """
    named = _read_if_whole(run)
    for folder in reversed(list_versions(run)):
        if digests.find_damage(folder / MEASUREMENTS):
            continue
        if named is not None and named.path == folder:
            return named
        findings = [folder / "findings-0001.duckdb", *list_findings(folder)]
        return RunVersion(folder, findings[-1], named=False)
    return None


def open_run(run: Path) -> Store:
    """Open the current generation for reading: its tables, the `images` view and the findings."""
    return open_version(require(run))


def open_version(generation: RunVersion) -> Store:
    """Open one generation for reading, whatever is published meanwhile."""
    paths = {"measurements": generation.measurements, "judged": generation.findings}
    return _with_both(Store.memory(), paths)


_held: dict[str, Store] = {}  # by the key of a generation
_holding = threading.Lock()


def hold(key: str, generation: RunVersion) -> Store:
    """Open a generation whose databases others in this process use too (`open_beside`), until it is
    let go.
    """
    store = open_version(generation)
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


def open_beside(generation: RunVersion) -> Store:
    """Open a generation as `open_version` does: in a fiftieth of the time where it is held."""
    with contextlib.suppress(OSError):
        if store := open_held(generation.key):
            return store
    return open_version(generation)


def open_for_users(
    generation: RunVersion, tags: pa.Table | None = None, threads: int | None = None
) -> Store:
    """Open a generation for SQL that a user wrote: it reads the run and nothing else.

    The measurements are the connection's own database, opened read-only: in a database of memory
    a user could attach the same file again, for writing. `tags` can be read as a table; with
    `threads`, DuckDB uses so many, and `MAX_SPILL` of the disk.
    """
    store = _with_both(Store.open(generation.measurements), {"judged": generation.findings})
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
    """Return the folder where the next generation is built, making it if absent."""
    folder = run / "building"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{run} cannot be written ({error.strerror}): choose another path with --out."
        ) from None
    return folder


def discard_building(run: Path) -> None:
    """Remove an unfinished generation."""
    _remove_generation(run / "building")


def _remove_generation(folder: Path) -> None:
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


def is_run_folder(run: Path) -> bool:
    """Return whether a folder holds a scan, finished or not, or a CURRENT that a scan wrote."""
    for folder in (run / "building", *list_versions(run)):
        with (
            contextlib.suppress(OSError),
            open(folder / MEASUREMENTS, "rb", opener=regular) as file,
        ):
            if file.read(12)[8:] == b"DUCK":
                return True
    with contextlib.suppress(OSError, DamagedError):
        return "generation" in digests.read_document(run / POINTER)
    return False


def publish(run: Path, findings: str) -> RunVersion:
    """Make `building/` the current generation: sync, seal, rename, replace CURRENT, prune."""
    built = run / "building"
    for path in built.iterdir():
        digests.sync(path)
    (built / digests.SEAL).unlink(missing_ok=True)
    digests.write_seal(built)
    return publish_sealed(run, findings)


def publish_sealed(run: Path, findings: str) -> RunVersion:
    """Publish a `building/` that is sealed: rename, replace CURRENT, prune."""
    target = run / f"gen-{1 + max(map(_number, run.glob('gen-*')), default=0):04d}"
    (run / "building").rename(target)
    found = RunVersion(target, target / findings)
    make_current(run, found)
    _prune(list_versions(run), keep=target, n=_kept(run))
    return found


def make_current(run: Path, generation: RunVersion) -> None:
    """Replace CURRENT, atomically and on disk."""
    digests.sync(run)  # what it names, before it is named
    named = {"generation": generation.path.name, "findings": generation.findings.name}
    digests.write_document(run / POINTER, {"schema": SCHEMA_VERSION, **named})


def next_findings(generation: RunVersion) -> str:
    """Return the name of the generation's next findings file."""
    taken = [_number(path) for path in generation.path.glob("findings-*.duckdb")]
    return f"findings-{1 + max(taken, default=0):04d}.duckdb"


def publish_findings(run: Path, generation: RunVersion, built: Path, name: str) -> RunVersion:
    """Make a re-check's findings current: sync, rename, seal, replace CURRENT, prune."""
    digests.sync(built)
    target = generation.path / name
    built.rename(target)
    digests.write_seal(generation.path)
    found = RunVersion(generation.path, target)
    make_current(run, found)
    files, n = list_findings(generation.path), _kept(run)
    # out of the seal first: what the seal names and is missing would count as damage
    digests.write_seal(generation.path, without=[p.name for p in files[:-n]])
    _prune(files, keep=target, n=n)
    return found


def _number(path: Path) -> int:
    match = re.search(r"-(\d+)", path.name)
    return int(match[1]) if match else 0


def keep_versions(run: Path, n: int) -> None:
    """Say how many generations of a run, and findings of each, stay from now on."""
    if n != _kept(run) and run.is_dir():
        digests.write_synced(run / KEEP, f"{n}\n".encode())


def _kept(run: Path) -> int:
    try:
        return max(2, int(read_regular(run / KEEP)))
    except (OSError, ValueError):
        return KEPT


def _prune(paths: list[Path], keep: Path, n: int) -> None:
    for path in paths[:-n]:
        if path == keep:
            continue
        if path.is_dir():
            _remove_generation(path)
        else:
            # Windows refuses to unlink a file that a reader holds open; the next scan tries again.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
