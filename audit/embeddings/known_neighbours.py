"""The neighbours by meaning of a scan's pictures, kept for the next scan in `vector_state`.

What is found of points that are the same in every set (`Compared.codes`) stands but for pictures
that came, went, or changed group. Kept for `KEPT_FROM` to `KEPT_UP_TO` pictures.
"""

from __future__ import annotations

import io
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
)
from audit.embeddings.ridge import Decomposition, decompose
from audit.embeddings.vectors import KEPT_FROM, KEPT_UP_TO, PictureVectors
from audit.neighbors.pair_cache import KnownNeighbours
from audit.run.reuse import PREVIOUS
from audit.run.store import Store

Ints = npt.NDArray[np.int64]
TABLE = "vector_state"
BY_DIRECTION, BY_PLACE = "direction", "place"


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

    def map_axes(self) -> Decomposition:
        """Return the principal axes of which a map is made."""
        places = self.points.places
        return self.decomposition or decompose(places - places.mean(0))

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
