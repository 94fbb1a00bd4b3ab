"""Aligned comparison of signatures: find the affine map between two pictures, then correlate.

A crop, a stretch or three degrees of rotation moves pixels by a tenth of the picture, and unaligned
correlation calls that a different picture. So every candidate pair is registered first, with an
inverse-compositional Lucas-Kanade search [Baker and Matthews, IJCV 2004] over affine maps with
gain and bias projected out, coarse (16 px) to fine (32 px), from several starting zooms, with
Cauchy weights so that a caption does not drag the rest. What is then compared are *gradients*
over the overlap, whole and in 4x4 blocks: brightness, contrast and recolouring cancel, and the
median over textured blocks does not mind a caption either.

The price is about 0.1 ms a pair on one core, in numba over all cores; cv2.findTransformECC alone
takes 0.9 ms. Maps act on coordinates in [-1, 1]: x' = (1+p0) x + p1 y + p2, y' = p3 x + (1+p4) y
+ p5 takes a place in the template to the same place in the other picture.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from audit.neighbors.kernels.compiled import usable_threads
from audit.neighbors.kernels.registration import align_batch

# Lucas-Kanade climbs to the nearest optimum only, and a strong crop lies beyond it: the search
# begins at several zooms; shifts of a few pixels it finds by itself.
STARTS = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [-0.18, 0.0, 0.0, 0.0, -0.18, 0.0],
        [0.22, 0.0, 0.0, 0.0, 0.22, 0.0],
    ]
)
MARGINS = np.array([0, 2, 0, 0])
"""Where the search begins: as it is, as it is but for the frame (coarse pixels), zoomed out by
18 %, zoomed in by 22 % (strong crops)."""

CHUNK = 512
"""Pairs that a thread takes at a time."""

FEATURES = (
    "whole",
    "blocks",
    "good_blocks",
    "coarse",
    "grey",
    "overlap_a",
    "overlap_b",
    "textured",
    "chroma",
    "chroma_energy",
    "inner",
    "concentration",
    "coarse_inner",
    "coarse_blocks",
)
N_FEATURES = len(FEATURES)


def align_pairs(
    grey: npt.NDArray[np.uint8],
    colour: npt.NDArray[np.uint8],
    pairs: npt.NDArray[np.int64],
    orientations: npt.NDArray[np.int64],
    *,
    abandon: float = 0.2,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Align pair after pair and return the maps (m, 6) and the features (m, 14) of `FEATURES`.

    `grey` (n, 32, 32) and `colour` (n, 8, 8, 3) are planes of signatures; `pairs` (m, 2) index
    them, the template first; `orientations` (m,) say how the second is laid down first. Pairs whose
    coarse gradient correlation stays under `abandon` keep -1 in the fine features.
    """
    maps = np.zeros((len(pairs), 6))
    # -1 is below every correlation that is reported: what was never reached stays recognisable
    scores = np.full((len(pairs), N_FEATURES), -1.0)
    rows = [slice(start, start + CHUNK) for start in range(0, len(pairs), CHUNK)]

    def align(part: slice) -> None:
        align_batch(
            grey, colour, pairs[part], orientations[part], STARTS, MARGINS, abandon,
            maps[part], scores[part],
        )  # fmt: skip

    with ThreadPoolExecutor(usable_threads()) as pool:
        list(pool.map(align, rows))
    return maps, scores
