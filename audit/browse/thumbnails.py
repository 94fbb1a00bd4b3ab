"""The thumbnails of the app, kept on disk: a bounded cache by content, so that copies share one.

`audit.report.thumbnails` makes them; here they have at most 256 px and about 8 kB, and reading one
back costs 0.1 ms in place of a decode. The folder is kept below `LIMIT_BYTES` by removing what was
viewed longest ago. Where it cannot be written, thumbnails are made each time and nothing else
changes. After its JPEG a file has a digest of it, which programs that show JPEGs pass over: a
thumbnail that is damaged is made again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import blake3
import cv2
import numpy as np

from audit.browse.boxes import Box
from audit.browse.drawing import draw_boxes
from audit.browse.images import Card
from audit.report.thumbnails import CHANGED, Thumbnail, damage_note, jpeg, thumbnails_of

LONGEST = 256  # px
QUALITY = 82
LIMIT_BYTES = 256 << 20
PRUNE_EVERY = 512  # new thumbnails between two checks of the size of the folder
FOLDER = "app-thumbnails"
MARK, END = b"\0blake3:", b"\xff\xd9"  # before the digest; the end of every JPEG
DIGEST = 16  # bytes


class ThumbnailCache:
    """The thumbnails of a run, kept in a folder of at most `limit` bytes."""

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES) -> None:
        """Use `folder`, which is made when the first thumbnail is written."""
        self.folder, self.limit = folder, limit
        self._written = 0

    def many(self, cards: Sequence[Card]) -> list[Thumbnail]:
        """Return the thumbnails of some cards; never raises for what is in their files."""
        found = [self._stored(card) for card in cards]
        absent = [card for card, stored in zip(cards, found, strict=True) if stored is None]
        made = iter(thumbnails_of(absent, LONGEST, QUALITY) if absent else ())
        shown = [next(made) if stored is None else stored for stored in found]
        for card, stored, thumbnail in zip(cards, found, shown, strict=True):
            path = self._path(card)
            # A file that changed since the scan must not be stored under the hash it had then.
            new = stored is None and thumbnail.data and thumbnail.note != CHANGED
            if new and path is not None:
                self._store(path, thumbnail.data)
        return shown

    def one(self, card: Card) -> Thumbnail:
        """Return the thumbnail of a card."""
        return self.many([card])[0]

    def _stored(self, card: Card) -> Thumbnail | None:
        path = self._path(card)
        if path is not None:
            with contextlib.suppress(OSError):
                data = read_stored(path)
                if data is not None:
                    os.utime(path)  # `prune` goes by this: what was viewed last stays longest
                    return Thumbnail(data, note=damage_note(card))
        return None

    def _path(self, card: Card) -> Path | None:
        if not card.content_hash:
            return None
        name = f"{card.content_hash[:40]}-{LONGEST}.jpg"
        return self.folder / name[:2] / name

    def _store(self, path: Path, data: bytes) -> None:
        """Write a thumbnail; a folder that cannot be written is no error."""
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data + MARK + _digest(data))
            os.replace(draft, path)
            self._written += 1
            if self._written % PRUNE_EVERY == 1:
                self.prune()

    def prune(self) -> None:
        """Remove what was viewed longest ago until the folder is within its limit."""
        files = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def with_boxes(
    thumbnail: Thumbnail,
    card: Card,
    boxes: Sequence[Box],
    names: Sequence[str] = (),
    chosen: Callable[[Box], bool] | None = None,
) -> Thumbnail:
    """Return a thumbnail with boxes drawn on it, as `draw_boxes` does; itself where it has none."""
    if not thumbnail.data or not boxes or not card.width:
        return thumbnail
    decoded = cv2.imdecode(np.frombuffer(thumbnail.data, np.uint8), cv2.IMREAD_COLOR)
    if decoded is None:
        return thumbnail
    pixels = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)
    drawn = draw_boxes(pixels, pixels.shape[1] / card.width, boxes, names, chosen)
    height, width = pixels.shape[:2]
    return Thumbnail(jpeg(drawn, QUALITY), width, height, note=thumbnail.note)


def _digest(data: bytes) -> bytes:
    return bytes(blake3.blake3(data).digest(DIGEST))


def read_stored(path: Path) -> bytes | None:
    """Return the JPEG of a stored thumbnail, None where it is damaged or a folder; raises OSError.

    One without a digest (version 0.1 wrote none) is whole if it has the end of a JPEG.
    """
    try:
        content = path.read_bytes()
    except IsADirectoryError:
        return None
    data, mark, digest = content.rpartition(MARK)
    if not mark:
        return content if content.endswith(END) else None
    return data if digest == _digest(data) else None


def find_damaged_thumbnails(run: Path) -> tuple[int, list[Path]]:
    """Return how many thumbnails the app keeps of a run, and which of them are damaged."""
    paths = sorted((run / FOLDER).glob("??/*.jpg"))
    return len(paths), [path for path in paths if _is_damaged(path)]


def _is_damaged(path: Path) -> bool:
    try:
        return read_stored(path) is None
    except FileNotFoundError:  # the app has just removed it
        return False
