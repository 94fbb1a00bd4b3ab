"""Annotations out: the kept and decided set as COCO, YOLO or VOC, read back to the same boxes.

What a format cannot hold is counted. A file that is unchanged since the scan, and of which nothing
was decided, is copied byte by byte. Files are made aside and moved to their places when all are
whole; a record of their hashes lets the next export replace them, unless they were edited.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import polars as pl

from audit.annotations.discovery import AnnotationGroup, Tree
from audit.annotations.entries import (
    KEPT_PICTURES,
    AnnotationFile,
    Losses,
    ObjectEntry,
    PictureEntry,
    class_list,
    list_files,
    list_objects,
    list_pictures,
)
from audit.annotations.reading import READER_VERSION
from audit.decisions.box_fixes import AppliedFixes, find_fixes
from audit.decisions.store import DecisionStore
from audit.decisions.waivers import apply_decisions, open_for_deciding
from audit.errors import UsageError
from audit.exports.coco_writer import CocoWriter, open_original
from audit.exports.voc_writer import voc_text
from audit.exports.yolo_writer import YoloWriter, label_path, one_ring_each
from audit.run import run_version
from audit.run.run_version import RunVersion
from audit.run.store import Store
from audit.sources.paths import leads_outside, path_of
from dataset_preflight.foundation.files import inside, read_regular, real, regular

FORMS = ("coco", "yolo", "voc")


def export_annotations(
    run: Path, out: Path, form: str, chosen: Sequence[str] = (), *, replace: bool = False,
    places: Places | None = None,
) -> AnnotationExport:  # fmt: skip
    """Write the annotations of the kept pictures, with the fixes that were decided, into a folder.

    `chosen` are annotation files of the run, or globs of them; default: all. With `places` pictures
    are named as in a new dataset. Raises UsageError where two files annotate one picture (YOLO,
    VOC), and where a file is in the way.
    """
    with open_stage(run, out, form, replace=replace) as stage:
        decided = apply_decisions(run, stage.version)
        with open_for_deciding(run, stage.version) as store:
            store.create_from("decided", decided.effective)
            store.execute(KEPT_PICTURES)
            if places is not None:
                store.create_from("placed", pl.DataFrame({"id": list(places)}, {"id": pl.String}))
                store.execute("DELETE FROM kept_pictures WHERE sample_id NOT IN (FROM placed)")
            files = _choose(list_files(store), chosen)
            result = AnnotationExport(stage.files)
            work = Work(store, stage, find_fixes(run, store), result, places)
            if form == "coco":
                _write_coco(work, files)
            else:
                _write_picture_files(work, files, form)
            result.lost = [*work.lost.sentences(), *_not_read(store, files, form)]
            result.stale = [
                f"{n:,} {'fix was' if n == 1 else 'fixes were'} not applied: {reason}."
                for reason, n in work.fixes.stale.items()
            ]
    result.removed = stage.removed
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
            said.append(f"{file} has content that is not read, and not written: {rest}.")
        if missing:
            said.append(f"{missing:,} images of {file} are not samples, and are skipped.")
        if not complete:
            said.append(
                f"{file} could not be read completely (BOX013): only the readable part is written."
            )
    return said


def _write_coco(work: Work, files: Sequence[AnnotationFile]) -> None:
    used: set[str] = set()
    for file in files:
        name = _document_name(file.file, used)
        pictures = list_pictures(work.store, file.file)
        work.fixes.resize(file.file, pictures)
        sides = {p.image_key: p.sides() for p in pictures}
        unchanged = _unchanged_place(work.store, file) if file.format == "COCO" else None
        with open_original(unchanged) as original:
            if file.format == "COCO" and original is None:
                work.lost.add(
                    f"{file.file} changed after the scan: keys other than annotations (licences, "
                    "skeletons) are not written."
                )
            names = {i: target for i, (target, _) in (work.places or {}).items() if i != target}
            classes = class_list(work.store, file.file)
            writer = CocoWriter(file, classes, original, work.lost, names)
            objects = work.fixed(list_objects(work.store, file, sides))
            work.stage.files[name] = writer.write(work.stage.place(name), pictures, objects)
        work.result.pictures += len(pictures)
        work.lost.add(Losses.MOVED, sum(p.split_now != p.split for p in pictures))


def _document_name(file: str, used: set[str]) -> str:
    path = PurePosixPath(plain_path(file.replace(":", "/")))
    stem = "annotations" if file == "." else str(path.with_suffix("")) if path.suffix else str(path)
    names = (f"{stem}.json" if n == 1 else f"{stem}-{n}.json" for n in itertools.count(1))
    name = next(name for name in names if name.lower() not in used)
    used.add(name.lower())
    return name


Places = Mapping[str, tuple[str, str | None]]
"""Where samples go in a new dataset: path and split, by id."""


@dataclass(slots=True)
class AnnotationExport:
    """What was written: annotations by file; `fixed` by decisions; `lost` and `stale` sentences."""

    files: dict[str, int]
    pictures: int = 0
    fixed: int = 0
    lost: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    removed: int = 0


@dataclass(slots=True)
class Work:
    """An export of the run in `store`, with the fixes decided."""

    store: Store
    stage: ExportStage
    fixes: AppliedFixes
    result: AnnotationExport
    places: Places | None
    lost: Losses = field(default_factory=Losses)

    def fixed(self, objects: Iterable[ObjectEntry]) -> Iterator[ObjectEntry]:
        """Yield the objects with the fixes that were decided; those that were dropped are gone."""
        for thing in objects:
            after = self.fixes.apply(thing)
            self.result.fixed += after is None or bool(after.changed)
            if after is not None:
                yield after


def _unchanged_place(store: Store, file: AnnotationFile) -> str | None:
    """Return where a COCO file, or a folder of small ones, lies below a root of the source.

    None where it is not what was scanned, by size and times.
    """
    is_one = file.format == "COCO"
    sql = "SELECT image_key FROM annotated_images WHERE file = ? ORDER BY entry"
    names = [] if is_one else store.query(sql, [file.file])["image_key"].to_list()
    for source, uri in json.loads(store.meta().get("roots", "{}")).items():
        root, prefix = path_of(uri), f"{source}:" if source else ""
        if root is None or not file.file.startswith(prefix):
            continue
        place = os.path.normpath(os.path.join(root, file.file[len(prefix) :]))
        folder, name = os.path.split(place) if is_one else (place, "")
        own = (name,) if is_one else tuple(names)
        group = AnnotationGroup(file.format, "", own, Tree(folder, ""))
        if file.file_key.startswith(f"{READER_VERSION} {group.key()} "):
            return place
    return None


SMALL = {"yolo": ("labels", ".txt"), "voc": ("Annotations", ".xml")}
_SAME_NAME = (
    "{n} images are skipped: another image has the same name with another extension, so both "
    "need the same annotation file."
)


def _write_picture_files(work: Work, files: Sequence[AnnotationFile], form: str) -> None:
    """Write the annotations of each picture; raises UsageError where two files annotate one."""
    _refuse_double(work.store, files)
    sql = (
        "SELECT max(len(points)) // 3 FROM annotation_shapes "
        "WHERE kind = 'keypoints' AND list_contains(?, file)"
    )
    most_points = int(work.store.scalar(sql, [[file.file for file in files]]) or 0)
    small = _SmallFiles(work, form, YoloWriter(work.lost, most_points))
    for file in files:
        small.yolo.add_file(file, class_list(work.store, file.file))
    for file in files:
        small.write_folder(file)
    for split, names in small.lists.items():
        below = "" if form == "yolo" else "ImageSets/Main/"
        work.stage.write(f"{below}{plain_path(split)}.txt", "".join(f"{n}\n" for n in names))
    if form == "yolo":
        work.stage.write("data.yaml", small.yolo.data_yaml(small.lists))


@dataclass(slots=True)
class _SmallFiles:
    """What is known over all files: names that are taken, and the pictures of each split."""

    work: Work
    form: str
    yolo: YoloWriter
    taken: set[str] = field(default_factory=set)
    lists: dict[str, list[str]] = field(default_factory=dict)

    def write_folder(self, file: AnnotationFile) -> None:
        """Write a file for each picture of one annotation file or folder of the run."""
        work, is_yolo = self.work, self.form == "yolo"
        pictures = list_pictures(work.store, file.file)
        work.fixes.resize(file.file, pictures)
        sides = {p.image_key: p.sides() for p in pictures}
        outlined = is_yolo and one_ring_each(list_objects(work.store, file, sides))
        fixed = work.fixed(list_objects(work.store, file, sides, "picture"))
        things = {k: list(some) for k, some in itertools.groupby(fixed, lambda t: t.image_key)}
        sql = "SELECT image_key, count(*) FROM annotations WHERE file = ? GROUP BY 1"
        given = dict(work.store.query(sql, [file.file]).iter_rows())
        copied = self._copied_folder(file)
        for picture, objects in _by_sample(pictures, things):
            if work.places is None:
                path = plain_path(picture.source) + "/" if picture.source else ""
                path += plain_path(picture.path)
                place, split = path_of(picture.uri) or picture.uri, picture.split_now
            else:
                path, split = work.places[picture.sample_id]
                place = f"./{path}"
            name = label_path(path, *SMALL[self.form])
            if name in self.taken:
                work.lost.add(_SAME_NAME)
                continue
            self.taken.add(name)
            if is_yolo and picture.sides() is None:
                work.lost.add(Losses.NO_SIZE)
                continue
            held = Losses()
            text, n = self._text(file, picture, objects, outlined, held)
            touched = picture.resized or len(objects) != given.get(picture.image_key, 0)
            original = os.path.join(copied or "", picture.image_key)
            changed = touched or any(t.changed or t.other_unit for t in objects)
            # what is behind a link may hold more than annotations
            if copied and not changed and not leads_outside(original, {"": copied}):
                shutil.copyfile(original, work.stage.place(name, n))
            else:
                work.stage.write(name, text, n)
                work.lost.merge(held)
                work.lost.add(Losses.ANEW, copied is not None)
            listed = self.lists.setdefault(split or "train", [])
            listed.append(place if is_yolo else PurePosixPath(name).stem)
            work.result.pictures += 1

    def _copied_folder(self, file: AnnotationFile) -> str | None:
        """Return where files lie that can be copied: of the form that is written, as scanned."""
        if file.format.lower() != self.form or file.reading != file.form:
            return None
        folder = _unchanged_place(self.work.store, file)
        if folder is None or self.form != "yolo":
            return folder
        kept = self.yolo.keeps_numbers(file) and self._keeps_pose(file, folder)
        return folder if kept else None

    def _keeps_pose(self, file: AnnotationFile, folder: str) -> bool:
        """Say whether the lines of a folder have as many keypoints as those that are written."""
        if not self.yolo.points:
            return True
        sql = (
            "SELECT image_key FROM annotation_shapes WHERE file = ? AND kind = 'keypoints' "
            "ORDER BY rowid LIMIT 1"
        )
        name = self.work.store.scalar(sql, [file.file])
        if name is None:
            return False
        lines = read_regular(Path(folder, name)).decode(errors="replace").splitlines()
        return {len(line.split()) for line in lines} <= {0, 5 + 3 * self.yolo.points}

    def _text(
        self, file: AnnotationFile, picture: PictureEntry, objects: Sequence[ObjectEntry],
        outlined: bool, held: Losses,
    ) -> tuple[str, int]:  # fmt: skip
        """Return the file of a picture and its number of objects; `held` counts what it lacks."""
        if self.form == "voc":
            text = voc_text(picture, objects, held)
            return text, text.count("<object>")
        if picture.attributes is not None:
            held.add(Losses.PICTURE_ATTRIBUTES, form="YOLO")
        self.yolo.lost = held
        lines = list(self.yolo.lines(file, objects, outlined, picture.sides() or (1.0, 1.0)))
        return "".join(f"{line}\n" for line in lines), len(lines)


def _by_sample(
    pictures: Sequence[PictureEntry], things: Mapping[str, list[ObjectEntry]]
) -> Iterator[tuple[PictureEntry, list[ObjectEntry]]]:
    """Yield each sample once: a picture that its file lists twice has the objects of both."""
    entries: dict[str, list[PictureEntry]] = {}
    for picture in pictures:
        entries.setdefault(picture.sample_id, []).append(picture)
    for same in entries.values():
        yield same[0], [t for picture in same for t in things.get(picture.image_key, [])]


def _refuse_double(store: Store, files: Sequence[AnnotationFile]) -> None:
    rows = store.query(
        "SELECT min(file) AS one, max(file) AS other, count(*) OVER () AS n FROM (SELECT DISTINCT "
        "file, sample_id FROM kept_pictures WHERE list_contains(?, file)) GROUP BY sample_id "
        "HAVING count(*) > 1 ORDER BY one, other LIMIT 1",
        [[file.file for file in files]],
    )
    for one, other, n in rows.iter_rows():
        raise UsageError(
            f"{one} and {other} both annotate the same images ({n:,} have several files): choose "
            f"one with --annotations {one}."
        )


SCHEMA = "audit-annotations/1"
RECORD = "annotations-export.json"


@dataclass(slots=True)
class ExportStage:
    """A folder where the files of an export are made: annotations, or tasks, by name.

    `removed` files of an earlier export are gone once these are in their places.
    """

    folder: Path
    version: RunVersion
    files: dict[str, int] = field(default_factory=dict)
    removed: int = 0

    def place(self, name: str, n: int = 0) -> Path:
        """Return where a file of `n` annotations is made."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files[name] = n
        return path

    def write(self, name: str, text: str, n: int = 0) -> None:
        """Make a file of `n` annotations."""
        self.place(name, n).write_text(text, encoding="utf-8")


