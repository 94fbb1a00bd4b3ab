"""Small JPEGs of samples, made from the files whenever a page or a report needs them.

The files may have gone, changed or be hostile since the scan. Bytes pass through
`audit.picture.decode` and its limits alone; a file that crashed a decoder, hung it or was a bomb in
the scan is not opened again. What gives no picture gives a sentence. Making a thumbnail costs one
decode (1 to 20 ms); one of 160 px has about 5 kB. `audit.browse.thumbnails` keeps those of the app.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

import cv2

from audit.picture.decode import DecodeError, Limits, decode_picture, read_bytes
from audit.picture.pixels import Pixels
from audit.report.contents import Example, Member, Report
from audit.sources.paths import path_of

LONGEST = 160  # px
QUALITY = 78
LIMIT = 200  # thumbnails a page
# Tighter than a scan's: a page must not take a minute for one poster.
LIMITS = Limits(max_pixels=64_000_000, max_bytes=128 << 20)
DANGEROUS = ("crashed", "timeout", "bomb")
CHANGED = "changed since the scan"


class Pictured(Protocol):
    """What must be known of a sample to open its picture: a `Member` or a card of the app."""

    @property
    def uri(self) -> str: ...  # noqa: D102
    @property
    def status(self) -> str | None: ...  # noqa: D102
    @property
    def error_kind(self) -> str | None: ...  # noqa: D102
    @property
    def error(self) -> str | None: ...  # noqa: D102
    @property
    def content_hash(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small JPEG and its size in px (0: unknown), or `error`: why there is none.

    `note` says what the reader should know of the picture, such as that it changed since the scan.
    """

    data: bytes = b""
    width: int = 0
    height: int = 0
    error: str = ""
    note: str = ""

    @property
    def data_uri(self) -> str:
        """The picture as a data URI, "" without one."""
        text = base64.b64encode(self.data).decode("ascii")
        return f"data:image/jpeg;base64,{text}" if text else ""


@dataclass(frozen=True, slots=True)
class ReportThumbnails:
    """Thumbnails by sample id, and how many pictures the examples name."""

    by_id: Mapping[str, Thumbnail]
    wanted: int


def make_thumbnails(report: Report, limit: int = LIMIT) -> ReportThumbnails:
    """Return thumbnails of the first `limit` pictures, the worst example of every code first."""
    members = list(dict.fromkeys(_by_rank(report)))
    thumbnails = {member.id: make_thumbnail(member) for member in members[:limit]}
    return ReportThumbnails(thumbnails, len(members))


def _by_rank(report: Report) -> Iterator[Member]:
    """Yield the examples' members: of all codes the worst example, then of all the next one."""
    rows: Iterator[tuple[Example | None, ...]] = zip_longest(*(c.worst for c in report.checks))
    for row in rows:
        for example in row:
            yield from example.members if example else ()


def make_thumbnail(sample: Pictured, longest: int = LONGEST, quality: int = QUALITY) -> Thumbnail:
    """Return the small picture of one sample; never raises for what is in the file."""
    pixels, note = pixels_of(sample)
    if pixels is None:
        return Thumbnail(error=note)
    small = shrunk(pixels, longest)
    data = jpeg(small, quality)
    if not data:
        return Thumbnail(error="the thumbnail could not be encoded")
    return Thumbnail(data, small.shape[1], small.shape[0], note=note or damage_note(sample))


def pixels_of(sample: Pictured) -> tuple[Pixels | None, str]:
    """Return the shown picture of a sample and a note on it; None and the reason without one."""
    if sample.error_kind in DANGEROUS:
        return None, f"{sample.error_kind}: {sample.error or 'not opened again'}"
    path = path_of(sample.uri) if sample.uri else None
    if path is None:
        return None, "not a file of this machine"
    try:
        data = read_bytes(path, LIMITS)
    except (DecodeError, ValueError) as error:
        return None, str(error)
    facts, picture = decode_picture(data, path, LIMITS)
    if picture is None:
        return None, str(facts.get("error") or "the file holds no picture")
    changed = sample.content_hash not in (None, facts["content_hash"])
    return picture.rgb, CHANGED if changed else ""


def damage_note(sample: Pictured) -> str:
    """Return what is wrong with a picture that decodes in part, "" for a sound one."""
    return sample.error_kind or "" if sample.status == "damaged" else ""


def shrunk(pixels: Pixels, longest: int) -> Pixels:
    """Return the picture with its longer side at most `longest` px."""
    height, width = pixels.shape[:2]
    scale = min(1.0, longest / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    # INTER_AREA averages every source pixel; other filters skip most of them at such a reduction.
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA) if scale < 1 else pixels


def jpeg(pixels: Pixels, quality: int = QUALITY) -> bytes:
    """Return RGB pixels as a JPEG, b"" where they cannot be encoded."""
    done, encoded = cv2.imencode(
        ".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality]
    )
    return encoded.tobytes() if done else b""
