"""Groups: a partition, never chained, free of order, untouched by strangers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.neighbors.groups import Grouping, group_pictures

THRESHOLD = 0.0


def world(seed: int, n: int, spread: float) -> np.ndarray:
    """Points on a plane: a pair's score is one minus its distance."""
    rng = np.random.default_rng(seed)
    centres = rng.random((max(n // 4, 1), 2)) * 10
    return centres[rng.integers(0, len(centres), n)] + rng.normal(0, spread, (n, 2))


def scorer(points: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda pairs: 1.0 - np.hypot(*(points[pairs[:, 0]] - points[pairs[:, 1]]).T)


def grouped(points: np.ndarray, keys: list[bytes], neighbours: int = 3) -> Grouping:
    """Group with each point's nearest few as the candidates."""
    n = len(points)
    apart = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    near = np.argsort(apart, axis=1)[:, 1 : neighbours + 1]
    pairs = np.sort(np.stack([np.repeat(np.arange(n), near.shape[1]), near.ravel()], 1), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    verify = scorer(points)
    return group_pictures(
        pairs, verify(pairs) if len(pairs) else np.zeros(0), verify, THRESHOLD, keys
    )


def names(n: int, seed: int) -> list[bytes]:
    rng = np.random.default_rng(seed + 99)
    return [rng.bytes(8) for _ in range(n)]


worlds = {"seed": st.integers(0, 10**6), "n": st.integers(2, 60), "spread": st.floats(0.05, 1.5)}


@settings(max_examples=80)
@given(**worlds)
def test_groups_partition_and_members_are_verified(seed: int, n: int, spread: float) -> None:
    points = world(seed, n, spread)
    found = grouped(points, names(n, seed))
    members = [m for group in found.groups for m in group.members]
    assert len(members) == len(set(members))
    verify = scorer(points)
    for group in found.groups:
        assert group.members[0] == group.representative
        assert len(group.members) > 1
        true = verify(np.array([[group.representative, m] for m in group.members[1:]]))
        assert (true >= THRESHOLD).all()
        assert np.allclose(true, group.scores[1:])
    # no two representatives of one family match
    asked = {tuple(p) for p in found.extra.tolist()}
    for one, other in itertools.combinations(found.groups, 2):
        pair = tuple(sorted((one.representative, other.representative)))
        if pair in asked:
            assert verify(np.array([pair]))[0] < THRESHOLD


@settings(max_examples=80)
@given(**worlds)
def test_the_order_of_the_input_does_not_matter(seed: int, n: int, spread: float) -> None:
    points, keys = world(seed, n, spread), names(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    straight = grouped(points, keys)
    shuffled = grouped(points[order], [keys[i] for i in order])
    assert [
        (keys[s.representative], sorted(keys[m] for m in s.members)) for s in straight.groups
    ] == [
        (keys[order[s.representative]], sorted(keys[order[m]] for m in s.members))
        for s in shuffled.groups
    ]


@settings(max_examples=60)
@given(**worlds)
def test_a_stranger_changes_nothing(seed: int, n: int, spread: float) -> None:
    points, keys = world(seed, n, spread), names(n + 1, seed)
    with_stranger = np.concatenate([points, [[500.0, 500.0]]])
    assert grouped(points, keys[:n]).groups == grouped(with_stranger, keys).groups


def test_a_chain_is_not_one_group() -> None:
    points = np.array([[0.9 * k, 0.0] for k in range(30)])
    found = grouped(points, names(30, 1), neighbours=2)
    assert max(len(group.members) for group in found.groups) <= 3
    verify = scorer(points)
    for group in found.groups:
        assert (verify(np.array([[group.representative, m] for m in group.members[1:]])) >= 0).all()


def test_a_burst_wider_than_the_neighbour_cap_comes_together() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0, 0.02, (40, 2)), rng.normal(5, 0.02, (40, 2))])
    found = grouped(points, names(80, 2), neighbours=4)
    assert [len(group.members) for group in found.groups] == [40, 40]


def test_no_pairs_no_groups() -> None:
    found = group_pictures(
        np.zeros((0, 2), np.int64), np.zeros(0), scorer(np.zeros((1, 2))), 0.0, [b"a"]
    )
    assert found.groups == ()
    assert found.labels(1).tolist() == [-1]
