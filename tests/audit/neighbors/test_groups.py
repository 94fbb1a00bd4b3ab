"""The Hamming search misses no pair, and groups are partitions that strangers do not change."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audit.neighbors import hamming
from audit.neighbors.groups import Grouping, group_pictures
from audit.neighbors.hamming import find_code_pairs, find_cross_pairs

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


def clustered(seed: int, n: int, flips: int) -> np.ndarray:
    """Codes grown from a few by flipping bits, some of them equal."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 2**64, max(n // 8, 1), dtype=np.uint64)
    codes = base[rng.integers(0, len(base), n)]
    for _ in range(flips):
        flip = np.uint64(1) << rng.integers(0, 64, n).astype(np.uint64)
        codes = np.where(rng.random(n) < 0.6, codes ^ flip, codes)
    return codes


def brute(codes: np.ndarray, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of the first rows of each code, and each other row with the first of its code."""
    apart = np.bitwise_count(codes[:, None] ^ codes[None])
    lead = np.isin(np.arange(len(codes)), np.unique(codes, return_index=True)[1])
    first, second = np.nonzero(np.triu(apart <= radius, 1) & lead[:, None] & (lead | (apart == 0)))
    return np.stack([first, second], 1), apart[first, second]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [None, "brute", "chunks"])
@settings(max_examples=30)
@example(seed=0, n=0, flips=0, radius=10)
@example(seed=0, n=1, flips=0, radius=10)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(0, 400),
    flips=st.integers(0, 14),
    radius=st.integers(0, 16),
)
def test_every_pair_is_found_once(
    plan: str | None, seed: int, n: int, flips: int, radius: int
) -> None:
    codes = clustered(seed, n, flips)
    wanted, apart = brute(codes, radius)
    rows, distance = find_code_pairs(codes, radius, plan=plan).rows()
    assert rows.tolist() == wanted.tolist()
    assert distance.tolist() == apart.tolist()


@pytest.mark.parametrize("seed", range(8))
def test_what_an_earlier_search_found_is_brought_up_to_date(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hamming, "MOST_NEW", 1.0 if seed else 0.0)
    codes, radius = clustered(seed, 300, 8), 10
    before, after = codes[: 230 + seed], codes[40:]
    known = find_code_pairs(before, radius).known(radius)
    again = find_code_pairs(after, radius, known=known)
    assert ("last scan" in again.plan) == (seed > 0)
    wanted, apart = brute(after, radius)
    rows, distance = again.rows()
    assert rows.tolist() == wanted.tolist()
    assert distance.tolist() == apart.tolist()
    assert "last scan" not in find_code_pairs(after, radius + 1, known=known).plan


@pytest.mark.parametrize("radius", [20, 40, 63])
def test_wide_radii_are_complete(radius: int) -> None:
    codes = clustered(3, 120, 10)
    assert find_code_pairs(codes, radius).rows()[0].tolist() == brute(codes, radius)[0].tolist()


@pytest.mark.slow
def test_more_hits_than_a_buffer_holds() -> None:
    rng = np.random.default_rng(0)
    codes = rng.permutation(2**12).astype(np.uint64)  # 12 free bits: everything is near
    wanted, _ = brute(codes, 3)
    for plan in ("brute", "chunks"):
        found = find_code_pairs(codes, 3, plan=plan)
        assert len(found.first) == len(wanted)


@pytest.mark.parametrize("few", [0, hamming.FEW_PAIRS])
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 200), radius=st.integers(0, 12))
def test_queries_against_a_library(few: int, seed: int, n: int, radius: int) -> None:
    codes = clustered(seed, 2 * n, 6)
    apart = np.bitwise_count(codes[:n, None] ^ codes[None, n:])
    wanted = np.stack(np.nonzero(apart <= radius), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hamming, "FEW_PAIRS", few)
        rows, distance = find_cross_pairs(codes[:n], codes[n:], radius)
    assert rows.tolist() == wanted.tolist()
    assert distance.tolist() == apart[wanted[:, 0], wanted[:, 1]].tolist()
