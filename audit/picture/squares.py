"""Pictures for a model: opened in a worker process, squeezed into a square of its size.

A file may have changed or be hostile since the scan, and the process that holds the model must not
die with it. The whole picture is shown, squeezed: a crop would cut off what stands at the border.
What goes over the pipe is the square, 150 kB at 224 px.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from audit.picture.decode import DecodeError, Limits, Scratch, decode_picture
from audit.picture.pixels import Pixels
from audit.picture.reading import read_bytes


class SquareJob(NamedTuple):
    """A picture to open: the hash of its bytes at the scan, its sample, and where it is."""

    content_hash: str
    sample_id: str
    path: str | None


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
        if job.path is None:
            return "it lies at a URL, which is not fetched"
        try:
            data = read_bytes(job.path, self.limits)
        except (DecodeError, ValueError) as error:
            return str(error)
        facts, picture = decode_picture(data, job.sample_id, self.limits, scratch)
        if facts["content_hash"] != job.content_hash:
            return "the file changed since it was measured"
        if picture is None:
            return str(facts.get("error") or "the file holds no picture")
        return squeeze_picture(picture.rgb, self.side)


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
