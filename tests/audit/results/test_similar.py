"""More like this: neighbours in both directions, the same for every copy of a picture."""

from __future__ import annotations

import pytest

from audit.picture.features import FEATURE_ROW
from audit.results.similar import similar_pictures
from audit.run.store import Store


@pytest.fixture(scope="module")
def store() -> Store:
    """a is nearest to b, c counts a among its own; a2 is a copy of a, z has no vector."""
    made = Store.memory()
    made.create_measurements(FEATURE_ROW)
    ids = ("a", "a2", "b", "c", "z")
    made.append("samples", [{"id": i, "uri": i, "label": "cat", "n_bytes": 1} for i in ids])
    made.append("features", [{"sample_id": i, "status": "ok", "pixel_hash": i[0]} for i in ids])
    near = (("a", "b", 0.8), ("b", "a", 0.8), ("c", "a", 0.9), ("c", "b", 0.2))
    made.append(
        "vector_neighbours",
        [
            {"sample_id": one, "position": 0, "neighbour_id": other, "similarity": alike}
            for one, other, alike in near
        ],
    )
    return made


@pytest.mark.parametrize("sample", ["a", "a2"])
def test_both_directions_the_most_alike_first(store: Store, sample: str) -> None:
    found = similar_pictures.__wrapped__(store, sample)
    assert found.select("sample_id", "similarity").rows() == [("c", 0.9), ("b", 0.8)]
    assert found["label"].to_list() == ["cat", "cat"]
    assert similar_pictures.__wrapped__(store, sample, 1)["sample_id"].to_list() == ["c"]


@pytest.mark.parametrize("sample", ["z", "no such sample"])
def test_a_picture_without_neighbours(store: Store, sample: str) -> None:
    assert similar_pictures.__wrapped__(store, sample).is_empty()
