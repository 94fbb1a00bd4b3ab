"""The gate before verification: copies pass, strangers do not, and nothing it decides is kept."""

from __future__ import annotations

import numpy as np
import pytest

from audit.neighbors.dense import find_nearest
from audit.neighbors.descriptor import describe
from audit.neighbors.gate import measure_contrast, pass_gate
from audit.neighbors.search import SearchOptions, find_near_duplicates
from audit.neighbors.synthetic import TRANSFORMATIONS, make_duplicate
from audit.neighbors.verification import verify
from audit.picture.signatures import Signatures, make_signature, stack_signatures
from tests.audit.scenes import draw_scene

STRANGERS = 60


@pytest.fixture(scope="module")
def strangers() -> Signatures:
    """Signatures of pictures that have nothing to do with each other."""
    return stack_signatures([make_signature(draw_scene(k)) for k in range(STRANGERS)])


def passed(table: Signatures, pairs: list[tuple[int, int]], contrast: float) -> list[bool]:
    """Pass pairs as they lie, at one contrast."""
    rows = np.array(pairs, np.int64)
    return pass_gate(
        np.ascontiguousarray(table["grey"]),
        rows,
        np.zeros(len(rows), np.int64),
        np.full(len(rows), contrast),
    ).tolist()


@pytest.mark.parametrize("kind", TRANSFORMATIONS)
def test_copies_pass_whatever_was_done_to_them(strangers: Signatures, kind: str) -> None:
    copies = [make_duplicate(draw_scene(k), kind, np.random.default_rng(k)) for k in range(12)]
    table = np.concatenate([strangers, stack_signatures([make_signature(c) for c in copies])])
    descriptors = describe(table)
    background = find_nearest(descriptors, 12).similarity[:, -1].astype(float)
    pairs = np.array([(k, STRANGERS + k) for k in range(12)])
    ranks = np.arange(len(table))
    alone = verify(table, descriptors, pairs, ranks).score
    gated = verify(table, descriptors, pairs, ranks, background=background).score
    assert (gated[alone > 0] == alone[alone > 0]).all()


def test_strangers_that_do_not_stand_out_are_refused(strangers: Signatures) -> None:
    pairs = [(a, b) for a in range(20) for b in range(a + 1, 20)]
    assert np.mean(passed(strangers, pairs, 0.05)) < 0.15


def test_a_burst_passes_without_standing_out() -> None:
    shots = [make_duplicate(draw_scene(1), "jpeg_50", np.random.default_rng(k)) for k in range(3)]
    table = stack_signatures([make_signature(p) for p in (draw_scene(1), *shots)])
    assert all(passed(table, [(0, 1), (0, 2), (2, 3)], 0.0))


def test_a_pair_that_stands_out_far_passes_without_a_look(strangers: Signatures) -> None:
    assert passed(strangers, [(0, 1), (2, 3)], 0.5) == [True, True]


def test_a_flat_template_is_refused() -> None:
    flat = np.full((40, 40, 3), 90, np.uint8)
    table = stack_signatures([make_signature(flat), make_signature(draw_scene(2))])
    assert passed(table, [(0, 1)], 0.1) == [False]


def test_contrast_is_taken_from_the_lonelier_side() -> None:
    background = np.array([0.5, 0.2, np.inf])
    pairs = np.array([[0, 1], [0, 2]])
    assert measure_contrast(np.array([0.6, 0.6]), background, pairs) == pytest.approx([0.4, 0.1])


def test_order_and_company_change_nothing(strangers: Signatures) -> None:
    pairs = [(a, b) for a in range(15) for b in range(a + 1, 15)]
    straight = passed(strangers, pairs, 0.18)
    order = np.random.default_rng(0).permutation(len(pairs))
    shuffled = passed(strangers, [pairs[k] for k in order], 0.18)
    assert [straight[k] for k in order] == shuffled
    assert set(straight) == {True, False}


def test_what_the_gate_refused_stands_while_its_surroundings_do(strangers: Signatures) -> None:
    keys = [row.tobytes() for row in strangers]
    hashes = np.arange(STRANGERS, dtype=np.uint64) * np.uint64(0x0123456789ABCDEF)
    options = SearchOptions(gate_from=0, synthetic_sources=0)
    gated = find_near_duplicates(strangers, keys, hashes, options=options)
    alone = find_near_duplicates(
        strangers, keys, hashes, options=SearchOptions(gate_from=10**6, synthetic_sources=0)
    )
    assert gated.completeness.gated_pairs > 0
    assert alone.completeness.gated_pairs == 0
    assert len(gated.cache.rejected_pairs) == gated.completeness.verified_pairs
    again = find_near_duplicates(strangers, keys, hashes, options=options, known=gated.cache)
    assert again.completeness.gated_pairs == gated.completeness.gated_pairs
    few = slice(
        0, STRANGERS // 2
    )  # with fewer around them, hardly any pair is surrounded as before
    fewer = find_near_duplicates(
        strangers[few], keys[few], hashes[few], options=options, known=gated.cache
    )
    fresh = find_near_duplicates(strangers[few], keys[few], hashes[few], options=options)
    assert fewer.completeness.gated_pairs == fresh.completeness.gated_pairs
    assert "the prefilter rejected" in " ".join(gated.completeness.sentences())
