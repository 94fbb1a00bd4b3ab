"""Annotations out: the kept and decided set as COCO, YOLO or VOC, read back to the same boxes.

All files are made in a folder of their own first, and moved to their places only when every one is
whole and no file is in the way: `annotations-export.json` keeps the hash of what was written, so
that the next export replaces its own files, and refuses where one was edited by hand. Files of an
earlier export that no kept picture has any more are taken away. What the format cannot hold is
counted. Cost: about 0.1 ms of one core a box.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from audit.annotations import losses
from audit.annotations.coco_writer import CocoWriter, open_original
from audit.annotations.discovery import AnnotationGroup, Tree
from audit.annotations.entries import (
    AnnotationFile,
    ObjectEntry,
    PictureEntry,
    class_list,
    list_files,
    list_objects,
    list_pictures,
    prepare_pictures,
)
from audit.annotations.losses import Losses, of_format
from audit.annotations.reading import READER_VERSION
from audit.annotations.voc_writer import voc_text
from audit.annotations.yolo_writer import YoloWriter, label_path, one_ring_each
from audit.errors import UsageError
from audit.review.applied_fixes import AppliedFixes, find_fixes
from audit.review.ledger import Ledger
from audit.review.status import apply_decisions, open_for_deciding
from audit.run import generations
from audit.run.store import Store
from audit.sources.paths import path_of

SCHEMA = "audit-annotations/1"
RECORD = "annotations-export.json"
FORMS = ("coco", "yolo", "voc")


@dataclass(slots=True)
class AnnotationExport:
    """What was written: annotations by file; `fixed` by decisions; `lost` and `stale` sentences."""

    files: dict[str, int] = field(default_factory=dict)
    pictures: int = 0
    fixed: int = 0
    lost: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    removed: int = 0


@dataclass(slots=True)
class _Work:
    """One export while it is made, into the folder `stage`."""

    store: Store
    stage: Path
    fixes: AppliedFixes
    result: AnnotationExport
    lost: Losses = field(default_factory=Losses)

    def place(self, name: str) -> Path:
        path = self.stage / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, text: str, n: int = 0) -> None:
        self.place(name).write_text(text, encoding="utf-8")
        self.result.files[name] = n


def export_annotations(
    run: Path, out: Path, form: str, chosen: Sequence[str] = (), *, replace: bool = False
) -> AnnotationExport:
    """Write the annotations of the kept pictures, with the fixes that were decided, into a folder.

    `chosen` are annotation files of the run, or globs of them; default: all. Raises UsageError
    where two of them annotate one picture (YOLO, VOC), and where a file is in the way.
    """
    if out.resolve().is_relative_to(run.resolve()):
        raise UsageError(f"{out} is inside the run: choose a folder outside of it.")
    generation, revision = generations.require(run), Ledger(run).revision()
    decided = apply_decisions(run, generation)
    result = AnnotationExport()
    with open_for_deciding(run, generation) as store, _staging(out) as stage:
        store.create_from("decided", decided.effective)
        prepare_pictures(store)
        files = _choose(list_files(store), chosen)
        work = _Work(store, stage, find_fixes(run, store), result)
        if form == "coco":
            _write_coco(work, files)
        else:
            _write_small(work, files, form)
        result.lost = [*work.lost.sentences(), *_not_read(store, files, form)]
        result.stale = work.fixes.stale_sentences()
        record: dict[str, object] = {
            "schema": SCHEMA, "run": str(run), "generation": generation.path.name,
            "decisions": revision, "format": form, "files": result.files,
        }  # fmt: skip
        result.removed = _publish(stage, out, record, replace=replace)
    return result


def _choose(files: Sequence[AnnotationFile], chosen: Sequence[str]) -> list[AnnotationFile]:
    if not files:
        raise UsageError("The run has no annotations: its source had no annotation file.")
    names = [file.file for file in files]
    for pattern in chosen:
        if not fnmatch.filter(names, pattern):
            raise UsageError(
                f"The run has no annotation file {pattern!r}: it has {', '.join(names[:5])}"
                + (f" and {len(names) - 5:,} more." if len(names) > 5 else ".")
            )
    return [f for f in files if not chosen or any(fnmatch.fnmatch(f.file, p) for p in chosen)]


def _not_read(store: Store, files: Sequence[AnnotationFile], form: str) -> list[str]:
    """Return a sentence per file that has more than was read."""
    rows = store.query(
        "SELECT file, not_read, pictures - matched AS missing, complete FROM annotation_files "
        "WHERE list_contains(?, file) ORDER BY file",
        [[file.file for file in files]],
    )
    said = []
    copied = {file.file for file in files if file.format.lower() == form != "coco"}
    for file, rest, missing, complete in rows.iter_rows():
        if rest and file not in copied and "go by their numbers" not in rest:
            said.append(f"{file} has what is not read, so it is not written: {rest}.")
        if missing:
            said.append(f"{missing:,} pictures of {file} are no samples, and are left out.")
        if not complete:
            said.append(f"{file} could not be read whole (BOX013): what was read is written.")
    return said


# ---- COCO ----


def _write_coco(work: _Work, files: Sequence[AnnotationFile]) -> None:
    used: set[str] = set()
    for file in files:
        name = _document_name(file.file, used)
        pictures = list_pictures(work.store, file.file)
        work.fixes.resize(file.file, pictures)
        sides = {p.image_key: p.sides() for p in pictures}
        with open_original(_unchanged_path(work.store, file)) as original:
            if file.format == "COCO" and original is None:
                work.lost.add(
                    f"{file.file} is not as it was scanned: its keys that are no annotations "
                    "(licences, skeletons) are not written."
                )
            writer = CocoWriter(file, class_list(work.store, file.file), original, work.lost)
            objects = _fixed(work, list_objects(work.store, file, sides))
            work.result.files[name] = writer.write(work.place(name), pictures, objects)
        work.result.pictures += len(pictures)
        work.lost.add(losses.MOVED, sum(p.split_now != p.split for p in pictures))


def _document_name(file: str, used: set[str]) -> str:
    path = PurePosixPath(_plain_path(file.replace(":", "/")))
    stem = "annotations" if file == "." else str(path.with_suffix("")) if path.suffix else str(path)
    names = (f"{stem}.json" if n == 1 else f"{stem}-{n}.json" for n in itertools.count(1))
    name = next(name for name in names if name.lower() not in used)
    used.add(name.lower())
    return name


def _plain_path(text: str) -> str:
    """Return a relative path without the parts that would lead out of the folder."""
    parts = [p for p in text.split("/") if p not in ("", ".", "..")]
    return "/".join(parts)


def _unchanged_path(store: Store, file: AnnotationFile) -> str | None:
    """Return where a COCO file lies, None where it is not what was scanned."""
    if file.format != "COCO":
        return None
    for path in _places(store, file):
        if _is_as_scanned(os.path.dirname(path), [os.path.basename(path)], file):
            return path
    return None


def _unchanged_folder(store: Store, file: AnnotationFile) -> str | None:
    """Return the folder of small files, None where any of them is not what was scanned."""
    names = store.query(
        "SELECT image_key FROM annotated_images WHERE file = ? ORDER BY entry", [file.file]
    )["image_key"]
    for folder in _places(store, file):
        if _is_as_scanned(folder, names.to_list(), file):
            return folder
    return None


def _places(store: Store, file: AnnotationFile) -> Iterator[str]:
    """Yield where a file or folder of annotations may lie: below each root of the source."""
    for source, uri in json.loads(store.meta().get("roots", "{}")).items():
        root, prefix = path_of(uri), f"{source}:" if source else ""
        if root is not None and file.file.startswith(prefix):
            yield os.path.normpath(os.path.join(root, file.file[len(prefix) :]))


def _is_as_scanned(folder: str, names: Sequence[str], file: AnnotationFile) -> bool:
    """Say whether size and times of files are those of the scan."""
    group = AnnotationGroup(file.format, folder, "", "", tuple(names), Tree(folder, ""))
    return file.file_key == f"{READER_VERSION} {group.key()}"


def _fixed(work: _Work, objects: Iterable[ObjectEntry]) -> Iterator[ObjectEntry]:
    """Yield the objects with the fixes that were decided; those that were dropped are gone."""
    for thing in objects:
        after = work.fixes.apply(thing)
        work.result.fixed += after is None or bool(after.changed)
        if after is not None:
            yield after


# ---- YOLO and VOC: a file for each picture ----


def _write_small(work: _Work, files: Sequence[AnnotationFile], form: str) -> None:
    _refuse_double(work.store, files)
    yolo, splits, taken = YoloWriter(work.lost), Counter[str](), set[str]()
    lists: dict[str, list[str]] = {}
    for file in files:
        yolo.add_file(file, class_list(work.store, file.file))
    for file in files:
        pictures = list_pictures(work.store, file.file)
        work.fixes.resize(file.file, pictures)
        sides = {p.image_key: p.sides() for p in pictures}
        outlined = form == "yolo" and one_ring_each(list_objects(work.store, file, sides))
        grouped = _by_picture(_fixed(work, list_objects(work.store, file, sides, "picture")))
        things = dict(grouped)
        given = _counts(work.store, file.file)
        folder = None
        if file.format.lower() == form and file.reading == file.form:
            folder = _unchanged_folder(work.store, file)
        if folder is not None and form == "yolo" and not yolo.keeps_numbers(file):
            folder = None
        for picture, objects in _by_sample(pictures, things):
            name = _small_name(picture, form)
            if name in taken:
                work.lost.add(
                    "{n} pictures are left out: another one has the same name with another "
                    "extension, so both would have one file."
                )
                continue
            taken.add(name)
            size = picture.sides()
            if size is None and form == "yolo":
                work.lost.add(losses.NO_SIZE)
                continue
            held = Losses()
            if form == "voc":
                text = voc_text(picture, objects, held)
                n = text.count("<object>")
            else:
                if picture.attributes is not None:
                    held.add(of_format(losses.PICTURE_ATTRIBUTES, "YOLO"))
                yolo.lost = held
                lines = list(yolo.lines(file, objects, outlined, size or (1.0, 1.0)))
                text, n = "".join(f"{line}\n" for line in lines), len(lines)
            touched = picture.resized or len(objects) != given.get(picture.image_key, 0) or any(
                thing.changed or thing.other_unit for thing in objects
            )  # fmt: skip
            if folder is not None and not touched:
                _copy(work, folder, picture, name, n)  # every byte of it, read or not
            else:
                work.write(name, text, n)
                work.lost.merge(held)
                work.lost.add(losses.ANEW, folder is not None)
            split = picture.split_now or "train"
            splits[split] += 1
            place = path_of(picture.uri) or picture.uri
            stem = PurePosixPath(picture.path).name.rpartition(".")[0]
            lists.setdefault(split, []).append(place if form == "yolo" else stem)
            work.result.pictures += 1
    for split, names in lists.items():
        folder = "" if form == "yolo" else "ImageSets/Main/"
        text = "".join(f"{n}\n" for n in names)
        work.write(f"{folder}{_plain_path(split)}.txt", text)
    if form == "yolo":
        work.write("data.yaml", yolo.data_yaml(lists))


def _copy(work: _Work, folder: str, picture: PictureEntry, name: str, n: int) -> None:
    shutil.copyfile(os.path.join(folder, picture.image_key), work.place(name))
    work.result.files[name] = n


def _counts(store: Store, file: str) -> dict[str, int]:
    """Return the number of annotations of each picture of a file."""
    sql = "SELECT image_key, count(*) FROM annotations WHERE file = ? GROUP BY 1"
    return dict(store.query(sql, [file]).iter_rows())


def _by_picture(objects: Iterable[ObjectEntry]) -> Iterator[tuple[str, list[ObjectEntry]]]:
    for key, things in itertools.groupby(objects, lambda thing: thing.image_key):
        yield key, list(things)


def _by_sample(
    pictures: Sequence[PictureEntry], things: Mapping[str, list[ObjectEntry]]
) -> Iterator[tuple[PictureEntry, list[ObjectEntry]]]:
    """Yield each sample once: a picture that its file lists twice has the objects of both."""
    entries: dict[str, list[PictureEntry]] = {}
    for picture in pictures:
        entries.setdefault(picture.sample_id, []).append(picture)
    for same in entries.values():
        yield same[0], [t for picture in same for t in things.get(picture.image_key, [])]


def _small_name(picture: PictureEntry, form: str) -> str:
    folder, extension = ("labels", ".txt") if form == "yolo" else ("Annotations", ".xml")
    below = _plain_path(picture.source) + "/" if picture.source else ""
    return label_path(below + _plain_path(picture.path), folder, extension)


def _refuse_double(store: Store, files: Sequence[AnnotationFile]) -> None:
    rows = store.query(
        "SELECT min(file) AS one, max(file) AS other, count(*) OVER () AS n FROM (SELECT DISTINCT "
        "file, sample_id FROM kept_pictures WHERE list_contains(?, file)) GROUP BY sample_id "
        "HAVING count(*) > 1 LIMIT 1",
        [[file.file for file in files]],
    )
    for one, other, n in rows.iter_rows():
        raise UsageError(
            f"{one} and {other} both annotate the same pictures ({n:,} have several files): choose "
            f"one with --annotations {one}."
        )


# ---- files ----


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """Yield a folder beside the places of the files; it is gone afterwards."""
    stage = out / f".annotations.{os.getpid()}.part"
    try:
        stage.mkdir(parents=True)
        yield stage
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written ({error.strerror or error}): choose another place."
        ) from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _publish(stage: Path, out: Path, record: dict[str, object], *, replace: bool) -> int:
    """Move the files to their places, all after a look at each; returns how many were removed."""
    names = sorted(str(p.relative_to(stage)) for p in stage.rglob("*") if p.is_file())
    written = {name: _digest(stage / name) for name in names}
    earlier = _earlier(out / RECORD)
    for name in (*names, *earlier):
        _refuse(out / name, earlier.get(name), written.get(name), replace)
    if (out / RECORD).exists() and not earlier and not replace:
        raise UsageError(f"{out / RECORD} is no record of an export: choose another folder.")
    gone = [name for name in earlier if name not in written]
    for name in gone:
        (out / name).unlink(missing_ok=True)
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(stage / name, out / name)
    part = stage / RECORD
    part.write_text(json.dumps({**record, "sha256": written}, ensure_ascii=False) + "\n", "utf-8")
    os.replace(part, out / RECORD)
    return len(gone)


def _refuse(path: Path, wrote: str | None, now: str | None, replace: bool) -> None:
    """Raise UsageError for a file in the way that no export wrote, or that was edited since."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder, and an export needs a file there.")
    if replace or not path.exists():
        return
    if wrote is None:
        raise UsageError(
            f"{path} exists, and an export replaces nobody's file: choose another folder, or allow "
            "it with --replace."
        )
    if _digest(path) not in (wrote, now):
        raise UsageError(
            f"{path} is not what the last export wrote there: keep it under another name, or allow "
            "replacing it with --replace."
        )


def _earlier(record: Path) -> dict[str, str]:
    """Return what an earlier export into this folder wrote: {name: hash}."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            return {}
        hashes = {str(name): str(digest) for name, digest in found["sha256"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: digest for name, digest in hashes.items() if _plain_path(name) == name}


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None
