"""A plan carried out: a new folder of copies or links, whole files only, no source changed.

Every file is made under another name in its folder, synced and renamed, so that a kill leaves no
half-written one; the receipt says where to go on. The content of each is compared with its hash
while it is copied, and before anything is made where size or time changed since the scan. Cost: a
read and a write of each file, and a sync of each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import blake3
import polars as pl

from audit.applying.plan_document import DatasetPlan, PlannedFile
from audit.applying.receipt import Receipt, open_receipt, receipt_path
from audit.applying.targets import RECEIPT_FOLDER, case_clash
from audit.errors import MachineError, UsageError
from audit.picture.decode import DecodeError, Limits
from audit.picture.reading import read_bytes
from audit.review.export import neutralise
from audit.sources.paths import file_of, path_of, reading_place

How = Literal["copy", "hardlink", "symlink"]
HOWS: tuple[How, ...] = ("copy", "hardlink", "symlink")
MANIFEST_NAME = "manifest.csv"
BATCH = 64  # files between two syncs of the receipt
SHOWN = 3  # names in a sentence
ANY_SIZE = Limits(max_bytes=1 << 40)  # what was measured may be copied
_PIECE = 1 << 20  # bytes
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
    """Make the dataset of a plan in `folder`; goes on where an earlier call was stopped.

    `dry_run` makes nothing and says what would be made. Raises UsageError where the dataset is not
    as it was scanned or the folder is not empty, MachineError where the disk has no room.
    """
    _refuse_inside(plan, folder)
    _refuse_links_into_packs(plan.files, how)
    made_before = _claimed(plan, folder)
    _refuse_edited_sources(plan.files)
    left = [file for file in plan.files if file.target not in made_before]
    result = ApplyResult(folder, len(left), len(made_before), sum(f.n_bytes for f in left))
    if how == "copy":
        _refuse_full(folder, result.n_bytes)
    if dry_run:
        return result
    made_folder = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with open_receipt(folder, plan.identity, how, made_folder) as receipt:
        _claim(plan, folder, receipt, how)
        maker = _Maker(folder, how, receipt)
        done = len(plan.files) - len(left)
        for start in range(0, len(left), BATCH):
            maker.make_batch(left[start : start + BATCH])
            advance(min(done + start + BATCH, len(plan.files)), len(plan.files))
        _write_manifest(plan, maker)
    return result


# ---- what has to hold first ----


def _refuse_inside(plan: DatasetPlan, folder: Path) -> None:
    place = Path(os.path.realpath(folder))
    roots = [Path(os.path.realpath(r)) for uri in plan.roots.values() if (r := path_of(uri))]
    for root in [*roots, Path(plan.run)]:
        if place.is_relative_to(root) or root.is_relative_to(place):
            raise UsageError(
                f"{folder} and {root}, which is read, lie one in the other: choose a folder "
                "outside of it."
            )


def _refuse_links_into_packs(files: Sequence[PlannedFile], how: How) -> None:
    if how != "copy" and any(path_of(file.source) is None for file in files):
        raise UsageError("Pictures in packs and stores can be copied, not linked: use --copy.")


def _claimed(plan: DatasetPlan, folder: Path) -> set[str]:
    """Return the targets that are done; raises UsageError for a folder with other things in it."""
    if not folder.exists():
        return set()
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose a folder.")
    if receipt_path(folder).is_file():
        with open_receipt(folder) as receipt:
            _refuse_other_plan(plan, folder, receipt)
            there = {t for t in receipt.done if os.path.lexists(folder / t)}
            return there & {file.target for file in plan.files}
    if [name for name in os.listdir(folder) if name != RECEIPT_FOLDER]:
        raise UsageError(f"{folder} is not empty: choose an empty or a new folder.")
    return set()


def _refuse_other_plan(plan: DatasetPlan, folder: Path, receipt: Receipt) -> None:
    if receipt.plan != plan.identity:
        raise UsageError(
            f"{folder} was made from another plan: choose a new folder, or take the earlier one "
            f"back with `audit apply --rollback {folder}`."
        )


def _claim(plan: DatasetPlan, folder: Path, receipt: Receipt, how: How) -> None:
    _refuse_other_plan(plan, folder, receipt)
    if receipt.how != how:
        raise UsageError(f"{folder} was begun with --{receipt.how}: go on with that.")
    probe = folder / RECEIPT_FOLDER / "Case"
    probe.touch()
    folds = (folder / RECEIPT_FOLDER / "cASE").exists()
    probe.unlink()
    if folds and (clash := case_clash(file.target for file in plan.files)):
        raise UsageError(
            f"The disk of {folder} takes {clash[0]} and {clash[1]} for one name: choose a folder "
            "on another disk, or relabel until the names differ by more than case."
        )


def _refuse_edited_sources(files: Sequence[PlannedFile]) -> None:
    """Raise UsageError for sources that are gone, or whose content is not that of the plan.

    Only those whose size or time changed are read.
    """
    wrong = [file for file in files if not _is_as_planned(file)]
    if wrong:
        raise _edited(wrong)


def _edited(wrong: Sequence[PlannedFile]) -> UsageError:
    names = ", ".join(file.source for file in wrong[:SHOWN])
    more = f" and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
    return UsageError(
        f"{len(wrong):,} {'file is' if len(wrong) == 1 else 'files are'} not as planned ({names}"
        f"{more}): scan the dataset again into its run with `audit scan`, then write the plan "
        "again with `audit export RUN --plan`."
    )


def _is_as_planned(file: PlannedFile) -> bool:
    path = path_of(file.source)
    try:
        if path is None:
            return _is_inside_as_planned(file)
        status = os.stat(path)
        if (status.st_size, status.st_mtime_ns) == (file.n_bytes, file.mtime_ns):
            return True
        return content_of(path) == file.content_hash
    except OSError:
        return False


def _is_inside_as_planned(file: PlannedFile) -> bool:
    """Say so of a picture in a pack, whose pack is as old as it was, or that is read."""
    pack = file_of(file.source)
    if pack is not None and os.stat(pack).st_mtime_ns == file.mtime_ns:
        return True
    data = _read_inside(file)
    return data is not None and blake3.blake3(data).hexdigest() == file.content_hash


def _read_inside(file: PlannedFile) -> bytes | None:
    """Return the bytes of a picture in a pack or a store, None where they cannot be read."""
    try:
        return read_bytes(reading_place(file.source) or "", ANY_SIZE)
    except DecodeError as error:
        return b"" if error.kind == "empty" else None


def content_of(path: str | os.PathLike[str]) -> str:
    """Return the BLAKE3-256 of a file, hex."""
    digest = blake3.blake3()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _refuse_full(folder: Path, n_bytes: int) -> None:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    if n_bytes > free:
        raise MachineError(
            f"{folder} needs {n_bytes:,} bytes and its disk has {free:,} free: free some space, "
            "choose another disk, or use --hardlink or --symlink."
        )


# ---- making files ----


class _Maker:
    """Makes files below a folder, and keeps its receipt."""

    def __init__(self, folder: Path, how: How, receipt: Receipt) -> None:
        self.folder, self._how, self.receipt = folder, how, receipt
        self._real: set[Path] = {folder}

    def make_batch(self, files: Sequence[PlannedFile]) -> None:
        """Make files that are whole on the disk before the receipt says so."""
        named = [(file.target, file.content_hash) for file in files]
        self.receipt.begin([pair for pair in named if pair[0] not in self.receipt.begun])
        for file in files:
            self.make(file)
        _sync_folders({(self.folder / file.target).parent for file in files})
        self.receipt.finish(named)

    def make(self, file: PlannedFile) -> None:
        """Make one file; one that is there already has to be this one."""
        place = self.folder / file.target
        self._enter(place.parent)
        if os.path.lexists(place):
            if not is_made(place, file.content_hash):
                raise UsageError(f"{place} is not what the plan makes: take it away.")
            return
        part = part_of(place)
        part.unlink(missing_ok=True)
        source = path_of(file.source)
        if source is None:
            copied = _write_inside(file, part)
        elif self._how == "copy":
            copied = _copy(source, part)
        else:
            copied = content_of(source)
        if copied != file.content_hash:
            part.unlink(missing_ok=True)
            raise _edited([file])
        if source is not None and self._how == "hardlink":
            _link(source, part)
        elif source is not None and self._how == "symlink":
            os.symlink(os.path.realpath(source), part)
        os.rename(part, place)

    def _enter(self, folder: Path) -> None:
        """Make the folders down to `folder`; none of them may be a link that leads out."""
        if folder in self._real:
            return
        self._enter(folder.parent)
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise UsageError(f"{folder} is in the way and no folder: take it away.")
        folder.mkdir(exist_ok=True)
        self._real.add(folder)


def part_of(place: Path) -> Path:
    """Return the name under which a file is made."""
    digest = blake3.blake3(os.fsencode(place.name)).hexdigest()[:16]
    return place.with_name(f".{digest}.part")


def is_made(place: Path, content_hash: str) -> bool:
    """Say whether a file or link has the content that was planned."""
    try:
        return content_of(place) == content_hash
    except OSError:
        return False


def _copy(source: str, part: Path) -> str:
    """Copy a file with its times and sync it; returns the hash of what was copied."""
    digest = blake3.blake3()
    with open(source, "rb") as reader, part.open("xb") as writer:
        while piece := reader.read(_PIECE):
            digest.update(piece)
            writer.write(piece)
        status = os.fstat(reader.fileno())
        os.utime(writer.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()


def _write_inside(file: PlannedFile, part: Path) -> str:
    """Write a picture of a pack or a store as a file and sync it; returns the hash of its bytes."""
    data = _read_inside(file)
    if data is None:
        raise _edited([file])
    with part.open("xb") as writer:
        writer.write(data)
        writer.flush()
        os.fsync(writer.fileno())
    return blake3.blake3(data).hexdigest()


def _link(source: str, part: Path) -> None:
    try:
        os.link(os.path.realpath(source), part)
    except OSError as error:
        raise UsageError(
            f"{source} cannot be linked from {part.parent} ({error.strerror}): a hard link stays "
            "on one disk; use --copy or --symlink."
        ) from None


def _sync_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _write_manifest(plan: DatasetPlan, maker: _Maker) -> None:
    """Write the table of all samples beside them, with their ids of before."""
    if any(file.target == MANIFEST_NAME for file in plan.files):
        return
    place = maker.folder / MANIFEST_NAME
    data = manifest_text(plan).encode()
    content = blake3.blake3(data).hexdigest()
    if not os.path.lexists(place):
        maker.receipt.begin([(MANIFEST_NAME, content)])
        part = part_of(place)
        with part.open("wb") as writer:
            writer.write(data)
            writer.flush()
            os.fsync(writer.fileno())
        os.rename(part, place)
        _sync_folders([maker.folder])
    maker.receipt.finish([(MANIFEST_NAME, content)])


def manifest_text(plan: DatasetPlan) -> str:
    """Return the samples as CSV that `audit scan` reads: path, id, split, label, group."""
    cells = ((s.target, s.id, s.split, s.label, s.group) for s in plan.samples)
    columns = dict.fromkeys(("path", "id", "split", "label", "group"), pl.String)
    return neutralise(pl.DataFrame(list(cells), columns, orient="row")).write_csv()
