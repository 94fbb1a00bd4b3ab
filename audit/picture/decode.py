"""Decode image bytes. No other module does; the policy for hostile files is here.

JPEG is decoded by libjpeg-turbo in strict mode, because Pillow hides damage in the middle of a
file. All other formats are decoded by Pillow. The policy:

- **Orientation**: EXIF orientation is applied before size and hashes are computed.
- **Alpha**: composited on white; `transparent` is the share of pixels with alpha below one half.
- **Above 8 bits**: 16-bit samples are divided by 257, as are 32-bit integers within 16 bits. Other
  integers and floats outside [0, 1] are scaled from minimum to maximum.
- **CMYK, Lab, YCbCr, palettes**: converted to RGB by Pillow, without the ICC profile.
- **Animation, pages**: the first frame is measured.
- **Limits**: files above `max_pixels`, `max_bytes` or `max_memory` are not decoded. EPS and WMF are
  rejected.
- **Damage**: a tolerant second decode is measured and marked `damaged`.
- **The machine**: a full disk or missing memory raises MachineError.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import blake3
import numpy as np
import simplejpeg
from PIL import Image, ImageFile, UnidentifiedImageError

from audit.errors import find_machine_error
from audit.machine.executors import MEMORY
from audit.picture.header import decode_memory, exif_columns, header_columns
from audit.picture.magic import IMAGES, detect, extension_of
from audit.picture.pixels import Picture, Pixels, compose_picture, eight_bits, grey_tail

# Raster formats that Pillow decodes in-process, without EPS, PDF, WMF (other programs), MPEG
# (header only), BUFR/GRIB/HDF5 (stubs). TGA has no magic and takes others' files, so it is last.
DECODED_FORMATS = (
    "JPEG PNG GIF WEBP BMP DIB TIFF AVIF JPEG2000 PPM ICO CUR ICNS PCX DCX SGI DDS PSD QOI XBM "
    "XPM FLI MSP IM SPIDER BLP FTEX GBR SUN XVTHUMB MCIDAS PIXAR WAL IMT IPTC FITS PCD TGA"
)
Image.init()
FORMATS = tuple(name for name in DECODED_FORMATS.split() if name in Image.OPEN)
# Warnings of libjpeg about headers that every decoder agrees on: not damage.
HARMLESS = re.compile(r"Invalid SOS param|Adobe color transform|bad ICC marker", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one file: pixels of its header, bytes, and bytes of memory of decoding it."""

    max_pixels: int = 134_217_728
    max_bytes: int = 1_073_741_824
    max_memory: int = MEMORY


class Scratch:
    """A reused buffer for decoded pixels; a `Picture` is valid until the next decode with it."""

    def __init__(self) -> None:
        self._bytes = bytearray(0)

    def buffer(self, n_bytes: int) -> bytearray | None:
        """Return a buffer of at least `n_bytes`, None above 64 MiB, which is not worth keeping."""
        if n_bytes > 1 << 26:
            return None
        if len(self._bytes) < n_bytes:
            self._bytes = bytearray(max(n_bytes, 1 << 21))
        return self._bytes


class DecodeError(Exception):
    """A file that gives no picture: `kind` is an `error_kind`, the text is for the reader."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def content_hash(data: bytes) -> str:
    """Return the BLAKE3-256 of a file's bytes, hex."""
    return blake3.blake3(data).hexdigest()


def decode_picture(
    data: bytes, name: str, limits: Limits, scratch: Scratch | None = None
) -> tuple[dict[str, Any], Picture | None]:
    """Return the columns of one file's bytes and its picture, None if it cannot be decoded.

    Never raises for what is in `data`; MachineError where the machine has run out of something.
    """
    columns: dict[str, Any] = {
        "status": "ok",
        "content_hash": content_hash(data),
        "detected": detect(data),
        "extension": extension_of(name),
    }
    picture: Picture | None = None
    with warnings.catch_warnings(record=True) as decoder_warnings:
        warnings.simplefilter("always")
        tiff = columns["detected"] == "TIFF"
        native = _native_warnings(columns) if tiff else contextlib.nullcontext()
        try:
            with native:
                picture = _decode_opened(data, columns, limits, scratch or Scratch())
        except DecodeError as error:
            columns |= {"status": "unreadable", "error_kind": error.kind, "error": str(error)}
        except Exception as error:  # noqa: BLE001 - decoders raise anything on hostile bytes
            raise_machine_error(error)
            kind = "unsupported" if "nsupported" in str(error) else "corrupt"
            text = f"{type(error).__name__}: {error}"
            columns |= {"status": "unreadable", "error_kind": kind, "error": text}
    _note_warnings(columns, [str(w.message) for w in decoder_warnings])
    return columns, picture


