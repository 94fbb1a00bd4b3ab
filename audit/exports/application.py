"""A plan carried out: a new folder of copies or links, no source changed.

The files are made in a hidden folder (`.NAME.preflight-part`, or `.preflight-part` in an empty
folder), which gets its name when all are whole. After a stop the next call continues. Each file is
compared with its hash while it is copied. `DIR/.preflight/plan.json` is the plan.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import blake3
import polars as pl

from audit.errors import LockedError, MachineError, UsageError
from audit.exports.annotation_export import RECORD, SCHEMA, earlier_files
from audit.exports.planning import (
    PLAN_FOLDER,
    DatasetPlan,
    PlannedFile,
    case_clash,
    file_digest,
)
from audit.picture.decode import DecodeError, Limits, starts_as_image
from audit.picture.reading import read_bytes
from audit.run.synced_files import DRAFT, sync, write_synced
from audit.sources.paths import PART_FOLDER, file_of, leads_outside, path_of, reading_place
from audit.sources.tables import neutralise
from dataset_preflight.foundation.files import read_regular, real, regular

How = Literal["copy", "hardlink", "symlink"]
HOWS: tuple[How, ...] = ("copy", "hardlink", "symlink")
MANIFEST = "manifest.csv"
PLAN = f"{PLAN_FOLDER}/plan.json"
BATCH_FILES = 64  # between two reports of progress
SHOWN_NAMES = 3  # in a sentence
MAX_NAME_BYTES = 200
ANY_SIZE = Limits(max_bytes=1 << 40)  # what was measured may be copied
PIECE_BYTES = 1 << 20
Advance = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What an apply made: `made` files now, `there` from before, `n_bytes` of those made now."""

    folder: Path
    made: int
    there: int
    n_bytes: int


def apply_plan(
    plan: DatasetPlan,
    folder: Path,
    how: How = "copy",
    *,
    dry_run: bool = False,
    advance: Advance = lambda done, total: None,
) -> ApplyResult:
    """Make the dataset of a plan in `folder`; continues where an earlier call was stopped.

    A folder that has it already is compared with the plan. `dry_run` makes nothing and returns what
    would be made. Raises UsageError where the dataset is not as it was scanned or the folder is
    another's, MachineError where the disk has no room.
    """
    _refuse_inside(plan, folder)
    if how != "copy" and any(path_of(file.source) is None for file in plan.files):
        raise UsageError("Images in packs and stores can be copied, not linked: leave out --link.")
    target = _Target(plan, real(folder), how)
    if target.is_finished():
        return ApplyResult(folder, 0, target.compare_finished(), 0)
    if wrong := [file for file in plan.files if not _is_as_planned(file)]:
        raise _edited(wrong)
    _refuse_strange_sources(plan)
    left = target.missing(read=dry_run)
    n_bytes = sum(max(file.n_bytes, 0) for file in left)
    if how == "copy":
        _refuse_full(target.folder, n_bytes)
    if dry_run:
        return ApplyResult(folder, len(left), len(plan.files) - len(left), n_bytes)
    with target.hold():
        if target.is_finished():  # by another call, meanwhile
            return ApplyResult(folder, 0, target.compare_finished(), 0)
        target.begin()
        left = target.missing()
        for start in range(0, len(left), BATCH_FILES):
            for file in left[start : start + BATCH_FILES]:
                target.make(file)
            made = len(plan.files) - len(left) + start + BATCH_FILES
            advance(min(made, len(plan.files)), len(plan.files))
        target.write_manifest()
        target.finish()
    n_bytes = sum(max(file.n_bytes, 0) for file in left)
    return ApplyResult(folder, len(left), len(plan.files) - len(left), n_bytes)


def _refuse_inside(plan: DatasetPlan, folder: Path) -> None:
    place = real(folder)
    roots = [Path(os.path.realpath(r)) for uri in plan.roots.values() if (r := path_of(uri))]
    for root in [*roots, Path(plan.run)]:
        if place.is_relative_to(root) or root.is_relative_to(place):
            raise UsageError(
                f"{folder} overlaps {root}, which is read: choose a folder outside of {root}."
            )


