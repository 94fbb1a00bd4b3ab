"""Images of the app: thumbnails in a bounded cache, one image large, the difference of two.

For a difference the second image is registered in the best of eight orientations.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from audit.neighbors.affine import lay_over, refine_map
from audit.neighbors.orientations import INVERSE, ORIENTATIONS, orient
from audit.picture.pixels import Pixels
from audit.report.thumbnails import (
    CHANGED,
    Thumbnail,
    damage_note,
    jpeg,
    preview_sample,
    thumbnails_of,
)
from audit.results.boxes import Box, draw_boxes
from audit.results.report_data import Card
from audit.run.synced_files import DRAFT

SMALL = 256  # px
QUALITY = 82
LIMIT_BYTES = 256 << 20
PRUNE_EVERY = 512  # new thumbnails between two checks of the size of the folder
FOLDER = "app-thumbnails"
STORED = re.compile(r"[0-9a-f]{40}-\d+\.jpg")
END = b"\xff\xd9"  # of every JPEG


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
        made = iter(thumbnails_of(absent, SMALL, QUALITY) if absent else ())
        shown = [next(made) if stored is None else stored for stored in found]
        for card, stored, thumbnail in zip(cards, found, shown, strict=True):
            path = self._path(card)
            # A file that changed must not be stored under the hash of the scan.
            new = stored is None and thumbnail.data and thumbnail.note != CHANGED
            if new and path is not None:
                self._store(path, thumbnail.data)
        return shown

    def _stored(self, card: Card) -> Thumbnail | None:
        path = self._path(card)
        if path is not None:
            with contextlib.suppress(OSError):
                data = path.read_bytes()
                if data.endswith(END):
                    os.utime(path)  # `prune` goes by this: what was viewed last stays longest
                    return Thumbnail(data, note=damage_note(card))
        return None

    def _path(self, card: Card) -> Path | None:
        if not card.content_hash:
            return None
        name = f"{card.content_hash[:40]}-{SMALL}.jpg"
        return self.folder / name[:2] / name

    def _store(self, path: Path, data: bytes) -> None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(DRAFT, ".", path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(draft, path)
            self._written += 1
            if self._written % PRUNE_EVERY == 1:
                self.prune()

    def prune(self) -> None:
        """Remove what was viewed longest ago until the folder is within its limit."""
        files = []
        for path in list_thumbnails(self.folder):
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


def list_thumbnails(folder: Path) -> list[Path]:
    """Return the thumbnails and their drafts: files of other names in the folder are a user's."""
    return [p for p in folder.glob("??/*") if STORED.fullmatch(p.name) or p.name.endswith(DRAFT)]


LONGEST = 1200  # px
COMPARED = 480  # px
SEARCHED = 64  # px
GAIN = 4
# The search begins at no map at all, so it takes more steps than a full-resolution check.
ECC_STEPS, ECC_PRECISION = 60, 1e-5
LEAST_COVER = 0.982  # share of a pixel: below it the edge itself would show as a difference
Plane = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PictureDifference:
    """Two pictures and their difference as JPEGs of one size, or the reason why there is none.

    `mean`: absolute difference of the overlap, grey levels (0..255); `covered`: its share of the
    first picture; `laid`: the second over the first; `said`: its orientation.
    """

    first: bytes = b""
    second: bytes = b""
    laid: bytes = b""
    difference: bytes = b""
    mean: float = 0.0
    covered: float = 0.0
    said: str = ""
    error: str = ""


def view(
    card: Card, boxes: Sequence[Box] = (), longest: int = LONGEST, names: Sequence[str] = ()
) -> Thumbnail:
    """Return the picture of a sample with boxes, or why there is none; `names` as `draw_boxes`."""
    preview, said = preview_sample(card, longest)
    if preview.pixels is None:
        return Thumbnail(error=said)
    small = preview.pixels
    if boxes:
        small = draw_boxes(small, small.shape[1] / preview.width, boxes, names)
    return Thumbnail(jpeg(small, 88), note=said)


def difference(first: Card, second: Card) -> PictureDifference:
    """Return two pictures and their difference times 4; raises nothing for what is in the files."""
    a, b = (preview_sample(card, COMPARED)[0] for card in (first, second))
    if a.pixels is None or b.pixels is None:
        return PictureDifference(error=a.error or b.error)
    oriented, way = _best_orientation(a.pixels, b.pixels)
    laid, covered = _register(a.pixels, oriented)
    gap = np.abs(a.pixels.astype(np.int16) - laid.astype(np.int16)).astype(np.float32)
    gap[~covered] = 0
    shown = np.clip(gap * GAIN, 0, 255).astype(np.uint8)
    shown[~covered] = (shown[~covered] // 2) + 60
    mean = float(gap[covered].mean()) if covered.any() else 255.0
    return PictureDifference(
        jpeg(a.pixels, 90), jpeg(b.pixels, 90), jpeg(laid, 90), jpeg(shown, 90), mean,
        float(covered.mean()), way,
    )  # fmt: skip


def _best_orientation(a: Pixels, b: Pixels) -> tuple[Pixels, str]:
    """Return `b` as it lies best over `a`, and the turn that takes it there."""
    target = _plane(a, (SEARCHED, SEARCHED))
    # orient(b, k) undoes change k, so change k is what the inverse of k does to b
    laid = [orient(b, int(inverse)) for inverse in INVERSE]
    gaps = [np.abs(_plane(one, (SEARCHED, SEARCHED)) - target).mean() for one in laid]
    best = int(np.argmin(gaps))
    return laid[best], ORIENTATIONS[best]


def _plane(pixels: Pixels, size: tuple[int, int]) -> Plane:
    """Return the luma at a size, with mean and deviation taken out: light does not count."""
    grey = cv2.cvtColor(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    plane = grey.astype(np.float32)
    return np.asarray((plane - plane.mean()) / (plane.std() + 1.0), np.float32)


def _register(a: Pixels, b: Pixels) -> tuple[Pixels, npt.NDArray[np.bool_]]:
    """Return `b` laid over `a`, and where it reaches; stretched to fit where no map is found."""
    height, width = a.shape[:2]
    fitted = cv2.resize(b, (width, height), interpolation=cv2.INTER_AREA)
    template, other = (_plane(picture, (width, height)) for picture in (a, fitted))
    start = np.eye(2, 3, dtype=np.float32)
    warp = refine_map(template, other, start, steps=ECC_STEPS, precision=ECC_PRECISION)
    if warp is None:
        return fitted, np.ones((height, width), bool)
    return lay_over(fitted, warp, (width, height), least_cover=LEAST_COVER)
