"""The gate before verification: is this candidate worth the full search for a map?

It weighs two cheap figures: the *contrast*, by how much the two are nearer by descriptor than the
one's last listed neighbour, and the agreement of gradients at 16 px after four steps of
registration. Calibrated to lose at most 1 in 2,000 pairs; `benchmarks/near_duplicates.py` measures
that on other pictures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from audit.kernels.library import find_kernel
from audit.machine.sharing import in_threads, row_blocks
from audit.neighbors.kernels import plain

Floats = npt.NDArray[np.float64]
Pairs = npt.NDArray[np.int64]

CONTRAST_WEIGHT = 5.0
LEAST_EVIDENCE = 1.2
"""A pair passes where 5 x contrast - log(1.02 - correlation) reaches this."""
N_STEPS = 4
STARTS = np.zeros((3, 6))
STARTS[1, [0, 4]], STARTS[2, [0, 4]] = -0.18, 0.22
"""As it is, zoomed out by 18 %, zoomed in by 22 %: the zooms of the full search."""
CHUNK = 2048
"""Pairs that a thread takes at a time."""


def measure_contrast(similarity: Floats, background: Floats, pairs: Pairs) -> Floats:
    """Return by how much pairs (m, 2) stand out from the surroundings of either picture.

    `similarity` (m,) by descriptor in the best orientation; `background` (n,): similarity of each
    row's last listed neighbour, infinite where it is not known, low where there are fewer.
    """
    return np.asarray(similarity - background[pairs].min(axis=1), np.float64)


def pass_gate(
    grey: npt.NDArray[np.uint8],
    pairs: Pairs,
    orientations: npt.NDArray[np.int64],
    contrast: Floats,
) -> npt.NDArray[np.bool_]:
    """Say which pairs (m, 2) of `grey` planes (n, 32, 32) to align in full.

    `orientations` (m,) say how the second picture is laid down first; pairs with the same first
    picture are quicker side by side.
    """
    needed = 1.02 - np.exp(CONTRAST_WEIGHT * contrast - LEAST_EVIDENCE)
    passed = np.zeros(len(pairs), np.bool_)

    kernel = find_kernel("pass_batch") or plain.pass_pairs

    def work(part: slice) -> None:
        kernel(grey, pairs[part], orientations[part], STARTS, N_STEPS, needed[part], passed[part])

    in_threads(work, row_blocks(len(pairs), CHUNK))
    return passed
