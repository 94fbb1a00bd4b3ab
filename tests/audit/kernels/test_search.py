"""Kernels of the search for near-duplicates give what their plain forms give."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from audit.kernels.library import PATH_VARIABLE, find_kernel, load_kernels
from audit.neighbors.gate import N_STEPS
from audit.neighbors.gate import STARTS as GATE_STARTS
from audit.neighbors.hamming import _masks
from audit.neighbors.kernels import offers, plain, popcount
from audit.neighbors.strangers import _lay
from audit.neighbors.verification import ABANDON, MARGINS, STARTS
from audit.picture.signatures import SIGNATURE_DTYPE

Arrays = list[npt.NDArray[Any]]
Run = Callable[[], Arrays]


@contextmanager
def no_library() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PATH_VARIABLE, "off")
        load_kernels.cache_clear()
        yield
    load_kernels.cache_clear()


def both(run: Run) -> tuple[Arrays, Arrays]:
    """What the kernel and what the plain form writes."""
    compiled = run()
    with no_library():
        return compiled, run()


@pytest.fixture
def signatures() -> tuple[Arrays, Arrays]:
    """Planes and pairs: copies, strangers, noise, flat and black ones, in all orientations."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:40, :40] / 40
    base = [np.sin(rng.uniform(2, 12) * x + rng.uniform(2, 12) * y) for _ in range(12)]
    base += [b * np.cos(9 * x - 5 * y) for b in base]
    grey = [(90 + 80 * b[k : k + 32, k : k + 32]) for b in base for k in (0, 2, 3)]
    grey += [rng.integers(0, 256, (32, 32)), np.full((32, 32), 7), np.zeros((32, 32))]
    colour = rng.integers(0, 256, (len(grey), 8, 8, 3), dtype=np.uint8)
    pairs = np.concatenate([rng.integers(0, len(grey), (80, 2)), [[0, 1], [3, 4], [6, 8]] * 8])
    orientations = np.concatenate([np.arange(80) % 8, np.arange(24) % 2 * 3])
    return [np.array(grey).astype(np.uint8), colour], [pairs, orientations]


