"""Annotations out: the kept and decided set as COCO, YOLO or VOC, read back to the same boxes.

COCO has one file for many pictures, YOLO and VOC one for each (picture_files.py). What a format
cannot hold is counted. Cost: about 0.1 ms of one core a box.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from audit.annotations import losses
from audit.annotations.coco_writer import CocoWriter, open_original
from audit.annotations.entries import (
    AnnotationFile,
    class_list,
    list_files,
    list_objects,
    list_pictures,
    prepare_pictures,
)
from audit.errors import UsageError
from audit.review.annotation_work import AnnotationExport, Work, unchanged_path
from audit.review.applied_fixes import find_fixes
from audit.review.export_folder import SCHEMA, move_to_place, open_stage, plain_path
from audit.review.ledger import Ledger
from audit.review.picture_files import write_picture_files
from audit.review.status import apply_decisions, open_for_deciding
from audit.run import generations
from audit.run.store import Store

FORMS = ("coco", "yolo", "voc")


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
    with open_for_deciding(run, generation) as store, open_stage(out) as stage:
        store.create_from("decided", decided.effective)
        prepare_pictures(store)
        files = _choose(list_files(store), chosen)
        work = Work(store, stage, find_fixes(run, store), result)
        if form == "coco":
            _write_coco(work, files)
        else:
            write_picture_files(work, files, form)
        result.lost = [*work.lost.sentences(), *_not_read(store, files, form)]
        result.stale = work.fixes.stale_sentences()
        record: dict[str, object] = {
            "schema": SCHEMA, "run": str(run), "generation": generation.path.name,
            "decisions": revision, "format": form, "files": result.files,
        }  # fmt: skip
        result.removed = move_to_place(stage, out, record, replace=replace)
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


def _write_coco(work: Work, files: Sequence[AnnotationFile]) -> None:
    used: set[str] = set()
    for file in files:
        name = _document_name(file.file, used)
        pictures = list_pictures(work.store, file.file)
        work.fixes.resize(file.file, pictures)
        sides = {p.image_key: p.sides() for p in pictures}
        with open_original(unchanged_path(work.store, file)) as original:
            if file.format == "COCO" and original is None:
                work.lost.add(
                    f"{file.file} is not as it was scanned: its keys that are no annotations "
                    "(licences, skeletons) are not written."
                )
            writer = CocoWriter(file, class_list(work.store, file.file), original, work.lost)
            objects = work.fixed(list_objects(work.store, file, sides))
            work.result.files[name] = writer.write(work.place(name), pictures, objects)
        work.result.pictures += len(pictures)
        work.lost.add(losses.MOVED, sum(p.split_now != p.split for p in pictures))


def _document_name(file: str, used: set[str]) -> str:
    path = PurePosixPath(plain_path(file.replace(":", "/")))
    stem = "annotations" if file == "." else str(path.with_suffix("")) if path.suffix else str(path)
    names = (f"{stem}.json" if n == 1 else f"{stem}-{n}.json" for n in itertools.count(1))
    name = next(name for name in names if name.lower() not in used)
    used.add(name.lower())
    return name
