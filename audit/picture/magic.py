"""What a file is by its first bytes: image formats, and the usual things that pose as images.

Names an error page that was downloaded, a pointer that was never fetched, zeros after a crash.
"""

from __future__ import annotations

import os

PICTURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"GIF87a", "GIF"),
    (0, b"GIF89a", "GIF"),
    (8, b"WEBP", "WEBP"),
    (0, b"BM", "BMP"),
    (0, b"II*\x00", "TIFF"),
    (0, b"MM\x00*", "TIFF"),
    (0, b"II+\x00", "TIFF"),
    (0, b"MM\x00+", "TIFF"),
    (4, b"ftypavif", "AVIF"),
    (4, b"ftypavis", "AVIF"),
    (4, b"ftyphei", "HEIC"),
    (4, b"ftyphev", "HEIC"),
    (4, b"ftypmif1", "HEIC"),
    (0, b"\x00\x00\x00\x0cjP  ", "JPEG2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG2000"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (0, b"qoif", "QOI"),
    (0, b"8BPS", "PSD"),
    (0, b"DDS ", "DDS"),
    (0, b"\x00\x00\x01\x00", "ICO"),
    (0, b"\x00\x00\x02\x00", "CUR"),
    (0, b"icns", "ICNS"),
    (0, b"\x0a\x05\x01", "PCX"),
    (0, b"SIMPLE  =", "FITS"),
    (0, b"\x01\xda", "SGI"),
    (0, b"\x59\xa6\x6a\x95", "SUN"),
    (0, b"v/1\x01", "OpenEXR"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"\xc5\xd0\xd3\xc6", "EPS"),
    (0, b"%!PS", "EPS"),
)
MAGIC: tuple[tuple[int, bytes, str], ...] = (
    *PICTURES,
    (0, b"%PDF", "PDF"),
    (0, b"PK\x03\x04", "ZIP"),
    (0, b"PK\x05\x06", "ZIP"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\x00", "xz"),
    (0, b"7z\xbc\xaf", "7z"),
    (0, b"Rar!", "RAR"),
    (257, b"ustar", "tar"),
    (4, b"ftyp", "MP4 video"),
    (0, b"\x1aE\xdf\xa3", "Matroska video"),
    (8, b"AVI ", "AVI video"),
    (8, b"WAVE", "WAV audio"),
    (0, b"ID3", "MP3 audio"),
    (0, b"\x7fELF", "ELF program"),
    (0, b"MZ", "Windows program"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"\x89HDF", "HDF5"),
    (0, b"PAR1", "Parquet"),
    (0, b"SQLite format 3", "SQLite"),
    (0, b"version https://git-lfs", "Git LFS pointer"),
    (0, b"/annex/", "git-annex pointer"),
)
TARGA_BITS = (8, 15, 16, 24, 32)
NETPBM = tuple(b"P" + kind for kind in b"1 2 3 4 5 6 7 F f".split())
# What `detect` says of pictures, whether or not a decoder for them is at hand.
IMAGES = frozenset(name for _, _, name in PICTURES) | {"PPM", "TGA", "SVG"}


def detect(head: bytes) -> str | None:
    """Return what the content is by its first bytes (300 are enough), None if unknown."""
    for offset, magic, name in MAGIC:
        if head.startswith(magic, offset):
            return name if name not in ("ICO", "CUR") or _has_icons(head) else _targa(head)
    if head[:2] in NETPBM and head[2:3] in b" \n\r\t#":
        return "PPM"
    start = head[:512]
    if not start.strip(b"\x00"):
        return "zeros"
    return _text(start)


def _has_icons(head: bytes) -> bool:
    """Return whether a directory of icons follows: at least one, its bytes beyond the directory."""
    count, start = int.from_bytes(head[4:6], "little"), int.from_bytes(head[18:22], "little")
    return len(head) < 22 or (count > 0 and head[9] == 0 and start >= 6 + 16 * count)


def _targa(head: bytes) -> str | None:
    """Return TGA for the header of one: a picture of some size, of a depth that there is."""
    return "TGA" if any(head[12:14]) and any(head[14:16]) and head[16] in TARGA_BITS else None


def _text(start: bytes) -> str | None:
    lowered = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if lowered.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "HTML"
    if b"<svg" in lowered:
        return "SVG"
    if lowered.startswith((b"<?xml", b"<")):
        return "XML"
    if lowered.startswith((b"{", b"[")):
        return "JSON"
    printable = sum(byte in b"\t\n\r" or 32 <= byte < 127 or byte >= 128 for byte in start)
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        # A multi-byte character cut by the 512-byte window is still text.
        if error.start < len(start) - 4:
            return None
    return "text" if printable == len(start) else None


def extension_of(name: str) -> str:
    """Return the extension, lower case without the dot, '' if there is none."""
    return os.path.splitext(name)[1][1:].lower()
