"""Verification and the affine maps behind it: known changes are seen through, strangers are not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.neighbors.affine import lay_over, map_in_pixels, refine_map
from audit.neighbors.descriptor import describe
from audit.neighbors.synthetic import TRANSFORMATIONS, make_duplicate
from audit.neighbors.transformation import PairTransformation, describe_pair
from audit.neighbors.verification import NO_MATCH, key_ranks, verify
from audit.picture.signatures import SIGNATURE_DTYPE, make_signature, stack_signatures

HARD = {"crop_80", "caption"}


def scores(first: list[np.ndarray], second: list[np.ndarray]) -> np.ndarray:
    table = stack_signatures([make_signature(p) for p in (*first, *second)])
    pairs = np.stack([np.arange(len(first)), np.arange(len(first)) + len(first)], axis=1)
    return verify(table, describe(table), pairs, np.arange(len(table))).score


@pytest.mark.parametrize("name", sorted(TRANSFORMATIONS))
def test_known_changes_are_seen_through(name: str, scenes: list[np.ndarray]) -> None:
    changed = [make_duplicate(p, name, np.random.default_rng(k)) for k, p in enumerate(scenes[:20])]
    found = scores(scenes[:20], changed) > 0
    assert found.mean() >= (0.8 if name in HARD else 0.95)


def test_strangers_are_not_taken_for_copies(scenes: list[np.ndarray]) -> None:
    table = stack_signatures([make_signature(p) for p in scenes])
    pairs = np.array(list(itertools.combinations(range(len(scenes)), 2)))
    verified = verify(table, describe(table), pairs, np.arange(len(table)))
    assert verified.score.max() < -1.5


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_symmetric_to_the_last_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = np.zeros(12, SIGNATURE_DTYPE)
    base = rng.integers(0, 256, (3, 8, 8)).repeat(4, axis=1).repeat(4, axis=2)
    table["grey"] = np.clip(
        base[rng.integers(0, 3, 12)] + rng.integers(-40, 40, (12, 32, 32)), 0, 255
    )
    table["colour"] = rng.integers(0, 256, (12, 8, 8, 3))
    table["size"] = rng.integers(20, 400, (12, 2))
    ranks = key_ranks([rng.bytes(8) for _ in range(12)])
    pairs = np.array(list(itertools.combinations(range(12), 2)))
    d = describe(table)
    one = verify(table, d, pairs, ranks)
    # the other way round, in another order, in small batches
    order = rng.permutation(len(pairs))
    other = verify(table, d, pairs[order][:, ::-1], ranks, batch=7)
    assert one.score[order].tolist() == other.score.tolist()
    assert one.matrix[order].tolist() == other.matrix.tolist()
    assert one.similarity[order].tolist() == other.similarity.tolist()


def test_flat_pictures_match_nothing_not_even_each_other(scenes: list[np.ndarray]) -> None:
    flat = np.full((80, 80, 3), 200, np.uint8)
    assert scores([flat, flat], [flat, scenes[0]]).tolist() == [NO_MATCH, NO_MATCH]


def test_no_pairs_is_no_error(scenes: list[np.ndarray]) -> None:
    table = stack_signatures([make_signature(scenes[0])])
    empty = verify(table, describe(table), np.zeros((0, 2), np.int64), np.arange(1))
    assert len(empty.score) == 0


def described(
    scenes: list[np.ndarray], name: str, flipped: bool = False
) -> Iterator[PairTransformation]:
    """What is said of pictures beside their changed copies; `flipped`: the copy is the template."""
    for k, picture in enumerate(scenes):
        changed = make_duplicate(picture, name, np.random.default_rng(k))
        table = stack_signatures([make_signature(picture), make_signature(changed)])
        ranks = np.array([1, 0] if flipped else [0, 1])
        verified = verify(table, describe(table), np.array([[0, 1]]), ranks)
        yield describe_pair(table[0], table[1], verified, 0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mirror", "mirrored"),
        ("rotate_180", "rotated by 180 degrees"),
        ("crop_80", "cropped to"),
        ("brighter", "brighter by"),
        ("darker", "darker by"),
        ("grey", "made grey"),
        ("border", "border added"),
        ("rotate_3", "rotated 3 degrees"),
        ("png", "same view"),
    ],
)
@pytest.mark.parametrize("flipped", [False, True])
def test_the_change_is_put_into_words(
    name: str, words: str, flipped: bool, scenes: list[np.ndarray]
) -> None:
    # whichever of the two is the template, the words go from the first to the second
    said = [words in change.words for change in described(scenes[:10], name, flipped)]
    assert sum(said) >= 8


def test_amounts_are_about_right(scenes: list[np.ndarray]) -> None:
    kept = [change.share_kept for change in described(scenes[:12], "crop_80")]
    turned = [abs(change.rotation) for change in described(scenes[:12], "rotate_3")]
    assert abs(np.median(kept) - 0.8) < 0.02
    assert abs(np.median(turned) - 3.0) < 0.5


MAP = np.array([-0.1, 0.03, 0.05, -0.02, -0.08, 0.04])


@pytest.mark.parametrize("side", [32, 128, 480])
def test_units_and_pixels_are_one_map(side: int) -> None:
    # a corner of the picture goes to the same corner in both forms
    corner = map_in_pixels(MAP, side) @ np.array([-0.5, -0.5, 1.0])
    wanted = (
        (1 + MAP[0]) * -1 + MAP[1] * -1 + MAP[2],
        MAP[3] * -1 + (1 + MAP[4]) * -1 + MAP[5],
    )
    assert (corner + 0.5) / (side / 2) - 1 == pytest.approx(wanted)


def test_a_known_map_is_found_and_undone(scene: Callable[..., np.ndarray]) -> None:
    plane = cv2.cvtColor(scene(1, 128, 128), cv2.COLOR_RGB2GRAY).astype(np.float32)
    plane = cv2.GaussianBlur(plane, (0, 0), 1.5)
    warp = map_in_pixels(MAP, 128).astype(np.float32)
    moved = cv2.warpAffine(plane, warp, (128, 128), borderMode=cv2.BORDER_REPLICATE)
    found = refine_map(plane, moved, np.eye(2, 3, dtype=np.float32), steps=80, precision=1e-6)
    assert found is not None
    laid, covered = lay_over(moved, found, (128, 128))
    assert 0.5 < covered.mean() <= 1.0
    middle = (slice(24, -24), slice(24, -24))
    assert np.abs(laid - plane)[middle].mean() < 2.0
    assert np.abs(moved - plane)[middle].mean() > 10.0


def test_nothing_to_register_gives_no_map() -> None:
    flat = np.full((64, 64), 90, np.float32)
    start = np.eye(2, 3, dtype=np.float32)
    assert refine_map(flat, flat, start, steps=10, precision=1e-4) is None


def test_where_a_shifted_picture_does_not_reach_is_told() -> None:
    warp = np.array([[1, 0, 16], [0, 1, 0]], np.float32)
    _, covered = lay_over(np.ones((64, 64), np.float32), warp, (64, 64))
    assert covered[:, :48].all()
    assert not covered[:, 48:].any()
