"""What all of a kind share makes no copies: digits stay apart, and copies among them are found."""

from __future__ import annotations

import hashlib

import cv2
import numpy as np
import pytest

from audit.neighbors.dense import similarity_table
from audit.neighbors.descriptor import describe
from audit.neighbors.search import Relation, SearchOptions, find_near_duplicates
from audit.neighbors.strangers import BIAS, BY_OWN, choose_pool, choose_strangers, weigh
from audit.neighbors.synthetic import make_duplicate
from audit.neighbors.verification import MOST_STRETCHED, NO_MATCH, verify
from audit.picture.signatures import SIGNATURE_DTYPE, make_signature, stack_signatures

STROKES = [
    [(50, 10), (20, 30), (20, 70), (50, 90), (80, 70), (80, 30), (50, 10)],
    [(20, 30), (40, 10), (75, 20), (70, 45), (20, 90), (80, 90)],
    [(20, 15), (70, 15), (50, 45), (80, 65), (60, 90), (20, 85)],
    [(75, 10), (30, 10), (25, 45), (70, 50), (70, 85), (20, 88)],
    [(70, 10), (30, 40), (25, 75), (50, 90), (75, 70), (50, 50), (28, 65)],
    [(75, 35), (50, 50), (30, 30), (50, 10), (75, 30), (65, 90)],
]


def digit(seed: int) -> np.ndarray:
    """One of six digits in a trembling hand, 56 px."""
    rng = np.random.default_rng(seed)
    points = np.array(STROKES[seed % 6]) + rng.normal(0, 5, (len(STROKES[seed % 6]), 2))
    points[:, 0] += rng.normal(0, 0.15) * (50 - points[:, 1])
    board = np.zeros((224, 224), np.uint8)
    path = (points * 1.6 + 32).astype(np.int32).reshape(-1, 1, 2)
    cv2.polylines(board, [path], False, 255, int(rng.integers(14, 26)), cv2.LINE_AA)
    small = cv2.resize(board, (56, 56), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(small, cv2.COLOR_GRAY2RGB), np.uint8)


def search(pictures: list[np.ndarray], **options: object) -> Relation:
    table = stack_signatures([make_signature(p) for p in pictures])
    keys = [hashlib.blake2b(p.tobytes(), digest_size=16).digest() for p in pictures]
    hashes = np.random.default_rng(0).integers(0, 2**63, len(table)).astype(np.uint64)
    chosen = SearchOptions(synthetic_sources=0, **options)
    return find_near_duplicates(
        table, keys, hashes, options=chosen, open_picture=pictures.__getitem__
    )


@pytest.fixture(scope="module")
def digits() -> list[np.ndarray]:
    return [digit(k) for k in range(200)]


@pytest.mark.slow
def test_digits_are_no_copies_of_each_other(digits: list[np.ndarray]) -> None:
    found = search(digits)
    assert found.calibration.strangers > 20
    assert len(found.pairs.pairs) == 0


@pytest.mark.slow
def test_copies_among_digits_are_found(digits: list[np.ndarray]) -> None:
    changes = ["jpeg_70", "png", "border", "less_contrast", "resize_50"]
    copies = [
        make_duplicate(digits[7 * k], changes[k % 5], np.random.default_rng(k)) for k in range(20)
    ]
    found = search(digits + copies)
    pairs = {tuple(sorted(pair)) for pair in found.pairs.pairs.tolist()}
    wanted = {(7 * k, 200 + k) for k in range(20)}
    assert pairs <= wanted
    assert len(pairs) >= 15


@pytest.mark.slow
def test_the_gate_does_not_move_the_threshold(digits: list[np.ndarray]) -> None:
    open_, gated = search(digits), search(digits, gate_from=0)
    assert gated.completeness.gated_pairs > 0
    apart = abs(open_.calibration.threshold - gated.calibration.threshold)
    assert apart <= open_.calibration.uncertainty


def test_what_strangers_share_is_taken_away(scenes: list[np.ndarray]) -> None:
    # one frame with a grid fills most of every picture; a small scene differs
    def framed(scene: np.ndarray) -> np.ndarray:
        board = np.full((128, 128, 3), 240, np.uint8)
        board[::16], board[:, ::16] = 20, 20
        board[40:88, 40:88] = cv2.resize(scene, (48, 48), interpolation=cv2.INTER_AREA)
        return board

    pictures = [framed(scene) for scene in scenes[:40]]
    pictures.append(make_duplicate(pictures[0], "jpeg_70", np.random.default_rng(0)))
    table = stack_signatures([make_signature(p) for p in pictures])
    descriptors, ranks = describe(table), np.arange(len(table))
    pairs = np.array([[0, 40], *([k, k + 1] for k in range(1, 30))])
    verified = verify(table, descriptors, pairs, ranks)
    found = weigh(
        verified,
        table,
        descriptors,
        choose_pool(np.arange(len(table)), np.arange(len(table), dtype=np.uint64)),
    )
    assert verified.score[1:].max() > 0
    assert found.score[0] > found.score[1:].max() + 4
    # those that cannot be called keep no score
    low = weigh(verified, table, descriptors, np.arange(40), least=np.inf)
    assert (low.score <= NO_MATCH).all()
    # nobody to compare with: agreement counts as it is
    alone = weigh(verified.take(np.array([0])), table, descriptors, np.array([0]))
    assert alone.score[0] > BIAS + 3 * BY_OWN


def test_a_picture_that_goes_changes_the_strangers_of_few() -> None:
    rng = np.random.default_rng(0)
    table = np.zeros(600, SIGNATURE_DTYPE)
    table["grey"] = rng.integers(0, 256, (600, 32, 32))
    table["colour"], table["size"] = rng.integers(0, 256, (600, 8, 8, 3)), 200
    descriptors = describe(table)
    codes, rows = rng.integers(0, 2**63, 600).astype(np.uint64), np.arange(600)
    pool = choose_pool(rows, codes)
    before, changed = choose_strangers(rows, table, descriptors, pool), []
    for gone in pool[::30]:
        others = choose_pool(rows[rows != gone], codes)
        after = choose_strangers(rows, table, descriptors, others)
        changed.append((np.sort(before) != np.sort(after)).any(axis=1).mean())
    assert not (before == rows[:, None]).any()
    assert all(len(set(row)) == len(row) for row in before.tolist())
    assert np.mean(changed) < 0.2
    near = similarity_table(descriptors, descriptors[pool])
    near[rows[:, None] == pool] = -2
    nearest = pool[np.argsort(-near, axis=1, kind="stable")[:, :4]]
    assert all(set(four) <= set(row) for four, row in zip(nearest, before, strict=True))


def test_more_than_three_to_one_is_no_copy(scenes: list[np.ndarray]) -> None:
    wide = [cv2.resize(scenes[0], (round(128 * r), 128)) for r in (1.0, 16 / 9, 2.0, 3.4)]
    table = stack_signatures([make_signature(p) for p in wide])
    pairs = np.array([[0, 1], [0, 2], [0, 3]])
    score = verify(table, describe(table), pairs, np.arange(4)).score
    assert np.log(3.4) > MOST_STRETCHED > np.log(2.0)
    assert score[0] > score[1] > 0
    assert score[2] == NO_MATCH
