"""A plan carried out: a new folder of copies or links, whole files only, no source changed.

Every file is made under another name in its folder, synced and renamed, so that a kill leaves no
half-written one; the receipt says where to go on. The content of each is compared with its hash
while it is copied, and before anything is made where size or time changed since the scan. Cost: a
read and a write of each file, and a sync of each.

`DIR/.preflight/receipt.jsonl` says enough to go on after a kill and to take everything back. Before
a batch of files is made, their names are written down; after it, that they are whole. The last line
may be cut where the machine died: it then says nothing. One writer at a time holds its lock. Taken
back, exactly what was made goes, and nothing that was edited or added since.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import blake3
import polars as pl

from audit.errors import LockedError, MachineError, UsageError
from audit.exports.annotation_export import RECORD, SCHEMA, earlier_files
from audit.exports.planning import (
    RECEIPT_FOLDER,
    DatasetPlan,
    PlannedFile,
    case_clash,
    refuse_strange,
)
from audit.picture.decode import DecodeError, Limits, starts_as_image
from audit.picture.reading import read_bytes
from audit.run.digests import file_digest, sync
from audit.sources.paths import file_of, leads_outside, path_of, reading_place
from audit.sources.tables import neutralise
from preflight.files import leads_out, regular

How = Literal["copy", "hardlink", "symlink"]
HOWS: tuple[How, ...] = ("copy", "hardlink", "symlink")
OPTIONS = {
    "copy": "without --link",
    "hardlink": "with --link hard",
    "symlink": "with --link symbolic",
}
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
    if how != "copy" and any(path_of(file.source) is None for file in plan.files):
        raise UsageError("Images in packs and stores can be copied, not linked: leave out --link.")
    made_before = _claimed(plan, folder)
    if wrong := [file for file in plan.files if not _is_as_planned(file)]:
        raise _edited(wrong)
    _refuse_strange_sources(plan)
    left = [file for file in plan.files if file.target not in made_before]
    result = ApplyResult(folder, len(left), len(made_before), sum(max(f.n_bytes, 0) for f in left))
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
                f"{folder} overlaps {root}, which is read: choose a folder outside of {root}."
            )


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
            f"{folder} was made from another plan: choose a new folder, or remove the earlier "
            f"copy with `audit apply --rollback {folder}`."
        )


def _claim(plan: DatasetPlan, folder: Path, receipt: Receipt, how: How) -> None:
    _refuse_other_plan(plan, folder, receipt)
    if receipt.how != how:
        raise UsageError(f"{folder} was started {OPTIONS[receipt.how]}: use the same option again.")
    probe = folder / RECEIPT_FOLDER / "Case"
    probe.touch()
    folds = (folder / RECEIPT_FOLDER / "cASE").exists()
    probe.unlink()
    if folds and (clash := case_clash(file.target for file in plan.files)):
        raise UsageError(
            f"The disk of {folder} treats {clash[0]} and {clash[1]} as one name: choose a folder "
            "on another disk, or relabel until the names differ by more than case."
        )


def _edited(wrong: Sequence[PlannedFile]) -> UsageError:
    """Return the sentence for sources that are gone, or whose content is not that of the plan."""
    return UsageError(
        f"{_listed(wrong, 'not as planned')}: scan the dataset again into its run with `audit "
        "scan`, then write the plan again with `audit export RUN --plan`."
    )


def _refuse_strange_sources(plan: DatasetPlan) -> None:
    """Raise UsageError for files that are no export's, and for links that lead out since."""
    records: dict[Path, Mapping[str, str]] = {}
    strange = [
        file
        for file in plan.files
        if not (_is_annotation(file, records) if file.id is None else _is_image(file))
    ]
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


def _is_annotation(file: PlannedFile, records: dict[Path, Mapping[str, str]]) -> bool:
    path = path_of(file.source) or ""
    folder = Path(path.removesuffix(f"/{file.target}"))
    if folder not in records:
        records[folder] = earlier_files(folder / RECORD, SCHEMA)
    return path.endswith(f"/{file.target}") and file.target in records[folder]


def _is_image(file: PlannedFile) -> bool:
    """Say whether a file starts as an image; one in a pack is checked when it is read."""
    path = path_of(file.source)
    if path is None:
        return True
    with open(path, "rb", opener=regular) as reader:
        return starts_as_image(reader)


def _listed(files: Sequence[PlannedFile], fault: str) -> str:
    names = ", ".join(file.source for file in files[:SHOWN])
    more = f" and {len(files) - SHOWN:,} more" if len(files) > SHOWN else ""
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


# ---- making files ----


