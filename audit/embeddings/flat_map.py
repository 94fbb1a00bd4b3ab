"""A map of the pictures: two coordinates, so that what looks alike lies together.

UMAP (McInnes, Healy and Melville 2018) where it is installed (`dataset-preflight[umap]`), up to
100,000 pictures; else the first two principal axes.
"""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import numpy.typing as npt

from audit.embeddings.nearest import scale_axes
from audit.embeddings.ridge import Decomposition

Floats = npt.NDArray[np.float64]
LEAST, MOST = 100, 100_000
"""Pictures for UMAP: fewer make no clusters, more take too long."""
UMAP, AXES = "UMAP", "principal axes"


def place_on_map(decomposition: Decomposition) -> tuple[Floats, str]:
    """Return coordinates (n, 2), in deviations of the wider one, and how they were made."""
    n = len(decomposition.turned)
    how = UMAP if LEAST <= n <= MOST and importlib.util.find_spec("umap") is not None else AXES
    if how == UMAP:
        places = _by_umap(decomposition)
    else:
        axes = decomposition.turned[:, :2].astype(np.float64)
        places = np.hstack([axes, np.zeros((n, 2 - axes.shape[1]))])
    places -= places.mean(0)
    return places / (places.std(0).max() + 1e-12), how


def _by_umap(decomposition: Decomposition) -> Floats:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a seed allows one thread only
        import umap

        found = umap.UMAP(n_components=2, random_state=0, n_jobs=1).fit_transform(
            scale_axes(decomposition)
        )
    return np.asarray(found, np.float64)
