"""What a search compared and what it left out, in counts and in sentences.

A search that bounds its work (neighbours, radius, full-resolution checks) has to say what the
bounds cost. Every number here is printed with the result and stored with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from audit.neighbors.signatures import Flag


@dataclass(frozen=True, slots=True)
class Completeness:
    """What was compared, how, and what was left out.

    `hash_pairs`: pairs of images within `radius` bits of each other, all of them found. `exact`
    and `recall` describe the descriptor search. `left_out`: reason -> images. `rechecks` of
    `rechecks_wanted` full-resolution checks were made. `rejected_before` of the `verified_pairs`
    had been rejected by an earlier search and were not aligned again; `gated_pairs` were refused
    by the gate. `middles`: why pairs that share the middle only were not looked for, empty where
    they were.
    """

    images: int
    compared_images: int
    radius: int
    hash_pairs: int
    hash_plan: str
    nearest: int
    exact: bool
    recall: float
    recall_sample: int
    verified_pairs: int
    rechecks: int
    rechecks_wanted: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    rejected_before: int = 0
    gated_pairs: int = 0
    middles: str = ""

    def sentences(self) -> tuple[str, ...]:
        """What to print, with the counts."""
        hashes = (
            f"All pairs of {self.compared_images:,} images with perceptual hashes within "
            f"{self.radius} bits were found ({self.hash_pairs:,}; {self.hash_plan})."
        )
        how = (
            "exactly"
            if self.exact
            else f"approximately (recall {self.recall:.1%} measured on {self.recall_sample} images)"
        )
        dense = f"The {self.nearest} nearest of each image by descriptor were found {how}."
        earlier = f" ({self.rejected_before:,} of them by an earlier scan)"
        gated = (
            f"; of these {self.gated_pairs:,} were dismissed by a quick look, which loses at most "
            "1 pair in 2,000"
        )
        aligned = (
            f"{self.verified_pairs:,} candidate pairs were aligned and verified"
            f"{earlier if self.rejected_before else ''}{gated if self.gated_pairs else ''}."
        )
        framed = (
            "Copies in a soft frame or on another background, which share the middle only, were "
            f"not looked for: {self.middles}."
        )
        left = [f"{count:,} images left out: {why}." for why, count in self.left_out.items()]
        return (
            hashes,
            dense,
            aligned,
            self._recheck_sentence(),
            *[framed] * bool(self.middles),
            *left,
        )

    def _recheck_sentence(self) -> str:
        missed = self.rechecks_wanted - self.rechecks
        rest = f"; {missed:,} more were uncertain enough for one." if missed else "."
        return f"{self.rechecks:,} pairs had a full-resolution check of their files{rest}"


def why_no_middles(images: int, limit: int, telling: bool) -> str:
    """Return why the middles of so many images say nothing, empty where they were compared.

    `limit`: images up to which they are; `telling`: they tell strangers apart.
    """
    if images > limit:
        return f"{images:,} images are more than the {limit:,} whose middles are compared"
    return "" if telling else "the middles of different images are too much alike here"


def count_left_out(flags: npt.NDArray[np.uint8]) -> dict[str, int]:
    """Count the images that are compared with nothing, by reason, from the flags of signatures."""
    transparent = (flags & Flag.TRANSPARENT) != 0
    flat = ((flags & Flag.FLAT) != 0) & ~transparent
    counts = {
        "one colour or nearly (nothing to align)": int(flat.sum()),
        "transparent (hardly an opaque pixel)": int(transparent.sum()),
    }
    return {why: count for why, count in counts.items() if count}
