"""Rank images by their distance to the tenth nearest image.

Near-duplicates are left out, and nine images of one odd kind do not hide each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from audit.embeddings.nearest import Compared, Nearest, kth_distances, nearest_places
from audit.embeddings.ridge import Decomposition

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
K = 10
"""The neighbour whose distance counts; up to K - 1 similar images can rank as isolated."""


def distance_scores(
    points: Compared | Decomposition, groups: Ints, near: Nearest | None = None
) -> Floats:
    """Return the log of the distance (n,) of each row to the tenth nearest of other groups.

    `near` are these (`nearest_places`), where the caller has them.
    """
    found = kth_distances(points, near or nearest_places(points, groups, K)).astype(np.float64)
    return np.asarray(np.log(found + 1e-9 * found.max(initial=0.0) + 1e-300))
