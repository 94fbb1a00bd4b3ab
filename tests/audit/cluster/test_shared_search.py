"""A search that is shared out answers what one process answers, to the last bit."""

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.cluster import stored_rows
from audit.cluster.shared_place import SharedPlace
from audit.cluster.stored_rows import StoredRows
from audit.machine.executors import Failure, Serial
from audit.neighbors import shared_search, verification
from audit.neighbors.descriptor import describe
from audit.neighbors.kernels.offers import merge_offers
from audit.neighbors.search import Relation, SearchOptions, find_near_duplicates
from audit.neighbors.shared_search import share_signatures
from audit.neighbors.synthetic import make_duplicate
from audit.neighbors.verification import examine_pairs, verify
from audit.picture.features import measure_pictures
from audit.picture.signatures import Signatures, make_signature, stack_signatures
from tests.audit.scenes import draw_scene

pytestmark = pytest.mark.slow

N = 640


@pytest.fixture(scope="module")
def made() -> tuple[Signatures, Any, list[bytes]]:
    """Pictures in the order of their keys, one in eight a changed copy of the one before."""
    rng = np.random.default_rng(3)
    pictures = [draw_scene(seed, 75, 100) for seed in range(N)]
    for copy in range(8, N, 8):
        pictures[copy] = make_duplicate(pictures[copy - 1], "jpeg_50", rng)
    hashes = measure_pictures(np.stack(pictures))["phash"]
    table = stack_signatures([make_signature(p) for p in pictures])
    return table, np.array(hashes, np.uint64), [k.to_bytes(4, "big") for k in range(N)]


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedPlace]:
    if request.param == "folder":
        yield SharedPlace(str(tmp_path / "shared"))
        return
    address = SharedPlace(f"memory://{tmp_path.name}/shared")
    yield address
    address.remove()


def told(relation: Relation) -> list[Any]:
    pairs, near = relation.pairs, relation.neighbours
    return [
        pairs.pairs.tolist(), pairs.score.tolist(), pairs.matrix.tolist(), pairs.template.tolist(),
        relation.grouping.groups, relation.grouping.extra.tolist(), near.index.tolist(),
        near.similarity.tolist(), near.recall, relation.calibration, relation.completeness,
        relation.cache.rejected_pairs.tolist(),
    ]  # fmt: skip


class Failing(Serial):
    """Nodes that fail at everything."""

    def run(self, work: Callable[..., Any], chunks: Iterable[Sequence[Any]]) -> Iterator[Any]:
        for chunk in chunks:
            yield chunk, Failure("timeout", "it took too long")


@pytest.fixture(scope="module")
def alone(made: Any) -> Callable[[int], list[Any]]:
    """What one process answers, by `exact_limit`."""

    @functools.cache
    def answer(exact_limit: int) -> list[Any]:
        table, hashes, keys = made
        options = SearchOptions(exact_limit=exact_limit)
        found = find_near_duplicates(table, keys, hashes, options=options)
        assert len(found.pairs.pairs) > 50
        return told(found)

    return answer


@pytest.mark.parametrize(
    ("exact_limit", "nodes"),
    [(N, Serial()), (N // 4, Serial()), (N, Failing())],
    ids=["exact", "cells", "what no node can do the head does"],
)
def test_shared_out_equals_in_one_process(
    made: Any, alone: Callable[[int], list[Any]], place: SharedPlace, exact_limit: int,
    nodes: Serial, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name in ("FILE_ROWS", "PIECE_ROWS"):
        monkeypatch.setattr(stored_rows, name, 211)  # the last file holds seven rows
    monkeypatch.setattr(shared_search, "FILE_ROWS", 211)
    monkeypatch.setattr(stored_rows, "KEPT", 2)
    monkeypatch.setattr(stored_rows, "KEPT_FILES", 1)
    table, hashes, keys = made
    shared = share_signatures(place, nodes, table, np.arange(N))
    spread = find_near_duplicates(
        shared.signatures, keys, hashes, descriptors=shared.descriptors,
        options=SearchOptions(exact_limit=exact_limit), share=shared.share,
    )  # fmt: skip
    assert told(spread) == alone(exact_limit)


def test_parts_of_pairs_carry_what_surrounds_their_pictures(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "BATCH", 100)
    table, rng = made[0], np.random.default_rng(1)
    descriptors, background = describe(table), rng.choice([-1.0, 1.0], N)
    pairs = np.unique(np.sort(rng.integers(0, N, (900, 2))), axis=0)
    pairs = np.concatenate([pairs[pairs[:, 0] < pairs[:, 1]], [[7, 8], [15, 16]]])
    whole = verify(table, descriptors, pairs, np.arange(N), background=background)
    keep = np.arange(len(pairs)) == 3
    found = examine_pairs(table, descriptors, pairs, background=background, least=-4.5, keep=keep)
    assert found.score.tolist() == whole.score.tolist()
    assert found.places.tolist() == np.flatnonzero((whole.score >= -4.5) | keep).tolist()
    kept, some = whole.take(found.places), np.array([0, 2])
    assert found.whole(some).matrix.tolist() == kept.matrix[some].tolist()
    assert found.whole(some).score.tolist() == kept.score[some].tolist()
    assert found.whole(some).orientation.tolist() == kept.orientation[some].tolist()
    assert found.whole(some).pairs.tolist() == kept.pairs[some].tolist()


def test_rows_are_those_that_were_written(
    place: SharedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "FILE_ROWS", 100)
    monkeypatch.setattr(stored_rows, "PIECE_ROWS", 20)
    rng = np.random.default_rng(0)
    written = rng.random((250, 3)).astype(np.float32)
    rows = StoredRows(place, "numbers", 250, np.float32, 3)
    for start, end in rows.files():
        rows.write(start, written[start:end])
    opened = pickle.loads(pickle.dumps(rows))
    wanted = rng.integers(0, 250, (40, 2))
    assert (opened[wanted] == written[wanted]).all()
    assert (opened[7:240:3] == written[7:240:3]).all()
    assert (opened[249] == written[249]).all()
    assert opened[np.zeros(0, np.int64)].shape == (0, 3)


def test_a_neighbour_that_is_offered_twice_counts_with_the_higher_value() -> None:
    """Cells overlap, and products of one pair differ in the last bit by where they stand."""
    offers = [(0.5, 4), (0.75, 4), (0.6, 9), (0.6, 7)]
    for order in (offers, offers[::-1]):
        best, index = np.full((1, 3), -2.0, np.float32), np.full((1, 3), -1, np.int64)
        for value, who in order:
            merge_offers(np.zeros(1, np.int64), np.array([[value]], np.float32), np.array([[who]]),
                   best, index)  # fmt: skip
        assert index.tolist() == [[4, 7, 9]]
        assert best.tolist() == [[0.75, np.float32(0.6), np.float32(0.6)]]
