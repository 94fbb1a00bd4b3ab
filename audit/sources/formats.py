"""Is this file a picture? By a known extension, else by its first 32 bytes.

Opening every file would cost more than the whole listing, so a known extension decides. Raster
formats that the decoders do not read (camera RAW, DICOM, JPEG XL, EXR) have a reason of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from dataset_preflight.foundation.files import regular

HEAD_BYTES = 32

_IMAGE = """
    jpg jpeg jpe jfif jfi jif pjpeg pjp mpo png apng gif bmp dib tif tiff webp avif avifs heic heif
    heics heifs hif jp2 j2k j2c jpc jpf jpx ppm pgm pbm pnm pfm pam tga icb vda vst ico cur icns pcx
    dcx sgi rgb rgba bw dds psd qoi xbm xpm fli flc msp im spider spi blp ftex ftc ftu gbr ras sun
    fit fits pcd pxr
"""
_UNSUPPORTED = """
    jxl exr hdr dng cr2 cr3 crw nef nrw arw srf sr2 orf rw2 raf pef srw x3f erf kdc dcr mrw 3fr iiq
    rwl dcm dicom nii mha mhd nrrd svs ndpi mrxs scn vsi czi lif xcf kra psb
"""
_OTHER = """
    txt text md rst log csv tsv json jsonl ndjson geojson xml xsd yaml yml toml ini cfg conf html
    htm css js ts py pyc pyi ipynb sh bash bat ps1 c cc cpp h hpp cu java go rs rb pl r m
    mat lua proto pbtxt prototxt names lst list idx index lock manifest license bib tex
    pdf eps ps ai svg svgz wmf emf doc docx odt xls xlsx ods ppt pptx
    zip tar gz tgz bz2 xz 7z rar zst lz4 npy npz pkl pickle joblib h5 hdf hdf5 nc grib bufr mdb
    lmdb db sqlite sqlite3 duckdb wal parquet pq feather arrow avro tfrecord tfrecords record beton
    pt pth ckpt onnx pb tflite safetensors caffemodel weights
    mp4 mov avi mkv webm mpg mpeg m4v wmv flv ogv mp3 wav flac ogg m4a aac
    ply obj stl las laz glb gltf shp shx dbf prj md5 sha1 sha256 sum part tmp bak swp url
    ttf otf woff woff2 dll so dylib exe jar class o a
"""
KINDS: Mapping[str, str] = {
    **dict.fromkeys(_OTHER.split(), "not an image"),
    **dict.fromkeys(_UNSUPPORTED.split(), "image format not read"),
    **dict.fromkeys(_IMAGE.split(), "image"),
}
IMAGE_ENDINGS = frozenset(f".{e}" for ext in _IMAGE.split() for e in (ext, ext.upper()))
"""What the names of nearly all pictures end in."""
TEXTS = frozenset(["json", "xml", "txt", "csv", "yaml", "yml", "names"])
"""Formats of annotation files, and of the names of their classes."""
# Formats that hold a whole dataset in one file: named in the error when a folder has no pictures.
_PACKED = """
    tfrecord tfrecords record beton npz npy h5 hdf5 mat lmdb mdb parquet arrow pkl pickle
    zip tar gz tgz 7z rar zst
"""
PACKED = frozenset(_PACKED.split())
OBJECT_INSTEAD = (
    "LMDB and IDX files are not read: give a torch, Hugging Face or tf Dataset object "
    "(docs/python.md)"
)

_STARTS = (
    b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*", b"II+\0",
    b"MM\0+", b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51", b"8BPS\0\x01", b"qoif", b"DDS ",
    b"icns", b"\x59\xa6\x6a\x95", b"DanM", b"LinS", b"/* XPM */", b"BLP1", b"BLP2", b"FTEX",
    b"\xb1\x68\xde\x3a", b"SIMPLE  =",
)  # fmt: skip
# Formats whose magic is short or lies further in: a second field must be in its range.
_PATTERNS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        rb"RIFF....WEBPVP8",
        rb"....ftyp(?:avif|avis|heic|heix|heim|heis|hevc|hevx|mif1|msf1)",
        rb"BM.{12}(?:\x0c|\x28|\x34|\x38|\x40|\x6c|\x7c)\0\0\0",
        rb"P[1-6]\s+(?:#|\d)|P7 332|P7\nWIDTH|P[fF]\n\d",
        rb"\0\0[\x01\x02]\0[\x01-\x40]\0.{3}\0",
        rb"\x01\xda[\x00\x01][\x01\x02]\0[\x01-\x03]",
        rb"\x0a[\x00\x02\x03\x04\x05]\x01[\x01\x02\x04\x08]",
        rb"....[\x11\x12]\xaf.{6}\x08\0[\x00\x03]\0",
        rb".{20}GIMP",
        rb"#define\s+\w+_width\s",
    )
)


def extension_of_name(name: str) -> str:
    """Return the extension in lower case without the dot; '' for digits alone and long ones."""
    stem, dot, tail = name.rpartition(".")
    if tail in KINDS and stem:
        return tail  # what nearly every name has: this runs for each file of a listing
    if not (dot and stem) or len(tail) > 12 or not tail.isalnum() or not tail.isascii():
        return ""
    return "" if tail.isdigit() else tail.lower()


def named_as_images(names: Sequence[str]) -> list[str]:
    """Return the visible names that end as images do, in usual spellings; not all images."""
    found = [n for n in names if n[-4:] in IMAGE_ENDINGS and n[0] != "."]  # .jpg, .png: at once
    if len(found) < len(names):
        found = [n for n in names if n[n.rfind(".") :] in IMAGE_ENDINGS and n[0] != "."]
    return found


def pack_advice(name: str) -> str:
    """Return what to do with a file that holds a dataset and is not read; '' for any other."""
    extension = extension_of_name(name)
    if extension in ("lmdb", "mdb") or "-ubyte" in name:
        return OBJECT_INSTEAD
    if extension in ("parquet", "pq"):
        return "the tables have no images; write addresses or paths to a CSV with a column `path`"
    if extension in PACKED:
        return "packs of a kind that is not read (docs/scan.md): unpack it into image files first"
    return ""


def looks_like_image(head: bytes) -> bool:
    """Return whether a file that starts with `head` (at most 32 bytes) is a raster picture."""
    return head.startswith(_STARTS) or any(pattern.match(head) for pattern in _PATTERNS)


def kind_of(name: str, folder: str) -> str:
    """Return `image` or the reason why not; opens the file only if `name` cannot tell."""
    if kind := KINDS.get(extension_of_name(name)):
        return kind
    try:
        with open(os.path.join(folder, name), "rb", buffering=0, opener=regular) as file:
            head = file.read(HEAD_BYTES) or b""
    except OSError:
        return "unreadable, extension unknown"
    return "image" if looks_like_image(head) else "not an image"
