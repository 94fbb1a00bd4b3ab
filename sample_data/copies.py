"""Copies: one picture twice, in one split, in two, or under two labels (DUP, SPLIT, LABEL005)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from book import CAMERAS, PNG_SIZE, Book
from encode import Pixels, decoded, exif, jpeg, png
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

LARGE = ((160, 160), (176, 132), (132, 176))


def plant_all(book: Book) -> None:
    """Plant every kind of repetition and leak."""
    plant_byte_copies(book)
    plant_pixel_copies(book)
    plant_conflicts(book)
    plant_near_copies(book)
    plant_group_leaks(book)


def plant_byte_copies(book: Book) -> None:
    """Plant byte-identical files: pairs and a triple in one split, pairs across splits."""
    for splits in (("train", "train"), ("train", "train", "train"), ("test", "test")):
        label = book.label()
        data = jpeg(book.photo(label).pixels)
        ids = [book.add(split, label, data) for split in splits]
        book.plant("DUP001", ids, f"A file was copied under {len(ids) - 1} other name(s).")
    for splits in (("train", "test"), ("train", "test"), ("train", "val")):
        label = book.label(split=splits[1])
        data = jpeg(book.photo(label).pixels)
        ids = [book.add(split, label, data) for split in splits]
        sentence = f"A file was copied from {splits[0]} to {splits[1]}."
        book.plant("DUP001", ids, sentence)
        book.plant("SPLIT001", ids, sentence)


def plant_pixel_copies(book: Book) -> None:
    """Plant files of the same pixels and different bytes."""
    label = book.label()
    pixels = book.photo(label, size=PNG_SIZE).pixels
    ids = [book.add("train", label, png(pixels, level), "png") for level in (9, 1)]
    book.plant("DUP002", ids, "A PNG was written again at another compression level.")
    label = book.label()
    data = jpeg(book.photo(label, size=PNG_SIZE).pixels)
    ids = [book.add("train", label, data), book.add("train", label, png(decoded(data)), "png")]
    book.plant("DUP002", ids, "A JPEG was decoded and written as PNG.")
    for other in ("test", "val"):
        label = book.label(split=other)
        pixels = book.photo(label).pixels
        ids = [
            book.add("train", label, jpeg(pixels)),
            book.add(other, label, jpeg(pixels, comment=b"exported for the web")),
        ]
        sentence = f"A JPEG was given a comment segment and put into {other} as well."
        book.plant("DUP002", ids, sentence)
        book.plant("SPLIT001", ids, sentence)


def plant_conflicts(book: Book) -> None:
    """Plant the same picture under two classes: once the same bytes, once the same pixels."""
    for code, comment in (("DUP001", b""), ("DUP002", b"reviewed")):
        right = book.label()
        wrong = book.label("flower")
        pixels = book.photo(right).pixels
        ids = [
            book.add("train", right, jpeg(pixels)),
            book.add("train", wrong, jpeg(pixels, comment=comment)),
        ]
        sentence = f"One picture of class {right} was filed under {wrong} as well."
        book.plant(code, ids, sentence)
        book.plant("LABEL005", ids, sentence)


def resized(pixels: Pixels) -> Pixels:
    """Return the picture at three quarters of its size."""
    image = Image.fromarray(pixels)
    size = round(image.width * 0.75), round(image.height * 0.75)
    return np.array(image.resize(size, Image.Resampling.LANCZOS))


def cropped(pixels: Pixels) -> Pixels:
    """Return the middle 90% of each side, a little off centre."""
    height, width, _ = pixels.shape
    top, left = round(height * 0.03), round(width * 0.06)
    return pixels[top : top + round(height * 0.9), left : left + round(width * 0.9)].copy()


def mirrored(pixels: Pixels) -> Pixels:
    """Return the picture mirrored left to right."""
    return pixels[:, ::-1].copy()


def brightened(pixels: Pixels) -> Pixels:
    """Return the picture 15% brighter."""
    return np.array(ImageEnhance.Brightness(Image.fromarray(pixels)).enhance(1.15))


def captioned(pixels: Pixels) -> Pixels:
    """Return the picture with a line of text over its lower edge."""
    image = Image.fromarray(pixels)
    font = ImageFont.load_default(size=11)
    at = (6, image.height - 18)
    text = ImageDraw.Draw(image)
    text.text(
        at, "photo: field trip", (250, 250, 245), font, stroke_width=1, stroke_fill=(20, 20, 20)
    )
    return np.array(image)


def rotated(pixels: Pixels) -> Pixels:
    """Return the picture turned by 3 degrees, cropped to what has pixels everywhere."""
    image = Image.fromarray(pixels).rotate(3, Image.Resampling.BICUBIC)
    x, y = round(image.height * 0.055 / 2) + 1, round(image.width * 0.055 / 2) + 1
    return np.array(image)[y:-y, x:-x].copy()


def unchanged(pixels: Pixels) -> Pixels:
    """Return the picture as it is; only the encoder differs."""
    return pixels


CHANGES: Mapping[str, tuple[Callable[[Pixels], Pixels], int]] = {
    "resized to 75%": (resized, 88),
    "compressed again at quality 60": (unchanged, 60),
    "cropped to 90% of each side": (cropped, 88),
    "mirrored": (mirrored, 88),
    "brightened by 15%": (brightened, 88),
    "captioned": (captioned, 88),
    "rotated by 3 degrees": (rotated, 88),
}
WITHIN = tuple(CHANGES)
ACROSS = (
    ("resized to 75%", "test"), ("mirrored", "test"), ("compressed again at quality 60", "test"),
    ("cropped to 90% of each side", "val"), ("brightened by 15%", "test"), ("captioned", "val"),
)  # fmt: skip


def plant_near_copies(book: Book) -> None:
    """Plant changed copies within train, across splits, a triple, and a PNG beside its JPEG."""
    for change in WITHIN:
        ids = _pair(book, "train", "train", change)
        book.plant("DUP003", ids, f"A copy was {change}.")
    for change, other in ACROSS:
        ids = _pair(book, "train", other, change)
        book.plant("SPLIT001", ids, f"A copy was {change} and put into {other}.")
    label = book.label()
    pixels = book.sized(label, LARGE).pixels
    shown = (pixels, mirrored(pixels), cropped(pixels))
    ids = [book.add("train", label, jpeg(p)) for p in shown]
    book.plant("DUP003", ids, "Two copies were made: one mirrored, one cropped to 90%.")
    label = book.label()
    pixels = book.photo(label, size=PNG_SIZE).pixels
    ids = [book.add("train", label, png(pixels), "png"), book.add("train", label, jpeg(pixels, 75))]
    book.plant("DUP003", ids, "A PNG was saved as JPEG as well.")


def _pair(book: Book, first: str, second: str, change: str) -> list[str]:
    label = book.label(split=second)
    pixels = book.sized(label, LARGE).pixels
    alter, quality = CHANGES[change]
    return [
        book.add(first, label, jpeg(pixels, 92)),
        book.add(second, label, jpeg(alter(pixels), quality)),
    ]


def plant_group_leaks(book: Book) -> None:
    """Plant a film clip and a burst that span two splits, and one clip that rightly does not."""
    label = book.label()
    splits = ["train"] * 4 + ["test"] * 2
    ids = book.add_clip(label, 7, splits)
    book.plant(
        "SPLIT002",
        ids,
        "A drive was filmed as clip07: stills 1 to 4 are in train, 5 and 6 in test.",
    )
    label = book.label()
    book.add_clip(label, 3, ["train"] * 4)
    label = book.label()
    ids = []
    for second, split in enumerate(("train", "train", "test", "test"), 31):
        stamp = exif(time=f"2023:08:19 10:42:{second}", camera=CAMERAS[0])
        ids.append(book.add(split, label, jpeg(book.photo(label).pixels, exif=stamp)))
    sentence = "Four shots of one camera within 4 seconds: two are in train, two in test."
    book.plant("SPLIT002", ids, sentence)
