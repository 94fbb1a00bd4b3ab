"""Drawn and pasted objects with boxes, and what annotators do wrong to them, to judge boxes by.

A world is a list of pictures with true boxes; `renamed` and `moved` damage the annotations alone,
so that one world serves many tries. Backgrounds are real photographs, textures or rooms; objects
are CIFAR-10 pictures with soft edges or drawings of twelve kinds of thing.
"""

from __future__ import annotations

import io
import json
import math
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Rgb = NDArray[np.uint8]
Rng = np.random.Generator
DRAWN = (
    "car", "truck", "bicycle", "hammer", "wrench", "apple", "banana", "stop", "warning", "cup",
    "house", "tree",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Box:
    """Corners in pixels, the class that is written, what is wrong with it (or "")."""

    left: float
    top: float
    right: float
    bottom: float
    label: str
    fault: str = ""

    def shares(self, other: Box) -> float:
        """Return the part of the smaller box that both cover."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        area = min((b.right - b.left) * (b.bottom - b.top) for b in (self, other))
        return max(wide, 0) * max(high, 0) / max(area, 1e-9)


@dataclass(slots=True)
class Picture:
    """A picture, by the name of its file, and the boxes that are annotated in it."""

    name: str
    rgb: Rgb
    boxes: list[Box]


# ---- backgrounds ----


class Photographs:
    """Real photographs, cut to a size; drawn by number."""

    def __init__(self, data: Path) -> None:
        self.files = [path.read_bytes() for path in sorted((data / "photos").glob("*.JPEG"))]
        with tarfile.open(data / "photos-800.tar") as tar:
            for member in tar:
                if file := tar.extractfile(member):
                    self.files.append(file.read())

    def draw(self, rng: Rng, size: tuple[int, int]) -> Image.Image:
        """Return a part of one of them."""
        image = Image.open(io.BytesIO(self.files[int(rng.integers(len(self.files)))]))
        image.draft("RGB", size)
        wide, high = image.size
        scale = max(size[0] / wide, size[1] / high) * rng.uniform(1, 1.4)
        fit = image.convert("RGB").resize((math.ceil(wide * scale), math.ceil(high * scale)))
        left, top = (int(rng.integers(f - s + 1)) for f, s in zip(fit.size, size, strict=True))
        return fit.crop((left, top, left + size[0], top + size[1]))


def texture(rng: Rng, size: tuple[int, int]) -> Image.Image:
    """Return noise of several scales: a satellite's or a microscope's ground."""
    total = np.zeros((size[1], size[0], 3))
    for cell in (3, 9, 31, 97):
        low = rng.normal(size=(size[1] // cell + 2, size[0] // cell + 2, 3))
        low += rng.normal(size=(*low.shape[:2], 1)) * 2
        planes = [
            np.asarray(Image.fromarray(low[..., c].astype(np.float32)).resize(size, 3))
            for c in range(3)
        ]
        total += np.stack(planes, axis=-1) * cell**0.3
    tint = rng.uniform(70, 150, 3)
    return Image.fromarray(np.clip(total * 11 + tint, 0, 255).astype(np.uint8))


def plain(rng: Rng, size: tuple[int, int]) -> Image.Image:
    return Image.new("RGB", size, tuple(int(v) for v in rng.integers(150, 250, 3)))


# ---- objects ----


class Cifar:
    """CIFAR-10 pictures by class, each with a soft edge."""

    def __init__(self, data: Path) -> None:
        self.files: dict[str, list[bytes]] = {}
        with tarfile.open(data / "cifar10-mini.tar") as tar:
            for member in tar:
                if (file := tar.extractfile(member)) and member.name.endswith(".jpg"):
                    self.files.setdefault(member.name.split("/")[2], []).append(file.read())
        self.classes = tuple(sorted(self.files))

    def draw(self, rng: Rng, label: str, size: tuple[int, int]) -> Image.Image:
        """Return one of a class."""
        files = self.files[label]
        tile = Image.open(io.BytesIO(files[int(rng.integers(len(files)))])).convert("RGB")
        if rng.random() < 0.5:
            tile = tile.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tile = tile.resize(size, Image.Resampling.BICUBIC)
        edge = max(1, min(size) // 12)
        mask = Image.new("L", size, 0)
        mask.paste(255, (edge, edge, size[0] - edge, size[1] - edge))
        tile.putalpha(mask.filter(ImageFilter.GaussianBlur(edge / 2)))
        return tile


def _colour(rng: Rng, low: int = 20, high: int = 235) -> tuple[int, int, int]:
    red, green, blue = (int(v) for v in rng.integers(low, high, 3))
    return red, green, blue


def _near(rng: Rng, colour: tuple[int, int, int], spread: int = 35) -> tuple[int, int, int]:
    red, green, blue = (int(np.clip(c + rng.integers(-spread, spread), 0, 255)) for c in colour)
    return red, green, blue


Pen = Callable[..., None]


def _vehicle(draw: ImageDraw.ImageDraw, rng: Rng, wheels: int, cab: float) -> None:
    body, glass = _colour(rng), _near(rng, (150, 190, 220))
    draw.rounded_rectangle((4, 45, 96, 75), 8, fill=body)
    if cab:
        draw.rectangle((4, rng.uniform(15, 25), 66, 60), fill=_colour(rng))
        draw.polygon([(70, 28), (86, 28), (96, 50), (70, 50)], fill=glass)
    else:
        draw.polygon([(22, 46), (34, 24), (68, 24), (82, 46)], fill=body)
        draw.polygon([(30, 44), (38, 29), (64, 29), (74, 44)], fill=glass)
    for at in np.linspace(22, 78, wheels):
        draw.ellipse((at - 11, 64, at + 11, 86), fill=(25, 25, 25))
        draw.ellipse((at - 5, 70, at + 5, 80), fill=(150, 150, 150))


def _draw_thing(draw: ImageDraw.ImageDraw, rng: Rng, label: str) -> None:
    dark = (40, 40, 45)
    if label == "car":
        _vehicle(draw, rng, 2, 0)
    elif label == "truck":
        _vehicle(draw, rng, 3, 1)
    elif label == "bicycle":
        frame = _colour(rng)
        for at in (24, 76):
            draw.ellipse((at - 20, 42, at + 20, 82), outline=dark, width=4)
        joints = [(24, 62), (40, 30), (66, 30), (50, 62), (24, 62), (40, 30), (50, 62)]
        draw.line(joints, fill=frame, width=5)
        draw.line([(76, 62), (64, 20), (74, 16)], fill=frame, width=5)
    elif label == "hammer":
        draw.rectangle((45, 25, 55, 97), fill=_near(rng, (160, 110, 60)))
        draw.rounded_rectangle((20, 6, 82, 28), 5, fill=_near(rng, (120, 120, 130)))
    elif label == "wrench":
        steel = _near(rng, (160, 165, 175))
        draw.rectangle((43, 22, 57, 80), fill=steel)
        for top in (2, 70):
            draw.ellipse((34, top, 66, top + 28), outline=steel, width=10)
    elif label == "apple":
        skin = _near(rng, ((190, 30, 35), (120, 180, 40))[int(rng.integers(2))])
        draw.ellipse((10, 22, 62, 95), fill=skin)
        draw.ellipse((38, 22, 90, 95), fill=skin)
        draw.line([(50, 30), (56, 6)], fill=(90, 60, 30), width=5)
        draw.ellipse((56, 6, 80, 18), fill=(60, 140, 50))
    elif label == "banana":
        draw.arc((2, -45, 98, 80), 15, 165, fill=_near(rng, (225, 200, 50)), width=22)
    elif label in ("stop", "warning"):
        sides, turn = (8, 22.5) if label == "stop" else (3, -90)
        rim = [
            (50 + 46 * math.cos(a), 50 + 46 * math.sin(a))
            for a in np.radians(turn + np.arange(sides) * 360 / sides)
        ]
        inside = [(50 + (x - 50) * 0.72, 50 + (y - 50) * 0.72) for x, y in rim]
        draw.polygon(rim, fill=_near(rng, (200, 25, 30), 25))
        draw.polygon(inside, fill=(210, 40, 40) if label == "stop" else (245, 240, 225))
        ink = (250, 250, 250) if label == "stop" else dark
        draw.rectangle((30, 44, 70, 56) if label == "stop" else (46, 32, 54, 62), fill=ink)
    elif label == "cup":
        clay = _colour(rng, 60)
        draw.ellipse((60, 32, 94, 70), outline=clay, width=8)
        draw.polygon([(12, 18), (74, 18), (66, 90), (20, 90)], fill=clay)
        draw.ellipse((12, 10, 74, 26), fill=_near(rng, (70, 45, 30)))
    elif label == "house":
        draw.rectangle((16, 45, 84, 96), fill=_colour(rng, 120))
        draw.polygon([(6, 48), (50, 8), (94, 48)], fill=_near(rng, (150, 60, 45)))
        draw.rectangle((42, 66, 58, 96), fill=dark)
        draw.rectangle((22, 56, 36, 70), fill=(190, 215, 235))
    else:
        draw.rectangle((44, 55, 56, 98), fill=_near(rng, (100, 70, 40)))
        green = _near(rng, (50, 120, 50))
        for _ in range(9):
            x, y = rng.uniform(22, 78), rng.uniform(18, 52)
            draw.ellipse((x - 18, y - 16, x + 18, y + 16), fill=_near(rng, green, 20))


class Drawings:
    """Drawn things, turned a little, with colours, light and noise of their own."""

    def __init__(self, classes: tuple[str, ...] = DRAWN) -> None:
        self.classes = classes

    def draw(self, rng: Rng, label: str, size: tuple[int, int]) -> Image.Image:
        """Return one of a class."""
        tile = Image.new("RGBA", (100, 100))
        _draw_thing(ImageDraw.Draw(tile), rng, label.split(" ")[0])
        tile = tile.rotate(rng.normal() * 12, Image.Resampling.BICUBIC)
        if rng.random() < 0.5:
            tile = tile.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tile = tile.resize(size, Image.Resampling.LANCZOS)
        rgba = np.asarray(tile).astype(float)
        light = np.linspace(*rng.uniform(0.7, 1.25, 2), size[0])[None, :, None]
        rgba[..., :3] = rgba[..., :3] * light + rng.normal(size=(size[1], size[0], 1)) * 6
        return Image.fromarray(np.clip(rgba, 0, 255).astype(np.uint8), "RGBA")


# ---- worlds ----


@dataclass(frozen=True, slots=True)
class Plan:
    """What a world is made of."""

    objects: str = "cifar"  # or "drawn"
    ground: str = "photo"  # or "texture", "plain"
    pictures: int = 200
    size: tuple[int, int] = (480, 360)
    each: tuple[int, int] = (2, 6)
    side: tuple[float, float] = (48, 160)
    classes: int = 8
    overlap: float = 0.15
    loose: float = 0.06  # spread of a box's edges, as a share of its side
    grid: bool = False
    annotated: float = 1.0
    rare: bool = False  # shares of classes fall off as 1 / rank
    faint: float = 1.0  # opacity of the objects


@cache
def _makers(data: Path) -> tuple[Photographs, Cifar]:
    return Photographs(data), Cifar(data)


def world(plan: Plan, seed: int, data: Path) -> list[Picture]:
    """Return the pictures of a plan."""
    rng = np.random.default_rng(seed)
    photographs, cifar = _makers(data)
    maker: Cifar | Drawings = cifar if plan.objects == "cifar" else Drawings()
    classes = sorted(rng.permutation(maker.classes)[: plan.classes].tolist())
    odds = 1 / (1 + np.arange(len(classes))) if plan.rare else np.ones(len(classes))
    grounds = {"photo": photographs.draw, "texture": texture, "plain": plain}
    made = []
    for number in range(plan.pictures):
        image = grounds[plan.ground](rng, plan.size)
        boxes = []
        for place in _places(plan, rng):
            label = str(rng.choice(classes, p=odds / odds.sum()))
            left, top, wide, high = place
            tile = maker.draw(rng, label, (wide, high))
            mask = tile.getchannel("A").point(lambda v: int(v * plan.faint))
            image.paste(tile, (left, top), mask)
            if rng.random() < plan.annotated:
                boxes.append(_loosely(plan, rng, place, label))
        made.append(Picture(f"{number:05d}.jpg", np.asarray(image), boxes))
    return made


def _places(plan: Plan, rng: Rng) -> Iterator[tuple[int, int, int, int]]:
    wide, high = plan.size
    if plan.grid:
        step = int(plan.side[0])
        for top in range(0, high - step + 1, step):
            for left in range(0, wide - step + 1, step):
                yield left, top, step - 2, step - 2
        return
    done: list[Box] = []
    for _ in range(int(rng.integers(plan.each[0], plan.each[1] + 1))):
        for _try in range(30):
            side = math.exp(rng.uniform(*np.log(plan.side)))
            aspect = math.exp(rng.normal() * 0.15)
            w, h = (max(4, int(v)) for v in (side * aspect, side / aspect))
            if w >= wide or h >= high:
                continue
            left, top = int(rng.integers(wide - w)), int(rng.integers(high - h))
            box = Box(left, top, left + w, top + h, "")
            if all(box.shares(other) <= plan.overlap for other in done):
                done.append(box)
                yield left, top, w, h
                break


def _loosely(plan: Plan, rng: Rng, place: tuple[int, int, int, int], label: str) -> Box:
    left, top, wide, high = place
    off = rng.normal(size=4) * plan.loose * np.array([wide, high, wide, high])
    edges = np.array([left, top, left + wide, top + high]) + off
    edges = np.clip(edges, 0, [*plan.size, *plan.size]).round(1)
    return Box(*edges.tolist(), label)


def raccoons(data: Path) -> list[Picture]:
    """Return the real annotated pictures, as published."""
    made = []
    for path in sorted((data / "raccoon/annotations").glob("*.xml")):
        tree = ElementTree.parse(path)
        name = tree.findtext("filename", "")
        image = Image.open(data / "raccoon/images" / name).convert("RGB")
        boxes = []
        for thing in tree.iter("object"):
            edges = [
                float(thing.findtext(f"bndbox/{e}", "")) for e in ("xmin", "ymin", "xmax", "ymax")
            ]
            boxes.append(Box(*edges, thing.findtext("name", "")))
        made.append(Picture(name, np.asarray(image), boxes))
    return made


# ---- sets in which nothing is wrong, and much is odd ----

NULLS = (
    "sound", "dealt", "alike", "overlapping", "tiny", "crowd", "grid", "satellite", "medical",
    "half annotated", "a fifth annotated", "regions", "lines", "frames", "stuff", "faint",
    "loose",
)  # fmt: skip


def null_world(kind: str, seed: int, data: Path) -> list[Picture]:
    """Return a set of 64 to 200 pictures without a wrong box (`NULLS`), or of dealt classes."""
    rng = np.random.default_rng([seed, NULLS.index(kind)])
    plan = Plan(
        objects=str(rng.choice(["cifar", "drawn"])), pictures=int(rng.choice([64, 120, 200])),
        classes=int(rng.integers(2, 11)), rare=bool(rng.random() < 0.3),
    )  # fmt: skip
    changed: dict[str, dict[str, object]] = {
        "overlapping": {"overlap": 1.0, "each": (5, 12)},
        "tiny": {"side": (6, 20), "each": (3, 12)},
        "crowd": {"side": (8, 24), "each": (200, 600), "size": (960, 720), "pictures": 20},
        "grid": {"grid": True, "side": (60, 60), "pictures": 40},
        "satellite": {"ground": "texture", "side": (10, 40), "each": (3, 12)},
        "half annotated": {"annotated": 0.5, "each": (3, 9)},
        "a fifth annotated": {"annotated": 0.2, "each": (6, 14)},
        "loose": {"loose": 0.2},
        "faint": {"faint": float(rng.uniform(0.15, 0.5))},
    }
    if kind in ("regions", "lines", "medical"):
        made = {"regions": _regions, "lines": _lines, "medical": _medical}[kind]
        photographs = _makers(data)[0]
        return [made(f"{n:05d}.jpg", rng, photographs) for n in range(plan.pictures)]
    pictures = world(replace(plan, **changed.get(kind, {})), seed, data)  # type: ignore[arg-type]
    if kind == "dealt":
        return dealt(pictures, seed)
    if kind == "alike":
        return [
            Picture(p.name, p.rgb, [
                replace(b, label=f"{b.label} {rng.choice(['old', 'new'])}") for b in p.boxes
            ])
            for p in pictures
        ]  # fmt: skip
    if kind == "stuff":
        return _with_stuff(pictures, rng)
    return _frames(pictures, rng) if kind == "frames" else pictures


def _regions(name: str, rng: Rng, photographs: Photographs) -> Picture:
    """Return a photograph whose boxes are all of it, or halves: rooms, views, pages."""
    image, word = photographs.draw(rng, (480, 360)), str(rng.choice(["kitchen", "hall", "bath"]))
    half = int(rng.integers(160, 320))
    boxes = [Box(0, 0, 480, 360, word)]
    if rng.random() < 0.5:
        boxes = [Box(0, 0, half, 360, word), Box(half, 0, 480, 360, "window")]
    return Picture(name, np.asarray(image), boxes)


def _lines(name: str, rng: Rng, _photographs: Photographs) -> Picture:
    image = plain(rng, (480, 640))
    draw, boxes, top = ImageDraw.Draw(image), [], 20
    while top < 600:
        kind = str(rng.choice(["line", "line", "title", "figure"]))
        high = {"line": 14, "title": 30, "figure": 90}[kind]
        left, right = int(rng.integers(20, 60)), int(rng.integers(240, 460))
        if kind == "figure":
            draw.rectangle((left, top, right, top + high), fill=_colour(rng))
        else:
            x = left
            while x < right:
                w = int(rng.integers(2, high // 2 + 2))
                draw.rectangle((x, top + rng.integers(0, 4), x + w, top + high - 3), fill=(30,) * 3)
                x += w + int(rng.integers(1, 6))
        if rng.random() < 0.8:
            boxes.append(Box(left - 2, top - 2, right + 2, top + high + 2, kind))
        top += high + int(rng.integers(8, 30))
    return Picture(name, np.asarray(image), boxes)


def _medical(name: str, rng: Rng, _photographs: Photographs) -> Picture:
    """Return grey tissue with bright and dark blobs, hardly to be told from it."""
    grey = np.asarray(texture(rng, (400, 400)).convert("L")).astype(float) * 0.6 + 40
    y, x = np.mgrid[:400, :400]
    boxes = []
    for _ in range(int(rng.integers(1, 7))):
        label = str(rng.choice(["cyst", "nodule", "lesion"]))
        cx, cy, r = rng.uniform(50, 350), rng.uniform(50, 350), rng.uniform(10, 40)
        power = {"cyst": -35, "nodule": 35, "lesion": 25}[label]
        apart = np.hypot(x - cx, y - cy) / r
        if label == "lesion":
            apart = np.abs(apart - 0.8) * 2
        grey += power * np.exp(-(apart**2) * 2)
        boxes.append(Box(cx - r, cy - r, cx + r, cy + r, label))
    return Picture(name, np.repeat(np.clip(grey, 0, 255).astype(np.uint8)[..., None], 3, 2), boxes)


def _with_stuff(pictures: list[Picture], rng: Rng) -> list[Picture]:
    """Add a class whose boxes are what the background is too: grass, road, sky."""
    made = []
    for picture in pictures:
        high, wide = picture.rgb.shape[:2]
        boxes = list(picture.boxes)
        for _ in range(int(rng.integers(0, 4))):
            w, h = rng.uniform(50, 160, 2)
            left, top = rng.uniform(0, wide - w), rng.uniform(0, high - h)
            new = Box(left, top, left + w, top + h, "stuff")
            if all(new.shares(other) < 0.1 for other in boxes):
                boxes.append(new)
        made.append(Picture(picture.name, picture.rgb, boxes))
    return made


def _frames(pictures: list[Picture], rng: Rng) -> list[Picture]:
    """Make films of eight frames of every eighth picture, with a class dealt to each object."""
    names = sorted({box.label for picture in pictures for box in picture.boxes})
    made = []
    for number, picture in enumerate(pictures[: len(pictures) // 4]):
        labels = [str(rng.choice(names)) for _ in picture.boxes]
        for frame in range(8):
            dx, dy = 2 * frame, frame
            rgb = np.roll(picture.rgb, (dy, dx), (0, 1))
            noise = rng.integers(-6, 7, rgb.shape)
            boxes = [
                replace(b, left=b.left + dx, right=b.right + dx, top=b.top + dy,
                        bottom=b.bottom + dy, label=label)
                for b, label in zip(picture.boxes, labels, strict=True)
            ]  # fmt: skip
            rgb = np.clip(rgb + noise, 0, 255).astype(np.uint8)
            made.append(Picture(f"film{number:02d}/{frame:04d}.jpg", rgb, boxes))
    return made


# ---- damage: the annotations alone ----


def renamed(pictures: list[Picture], share: float, seed: int) -> list[Picture]:
    """Give a share of the boxes another of the classes."""
    rng = np.random.default_rng(seed)
    classes = sorted({box.label for picture in pictures for box in picture.boxes})

    def other(box: Box, _picture: Picture) -> Box:
        rest = [name for name in classes if name != box.label]
        return replace(box, label=str(rng.choice(rest)), fault=f"class:{box.label}")

    return _some(pictures, share, rng, other)


def moved(pictures: list[Picture], share: float, seed: int) -> list[Picture]:
    """Lay a share of the boxes where no object is."""
    rng = np.random.default_rng(seed)

    def away(box: Box, picture: Picture) -> Box:
        high, wide = picture.rgb.shape[:2]
        w, h = box.right - box.left, box.bottom - box.top
        for _ in range(60):
            left, top = rng.uniform(0, max(wide - w, 0)), rng.uniform(0, max(high - h, 0))
            new = Box(left, top, left + w, top + h, box.label, "background")
            if all(new.shares(other) < 0.1 for other in picture.boxes):
                return new
        return box

    return _some(pictures, share, rng, away)


def dealt(pictures: list[Picture], seed: int) -> list[Picture]:
    """Deal the classes anew: nothing can be known from the pixels."""
    rng = np.random.default_rng(seed)
    labels = [box.label for picture in pictures for box in picture.boxes]
    pool = iter(rng.permutation(labels).tolist())
    return [
        Picture(p.name, p.rgb, [replace(box, label=next(pool)) for box in p.boxes])
        for p in pictures
    ]


def _some(
    pictures: list[Picture], share: float, rng: Rng, change: Callable[[Box, Picture], Box]
) -> list[Picture]:
    total = sum(len(picture.boxes) for picture in pictures)
    chosen = set(rng.choice(total, round(share * total), replace=False).tolist())
    number, made = 0, []
    for picture in pictures:
        boxes = []
        for box in picture.boxes:
            boxes.append(change(box, picture) if number in chosen else box)
            number += 1
        made.append(Picture(picture.name, picture.rgb, boxes))
    return made


# ---- on disk ----


def write(pictures: list[Picture], folder: Path, form: str = "coco") -> None:
    """Write pictures and annotations as VOC, COCO or YOLO."""
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        (images / picture.name).parent.mkdir(parents=True, exist_ok=True)
        if not (images / picture.name).exists():
            Image.fromarray(picture.rgb).save(images / picture.name, quality=92)
    classes = sorted({box.label for picture in pictures for box in picture.boxes})
    {"coco": _coco, "voc": _voc, "yolo": _yolo}[form](pictures, folder, classes)


def _coco(pictures: list[Picture], folder: Path, classes: list[str]) -> None:
    document: dict[str, list[dict[str, object]]] = {
        "images": [
            {"id": i, "file_name": p.name, "width": p.rgb.shape[1], "height": p.rgb.shape[0]}
            for i, p in enumerate(pictures)
        ],
        "categories": [{"id": i, "name": name} for i, name in enumerate(classes)],
        "annotations": [],
    }
    for i, picture in enumerate(pictures):
        for box in picture.boxes:
            w, h = box.right - box.left, box.bottom - box.top
            document["annotations"].append(
                {
                    "id": len(document["annotations"]) + 1, "image_id": i, "iscrowd": 0,
                    "category_id": classes.index(box.label), "area": w * h,
                    "bbox": [box.left, box.top, w, h],
                }
            )  # fmt: skip
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations" / "instances.json").write_text(json.dumps(document))


def _voc(pictures: list[Picture], folder: Path, _classes: list[str]) -> None:
    (folder / "annotations").mkdir(exist_ok=True)
    for picture in pictures:
        high, wide = picture.rgb.shape[:2]
        objects = "".join(
            f"<object><name>{b.label}</name><bndbox><xmin>{b.left + 1:.0f}</xmin>"
            f"<ymin>{b.top + 1:.0f}</ymin><xmax>{b.right:.0f}</xmax><ymax>{b.bottom:.0f}</ymax>"
            "</bndbox></object>"
            for b in picture.boxes
        )
        (folder / "annotations" / f"{Path(picture.name).stem}.xml").write_text(
            f"<annotation><filename>{picture.name}</filename><size><width>{wide}</width>"
            f"<height>{high}</height><depth>3</depth></size>{objects}</annotation>"
        )


def _yolo(pictures: list[Picture], folder: Path, classes: list[str]) -> None:
    (folder / "labels").mkdir(exist_ok=True)
    names = "".join(f"  {i}: {name}\n" for i, name in enumerate(classes))
    (folder / "data.yaml").write_text(f"path: .\ntrain: images\nnames:\n{names}")
    for picture in pictures:
        high, wide = picture.rgb.shape[:2]
        lines = "".join(
            f"{classes.index(b.label)} {(b.left + b.right) / 2 / wide:.6f} "
            f"{(b.top + b.bottom) / 2 / high:.6f} {(b.right - b.left) / wide:.6f} "
            f"{(b.bottom - b.top) / high:.6f}\n"
            for b in picture.boxes
        )
        (folder / "labels" / f"{Path(picture.name).stem}.txt").write_text(lines)