def starts_as_image(file: BinaryIO) -> bool:
    """Return whether a file has the header of a format that is decoded here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Image.open(file, formats=FORMATS)
    except Image.DecompressionBombError:
        return True
    except Exception:  # noqa: BLE001 - decoders raise anything on hostile bytes
        return False
    return True


def raise_machine_error(error: Exception) -> None:
    """Raise what the machine ran out of, where that is what stopped a decoder."""
    if machine := find_machine_error(error):
        raise machine from error


def _note_warnings(columns: dict[str, Any], more: list[str]) -> None:
    texts = [columns["decoder_warnings"]] if columns.get("decoder_warnings") else []
    texts += [" ".join(text.split()) for text in dict.fromkeys(more)]
    if texts:
        columns["decoder_warnings"] = "; ".join(texts)[:500]


def _decode_opened(
    data: bytes, columns: dict[str, Any], limits: Limits, scratch: Scratch
) -> Picture:
    image = _open(data, columns)
    width, height = image.size
    columns |= {"format": image.format, "mode": image.mode, "width": width, "height": height}
    if width * height > limits.max_pixels:
        raise DecodeError(
            "bomb",
            f"the header promises {width:,} x {height:,} pixels in {len(data):,} bytes; "
            f"max_pixels is {limits.max_pixels:,}",
        )
    needed = decode_memory(image)
    if needed > limits.max_memory:
        raise DecodeError(
            "memory",
            f"decoding {width:,} x {height:,} pixels of this kind takes about "
            f"{needed / 1e9:.1f} GB; max_memory is {limits.max_memory / 1e9:.1f} GB",
        )
    columns |= header_columns(image, data)
    jpeg = image.format in ("JPEG", "MPO")
    if jpeg and image.mode in ("L", "RGB"):
        stored = _decode_jpeg(data, image, columns, scratch)
    else:
        stored = _decode_other(data, image, columns, strict_jpeg=jpeg)
    return compose_picture(stored, columns)


def _open(data: bytes, columns: dict[str, Any]) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise DecodeError("bomb", str(error)) from None
    except UnidentifiedImageError:
        content = columns["detected"]
        if content in IMAGES:
            kind = "corrupt" if content in FORMATS else "unsupported"
            raise DecodeError(
                kind, f"it starts like {content}, but its header cannot be read"
            ) from None
        raise DecodeError(
            "not-an-image", f"the content is {content or 'of no known image format'}"
        ) from None


@contextlib.contextmanager
def _native_warnings(columns: dict[str, Any]) -> Iterator[None]:
    """Keep what libtiff writes to the stderr of the process: Pillow does not pass it on."""
    try:
        saved = os.dup(2)
    except OSError as error:
        raise_machine_error(error)
        yield  # without stderr nothing is written
        return
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, saved)
        # what is beyond the 64 kB of a pipe is lost instead of waited for
        reading, writing = os.pipe()
        for descriptor in (reading, writing):
            opened.callback(os.close, descriptor)
            os.set_blocking(descriptor, False)
        os.dup2(writing, 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            with contextlib.suppress(BlockingIOError):
                lines = os.read(reading, 4096).decode("utf-8", "replace").splitlines()
                if lines:
                    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
                    columns["decoder_warnings"] = lines[0][:300] + more


def _decode_jpeg(
    data: bytes, image: Image.Image, columns: dict[str, Any], scratch: Scratch
) -> Pixels:
    space, channels = ("GRAY", 1) if image.mode == "L" else ("RGB", 3)
    buffer = scratch.buffer(image.width * image.height * channels)
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, space, strict=True, buffer=buffer)
        return pixels
    except ValueError as error:
        warning = str(error)
    try:
        pixels = simplejpeg.decode_jpeg(data, space, strict=False)
    except ValueError:
        # Unsupported by simplejpeg (arithmetic coding, unusual subsampling): Pillow decides.
        columns["decoder_warnings"] = f"the strict decoder failed: {warning}"
        image.load()
        return np.array(image)
    if HARMLESS.search(warning):
        columns["decoder_warnings"] = warning
        return pixels
    ends = columns.get("missing_end") or "remature end of JPEG" in warning
    kind = "truncated" if ends else "corrupt"
    columns |= {"status": "damaged", "error_kind": kind, "error": warning + _zero_run(data)}
    columns["error_at"] = 1.0 - grey_tail(pixels) if kind == "truncated" else None
    return pixels


def _zero_run(data: bytes) -> str:
    """Return the position of a long run of NUL bytes, the sign of a lost disk block; else ''."""
    run = re.search(rb"\x00{256,}", data[1024:])
    if run is None:
        return ""
    start, length = run.start() + 1024, run.end() - run.start()
    return f"; {length:,} zero bytes from byte {start:,} of {len(data):,}"


def _decode_other(
    data: bytes, image: Image.Image, columns: dict[str, Any], *, strict_jpeg: bool
) -> Pixels:
    if strict_jpeg:
        _note_cmyk_damage(data, columns)
    try:
        image.load()
    except Exception as error:  # noqa: BLE001 - decoders raise anything on hostile bytes
        raise_machine_error(error)
        image = _tolerant_load(data, error)
        text = f"{type(error).__name__}: {error}"
        kind = "truncated" if re.search("truncated|end of file|Truncated", text) else "corrupt"
        columns |= {"status": "damaged", "error_kind": kind, "error": text}
    if image.format == "PNG":
        columns |= exif_columns(image)  # the block may follow the pixels
    try:
        return eight_bits(image, columns)
    finally:
        image.close()  # Pillow's copy is as large as the picture that is made of it from here


def _note_cmyk_damage(data: bytes, columns: dict[str, Any]) -> None:
    try:
        simplejpeg.decode_jpeg(data, "CMYK", strict=True)
    except ValueError as error:
        if "subsampling" in str(error):  # TurboJPEG decodes four channels only at 4:4:4
            columns["decoder_warnings"] = f"the strict decoder failed: {error}"
        elif not HARMLESS.search(str(error)):
            columns |= {"status": "damaged", "error_kind": "corrupt", "error": str(error)}


def _tolerant_load(data: bytes, error: Exception) -> Image.Image:
    """Return what Pillow can read of a broken file; raises DecodeError if that is nothing."""
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        image.load()
    except Exception as second:  # noqa: BLE001 - decoders raise anything on hostile bytes
        raise_machine_error(second)
        raise DecodeError("corrupt", f"{type(error).__name__}: {error}") from None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
    return image
