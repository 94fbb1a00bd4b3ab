"""Damage: files that are broken, disguised, or that decoders do not agree on (codes FILE)."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from book import PNG_SIZE, Book
from encode import (
    END_OF_IMAGE,
    Pixels,
    bake_damage,
    change_bytes,
    cut,
    exif,
    gif,
    jpeg,
    png,
    png16,
    png_bomb,
    tagged,
    webp,
    zero_block,
)
from PIL import Image, ImageDraw


def plant_all(book: Book) -> None:
    """Plant every kind of file damage."""
    plant_unreadable(book)
    plant_truncated(book)
    plant_damaged_inside(book)
    plant_hidden_damage(book)
    plant_trailing_bytes(book)
    plant_wrong_extension(book)
    plant_bomb(book)
    plant_decoder_traps(book)


def plant_unreadable(book: Book) -> None:
    """Plant a file of zero bytes and a web page saved as .jpg."""
    empty = book.add("train", book.label(), b"")
    book.plant("FILE001", [empty], "An empty file was written in place of a photograph.")
    page = tagged({"Not found": "the picture that you asked for has moved"})
    html = book.add("train", book.label(), page)
    book.plant("FILE001", [html], "The web page of a failed download was saved as .jpg.")


def plant_truncated(book: Book) -> None:
    """Plant photographs that end too early."""
    for share in (0.5, 0.9):
        label = book.label()
        broken = cut(jpeg(book.photo(label).pixels), share)
        sample = book.add("train", label, broken)
        book.plant("FILE002", [sample], f"A JPEG was cut after {share:.0%} of its bytes.")
    label = book.label()
    broken = cut(png(book.photo(label, size=PNG_SIZE).pixels), 0.7)
    sample = book.add("test", label, broken, "png")
    book.plant("FILE002", [sample], "A PNG was cut after 70% of its bytes.")
    label = book.label(split="val")
    sample = book.add("val", label, jpeg(book.photo(label).pixels).removesuffix(END_OF_IMAGE))
    book.plant("FILE002", [sample], "The end-of-image marker of a JPEG was removed.")


def plant_damaged_inside(book: Book) -> None:
    """Plant damage in the middle of the data, which Pillow decodes without a word."""
    label = book.label()
    sample = book.add("train", label, _zeroed(book, label))
    book.plant("FILE002", [sample], "A sixteenth of a JPEG, in its second half, was set to zero.")
    for split in ("train", "test"):
        label = book.label()
        data = change_bytes(jpeg(book.photo(label).pixels), book.rng())
        sample = book.add(split, label, data)
        book.plant("FILE002", [sample], "48 bytes of a JPEG's coded picture were changed.")


def _zeroed(book: Book, label: str) -> bytes:
    # About one picture in 400 has no place for such a block.
    while True:
        with suppress(ValueError):
            return zero_block(jpeg(book.photo(label).pixels))


def plant_hidden_damage(book: Book) -> None:
    """Plant damage that a tolerant decoder painted grey and saved again as a sound file."""
    for split in ("train", "val"):
        label = book.label(split=split)
        sample = book.add(split, label, bake_damage(jpeg(book.photo(label).pixels)))
        sentence = (
            "A JPEG cut at 60% was decoded tolerantly and saved again: its lower part is grey."
        )
        book.plant("FILE003", [sample], sentence)


def plant_trailing_bytes(book: Book) -> None:
    """Plant a photograph with something behind its end."""
    label = book.label()
    note = b"caption=evening walk;" * 24
    sample = book.add("train", label, jpeg(book.photo(label).pixels) + note)
    book.plant("FILE003", [sample], f"{len(note)} bytes of text were written behind a JPEG's end.")


def plant_wrong_extension(book: Book) -> None:
    """Plant sound pictures under another format's extension."""
    label = book.label()
    sample = book.add("train", label, png(book.photo(label, size=PNG_SIZE).pixels), "jpg")
    book.plant("FILE004", [sample], "A PNG was named .jpg.")
    label = book.label()
    sample = book.add("test", label, jpeg(book.photo(label).pixels), "png")
    book.plant("FILE004", [sample], "A JPEG was named .png.")


def plant_bomb(book: Book) -> None:
    """Plant a file of under 100 bytes whose header announces 900 million pixels."""
    sample = book.add("train", book.label(), png_bomb(), "png")
    book.plant("FILE005", [sample], "A PNG header announces 30,000 x 30,000 px; no data follow.")


def plant_decoder_traps(book: Book) -> None:
    """Plant sound files that Pillow, OpenCV, torchvision and TensorFlow read differently."""
    label = book.label()
    cmyk = jpeg(Image.fromarray(book.photo(label).pixels).convert("CMYK"), 90, subsampling="4:4:4")
    _trap(book, "train", label, cmyk, "jpg", "A photograph was saved as a CMYK JPEG.")
    label = book.label()
    deep = png16(book.photo(label, size=PNG_SIZE).pixels)
    _trap(book, "train", label, deep, "png", "A photograph was saved as PNG, 16 bits a channel.")
    label = book.label()
    sticker = png(_sticker(book.photo(label, size=(144, 144)).pixels))
    sentence = "A photograph was reduced to a palette PNG with transparent corners."
    _trap(book, "train", label, sticker, "png", sentence)
    label = book.label()
    first = book.photo(label, size=(120, 120)).pixels
    frames = [np.roll(first, shift, axis=1) for shift in (0, 6, 12)]
    _trap(book, "train", label, gif(frames), "gif", "Three frames were saved as an animated GIF.")
    for split in ("train", "val"):
        label = book.label(split=split)
        sample = book.add(split, label, webp(book.photo(label).pixels), "webp")
        book.plant("FILE006", [sample], "A photograph was saved as WebP.")
    label = book.label()
    sideways = np.rot90(book.photo(label, size=(160, 120)).pixels)
    turned = jpeg(np.ascontiguousarray(sideways), exif=exif(orientation=6))
    sample = book.add("test", label, turned)
    book.plant("FILE006", [sample], "A photograph lies on its side and EXIF says so (value 6).")


def _trap(book: Book, split: str, label: str, data: bytes, ext: str, sentence: str) -> None:
    sample = book.add(split, label, data, ext)
    book.plant("FILE006", [sample], sentence)
    book.plant("FILE007", [sample], sentence + " Its mode or depth is rare here.")


def _sticker(pixels: Pixels) -> Image.Image:
    image = Image.fromarray(pixels).quantize(255, dither=Image.Dither.NONE)
    outside = Image.new("L", image.size, 255)
    ImageDraw.Draw(outside).rounded_rectangle(
        (0, 0, image.width - 1, image.height - 1), radius=34, fill=0
    )
    image.paste(255, mask=outside)
    image.info["transparency"] = 255
    return image
