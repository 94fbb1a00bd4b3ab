"""YOLO and VOC out: a file for each picture, and a list of pictures for each split.

A file that is still what was scanned, and of which nothing was decided, is copied with every byte
it has; the others are made from the tables.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from audit.annotations import losses
from audit.annotations.entries import (
    AnnotationFile,
    ObjectEntry,
    PictureEntry,
    class_list,
    list_objects,
    list_pictures,
)
from audit.annotations.losses import Losses, of_format
from audit.annotations.voc_writer import voc_text
from audit.annotations.yolo_writer import YoloWriter, label_path, one_ring_each
from audit.errors import UsageError
from audit.review.annotation_work import Work, unchanged_folder
from audit.review.export_folder import plain_path
from audit.run.store import Store
from audit.sources.paths import path_of

_SAME_NAME = (
    "{n} pictures are left out: another one has the same name with another extension, so both "
    "would have one file."
)


@dataclass(slots=True)
class _SmallFiles:
    """What is known over all files: names that are taken, and the pictures of each split."""

    work: Work
    form: str
    yolo: YoloWriter
    taken: set[str] = field(default_factory=set)
    lists: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Folder:
    """One annotation file or folder of the run: `given` counts objects by picture.

    `copied` is where its files lie, None where they are not copied.
    """

    file: AnnotationFile
    outlined: bool
    given: Mapping[str, int]
    copied: str | None


def write_picture_files(work: Work, files: Sequence[AnnotationFile], form: str) -> None:
    """Write the annotations of each picture; raises UsageError where two files annotate one."""
    _refuse_double(work.store, files)
    small = _SmallFiles(work, form, YoloWriter(work.lost, _most_keypoints(work.store, files)))
    for file in files:
        small.yolo.add_file(file, class_list(work.store, file.file))
    for file in files:
        _write_folder(small, file)
    for split, names in small.lists.items():
        below = "" if form == "yolo" else "ImageSets/Main/"
        work.write(f"{below}{plain_path(split)}.txt", "".join(f"{n}\n" for n in names))
    if form == "yolo":
        work.write("data.yaml", small.yolo.data_yaml(small.lists))


def _write_folder(small: _SmallFiles, file: AnnotationFile) -> None:
    work = small.work
    pictures = list_pictures(work.store, file.file)
    work.fixes.resize(file.file, pictures)
    sides = {p.image_key: p.sides() for p in pictures}
    yolo = small.form == "yolo"
    outlined = yolo and one_ring_each(list_objects(work.store, file, sides))
    things = dict(_by_picture(work.fixed(list_objects(work.store, file, sides, "picture"))))
    given = _counts(work.store, file.file)
    folder = _Folder(file, outlined, given, _copied_folder(small, file))
    for picture, objects in _by_sample(pictures, things):
        name = _small_name(picture, small.form)
        if name in small.taken:
            work.lost.add(_SAME_NAME)
            continue
        small.taken.add(name)
        if yolo and picture.sides() is None:
            work.lost.add(losses.NO_SIZE)
            continue
        _write_picture(small, folder, picture, objects, name)
        place = path_of(picture.uri) or picture.uri
        stem = PurePosixPath(picture.path).name.rpartition(".")[0]
        names = small.lists.setdefault(picture.split_now or "train", [])
        names.append(place if yolo else stem)
        work.result.pictures += 1


def _copied_folder(small: _SmallFiles, file: AnnotationFile) -> str | None:
    """Return where files lie that can be copied: of the form that is written, as scanned."""
    if file.format.lower() != small.form or file.reading != file.form:
        return None
    folder = unchanged_folder(small.work.store, file)
    if folder is None or small.form != "yolo":
        return folder
    kept = small.yolo.keeps_numbers(file) and _keeps_pose(small, file, folder)
    return folder if kept else None


def _keeps_pose(small: _SmallFiles, file: AnnotationFile, folder: str) -> bool:
    """Say whether the lines of a folder have as many keypoints as those that are written."""
    if not small.yolo.points:
        return True
    sql = (
        "SELECT image_key FROM annotation_shapes WHERE file = ? AND kind = 'keypoints' "
        "ORDER BY rowid LIMIT 1"
    )
    name = small.work.store.scalar(sql, [file.file])
    if name is None:
        return False
    lines = Path(folder, name).read_text(encoding="utf-8", errors="replace").splitlines()
    return {len(line.split()) for line in lines} <= {0, 5 + 3 * small.yolo.points}


def _most_keypoints(store: Store, files: Sequence[AnnotationFile]) -> int:
    """Return the number of keypoints of the object of most."""
    sql = (
        "SELECT max(len(points)) // 3 FROM annotation_shapes "
        "WHERE kind = 'keypoints' AND list_contains(?, file)"
    )
    return int(store.scalar(sql, [[file.file for file in files]]) or 0)


def _write_picture(
    small: _SmallFiles,
    folder: _Folder,
    picture: PictureEntry,
    objects: Sequence[ObjectEntry],
    name: str,
) -> None:
    work, held = small.work, Losses()
    text, n = _text(small, folder, picture, objects, held)
    touched = picture.resized or len(objects) != folder.given.get(picture.image_key, 0) or any(
        thing.changed or thing.other_unit for thing in objects
    )  # fmt: skip
    if folder.copied is not None and not touched:
        shutil.copyfile(os.path.join(folder.copied, picture.image_key), work.place(name))
        work.result.files[name] = n
        return
    work.write(name, text, n)
    work.lost.merge(held)
    work.lost.add(losses.ANEW, folder.copied is not None)


def _text(
    small: _SmallFiles,
    folder: _Folder,
    picture: PictureEntry,
    objects: Sequence[ObjectEntry],
    held: Losses,
) -> tuple[str, int]:
    """Return the file of a picture and its number of objects; `held` counts what it lacks."""
    if small.form == "voc":
        text = voc_text(picture, objects, held)
        return text, text.count("<object>")
    if picture.attributes is not None:
        held.add(of_format(losses.PICTURE_ATTRIBUTES, "YOLO"))
    small.yolo.lost = held
    sides = picture.sides() or (1.0, 1.0)
    lines = list(small.yolo.lines(folder.file, objects, folder.outlined, sides))
    return "".join(f"{line}\n" for line in lines), len(lines)


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
    below = plain_path(picture.source) + "/" if picture.source else ""
    return label_path(below + plain_path(picture.path), folder, extension)


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
