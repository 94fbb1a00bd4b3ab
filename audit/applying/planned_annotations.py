"""Annotations of a plan: written by the export of annotations, then made to name the new places.

They lie in a folder beside the plan, and are files of it as the pictures are. COCO names a picture
in its document; YOLO and VOC have one file for each picture and lists for each split.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path, PurePosixPath

import blake3

from audit.annotations.yolo_writer import label_path
from audit.applying.plan_document import DatasetPlan, PlannedFile
from audit.errors import UsageError
from audit.review.annotation_export import FORMS, export_annotations
from audit.review.export_folder import RECORD
from audit.run import generations
from audit.sources.paths import uri_of

SMALL = {"yolo": ("labels", ".txt"), "voc": ("Annotations", ".xml")}


def add_annotations(plan: DatasetPlan, run: Path, path: Path) -> DatasetPlan:
    """Return the plan with the annotations of its pictures, which are written beside `path`."""
    form, notes = _form(run)
    if form is None:
        return plan
    folder = path.with_name(f"{path.name}.annotations")
    if folder.exists() and not (folder / RECORD).is_file():
        raise UsageError(f"{folder} exists and holds no annotations of a plan: take it away.")
    shutil.rmtree(folder, ignore_errors=True)
    exported = export_annotations(run, folder, form)
    if form == "coco":
        _name_new_places(plan, run, folder)
    else:
        _move_small_files(plan, folder, form)
    taken = {file.target for file in plan.files}
    made = [_planned(p, folder) for p in sorted(folder.rglob("*")) if p.is_file()]
    made = [file for file in made if file.target != RECORD]
    if clash := next((file.target for file in made if file.target in taken), None):
        raise UsageError(f"A picture and a file of annotations both want to be {clash}.")
    said = (*plan.notes, *notes, *exported.lost, *exported.stale)
    return replace(plan, files=(*plan.files, *made), notes=said)


def _form(run: Path) -> tuple[str | None, list[str]]:
    """Return the format to write, and what to say where it is not that of the source."""
    with generations.open_run(run) as store:
        there = bool(store.columns("annotation_files"))
        rows = store.query("SELECT DISTINCT format FROM annotation_files") if there else None
    formats = sorted(str(name).lower() for name in rows["format"]) if rows is not None else []
    if not formats:
        return None, []
    if len(formats) == 1 and formats[0] in FORMS:
        return formats[0], []
    names = " and ".join(formats)
    return "coco", [f"Annotations in {names} go along as COCO: no other form holds all of them."]


def _planned(path: Path, folder: Path) -> PlannedFile:
    content, status = path.read_bytes(), path.stat()
    return PlannedFile(
        uri_of(os.path.realpath(path)), path.relative_to(folder).as_posix(),
        blake3.blake3(content).hexdigest(), len(content), status.st_mtime_ns,
    )  # fmt: skip


def _name_new_places(plan: DatasetPlan, run: Path, folder: Path) -> None:
    """Give each picture of COCO documents the name under which it is found in the new folder."""
    with generations.open_run(run) as store:
        sql = "SELECT DISTINCT file_name, sample_id FROM annotated_images WHERE file_name NOT NULL"
        rows = store.query(sql).rows()
    places = {file.id: file.target for file in plan.files}
    names = {name: _new_name(name, sample, places[sample]) for name, sample in rows
             if sample in places}  # fmt: skip
    if all(old == new for old, new in names.items()):
        return
    for path in folder.rglob("*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        for picture in document.get("images", ()):
            name = picture.get("file_name")
            picture["file_name"] = names.get(name, name)
        path.write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")


def _new_name(name: str, before: str, target: str) -> str:
    """Return a name as before where its picture stays, else the path below the new folder."""
    return name if before == target else target


def _move_small_files(plan: DatasetPlan, folder: Path, form: str) -> None:
    """Move the file of each picture to the name of its new place, and list the splits again."""
    below, extension = SMALL[form]
    lists = defaultdict[str, list[str]](list)
    moves = []
    for sample in plan.samples:
        assert sample.id is not None
        source, colon, rest = sample.id.partition(":")
        old = folder / label_path(f"{source}/{rest}" if colon else source, below, extension)
        new = folder / label_path(sample.target, below, extension)
        if old.is_file():
            moves.append((old, new))
            stem = PurePosixPath(sample.target).stem
            name = f"./{sample.target}" if form == "yolo" else stem
            lists[sample.split or "train"].append(name)
    for number, (old, _) in enumerate(moves):
        os.replace(old, folder / f".{number}.part")
    for number, (_, new) in enumerate(moves):
        new.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / f".{number}.part", new)
    _list_splits(folder, form, lists)


def _list_splits(folder: Path, form: str, lists: dict[str, list[str]]) -> None:
    place = folder if form == "yolo" else folder / "ImageSets/Main"
    for path in place.glob("*.txt"):
        path.unlink()
    for split, names in lists.items():
        place.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}\n" for name in names)
        (place / f"{split.replace('/', '%2F')}.txt").write_text(text, encoding="utf-8")
    if form == "yolo":
        text = (folder / "data.yaml").read_text(encoding="utf-8")
        rest = text[text.index("nc: ") :]
        heads = [f"{split}: {json.dumps(f'{split}.txt')}\n" for split in lists]
        (folder / "data.yaml").write_text("".join(heads) + rest, encoding="utf-8")
