"""Encode: pixels to bytes, every encoder setting fixed, and the surgery that breaks those bytes.

Nothing here writes a time stamp. What a codec would leave to a compression library's version (the
16-bit PNG, the bomb) is written by hand in stored blocks.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
END_OF_IMAGE = b"\xff\xd9"


def jpeg(
    pixels: Pixels | Image.Image,
    quality: int = 88,
    *,
    progressive: bool = False,
    subsampling: str = "4:2:0",
    exif: Image.Exif | None = None,
    comment: bytes = b"",
) -> bytes:
    """Return a JPEG file."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    out = io.BytesIO()
    image.save(
        out,
        "JPEG",
        quality=quality,
        subsampling=subsampling,
        progressive=progressive,
        optimize=False,
        exif=exif.tobytes() if exif else b"",
    )
    data = out.getvalue()
    return data[:2] + _segment(0xFE, comment) + data[2:] if comment else data


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def png(pixels: Pixels | Image.Image, level: int = 9) -> bytes:
    """Return a PNG file at this compression level."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=level)
    return out.getvalue()


def webp(pixels: Pixels, quality: int = 88) -> bytes:
    """Return a lossy WebP file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "WEBP", quality=quality, method=4)
    return out.getvalue()


def gif(frames: Sequence[Pixels]) -> bytes:
    """Return an animated GIF, 200 ms a frame."""
    images = [Image.fromarray(f).quantize(128, dither=Image.Dither.NONE) for f in frames]
    out = io.BytesIO()
    images[0].save(
        out, "GIF", save_all=True, append_images=images[1:], duration=200, loop=0, optimize=False
    )
    return out.getvalue()


def png16(pixels: Pixels) -> bytes:
    """Return a PNG with 16 bits a channel, in stored (uncompressed) blocks."""
    height, width, _ = pixels.shape
    wide = (pixels.astype(np.uint16) * 257).astype(">u2")
    rows = b"".join(b"\0" + wide[y].tobytes() for y in range(height))
    return _png_file(width, height, 16, 2, _stored(rows))


def png_bomb(side: int = 30_000) -> bytes:
    """Return a PNG of under 100 bytes that announces side x side pixels and holds none."""
    return _png_file(side, side, 8, 2, _stored(b""))


def _png_file(width: int, height: int, depth: int, colour: int, data: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return PNG_SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def _stored(raw: bytes) -> bytes:
    # RFC 1950/1951: header, stored blocks of at most 65,535 bytes, Adler-32.
    blocks = [raw[i : i + 65_535] for i in range(0, len(raw), 65_535)] or [b""]
    out = b"\x78\x01"
    for number, block in enumerate(blocks):
        last = number == len(blocks) - 1
        out += struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF) + block
    return out + struct.pack(">I", zlib.adler32(raw))


def exif(
    *, time: str = "", camera: tuple[str, str, str] | None = None, orientation: int = 1
) -> Image.Exif:
    """Return EXIF data: time as `YYYY:MM:DD HH:MM:SS`, camera as make, model, body serial."""
    data = Image.Exif()
    details: dict[int, str] = {}
    if camera:
        data[0x010F], data[0x0110] = camera[:2]
        details[0xA431] = camera[2]
    if time:
        data[0x0132] = time
        details[0x9003] = details[0x9004] = time
    if orientation != 1:
        data[0x0112] = orientation
    if details:
        data[0x8769] = details
    return data


def decoded(data: bytes) -> Pixels:
    """Return the pixels that Pillow makes of a file, as RGB."""
    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))


def scan_start(data: bytes) -> int:
    """Return where the entropy-coded data of a baseline JPEG begins."""
    at = data.index(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def cut(data: bytes, share: float) -> bytes:
    """Return the first `share` of the file's bytes."""
    return data[: int(len(data) * share)]


def zero_block(data: bytes) -> bytes:
    """Return the JPEG with a block of its scan zeroed: as much of it as 4 KiB are of a photograph.

    Tries places from the middle on until Pillow decodes the file without a word, which is what
    makes such damage dangerous, and the rest of the picture is out of step, which is what strict
    decoders see (zeros that stand for just as many blocks as they replaced leave no trace).
    """
    start, length = scan_start(data), max(len(data) // 16, 64)
    for at in range((start + len(data)) // 2, len(data) - length - 64, 37):
        broken = data[:at] + bytes(length) + data[at + length :]
        if _silent_and_wrong(broken, data) and _out_of_step(broken, data):
            return broken
    raise ValueError("no place in this JPEG takes a zeroed block silently")


def _out_of_step(broken: bytes, sound: bytes) -> bool:
    # The grain of the last block row tells where its blocks come from: in a sound decode from
    # there, here from one or more 16-px blocks to the left or right.
    seen, true = (np.diff(decoded(d)[-16:, :, 1].astype(float), axis=1) for d in (broken, sound))
    width = seen.shape[1]
    likeness = {
        shift: _cosine(
            seen[:, max(shift, 0) : width + min(shift, 0)],
            true[:, max(-shift, 0) : width - max(shift, 0)],
        )
        for shift in range(-(width // 32) * 16, width // 2, 16)
    }
    best = max(likeness, key=lambda shift: likeness[shift])
    return best != 0 and likeness[best] > 0.6


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float((a * b).sum() / max(np.sqrt((a * a).sum() * (b * b).sum()), 1e-9))


def change_bytes(data: bytes, rng: np.random.Generator, count: int = 48) -> bytes:
    """Return the JPEG with `count` bytes of its scan changed, so that Pillow does not notice."""
    start = scan_start(data)
    for _ in range(200):
        raw = np.frombuffer(data, np.uint8).copy()
        at = rng.choice(np.arange(start + 200, len(data) - 200), count - 2, replace=False)
        raw[at] = rng.integers(0, 255, count - 2)
        # The last two make a stray restart marker: without one, a decoder that stays in step by
        # chance would have nothing to complain about.
        raw[len(data) - 120 : len(data) - 118] = 0xFF, 0xD1
        broken = raw.tobytes()
        if _silent_and_wrong(broken, data):
            return broken
    raise ValueError("no change of bytes in this JPEG goes unnoticed")


def _silent_and_wrong(broken: bytes, sound: bytes) -> bool:
    try:
        seen = decoded(broken).astype(int)
    except OSError:
        return False
    return bool((np.abs(seen - decoded(sound)).max(axis=2) > 24).mean() > 0.05)


def bake_damage(data: bytes, share: float = 0.6) -> bytes:
    """Return what a tolerant decoder makes of the first `share` of a JPEG, saved again as sound."""
    return jpeg(decoded(cut(data, share) + END_OF_IMAGE), 92)


def tagged(fields: Mapping[str, str]) -> bytes:
    """Return the web page that a download of a missing picture often is."""
    body = "".join(f"<p>{name}: {value}</p>" for name, value in fields.items())
    page = f"<!DOCTYPE html>\n<html><head><title>404</title></head><body>{body}</body></html>\n"
    return page.encode()
