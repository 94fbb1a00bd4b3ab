"""COCO out: one JSON file for each annotation file of the run, written entry by entry.

Where the file was COCO and is unchanged, each entry is copied with every key, and only what was
decided is replaced. Else entries are made from the tables. Ids that are numbers stay.
"""

from __future__ import annotations

import json
import math
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from audit.annotations.coco import Elements, Value, scan_document
from audit.annotations.entries import (
    AnnotationFile,
    Losses,
    ObjectEntry,
    PictureEntry,
    attributes_of,
    object_area,
)
from audit.annotations.geometry import loads
from audit.records import finite

Document = dict[str, Any]
LISTS = ("images", "annotations", "categories")
_WHOLE = re.compile(r"-?\d{1,15}$")


class OriginalFile:
    """The COCO file that was scanned: its entries by the byte where they begin."""

    def __init__(self, raw: mmap.mmap) -> None:
        self._raw = raw
        self.others: Document = {}
        self.classes: dict[str, Document] = {}
        text = np.frombuffer(raw, np.uint8)
        for part in scan_document(text, ("categories", *LISTS[:2])):
            if isinstance(part, Value) and part.key not in LISTS:
                self.others[part.key] = loads(raw[part.start : part.end])
            elif isinstance(part, Elements) and part.key == "categories":
                for start, end in zip(part.starts.tolist(), part.ends.tolist(), strict=True):
                    entry = loads(raw[start:end])
                    if isinstance(entry, dict) and "id" in entry:
                        self.classes.setdefault(str(entry["id"]), entry)

    def entry(self, byte: int | None) -> Document:
        """Return the entry that begins at a byte, {} where it is no object."""
        if byte is None:
            return {}
        size = 4096
        while True:
            text = self._raw[byte : byte + size].decode("utf-8", "ignore")
            try:
                found, _ = json.JSONDecoder().raw_decode(text)
            except ValueError:
                if byte + size >= len(self._raw):
                    return {}
                size *= 8
                continue
            return found if isinstance(found, dict) else {}


@contextmanager
def open_original(path: str | None) -> Iterator[OriginalFile | None]:
    """Open the scanned file; None where it is not given or is no JSON any more."""
    if path is None:
        yield None
        return
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        try:
            original: OriginalFile | None = OriginalFile(raw)
        except ValueError:
            original = None
        yield original


