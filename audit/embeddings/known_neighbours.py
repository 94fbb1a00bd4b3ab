"""The neighbours by meaning of a scan's pictures, and a map on which these lie together.

What is found of points that are the same in every set (`Compared.codes`) stands but for pictures
that came, went, or changed group: `vector_state` holds it for `KEPT_FROM` to `KEPT_UP_TO` pictures.
The map is UMAP's (McInnes, Healy and Melville 2018) where that is installed
(`dataset-preflight[umap]`), up to 100,000 pictures; else the first two principal axes.
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.embeddings.nearest import (
    ISOLATION,
    KnownNearest,
    Nearest,
    compare_axes,
    distance_scores,
    nearest_places,
    nearest_rows,
    scale_axes,
)
from audit.embeddings.ridge import Decomposition, Ints, decompose
from audit.embeddings.vectors import KEPT_FROM, KEPT_UP_TO, PictureVectors
from audit.neighbors.pair_cache import KnownNeighbours
from audit.run.reuse import PREVIOUS
from audit.run.store import Store

Coordinates = npt.NDArray[np.float64]
TABLE = "vector_state"
BY_DIRECTION, BY_PLACE = "direction", "place"
LEAST, MOST = 100, 100_000
"""Pictures for UMAP: fewer make no clusters, more take too long."""
UMAP, AXES = "UMAP", "principal axes"


class NeighbourSearch:
    """Finds the neighbours of vectors, with the help of what the scan before found.

    `points` are compared; `decomposition` is that of vectors whose axes are their own, else None.
    """

    def __init__(self, store: Store, found: PictureVectors) -> None:
        """Read what is known."""
        self._store, self._name = store, found.name
        self.decomposition: Decomposition | None = None
        if (points := found.compared) is None:
            self.decomposition = decompose(found.whole())
            points = compare_axes(self.decomposition)
        self.points = points
        kept = self.points.codes is not None and KEPT_FROM <= len(found.rows) <= KEPT_UP_TO
        self._known = _load(store, found.name) if kept else {}
        self._found: dict[str, KnownNearest] | None = {} if kept else None

    def nearest(self, groups: Ints) -> Nearest:
        """Return the nearest of each row that are not of its group."""
        found = nearest_rows(self.points, groups, known=self._known.get(BY_DIRECTION))
        if self.points.codes is not None and self._found is not None:
            # groups that are joined later change few: the next search of this scan starts here
            kept = KnownNearest.of(found, self.points.codes, groups)
            self._found.setdefault(BY_DIRECTION, kept)
            self._known[BY_DIRECTION] = kept
        return found

    def distance_scores(self, groups: Ints) -> npt.NDArray[np.float64]:
        """Return the log of the distance (n,) of each row to the tenth nearest of other groups."""
        near = nearest_places(self.points, groups, ISOLATION, self._known.get(BY_PLACE))
        if self.points.codes is not None and self._found is not None:
            self._found[BY_PLACE] = KnownNearest.of(near, self.points.codes, groups)
        return distance_scores(self.points, near)

    def place_on_map(self) -> tuple[Coordinates, str]:
        """Return coordinates on the map by the principal axes of the points; see `place_on_map`."""
        places = self.points.places
        return place_on_map(self.decomposition or decompose(places - places.mean(0)))

    def save(self) -> None:
        """Store what was found for the next scan."""
        self._store.execute(f"DELETE FROM {TABLE}")
        if not self._found:
            return
        arrays: dict[str, Any] = {"name": np.array(self._name)}
        for kind, held in self._found.items():
            arrays[f"{kind}_groups"] = held.groups
            arrays |= {
                f"{kind}_{name}": getattr(held.near, name) for name in KnownNeighbours.__slots__
            }
        file = io.BytesIO()
        np.savez(file, **arrays)
        self._store.execute(f"INSERT INTO {TABLE} VALUES (?)", [file.getvalue()])


def _load(store: Store, name: str) -> dict[str, KnownNearest]:
    """Return what the version before knows of vectors of this name."""
    if PREVIOUS not in store.attached or not store.columns(f"{PREVIOUS}.{TABLE}"):
        return {}
    state = store.scalar(f"SELECT arrays FROM {PREVIOUS}.{TABLE}")
    if state is None:
        return {}
    with np.load(io.BytesIO(state), allow_pickle=False) as held:
        arrays: dict[str, Any] = dict(held)
    if str(arrays["name"]) != name:
        return {}
    return {
        kind: KnownNearest(
            KnownNeighbours(*(arrays[f"{kind}_{part}"] for part in KnownNeighbours.__slots__)),
            arrays[f"{kind}_groups"],
        )
        for kind in (BY_DIRECTION, BY_PLACE)
        if f"{kind}_groups" in arrays
    }


def place_on_map(decomposition: Decomposition) -> tuple[Coordinates, str]:
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


def _by_umap(decomposition: Decomposition) -> Coordinates:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a seed allows one thread only
        import umap

        found = umap.UMAP(n_components=2, random_state=0, n_jobs=1).fit_transform(
            scale_axes(decomposition)
        )
    return np.asarray(found, np.float64)
