"""Copies that share the middle: soft frames are found, equal frames and outlines are not."""

import sys
from collections import Counter

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.neighbors import centres
from audit.neighbors.centres import MOST_A_ROW, find_near, find_same_centres
from audit.neighbors.library import Library
from audit.neighbors.overlap import search_against
from audit.neighbors.pair_cache import KnownCentres
from audit.neighbors.search import SearchOptions, find_near_duplicates
from audit.neighbors.synthetic import make_duplicate
from audit.picture.features import feature_picture
from audit.picture.signatures import make_signature, stack_signatures
from tests.conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from soft_frames import FRAMES


def found_pairs(pictures: list[np.ndarray]) -> set[tuple[int, int]]:
    found = find_same_centres(stack_signatures([make_signature(p) for p in pictures]))
    return {(int(a), int(b)) for a, b in found.pairs}


def silhouette(seed: int) -> np.ndarray:
    """The same outline on the same sky; what it is made of differs."""
    rng = np.random.default_rng(seed)
    board = np.full((128, 128, 3), 190, np.uint8)
    wings = np.array([[10, 70], [60, 60], [90, 20], [80, 62], [120, 66], [78, 74], [60, 110]])
    cv2.fillPoly(board, [wings.astype(np.int32)], (70, 80, 90), cv2.LINE_AA)
    return np.clip(board + rng.normal(0, 8, board.shape), 0, 255).astype(np.uint8)


def disc(texture: np.ndarray) -> np.ndarray:
    """A textured disc, as large as the middle, on white."""
    y, x = np.mgrid[-1:1:128j, -1:1:128j]
    inside = (np.hypot(x, y) < 0.6)[..., None]
    return np.where(inside, cv2.resize(texture, (128, 128)), 255).astype(np.uint8)


@pytest.mark.parametrize("kind", list(FRAMES))
def test_framed_copies_are_found_and_strangers_in_the_same_frame_are_not(
    scenes: list[np.ndarray], kind: str
) -> None:
    # one seed: every copy of a kind has the same frame, so any two are hard negatives
    copies = [FRAMES[kind](scene, np.random.default_rng(1)) for scene in scenes[:20]]
    called = found_pairs([*scenes, *copies])
    wanted = {(k, len(scenes) + k) for k in range(20)}
    # drawn grain is finer than a signature shows; near_duplicates.py frames has real pictures
    assert len(called & wanted) >= 12
    assert not called - wanted


def test_pictures_without_copies_are_silent(scenes: list[np.ndarray]) -> None:
    assert found_pairs(scenes) == set()


def test_one_outline_of_different_stuff_is_not_one_picture(scenes: list[np.ndarray]) -> None:
    plain = [silhouette(seed) for seed in range(30)]
    discs = [disc(scene) for scene in scenes[:30]]
    assert found_pairs(plain) == set()
    assert found_pairs([*discs, *scenes[30:]]) == set()


def stroke(seed: int) -> np.ndarray:
    """One of three figures, as another hand would write it each time."""
    rng = np.random.default_rng(seed)
    figures = ([[8, 5], [20, 8], [9, 22], [21, 22]], [[19, 6], [9, 14], [20, 15], [10, 23]],
               [[14, 4], [14, 23], [20, 14], [8, 14]])  # fmt: skip
    points = np.array(figures[seed % 3]) + rng.normal(0, 1.0, (4, 2))
    board = np.zeros((28, 28), np.uint8)
    cv2.polylines(board, [np.rint(points * 16).astype(np.int32)], False, 255, 2, cv2.LINE_AA, 4)
    return np.repeat(board[..., None], 3, axis=2)


def test_where_middles_cannot_tell_strangers_apart_nothing_is_said() -> None:
    rng = np.random.default_rng(4)
    still = make_duplicate(stroke(0), "blur", rng)
    camera = [np.clip(still + rng.normal(0, 3, still.shape), 0, 255).astype(np.uint8)] * 60
    strokes = stack_signatures([make_signature(stroke(seed)) for seed in range(1500)])
    found = find_same_centres(strokes)
    assert (len(found.pairs), found.telling) == (0, False)
    assert found_pairs(camera) == set()


def test_too_little_to_compare() -> None:
    assert found_pairs([]) == set()
    assert found_pairs([np.full((40, 40, 3), 90, np.uint8)] * 3) == set()


@pytest.mark.slow
def test_the_search_groups_framed_copies(scenes: list[np.ndarray]) -> None:
    rng = np.random.default_rng(3)
    pictures = [*scenes[:20], *(FRAMES["vignette"](s, rng) for s in scenes[:10])]
    relation = find_near_duplicates(
        stack_signatures([make_signature(p) for p in pictures]),
        [bytes([k]) for k in range(30)],
        np.random.default_rng(0).integers(0, 2**63, 30).astype(np.uint64),
        options=SearchOptions(synthetic_sources=0, nearest=1),
        open_picture=lambda row: pictures[row],
    )
    called = {(int(a), int(b)) for a, b in np.sort(relation.pairs.pairs, axis=1)}
    assert called == {(k, 20 + k) for k in range(10)}
    assert len(relation.grouping.groups) == 10
    assert not relation.completeness.middles
    assert (relation.pairs.similarity > 0).all()