def test_aligned_pairs(kernels: None, signatures: tuple[Arrays, Arrays]) -> None:
    (grey, colour), (pairs, orientations) = signatures

    def run() -> Arrays:
        maps, scores = np.zeros((len(pairs), 6)), np.zeros((len(pairs), 14))
        align = find_kernel("align_batch") or plain.align
        align(grey, colour, pairs, orientations, STARTS, MARGINS, ABANDON, maps, scores)
        return [maps, scores]

    compiled, in_numpy = both(run)
    assert (compiled[1][:, 0] > 0.9).sum() >= 8
    for one, other in zip(compiled, in_numpy, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


def test_no_pair(kernels: None) -> None:
    grey, none = np.zeros((1, 32, 32), np.uint8), np.zeros(0, np.int64)
    align = find_kernel("align_batch") or plain.align
    align(
        grey, np.zeros((1, 8, 8, 3), np.uint8), np.zeros((0, 2), np.int64), none, STARTS, MARGINS,
        ABANDON, np.zeros((0, 6)), np.zeros((0, 14)),
    )  # fmt: skip


def test_maps_that_are_no_numbers_reach_nothing() -> None:
    maps = np.array([[np.nan] * 6, [np.inf] * 6, [1e300] * 6, [-1e300] * 6])
    zero = np.zeros(4, np.int64)
    with np.errstate(all="ignore"):
        fields, reach = _lay(np.zeros(1, SIGNATURE_DTYPE), zero, zero, maps, zero)
    assert not reach.any()
    assert not fields.any()


def test_pairs_that_pass(kernels: None, signatures: tuple[Arrays, Arrays]) -> None:
    (grey, _), (pairs, orientations) = signatures
    needed = np.random.default_rng(5).uniform(-1.2, 1.0, len(pairs))

    def run() -> Arrays:
        passed = np.zeros(len(pairs), np.bool_)
        find = find_kernel("pass_batch") or plain.pass_pairs
        find(grey, pairs, orientations, GATE_STARTS, N_STEPS, needed, passed)
        return [passed]

    (compiled,), (in_numpy,) = both(run)
    assert 0 < compiled.sum() < len(pairs)
    np.testing.assert_array_equal(compiled, in_numpy)


@pytest.mark.parametrize("width", [1, 15, 16, 50])
def test_nearest_neighbours(kernels: None, width: int) -> None:
    rng = np.random.default_rng(width)
    parts = rng.normal(0, 0.2, (8, 20 * width)).astype(np.float32)
    rows, columns = np.arange(20) + 5, rng.permutation(60)[:width]

    def run() -> Arrays:
        table = np.empty(20 * width, np.float32)
        offers.best_orientation(parts, table)
        best, index = np.full((30, 4), -2.0, np.float32), np.full((30, 4), -1)
        offers.offer_rows(table.reshape(20, width), rows, columns, best, index, 0)
        offers.offer_rows(table[::-1].reshape(20, width).copy(), rows, columns, best, index, -1)
        other, other_index = best[rows] + np.float32(0.5), index[rows] - 1
        offers.merge_offers(rows, other, other_index, best, index)
        return [table, best, index]

    compiled, in_numpy = both(run)
    for one, other in zip(compiled, in_numpy, strict=True):
        np.testing.assert_array_equal(one, other)


def hits(tasks: int, room: int) -> Arrays:
    """Tasks, and room for what they find."""
    kinds = (np.int32, np.int32, np.uint8)
    out = [np.zeros(tasks * room, kind) for kind in kinds]
    begin = np.arange(tasks) * room
    return [
        np.arange(tasks),
        np.stack([begin, begin + room], axis=1),
        *out,
        np.zeros(tasks, np.int64),
    ]


def in_order(found: Arrays) -> Arrays:
    """Counts, and the hits of each task in order."""
    _, edges, *columns, count = found
    taken = np.concatenate([np.arange(c) + e for (e, _), c in zip(edges, count, strict=True)])
    rows = np.stack([c[taken.astype(np.int64)] for c in columns], axis=1)
    return [count, rows[np.lexsort(rows.T)]]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("n", [0, 1, 3, 200])
def test_codes_compared_outright(kernels: None, n: int, later: bool) -> None:
    codes = np.random.default_rng(n).integers(0, 2**64, n, dtype=np.uint64)
    codes[n // 2 :] = codes[: n - n // 2] ^ np.uint64(9)
    bounds = np.linspace(0, n, 4).astype(np.int64)

    def run() -> Arrays:
        out = hits(3, 4000)
        popcount.compare_rows(codes, codes, later, 24, bounds, *out)
        return in_order(out)

    for one, other in zip(*both(run), strict=True):
        np.testing.assert_array_equal(one, other)


def test_hits_beyond_the_room_are_counted_and_not_written(kernels: None) -> None:
    codes = np.zeros(50, np.uint64)

    def run() -> Arrays:
        out = hits(2, 7)
        popcount.compare_rows(codes, codes, True, 0, np.array([0, 1, 50]), *out)
        return [out[-1], out[2][:7]]

    compiled, in_numpy = both(run)
    assert compiled[0].tolist() == in_numpy[0].tolist() == [49, 49 * 48 // 2]
    np.testing.assert_array_equal(compiled[1], in_numpy[1])


@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_codes_compared_in_buckets(kernels: None, chunk: int) -> None:
    codes = np.random.default_rng(chunk).integers(0, 2**64, 600, dtype=np.uint64)
    codes[300:] = codes[:300] ^ (np.uint64(1) << (np.arange(300) % 64).astype(np.uint64))
    shifts = np.array([0, 8, 16], np.uint64)
    fields, reach = np.full(3, 255, np.uint64), np.array([0, 1, -1])
    keys = ((codes >> shifts[chunk]) & fields[chunk]).astype(np.int64)
    order = np.argsort(keys, kind="stable").astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=256))]).astype(np.int32)
    bounds = np.array([0, 10, 11, 256])

    def run() -> Arrays:
        out = hits(3, 20_000)
        popcount.compare_buckets(
            20, shifts, fields, reach, codes[order], order, starts, _masks(8, 1), chunk, bounds,
            *out,
        )  # fmt: skip
        return in_order(out)

    for one, other in zip(*both(run), strict=True):
        np.testing.assert_array_equal(one, other)


def test_bits_are_moved() -> None:
    rng = np.random.default_rng(1)
    codes, order = rng.integers(0, 2**64, 20, dtype=np.uint64), rng.permutation(64)
    moved = popcount.permute_bits(codes, order.astype(np.uint8))
    for code, other in zip(codes.tolist(), moved.tolist(), strict=True):
        assert other == sum((code >> int(bit) & 1) << k for k, bit in enumerate(order))