def _edited(wrong: Sequence[PlannedFile]) -> UsageError:
    """Return the sentence for sources that are gone, or whose content is not that of the plan."""
    return UsageError(
        f"{_listed(wrong, 'not as planned')}: scan the dataset again into its run with `audit "
        "scan`, then write the plan again with `audit export RUN --plan`."
    )


def _refuse_strange_sources(plan: DatasetPlan) -> None:
    """Raise UsageError for files that are no export's, and for links that lead out since."""
    read_record = cache(lambda folder: earlier_files(folder / RECORD, SCHEMA))
    strange = list[PlannedFile]()
    for file in plan.files:
        path, is_strange = path_of(file.source) or "", False
        if file.id is None:
            below = f"/{file.target}"
            known = read_record(Path(path.removesuffix(below))) if path.endswith(below) else {}
            is_strange = file.target not in known
        elif path:  # an image in a pack is checked when it is read
            with open(path, "rb", opener=regular) as reader:
                is_strange = not starts_as_image(reader)
        strange += [file] if is_strange else []
    if strange:
        raise UsageError(
            f"{_listed(strange, 'neither a readable image nor an annotation of `audit export`')}: "
            "write the plan again with `audit export RUN --plan`."
        )
    if sum(leads_outside(f.source, plan.roots) for f in plan.samples) > plan.outside_links:
        raise UsageError(
            f"More links lead out of the dataset than the {plan.outside_links:,} links of the "
            "plan: scan it again, then write the plan again with `audit export RUN --plan`."
        )


def _listed(files: Sequence[PlannedFile], fault: str) -> str:
    names = ", ".join(file.source for file in files[:SHOWN_NAMES])
    more = f" and {len(files) - SHOWN_NAMES:,} more" if len(files) > SHOWN_NAMES else ""
    verb = "file is" if len(files) == 1 else "files are"
    return f"{len(files):,} {verb} {fault} ({names}{more})"


def _is_as_planned(file: PlannedFile) -> bool:
    """Say whether a source is what it was; only one whose size or time changed is read."""
    path = path_of(file.source)
    try:
        if path is not None:
            status = os.stat(path)
            as_scanned = (status.st_size, status.st_mtime_ns) == (file.n_bytes, file.mtime_ns)
            return as_scanned or file_digest(Path(path)) == file.content_hash
        pack = file_of(file.source)
        if pack is not None and os.stat(pack).st_mtime_ns == file.mtime_ns:
            return True
        data = _read_inside(file)
        return data is not None and blake3.blake3(data).hexdigest() == file.content_hash
    except OSError:
        return False


def _read_inside(file: PlannedFile) -> bytes | None:
    """Return the bytes of a picture in a pack or a store, None where they cannot be read."""
    try:
        return read_bytes(reading_place(file.source), ANY_SIZE)
    except DecodeError as error:
        return b"" if error.kind == "empty" else None


def _refuse_full(folder: Path, n_bytes: int) -> None:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    if n_bytes > free:
        raise MachineError(
            f"{folder} needs {n_bytes:,} bytes and its disk has {free:,} free: free some space, "
            "choose another disk, or use --link."
        )


