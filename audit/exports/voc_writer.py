"""Pascal VOC out: an XML file for each kept picture, corners in px, the traits that VOC knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from audit.annotations.entries import Losses, ObjectEntry, PictureEntry, attributes_of

FORM = "VOC"
TRAITS = ("pose", "truncated", "difficult", "occluded", "difficulty")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def voc_text(picture: PictureEntry, objects: Sequence[ObjectEntry], lost: Losses) -> str:
    """Return the XML of one picture; `lost` counts what it does not hold."""
    sides = picture.sides()
    width, height = picture.declared_width, picture.declared_height
    if sides is not None and (width is None or height is None):
        width, height = sides
    folder, _, name = picture.path.rpartition("/")
    if picture.attributes is not None:
        lost.add(Losses.PICTURE_ATTRIBUTES, form=FORM)
    lines = [
        "<annotation>",
        _element("folder", folder.rpartition("/")[2], 1),
        _element("filename", name, 1),
        "\t<size>",
        _element("width", px_text(width or 0), 2),
        _element("height", px_text(height or 0), 2),
        _element("depth", "3", 2),
        "\t</size>",
        _element("segmented", "0", 1),
    ]
    for thing in objects:
        lines += _object_lines(thing, lost)
    return "\n".join([*lines, "</annotation>"]) + "\n"


def _object_lines(thing: ObjectEntry, lost: Losses) -> Iterator[str]:
    if thing.box is None or thing.crowd:
        without = Losses.NO_BOX if thing.kind == "label" else Losses.NO_NUMBERS
        lost.add(Losses.CROWDS if thing.crowd else without, form=FORM)
        return
    if thing.label is None and thing.category_key is not None:
        lost.add(Losses.NO_CLASS)
        return
    traits = attributes_of(thing.attributes) if thing.attributes else {}
    known = {k: v for k, v in traits.items() if k in TRAITS} if isinstance(traits, dict) else {}
    for lacks, sentence in (
        (bool(thing.rings), Losses.POLYGONS), (thing.mask is not None, Losses.MASKS),
        (bool(thing.keypoints), Losses.KEYPOINTS), (thing.angle is not None, Losses.ANGLES),
        (known != traits, Losses.ATTRIBUTES), (thing.other_unit, Losses.UNITS),
    ):  # fmt: skip
        if lacks:
            lost.add(sentence, form=FORM)
    yield "\t<object>"
    if thing.label is not None:
        yield _element("name", thing.label, 2)
    for trait in TRAITS:
        if trait in known:
            yield _element(trait, _plain(known[trait]), 2)
    if thing.track is not None:
        yield _element("trackid", thing.track, 2)
    x, y, w, h = thing.box
    yield "\t\t<bndbox>"
    for corner, value in zip(("xmin", "ymin", "xmax", "ymax"), (x, y, x + w, y + h), strict=True):
        yield _element(corner, px_text(value), 3)
    yield "\t\t</bndbox>"
    yield "\t</object>"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def px_text(value: float) -> str:
    """Return a number of px: a whole one without a point, another exactly."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _element(name: str, text: str, depth: int) -> str:
    return "\t" * depth + f"<{name}>{escape(_NOT_XML.sub('', text))}</{name}>"