class _Maker:
    """Makes files below a folder, and keeps its receipt."""

    def __init__(self, folder: Path, how: How, receipt: Receipt) -> None:
        self.folder, self._how, self.receipt = folder, how, receipt
        self._real: set[Path] = {folder}

    def make_batch(self, files: Sequence[PlannedFile]) -> None:
        """Make files that are whole on the disk before the receipt says so."""
        named = [(file.target, file.content_hash) for file in files]
        self.receipt.note("begun", [pair for pair in named if pair[0] not in self.receipt.begun])
        for file in files:
            self.make(file)
        for folder in {(self.folder / file.target).parent for file in files}:
            sync(folder)
        self.receipt.note("done", named)

    def make(self, file: PlannedFile) -> None:
        """Make one file; one that is there already has to be this one."""
        place = self.folder / file.target
        self._enter(place.parent)
        if os.path.lexists(place):
            if not is_made(place, file.content_hash):
                raise UsageError(f"{place} differs from the plan: remove it.")
            return
        part = part_of(place)
        part.unlink(missing_ok=True)
        source = path_of(file.source)
        if source is None:
            copied = _write_inside(file, part)
        elif self._how == "copy":
            copied = _copy(source, part)
        else:
            copied = file_digest(Path(source))
        if copied != file.content_hash:
            part.unlink(missing_ok=True)
            raise _edited([file])
        if source is not None and self._how == "hardlink":
            try:
                os.link(os.path.realpath(source), part)
            except OSError as error:
                raise UsageError(
                    f"{source} cannot be linked from {part.parent} ({error.strerror}): a hard link "
                    "stays on one disk; use --link symbolic, or copy without --link."
                ) from None
        elif source is not None and self._how == "symlink":
            os.symlink(os.path.realpath(source), part)
        os.rename(part, place)

    def _enter(self, folder: Path) -> None:
        """Make the folders down to `folder`; none of them may be a link that leads out."""
        if folder in self._real:
            return
        self._enter(folder.parent)
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise UsageError(f"{folder} is not a folder: remove it.")
        folder.mkdir(exist_ok=True)
        self._real.add(folder)


def part_of(place: Path) -> Path:
    """Return the name under which a file is made."""
    digest = blake3.blake3(os.fsencode(place.name)).hexdigest()[:16]
    return place.with_name(f".{digest}.part")


def is_made(place: Path, content_hash: str) -> bool:
    """Say whether a file or link has the content that was planned."""
    try:
        return file_digest(place) == content_hash
    except OSError:
        return False


def _copy(source: str, part: Path) -> str:
    """Copy a file with its times and sync it; returns the hash of what was copied."""
    digest = blake3.blake3()
    with open(source, "rb", opener=regular) as reader, part.open("xb") as writer:
        while piece := reader.read(_PIECE):
            digest.update(piece)
            writer.write(piece)
        status = os.fstat(reader.fileno())
        os.utime(writer.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    sync(part)
    return digest.hexdigest()


def _write_inside(file: PlannedFile, part: Path) -> str:
    """Write a picture of a pack or a store as a file and sync it; returns the hash of its bytes."""
    data = _read_inside(file)
    if data is None or not starts_as_image(io.BytesIO(data)):
        raise _edited([file])
    part.write_bytes(data)
    sync(part)
    return blake3.blake3(data).hexdigest()


def _write_manifest(plan: DatasetPlan, maker: _Maker) -> None:
    """Write the table of all samples beside them, with their ids of before: `audit scan` reads it.

    Its columns: path, id, split, label, group.
    """
    if any(file.target == MANIFEST_NAME for file in plan.files):
        return
    cells = ((s.target, s.id, s.split, s.label, s.group) for s in plan.samples)
    columns = dict.fromkeys(("path", "id", "split", "label", "group"), pl.String)
    data = neutralise(pl.DataFrame(list(cells), columns, orient="row")).write_csv().encode()
    place, content = maker.folder / MANIFEST_NAME, blake3.blake3(data).hexdigest()
    if not os.path.lexists(place):
        maker.receipt.note("begun", [(MANIFEST_NAME, content)])
        part = part_of(place)
        part.write_bytes(data)
        sync(part)
        os.rename(part, place)
        sync(maker.folder)
    maker.receipt.note("done", [(MANIFEST_NAME, content)])


# ---- receipt ----


RECEIPT_SCHEMA = "audit-receipt/1"


@dataclass(slots=True)
class Receipt:
    """An open receipt: `plan` names its plan, `how` is copy, hardlink or symlink.

    `begun` and `done` are targets, with the hash of their content.
    """

    file: int
    plan: str
    how: str
    made_folder: bool
    begun: dict[str, str] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)

    def note(self, word: Literal["begun", "done"], files: Sequence[tuple[str, str]]) -> None:
        """Write down files, target and hash: to be made, or whole and in their places."""
        self.append({word: files})
        getattr(self, word).update(files)

    def append(self, line: dict[str, Any]) -> None:
        """Write one line to the disk."""
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode()
        while data:  # a full disk may take a part of it
            data = data[os.write(self.file, data) :]
        os.fsync(self.file)