@contextmanager
def open_stage(run: Path, out: Path, form: str, *, replace: bool) -> Iterator[ExportStage]:
    """Yield a folder beside the places of the files, which are moved there at the end.

    `out` is gone again where it was made for this and nothing came of it.
    """
    if real(out).is_relative_to(real(run)):
        raise UsageError(f"{out} is inside the run: choose a folder outside of it.")
    version, revision = run_version.require(run), DecisionStore(run).revision()
    made = not out.exists()
    stage = ExportStage(out / f".annotations.{os.getpid()}.part", version)
    try:
        stage.folder.mkdir(parents=True)
        yield stage
        record: dict[str, object] = {
            "schema": SCHEMA, "run": str(run), "generation": version.path.name,
            "decisions": revision, "format": form, "files": stage.files,
        }  # fmt: skip
        stage.removed = _move_to_place(stage.folder, out, record, replace=replace)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written ({error.strerror or error}): choose another path."
        ) from None
    finally:
        shutil.rmtree(stage.folder, ignore_errors=True)
        if made:
            with suppress(OSError):  # it holds something
                out.rmdir()


def _move_to_place(stage: Path, out: Path, record: dict[str, object], *, replace: bool) -> int:
    """Move the files to their places, all after a look at each; returns how many were removed."""
    names = sorted(str(p.relative_to(stage)) for p in stage.rglob("*") if p.is_file())
    written = {name: digest_of(stage / name) for name in names}
    earlier = earlier_files(out / RECORD, SCHEMA)
    for name in (*names, *earlier):
        _refuse(out / name, earlier.get(name), written.get(name), replace)
    if (out / RECORD).exists() and not earlier and not replace:
        raise UsageError(f"{out / RECORD} is not a record of an export: choose another folder.")
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
        raise UsageError(f"{path} is a folder, but the export writes a file there.")
    if path.exists() and not replace:
        if wrote is None:
            raise UsageError(
                f"{path} exists: choose another folder, or replace the file with --replace."
            )
        refuse_edited(path, wrote, now)


def refuse_edited(path: Path, *known: str | None) -> None:
    """Raise UsageError for a file whose hash is none of those `known`."""
    if path.is_file() and digest_of(path) not in known:
        raise UsageError(
            f"{path} was edited after the last export: rename the file, or replace it with "
            "--replace."
        )


def earlier_files(record: Path, schema: str) -> dict[str, str]:
    """Return what an earlier export into this folder wrote: {name: hash}."""
    try:
        found = json.loads(read_regular(record))
        if found["schema"] != schema:
            return {}
        hashes = {str(name): str(digest) for name, digest in found["sha256"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    names = dict[str, str]()
    for name, digest in hashes.items():
        with suppress(ValueError):  # a name that leads out of the folder
            inside(record.parent, name)
            names[name] = digest
    return names


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with open(path, "rb", opener=regular) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None


def plain_path(text: str) -> str:
    """Return a relative path without the parts that would lead out of the folder."""
    parts = [p for p in text.split("/") if p not in ("", ".", "..")]
    return "/".join(parts)
