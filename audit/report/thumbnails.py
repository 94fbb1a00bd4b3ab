"""Small JPEG pictures of the worst examples, made from the files when the page is written.

The files may have gone, changed or be hostile by then. Bytes pass through `audit.picture.decode`
and its limits alone; a file that crashed a decoder, hung it or was a bomb during the scan is not
opened again. What gives no picture gives a sentence. A thumbnail is at most 160 px and about 5 kB;
making one costs about one decode.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import cv2

from audit.picture.decode import DecodeError, Limits, decode_picture, read_bytes
from audit.picture.pixels import Picture
from audit.report.contents import Example, Member, Report
from audit.sources.paths import path_of

LONGEST = 160  # px
QUALITY = 78
LIMIT = 200  # thumbnails a page
# Tighter than a scan's: a page must not take a minute for one poster.
LIMITS = Limits(max_pixels=64_000_000, max_bytes=128 << 20)
DANGEROUS = ("crashed", "timeout", "bomb")


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture as a data URI with its size in px, or `error`: why there is none.

    `note` says what the reader should know of the picture, such as that it changed since the scan.
    """

    uri: str = ""
    width: int = 0
    height: int = 0
    error: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Thumbnails:
    """Thumbnails by sample id, and how many pictures the examples name."""

    by_id: Mapping[str, Thumbnail]
    wanted: int


def make_thumbnails(report: Report, limit: int = LIMIT) -> Thumbnails:
    """Return thumbnails of the first `limit` pictures, the worst example of every code first."""
    members = dict.fromkeys(_by_rank(report))
    chosen = list(members)[:limit]
    return Thumbnails({member.id: thumbnail(member) for member in chosen}, len(members))


def _by_rank(report: Report) -> Iterator[Member]:
    """Yield the examples' members: of all codes the worst example, then of all the next one."""
    rows: Iterator[tuple[Example | None, ...]] = zip_longest(*(c.worst for c in report.checks))
    for row in rows:
        for example in row:
            yield from example.members if example else ()


def thumbnail(member: Member) -> Thumbnail:
    """Return the small picture of one sample; never raises for what is in the file."""
    if member.error_kind in DANGEROUS:
        return Thumbnail(error=f"{member.error_kind}: {member.error or 'not opened again'}")
    path = path_of(member.uri) if member.uri else None
    if path is None:
        return Thumbnail(error="not a file of this machine")
    try:
        data = read_bytes(path, LIMITS)
    except (DecodeError, ValueError) as error:
        return Thumbnail(error=str(error))
    facts, picture = decode_picture(data, path, LIMITS)
    if picture is None:
        return Thumbnail(error=facts.get("error") or "no picture came out")
    changed = member.content_hash not in (None, facts["content_hash"])
    return _shrunk(picture, "changed since the scan" if changed else facts.get("error_kind") or "")


def _shrunk(picture: Picture, note: str) -> Thumbnail:
    height, width = picture.rgb.shape[:2]
    scale = min(1.0, LONGEST / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = (
        cv2.resize(picture.rgb, size, interpolation=cv2.INTER_AREA) if scale < 1 else picture.rgb
    )
    done, encoded = cv2.imencode(
        ".jpg", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
    )
    if not done:
        return Thumbnail(error="the thumbnail could not be encoded")
    text = base64.b64encode(encoded.tobytes()).decode("ascii")
    return Thumbnail(f"data:image/jpeg;base64,{text}", size[0], size[1], note=note)
