"""Thumbnails made once: a bounded cache on disk, by content, so that copies share one.

A thumbnail is a JPEG of at most 256 px, about 8 kB, orientation applied; making one costs a decode
(1 to 20 ms), reading one 0.1 ms. The folder is kept below `LIMIT_BYTES` by removing what was looked
at longest ago. Where the folder cannot be written, thumbnails are made each time and nothing else
changes. A file that crashed a decoder, hung it or was a bomb in the scan is not opened again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2

from audit.browse.images import Card
from audit.picture.decode import DecodeError, Limits, decode_picture, read_bytes
from audit.picture.pixels import Pixels
from audit.sources.paths import path_of

LONGEST = 256  # px
QUALITY = 82
LIMIT_BYTES = 256 << 20
PRUNE_EVERY = 512  # new thumbnails between two looks at the size of the folder
LIMITS = Limits(max_pixels=64_000_000, max_bytes=128 << 20)
DANGEROUS = ("crashed", "timeout", "bomb")
CHANGED = "changed since the scan"
FOLDER = "app-thumbnails"


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small JPEG, or the reason (`error`) why there is none; `note`: what to know of it."""

    data: bytes = b""
    error: str = ""
    note: str = ""


class Thumbnails:
    """The thumbnails of a run, kept in a folder of at most `limit` bytes."""

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES) -> None:
        """Use `folder`, which is made when the first thumbnail is written."""
        self.folder, self.limit = folder, limit
        self._written = 0

    def many(self, cards: Sequence[Card]) -> list[Thumbnail]:
        """Return the thumbnails of some cards, in their order."""
        with ThreadPoolExecutor(max_workers=4) as pool:
            return list(pool.map(self.one, cards))

    def one(self, card: Card) -> Thumbnail:
        """Return the thumbnail of a card; never raises for what is in the file."""
        path = self._path(card)
        if path is not None:
            with contextlib.suppress(OSError):
                data = path.read_bytes()
                os.utime(path)  # what is looked at stays longest
                return Thumbnail(data, note=_note(card))
        made = make(card, LONGEST)
        if path is not None and made.data and made.note != CHANGED:
            self._keep(path, made.data)
        return made

    def _path(self, card: Card) -> Path | None:
        if not card.content_hash:
            return None
        name = f"{card.content_hash[:40]}-{LONGEST}.jpg"
        return self.folder / name[:2] / name

    def _keep(self, path: Path, data: bytes) -> None:
        """Write a thumbnail; a folder that cannot be written is no error."""
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(draft, path)
            self._written += 1
            if self._written % PRUNE_EVERY == 1:
                self.prune()

    def prune(self) -> None:
        """Remove what was looked at longest ago until the folder is within its limit."""
        found = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def make(card: Card, longest: int) -> Thumbnail:
    """Return the picture of a card as a JPEG of at most `longest` px, or why there is none."""
    pixels, said = pixels_of(card)
    if pixels is None:
        return Thumbnail(error=said)
    return Thumbnail(jpeg(shrunk(pixels, longest)), note=said or _note(card))


def pixels_of(card: Card) -> tuple[Pixels | None, str]:
    """Return the shown picture of a sample and a note on it; None and the reason without one."""
    if card.error_kind in DANGEROUS:
        return None, f"{card.error_kind}: {card.error or 'not opened again'}"
    path = path_of(card.uri) if card.uri else None
    if path is None:
        return None, "not a file of this machine"
    try:
        data = read_bytes(path, LIMITS)
    except (DecodeError, ValueError) as error:
        return None, str(error)
    facts, picture = decode_picture(data, path, LIMITS)
    if picture is None:
        return None, str(facts.get("error") or "no picture came out")
    changed = card.content_hash not in (None, facts["content_hash"])
    return picture.rgb, CHANGED if changed else ""


def shrunk(pixels: Pixels, longest: int) -> Pixels:
    """Return the picture with its longer side at most `longest` px."""
    height, width = pixels.shape[:2]
    scale = min(1.0, longest / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA) if scale < 1 else pixels


def jpeg(pixels: Pixels, quality: int = QUALITY) -> bytes:
    """Return RGB pixels as a JPEG."""
    done, encoded = cv2.imencode(
        ".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality]
    )
    return encoded.tobytes() if done else b""


def _note(card: Card) -> str:
    return card.error_kind or "" if card.status == "damaged" else ""