class CocoWriter:
    """Writes one file: pictures and objects as they come; `lost` counts what is left out.

    `names` are the pictures that get another name, by sample.
    """

    def __init__(
        self,
        file: AnnotationFile,
        classes: Sequence[tuple[str, str, str | None, str | None]],
        original: OriginalFile | None,
        lost: Losses,
        names: Mapping[str, str],
    ) -> None:
        """Number the classes; a name that a decision gave gets the number of its class."""
        self._file, self._original, self._lost, self._names = file, original, lost, names
        self._as_written = file.format == "COCO"
        self._classes: dict[str, Document] = {}
        self._keys: dict[str, Any] = {}  # class as written -> id
        for key, name, parent, points in classes:
            self._add_class(key, name, parent, points)
        self._pictures: dict[str, Any] = {}

    def _add_class(
        self, key: str | None, name: str, parent: str | None = None, points: str | None = None
    ) -> Any:
        made: Document = {"name": name}
        if parent:
            made["supercategory"] = parent
        if points:
            made["keypoints"] = json.loads(points)
        if key is not None and self._as_written:
            made["id"] = _id(key)
            if self._original is not None:
                made |= self._original.classes.get(key, {})
        else:
            used = [c["id"] for c in self._classes.values() if isinstance(c["id"], int)]
            made["id"] = max(used, default=0) + 1
        self._classes.setdefault(name, made)
        if key is not None:
            self._keys[key] = made["id"]
        return made["id"]

    def class_id(self, thing: ObjectEntry) -> Any:
        """Return the id of the class of an object, None without."""
        if "class" in thing.changed and thing.label is not None:
            known = self._classes.get(thing.label)
            return known["id"] if known else self._add_class(None, thing.label)
        if thing.category_key is None:
            return None
        if thing.category_key in self._keys:
            return self._keys[thing.category_key]
        if self._as_written:
            return _id(thing.category_key)
        return self._add_class(thing.category_key, thing.category_key)

    def write(
        self, target: Path, pictures: Iterable[PictureEntry], objects: Iterable[ObjectEntry]
    ) -> int:
        """Write the file; returns the number of annotations."""
        with target.open("w", encoding="utf-8") as out:
            out.write("{")
            for key, value in (self._original.others if self._original else {}).items():
                out.write(f"{json.dumps(key)}: {_text(value)},\n")
            _write_list(out, "images", map(self._picture, pictures))
            n = _write_list(out, "annotations", self._numbered(objects))
            _write_list(out, "categories", self._classes.values(), end="}\n")
        return n

    def _picture(self, picture: PictureEntry) -> Document:
        number = _id(picture.image_key) if self._as_written else len(self._pictures) + 1
        self._pictures[picture.image_key] = number
        sides = picture.sides()
        width, height = picture.declared_width, picture.declared_height
        if sides is not None and (width is None or height is None):
            width, height = sides
        named = picture.file_name if self._as_written else picture.path
        renamed = self._names.get(picture.sample_id)
        made: Document = {
            "id": number, "file_name": renamed or named,
            "width": _number(width), "height": _number(height),
        }  # fmt: skip
        if picture.attributes is not None:
            made["attributes"] = attributes_of(picture.attributes)
        if self._original is None:
            return made
        kept = ("width", "height") * picture.resized + ("file_name",) * (renamed is not None)
        written = self._original.entry(picture.byte)
        return made | {key: value for key, value in written.items() if key not in kept}

    def _numbered(self, objects: Iterable[ObjectEntry]) -> Iterator[Document]:
        """Yield the annotations; those without an id get the next free one, at the end."""
        last, without = 0, []
        for thing in objects:
            made = self._object(thing)
            if made is None:
                continue
            if made.get("id") is None:
                without.append(made)
                continue
            if isinstance(made["id"], int):
                last = max(last, made["id"])
            yield made
        for number, made in enumerate(without, last + 1):
            yield {**made, "id": number}

    def _object(self, thing: ObjectEntry) -> Document | None:
        if thing.box is None and thing.kind != "label":
            self._lost.add(Losses.NO_NUMBERS)
            return None
        if thing.other_unit:
            self._lost.add(Losses.UNITS)
        made = self._made(thing)
        if self._original is None or thing.byte is None:
            return made
        written = self._original.entry(thing.byte)
        if "segments_info" in written:  # panoptic: one entry holds many objects
            return made
        meant = self._file.reading != self._file.form or thing.other_unit
        kept: tuple[str, ...] = ("category_id",) if "class" in thing.changed else ()
        if "box" in thing.changed or meant:
            kept += ("bbox", "segmentation", "area")
        return made | {key: value for key, value in written.items() if key not in kept}

    def _made(self, thing: ObjectEntry) -> Document:
        made: Document = {
            "id": _id(thing.annotation_id) if thing.annotation_id is not None else None,
            "image_id": self._pictures[thing.image_key], "category_id": self.class_id(thing),
        }  # fmt: skip
        if thing.box is not None and thing.kind == "box":
            x, y, w, h = thing.box
            turned = (x + w / 2, y + h / 2, w, h, thing.angle)
            made["bbox"] = [_number(v) for v in (thing.box if thing.angle is None else turned)]
        if thing.area is not None or not self._as_written:
            made["area"] = _number(thing.area if thing.area is not None else object_area(thing))
        made["iscrowd"] = int(thing.crowd)
        if thing.mask is not None:
            width, height, runs = thing.mask
            made["segmentation"] = {"size": [height, width], "counts": runs}
        elif thing.rings:
            made["segmentation"] = [[_number(v) for v in ring] for ring in thing.rings]
        if thing.keypoints:
            made["keypoints"] = [_number(v) for v in thing.keypoints]
        if thing.n_keypoints is not None:
            made["num_keypoints"] = _number(thing.n_keypoints)
        if thing.track is not None:
            made["track_id"] = _id(thing.track)
        if thing.attributes is not None:
            made["attributes"] = attributes_of(thing.attributes)
        return {k: v for k, v in made.items() if v is not None or k == "id"}


def _id(text: str) -> int | str:
    return int(text) if _WHOLE.match(text) else text


def _number(value: float | None) -> float | int | None:
    """Return a number as JSON holds it: whole ones without a point, others exactly."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else value


def _write_list(out: IO[str], key: str, entries: Iterable[Document], end: str = ",\n") -> int:
    out.write(f'"{key}": [')
    n = 0
    for n, entry in enumerate(entries, 1):
        out.write(("\n" if n == 1 else ",\n") + _text(entry))
    out.write(f"]{end}")
    return n


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), ensure_ascii=False)
