"""Pictures for people and for pairs, opened in a worker process whenever they are needed.

Files may be gone, changed or hostile, and must not end the caller. Pictures are reduced before they
go over the pipe. A model gets the whole picture, squeezed to a square of its size: a crop would cut
off what stands at the border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from audit.machine.executors import Executor, Failure, Processes
from audit.picture.decode import DecodeError, Limits, Scratch, decode_picture
from audit.picture.pixels import Pixels
from audit.picture.reading import read_bytes
from dataset_preflight.foundation.cores import usable_cores

# Tighter than a scan's: a page must not take a minute for one poster.
LIMITS = Limits(max_pixels=64_000_000, max_bytes=128 << 20)
TIMEOUT_S = 20.0
CHUNK = 8


@dataclass(frozen=True, slots=True)
class Preview:
    """The shown picture of a file, reduced, and its full width in px; or why there is none."""

    pixels: Pixels | None = None
    width: int = 0
    content_hash: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class PreviewMaker:
    """The picklable work of a worker: paths to previews of `longest` px (None: feature picture)."""

    limits: Limits
    longest: int | None

    def __call__(self, paths: Sequence[str]) -> list[Preview]:
        """Return a preview of every file."""
        return [self._preview(path) for path in paths]

    def _preview(self, path: str) -> Preview:
        from audit.picture.features import feature_picture

        pixels, content, error = _opened(path, path, self.limits)
        if pixels is None:
            return Preview(content_hash=content, error=error)
        longest = self.longest
        reduced = feature_picture(pixels) if longest is None else reduce_to(pixels, longest)
        return Preview(reduced, pixels.shape[1], content)


def _opened(
    path: str, name: str, limits: Limits, scratch: Scratch | None = None
) -> tuple[Pixels | None, str | None, str]:
    """Return the shown picture of a file, its content hash, and why there is no picture."""
    try:
        data = read_bytes(path, limits)
    except (DecodeError, ValueError) as error:
        return None, None, str(error)
    facts, picture = decode_picture(data, name, limits, scratch)
    if picture is None:
        said = str(facts.get("error") or "the file holds no image")
        return None, facts["content_hash"], said
    return picture.rgb, facts["content_hash"], ""


def open_previews(paths: Sequence[str], longest: int) -> dict[str, Preview]:
    """Return a preview of every path, of at most `longest` px; never raises for what is in them."""
    chunks = (paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK))
    workers = Processes(usable_cores(), TIMEOUT_S, LIMITS.max_memory)
    found: dict[str, Preview] = {}
    for chunk, outcome in workers.run(PreviewMaker(LIMITS, longest), chunks):
        if isinstance(outcome, Failure):
            outcome = [Preview(error=outcome.text)] * len(chunk)
        found |= dict(zip(chunk, outcome, strict=True))
    return found


def feature_pictures(executor: Executor, limits: Limits) -> Callable[[str], Preview]:
    """Return a function from a path to its feature picture, opened by the executor."""
    work = PreviewMaker(limits, None)

    def open_one(path: str) -> Preview:
        ((_, outcome),) = executor.run(work, [[path]])
        return Preview(error=outcome.text) if isinstance(outcome, Failure) else outcome[0]

    return open_one


def reduce_to(pixels: Pixels, longest: int) -> Pixels:
    """Return the picture with its longer side at most `longest` px."""
    import cv2

    height, width = pixels.shape[:2]
    scale = min(1.0, longest / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    # INTER_AREA averages every source pixel; other filters skip most of them at such a reduction.
    if scale >= 1:
        return pixels
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


class SquareJob(NamedTuple):
    """A picture to open: the hash of its bytes at the scan, its sample, and where it is."""

    content_hash: str
    sample_id: str
    path: str


@dataclass(frozen=True, slots=True)
class SquareMaker:
    """The picklable work of a worker: jobs in; out come (side, side, 3) pictures, or why none."""

    limits: Limits
    side: int

    def __call__(self, jobs: Sequence[SquareJob]) -> list[Pixels | str]:
        """Return one picture or sentence per job."""
        scratch = Scratch()
        return [self._square(job, scratch) for job in jobs]

    def _square(self, job: SquareJob, scratch: Scratch) -> Pixels | str:
        pixels, content, error = _opened(job.path, job.sample_id, self.limits, scratch)
        if content not in (None, job.content_hash):
            return "the file changed since it was measured"
        return error if pixels is None else squeeze_picture(pixels, self.side)


def squeeze_picture(pixels: Pixels, side: int) -> Pixels:
    """Return a picture (h, w, 3) as a square of `side` px; a square of that side stays as it is."""
    import cv2

    height, width = pixels.shape[:2]
    if (height, width) == (side, side):
        return pixels.copy()  # decoded into a buffer that the next picture takes
    # INTER_AREA averages every source pixel; where pixels are made, it would only repeat them.
    smaller = min(height, width) >= side
    way = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(pixels, (side, side), interpolation=way), np.uint8)