def heartbeat(seed: int) -> np.ndarray:
    """A curve on ruled paper: the paper is most of what a signature shows."""
    rng = np.random.default_rng(seed)
    board = np.full((240, 600, 3), 250, np.uint8)
    board[:, ::12] = board[::12] = (240, 190, 190)
    time, level, beat = np.arange(600), np.zeros(600), rng.uniform(0, 60)
    gap, high = rng.uniform(45, 95), rng.uniform(50, 90)
    while beat < 600:
        for centre, wide, rise in ((-14, 5, 8), (0, 1.8, high), (3, 1.6, -14), (20, 8, 14)):
            level += rise * np.exp(-(((time - beat - centre) / wide) ** 2))
        beat += gap * rng.uniform(0.6, 1.5)
    path = np.stack([time, 160 - level], axis=1).astype(np.int32)
    cv2.polylines(board, [path], False, (40, 40, 60), 1, cv2.LINE_AA)
    return feature_picture(board)


def test_curves_on_one_ruled_paper_have_no_middle_of_their_own() -> None:
    table = stack_signatures([make_signature(heartbeat(seed)) for seed in range(240)])
    found = find_same_centres(table)
    assert not len(found.pairs)
    assert not found.telling


def sprite(rng: np.random.Generator) -> np.ndarray:
    """Pixel art of 12 x 12 mirrored blocks in three of eight colours, on white."""
    palette = np.random.default_rng(0).integers(0, 256, (8, 3))[rng.choice(8, 3, replace=False)]
    half = palette[rng.integers(0, 3, (12, 6))]
    half[rng.random((12, 6)) >= 0.5] = 255
    whole = np.concatenate([half, half[:, ::-1]], axis=1)
    return feature_picture(np.kron(whole, np.ones((4, 4, 1))).astype(np.uint8))


def test_drawings_of_a_few_blocks_do_not_agree_by_chance() -> None:
    rng = np.random.default_rng(22)
    table = stack_signatures([make_signature(sprite(rng)) for _ in range(380)])
    assert not len(find_same_centres(table).pairs)


def test_one_pattern_in_other_colours_is_not_one_picture(scenes: list[np.ndarray]) -> None:
    rng = np.random.default_rng(3)
    painted = (scenes[0] * (1.0, 0.45, 0.3)).astype(np.uint8)
    copies = [FRAMES["vignette"](p, rng) for p in (painted, painted[..., ::-1])]
    assert found_pairs([*scenes[1:], painted, copies[0]]) == {(len(scenes) - 1, len(scenes))}
    assert found_pairs([*scenes[1:], painted, copies[1]]) == set()


def test_framed_copies_are_found_in_a_library(scenes: list[np.ndarray]) -> None:
    rng = np.random.default_rng(3)
    new = [*(FRAMES["vignette"](s, rng) for s in scenes[:6]), *scenes[50:54]]
    tables = [stack_signatures([make_signature(p) for p in part]) for part in (new, scenes[:20])]
    keys = [[bytes([part, k]) for k in range(len(tables[part]))] for part in (0, 1)]
    hashes = [rng.integers(0, 2**63, len(table)).astype(np.uint64) for table in tables]
    new = tables[0], keys[0], hashes[0]
    library = Library(tables[1], keys[1], hashes[1], 2.0)
    found, found_completeness = search_against(*new, library, options=SearchOptions(nearest=1))
    assert found.pairs.tolist() == [[k, k] for k in range(6)]
    assert (found.score >= 2.0).all()
    assert not any("centre" in line for line in found_completeness.sentences())
    few = SearchOptions(nearest=1, exact_limit=20)
    without, without_completeness = search_against(*new, library, options=few)
    assert len(without.pairs) < 6
    said = "30 images exceed the limit of 20 for comparing centres."
    assert any(line.endswith(said) for line in without_completeness.sentences())


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 120),
    new=st.integers(0, 60),
    limit=st.sampled_from([0.85, 0.95]),
)
def test_the_bound_loses_no_pair(seed: int, n: int, new: int, limit: float) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 80)).astype(np.float32)
    vectors[n // 2 :] = vectors[: n - n // 2] + 0.3 * vectors[n // 2 :]  # some are alike
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    likeness = vectors @ vectors.T
    first = new if 0 < new < n else None
    found = {tuple(pair) for pair in find_near(vectors, limit, first).best(limit)[0].tolist()}
    rows, columns = np.nonzero(likeness >= limit)
    wanted = {
        (int(min(a, b)), int(max(a, b)))
        for a, b in zip(rows, columns, strict=True)
        if a != b and (first is None or (a < first) != (b < first))
    }
    assert found <= wanted
    by_later = Counter(b if first is None else a for a, b in wanted)
    most = sum(min(count, MOST_A_ROW) for count in by_later.values())
    assert len(found) == most


@pytest.mark.parametrize("seed", range(6))
def test_what_an_earlier_search_found_is_brought_up_to_date(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(centres, "MOST_NEW", 1.0)
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(200, 80)).astype(np.float32)
    vectors[100:] = vectors[:100] + 0.3 * vectors[100:]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    codes = rng.integers(0, 2**63, 200).astype(np.uint64)
    before = np.sort(rng.permutation(200)[:150])
    after = np.sort(np.append(before[5:], np.setdiff1d(np.arange(200), before)[:20]))
    first, floor = centres._find_near_again(vectors[before], 0.93, codes[before], None)
    assert floor < 0.93
    named = codes[before][first.pairs]
    known = KnownCentres(codes[before], named[:, 0], named[:, 1], first.similarity, floor)
    for limit in (0.95, 0.92, 0.86):  # above, between and below what was kept
        again, kept = centres._find_near_again(vectors[after], limit, codes[after], known)
        fresh = find_near(vectors[after], limit, None)
        assert kept <= limit
        assert len(fresh.pairs)
        for one, other in zip(again.best(limit), fresh.best(limit), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