def receipt_path(folder: Path) -> Path:
    """Return where the receipt of a folder is."""
    return folder / RECEIPT_FOLDER / "receipt.jsonl"


@contextmanager
def open_receipt(
    folder: Path, plan: str | None = None, how: str = "copy", made_folder: bool = False
) -> Iterator[Receipt]:
    """Open the receipt of a folder, begun for `plan` where there is none.

    Raises UsageError where there is none and no plan, LockedError where another holds it.
    """
    path = receipt_path(folder)
    if plan is None and not path.is_file():
        raise UsageError(f"{folder} has no receipt ({path}): `audit apply` did not make it.")
    path.parent.mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{folder} is being written by another `audit apply`: wait for it, or stop it."
            ) from None
        lines = _whole_lines(file)
        if not lines and plan is not None:
            receipt = Receipt(file, plan, how, made_folder)
            head = {"schema": RECEIPT_SCHEMA, "plan": plan, "how": how, "made_folder": made_folder}
            receipt.append(head)
        else:
            receipt = _read(file, lines, path)
        yield receipt
    finally:
        os.close(file)


def _whole_lines(file: int) -> list[dict[str, Any]]:
    """Return the lines of a receipt; a last one that was cut is taken off."""
    with open(file, "rb", closefd=False) as reader:
        data = reader.read()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.ftruncate(file, len(whole))
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except (ValueError, RecursionError):
        return [{}]


def _read(file: int, lines: Sequence[dict[str, Any]], path: Path) -> Receipt:
    try:
        head = lines[0]
        if head["schema"] != RECEIPT_SCHEMA:
            raise ValueError(head["schema"])
        receipt = Receipt(file, head["plan"], head["how"], head["made_folder"])
        for number, line in enumerate(lines[1:], 2):
            receipt.begun.update(_files(line.get("begun", ()), path, number))
            receipt.done.update(_files(line.get("done", ()), path, number))
    except (KeyError, ValueError, IndexError, TypeError, AttributeError):
        raise UsageError(
            f"{path} is not a receipt of `audit apply`: choose another folder."
        ) from None
    return receipt


def _files(pairs: Sequence[tuple[str, str]], path: Path, number: int) -> dict[str, str]:
    """Return what a line names: targets and hashes.

    Raises UsageError for a target that `audit apply` never writes: what is named is taken away, or
    believed to be there, and would be so in folders of others.
    """
    files = dict(pairs)
    try:
        for target in files:
            refuse_strange(target)
    except ValueError as error:
        raise UsageError(
            f"{path} was changed since `audit apply` wrote it (line {number}: {error}), so no "
            "file was removed or written. Remove this folder by hand, or choose another folder."
        ) from None
    return files


# ---- taking back ----


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """`removed` files; `kept` were edited since, by their paths below the folder."""

    folder: Path
    removed: int
    kept: tuple[str, ...]


def roll_back(folder: Path) -> RollbackResult:
    """Remove what `apply_plan` made in a folder.

    Raises UsageError, before anything is removed, where it has no receipt or one that names places
    outside of it.
    """
    with open_receipt(folder) as receipt:
        removed, kept = 0, []
        for target, content_hash in receipt.begun.items():
            place = folder / target
            if leads_out(place.parent, folder):
                kept.append(target)
                continue
            part_of(place).unlink(missing_ok=True)
            if not os.path.lexists(place):
                continue
            # a link goes even where its source is gone
            is_link = place.is_symlink()
            if receipt.how == "symlink" if is_link else is_made(place, content_hash):
                place.unlink()
                removed += 1
            else:
                kept.append(target)
        _remove_empty(folder, receipt.begun)
        if not kept:
            receipt_path(folder).unlink()
            with contextlib.suppress(OSError):
                receipt_path(folder).parent.rmdir()
                if receipt.made_folder:
                    folder.rmdir()
    return RollbackResult(folder, removed, tuple(kept))


def _remove_empty(folder: Path, targets: Iterable[str]) -> None:
    above = {parent for target in targets for parent in PurePosixPath(target).parents}
    for name in sorted(above - {PurePosixPath(".")}, key=lambda p: -len(p.parts)):
        if not leads_out(folder / name, folder):
            with contextlib.suppress(OSError):  # something else is in it
                (folder / name).rmdir()
