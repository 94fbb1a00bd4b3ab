"""Small JPEGs of samples, made from the files whenever a page or a report needs them.

Files are opened in a worker process (`audit.picture.preview`), because they may be hostile. A file
that crashed or hung a decoder in the scan, or was a bomb, is not opened again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import cv2

from audit.picture.pixels import Pixels
from audit.picture.preview import Preview, open_previews
from audit.results.report_data import Card, Example, Report
from audit.sources.paths import reading_place

LONGEST = 160  # px
QUALITY = 62
LIMIT = 200  # thumbnails a page
CHANGED = "changed since the scan"


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small JPEG and its size in px (0: unknown), or `error`: why there is none.

    `note`: a change of the file, for example.
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


def make_thumbnails(report: Report, limit: int = LIMIT) -> tuple[dict[str, Thumbnail], int]:
    """Return thumbnails by sample id of the first `limit` images, and how many there are in all.

    The worst example of every code comes first, then the next one of every code.
    """
    rows: Iterator[tuple[Example | None, ...]] = zip_longest(*(c.examples for c in report.checks))
    examples = [example for row in rows for example in row if example]
    members = list(dict.fromkeys(member for example in examples for member in example.members))
    ends = [member for _, two in (report.needs.ends if report.needs else ()) for member in two]
    shown = [*dict.fromkeys([*members[:limit], *ends])]
    thumbnails = thumbnails_of(shown)
    by_id = {member.id: small for member, small in zip(shown, thumbnails, strict=True)}
    return by_id, len({*members, *ends})


def thumbnails_of(
    samples: Sequence[Card], longest: int = LONGEST, quality: int = QUALITY
) -> list[Thumbnail]:
    """Return the small pictures of some samples; never raises for what is in the files."""
    ways = [_openable(sample) for sample in samples]
    # One call for all: handing a file to a worker costs more than decoding a small one.
    previews = open_previews(sorted({path for path, reason in ways if not reason}), longest)
    return [
        Thumbnail(error=reason) if reason else _thumbnail(sample, previews[path], quality)
        for sample, (path, reason) in zip(samples, ways, strict=True)
    ]


def _thumbnail(sample: Card, preview: Preview, quality: int) -> Thumbnail:
    if preview.pixels is None:
        return Thumbnail(error=preview.error)
    data = jpeg(preview.pixels, quality)
    if not data:
        return Thumbnail(error="the thumbnail could not be encoded")
    height, width = preview.pixels.shape[:2]
    note = _change_note(sample, preview) or damage_note(sample)
    return Thumbnail(data, width, height, note=note)


def preview_sample(sample: Card, longest: int) -> tuple[Preview, str]:
    """Return the picture of a sample, reduced, and a note on it; or why there is none, twice."""
    path, reason = _openable(sample)
    if reason:
        return Preview(error=reason), reason
    preview = open_previews([path], longest)[path]
    return preview, preview.error or _change_note(sample, preview)


def _openable(sample: Card) -> tuple[str, str]:
    """Return the path of a sample's file, and why it is not opened, "" where it is."""
    if sample.error_kind in ("crashed", "timeout", "bomb", "memory", "io"):
        return "", f"{sample.error_kind}: {sample.error or 'not opened again'}"
    return (reading_place(sample.uri), "") if sample.uri else ("", "on another machine")


def _change_note(sample: Card, preview: Preview) -> str:
    return CHANGED if sample.content_hash not in (None, preview.content_hash) else ""


def damage_note(sample: Card) -> str:
    """Return what is wrong with a picture that decodes in part, "" for a sound one."""
    return sample.error_kind or "" if sample.status == "damaged" else ""


def jpeg(pixels: Pixels, quality: int = QUALITY) -> bytes:
    """Return RGB pixels as a JPEG, b"" where they cannot be encoded."""
    how = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_OPTIMIZE, 1]  # 8 % smaller
    done, encoded = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), how)
    return encoded.tobytes() if done else b""