class _Target:
    """The new folder of a plan: `folder` when it is whole, `part` until then."""

    def __init__(self, plan: DatasetPlan, folder: Path, how: How) -> None:
        """Choose where the files are made; raises UsageError for a folder with other things."""
        self.plan, self.folder, self.how = plan, folder, how
        self._is_inside = os.path.lexists(folder)
        self.part = folder / PART_FOLDER
        if not self._is_inside:
            name = os.fsencode(folder.name)[:MAX_NAME_BYTES].decode(errors="ignore")
            self.part = folder.with_name(f".{name}.preflight-part")
        elif not folder.is_dir():
            raise UsageError(f"{folder} is a file: choose a folder.")
        elif not self.is_finished() and set(os.listdir(folder)) - self._movable():
            raise UsageError(f"{folder} is not empty: choose an empty or a new folder.")
        for place in (self.part, folder):
            self._refuse_other_plan(place)
        self._folders = {self.part}

    def _movable(self) -> set[str]:
        """Return the names that an earlier call may have moved up into the folder."""
        names = {file.target.split("/")[0] for file in self.plan.files} | {MANIFEST}
        return {PART_FOLDER} | (names if (self.part / PLAN).is_file() else set())

    def _refuse_other_plan(self, place: Path) -> None:
        try:
            if read_regular(place / PLAN).decode() == self.plan.document():
                return
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError):
            pass
        raise UsageError(f"{place} was made from another plan: delete it, or choose a new folder.")

    def is_finished(self) -> bool:
        """Return whether the folder has its plan, which comes last."""
        return (self.folder / PLAN).is_file()

    def compare_finished(self) -> int:
        """Return how many files the finished folder has; raises UsageError where one differs."""
        wrong = [file for file in self.plan.files if not self._is_made(self.folder, file)]
        if wrong:
            names = ", ".join(file.target for file in wrong[:SHOWN_NAMES])
            raise UsageError(
                f"{self.folder} has the plan, but {len(wrong):,} of its files are missing or "
                f"differ ({names}): delete the folder and run the command again."
            )
        with contextlib.suppress(OSError):  # left by a stop in the last step
            self.part.rmdir()
        return len(self.plan.files)

    def missing(self, *, read: bool = True) -> list[PlannedFile]:
        """Return the files that are not whole yet, in the part or moved up from it.

        Unless they are to be `read`, a file of the right size counts as whole.
        """
        places = (self.part, self.folder) if self._is_inside else (self.part,)
        return [f for f in self.plan.files if not any(self._is_made(p, f, read) for p in places)]

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the part, which is made where it is absent; raises LockedError."""
        self.part.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                descriptor = os.open(self.part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, FileNotFoundError):  # it may just have got its last name
                raise LockedError(
                    f"{self.folder} is being written by another `audit apply`: wait for it, or "
                    "stop it."
                ) from None
            yield

    def begin(self) -> None:
        """Write the plan into the part; raises UsageError for what is not of it."""
        known = {self.part / name for name in (PLAN, f"{PLAN_FOLDER}/Case", MANIFEST)}
        known |= {self.part / file.target for file in self.plan.files}
        known |= {self.part / f".{MANIFEST}{DRAFT}", self.part / PLAN_FOLDER / f".plan.json{DRAFT}"}
        known |= set(map(_draft_of, known))
        for folder, _, names in os.walk(self.part):
            if strange := sorted({Path(folder, name) for name in names} - known):
                raise UsageError(f"{strange[0]} is not of the plan: remove it.")
        self._enter(self.part / PLAN_FOLDER)
        probe = self.part / PLAN_FOLDER / "Case"
        probe.touch()
        folds = (self.part / PLAN_FOLDER / "cASE").exists()
        probe.unlink()
        if folds and (clash := case_clash(file.target for file in self.plan.files)):
            raise UsageError(
                f"The disk of {self.folder} treats {clash[0]} and {clash[1]} as one name: choose a "
                "folder on another disk, or relabel until the names differ by more than case."
            )
        write_synced(self.part / PLAN, self.plan.document().encode())

    def make(self, file: PlannedFile) -> None:
        """Make one file under a draft name, and give it its own when it is whole."""
        place = self.part / file.target
        self._enter(place.parent)
        if place.is_dir() and not place.is_symlink():
            raise UsageError(f"{place} is not of the plan: remove it.")
        draft = _draft_of(place)
        draft.unlink(missing_ok=True)
        source = path_of(file.source)
        if source is None:
            copied = _write_inside(file, draft)
        elif self.how == "copy":
            copied = _copy(source, draft)
        else:
            copied = file_digest(Path(source))
        if copied != file.content_hash:
            draft.unlink(missing_ok=True)
            raise _edited([file])
        if source is not None and self.how == "hardlink":
            try:
                os.link(os.path.realpath(source), draft)
            except OSError as error:
                raise UsageError(
                    f"{source} cannot be linked from {place.parent} ({error.strerror}): a hard "
                    "link stays on one disk; use --link symbolic, or copy without --link."
                ) from None
        elif source is not None and self.how == "symlink":
            os.symlink(os.path.realpath(source), draft)
        os.replace(draft, place)

    def _is_made(self, folder: Path, file: PlannedFile, read: bool = True) -> bool:
        """Return whether a folder has a file with its content, copied or linked as asked for."""
        place, source = folder / file.target, path_of(file.source)
        try:
            status = os.stat(place)
            made = "symlink" if place.is_symlink() else "copy"
            with contextlib.suppress(OSError):  # a source that is gone
                if made == "copy" and source and os.path.samestat(status, os.stat(source)):
                    made = "hardlink"
            if made != self.how or file.n_bytes not in (-1, status.st_size):
                return False
            return not read or file_digest(place) == file.content_hash
        except OSError:
            return False

    def _enter(self, folder: Path) -> None:
        """Make the folders down to `folder`; none of them may be a link that leads out."""
        if folder in self._folders:
            return
        self._enter(folder.parent)
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise UsageError(f"{folder} is not a folder: remove it.")
        folder.mkdir(exist_ok=True)
        self._folders.add(folder)

    def write_manifest(self) -> None:
        """Write the table of all samples beside them, with their former ids, for `audit scan`.

        Its columns: path, id, split, label, group.
        """
        if any(file.target == MANIFEST for file in self.plan.files):
            return
        cells = ((s.target, s.id, s.split, s.label, s.group) for s in self.plan.samples)
        columns = dict.fromkeys(("path", "id", "split", "label", "group"), pl.String)
        table = neutralise(pl.DataFrame(list(cells), columns, orient="row"))
        data, moved = table.write_csv().encode(), self.folder / MANIFEST
        if not (moved.is_file() and moved.read_bytes() == data):
            write_synced(self.part / MANIFEST, data)

    def finish(self) -> None:
        """Give the part, which is whole, the name of the folder."""
        for folder, _, _ in os.walk(self.part):
            sync(Path(folder))
        if not self._is_inside:
            self._rename(self.part, self.folder)
            sync(self.folder.parent)
            return
        for name in sorted(os.listdir(self.part), key=lambda name: (name == PLAN_FOLDER, name)):
            sync(self.folder)  # the plan is the last
            self._rename(self.part / name, self.folder / name)
        self.part.rmdir()
        sync(self.folder)

    @staticmethod
    def _rename(part: Path, place: Path) -> None:
        if os.path.lexists(place):
            raise UsageError(f"{place} is in the way: move it away, then run the command again.")
        os.rename(part, place)


def _draft_of(place: Path) -> Path:
    """Return the name under which a file is made."""
    digest = blake3.blake3(os.fsencode(place.name)).hexdigest()[:16]
    return place.with_name(f".{digest}.part")


def _copy(source: str, draft: Path) -> str:
    """Copy a file with its times and sync it; returns the hash of what was copied."""
    digest = blake3.blake3()
    with open(source, "rb", opener=regular) as reader, draft.open("xb") as writer:
        while piece := reader.read(PIECE_BYTES):
            digest.update(piece)
            writer.write(piece)
        status = os.fstat(reader.fileno())
        os.utime(writer.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    sync(draft)
    return digest.hexdigest()


def _write_inside(file: PlannedFile, draft: Path) -> str:
    """Write a picture of a pack or a store as a file and sync it; returns the hash of its bytes."""
    data = _read_inside(file)
    if data is None or not starts_as_image(io.BytesIO(data)):
        raise _edited([file])
    draft.write_bytes(data)
    sync(draft)
    return blake3.blake3(data).hexdigest()
