"""Likeness: whether pictures look more alike than pictures of their class usually do.

The distance between the two pictures of a pair has a rank among the distances from the first to
other pictures of the second's cell (class and split). If the second was put there at random, that
rank is uniform, and the ranks along a chain of pictures, which names or times propose, combine by
Fisher's rule to an exact test. The distance adds differences of light, colour and texture to those
of the 256-bit perceptual hash; sizes and formats show where pictures come from and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.statistics.intervals import Floats, Ints, benjamini_hochberg

if TYPE_CHECKING:
    import polars as pl

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]

OTHERS = 400  # pictures of a cell that a pair is compared with, at most: ranks down to 1 / 401
HALF = 128.0  # bits of 256 that differ between unrelated pictures, on average
TIE = 1e-5  # distances closer than rounding are equal
BLOCK = 4096  # pairs at a time: 30 MB of distances

# What a picture's look is measured by: names of columns of the view `images`.
LOOK_COLUMNS = (
    "brightness", "brightness_p5", "brightness_p50", "brightness_p95", "contrast", "saturation",
    "red", "green", "blue", "edge_density", "entropy", "noise",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Looks:
    """What n pictures look like, and where each belongs.

    `tones` (n, k) are standardised columns, `bits` (n, 32) the packed hash, `cell` (n,) the number
    of class and split, `place` (n, 2) sequence and number within it (-1: in none).
    """

    tones: Floats
    bits: Bytes
    cell: Ints
    place: Ints


def standardised(columns: Floats) -> Floats:
    """Return columns (n, k) with mean 0 and deviation 1; NaN counts as the mean."""
    mean = np.nanmean(columns, axis=0) if len(columns) else 0.0
    spread = np.nanstd(columns, axis=0) if len(columns) else 1.0
    return np.nan_to_num((columns - mean) / np.where(spread > 0, spread, 1.0))


def pair_ranks(looks: Looks, first: Ints, second: Ints, reach: int, least: int) -> Floats:
    """Return the rank, in (0, 1], of each pair's distance among pairs with others of its cell.

    Left out of the others: the two themselves, and pictures of the first's own sequence within
    `reach` numbers of it. NaN where fewer than `least` others remain.
    """
    ranks = np.full(len(first), np.nan)
    if not len(first):
        return ranks  # no picture, or none with another of its sequence
    rng = np.random.default_rng(0)  # the same others in every run
    order = np.argsort(looks.cell, kind="stable")
    cells, start = np.unique(looks.cell[order], return_index=True)
    members = dict(zip(cells.tolist(), np.split(order, start[1:]), strict=True))
    wanted = looks.cell[second]
    for cell in np.unique(wanted).tolist():
        others = members[cell]
        if len(others) > OTHERS:
            others = rng.choice(others, OTHERS, replace=False)
        rows = np.flatnonzero(wanted == cell)
        for block in np.split(rows, range(BLOCK, len(rows), BLOCK)):
            ranks[block] = _ranks(looks, first[block], second[block], others, reach, least)
    return ranks


def _ranks(looks: Looks, first: Ints, second: Ints, others: Ints, reach: int, least: int) -> Floats:
    tones, bits = looks.tones, looks.bits
    own = np.linalg.norm(tones[first] - tones[second], axis=1)
    own_bits = np.bitwise_count(bits[first] ^ bits[second]).sum(1)
    squares = (tones[first] ** 2).sum(1)[:, None] + (tones[others] ** 2).sum(1)
    apart = np.sqrt(np.maximum(squares - 2 * tones[first] @ tones[others].T, 0.0))
    # Bits as +1 and -1: a product of matrices counts those that agree.
    signs = np.unpackbits(bits[first], axis=1).astype(np.float32) * 2 - 1
    other_signs = np.unpackbits(bits[others], axis=1).astype(np.float32) * 2 - 1
    apart_bits = (256 - signs @ other_signs.T) / 2
    near = (looks.place[others, 0] == looks.place[first, 0][:, None]) & (
        np.abs(looks.place[others, 1] - looks.place[first, 1][:, None]) <= reach
    )
    left_out = (near & (looks.place[first, 0] >= 0)[:, None]) | (others == first[:, None])
    left_out |= others == second[:, None]
    # One unit is what unrelated pictures of this cell are apart, in each of the two.
    unit = max(float(np.median(apart)), 1e-9)
    closer = apart / unit + apart_bits / HALF <= (own / unit + own_bits / HALF)[:, None] + TIE
    remaining = (~left_out).sum(1)
    rank = (1 + (closer & ~left_out).sum(1)) / (1 + remaining)
    return np.where(remaining >= least, rank, np.nan)


def chain_p_values(ranks: Floats, chains: Ints, n: int) -> Floats:
    """Return, for chains 0..n-1, the p-value that ranks along each are those of chance.

    Fisher (1932): -2 sum(ln rank) is chi-squared with twice as many degrees of freedom as ranks; as
    ranks are rounded up, the p-values are too. NaN ranks are left out; a chain without any has 1.
    """
    from scipy.special import chdtrc

    known = np.isfinite(ranks)
    count = np.bincount(chains[known], minlength=n)
    total = np.bincount(chains[known], -2 * np.log(ranks[known]), minlength=n)
    return np.where(count > 0, chdtrc(2 * np.maximum(count, 1), total), 1.0)


MAX_PAIRS = 500  # of a chain, within a split and across: more would not change the verdict
LAGS = 3  # a picture is compared across splits with so many of its chain before it


@dataclass(frozen=True, slots=True)
class Chain:
    """Pictures (id, split) in an order that names or times propose."""

    name: str
    members: Sequence[tuple[str, str]]
    numbers: Sequence[int]  # seconds, for a burst
    burst: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The members of a chain that belong together across splits, and why."""

    members: Sequence[int]
    evidence: Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True)
class ChainRule:
    """How near neighbours are, in numbers; how many other pairs to rank among; what is alike.

    `max_rank`: the share of other pairs that may look more alike; `rate`: of false chains.
    """

    max_gap: int
    min_others: int
    max_rank: float
    rate: float


def judge_chains(
    pictures: pl.DataFrame, chains: Sequence[Chain], rule: ChainRule
) -> list[Verdict | None]:
    """Return a verdict for each chain whose neighbours look alike, also across splits.

    `pictures`: id, split, unit (copies share one), cell (what is compared with it), phash256 as
    text, and `LOOK_COLUMNS`.
    """
    import polars as pl

    number = dict(zip(pictures["id"], range(len(pictures)), strict=True))
    rows = np.array([number.get(i, -1) for c in chains for i, _ in c.members], np.int64)
    chain = np.repeat(np.arange(len(chains)), [len(c.members) for c in chains])
    place = np.array([n for c in chains for n in c.numbers], np.int64)
    pairs = _pairs(chain, place, rows, rule.max_gap)
    ends = rows[pairs.first], rows[pairs.second]
    split, unit = (pictures[c].rank("dense").cast(pl.Int64).to_numpy() for c in ("split", "unit"))
    crosses = split[ends[0]] != split[ends[1]]
    told = crosses & (unit[ends[0]] == unit[ends[1]])
    wanted = (crosses | (pairs.lag == 1)) & ~told
    kept = np.flatnonzero(wanted)[_thinned(chain[pairs.first[wanted]], crosses[wanted])]
    pairs, crosses = Pairs(*(column[kept] for column in pairs)), crosses[kept]
    looks = _looks(pictures, rows, chain, place)
    ranks = pair_ranks(looks, rows[pairs.first], rows[pairs.second], rule.max_gap, rule.min_others)
    runs: Ints = np.cumsum(
        (np.diff(chain, prepend=-1) > 0) | (np.diff(place, prepend=0) > rule.max_gap)
    )
    return _verdicts(len(chains), chain, runs, pairs, crosses, ranks, rule)


class Pairs(NamedTuple):
    """Pairs of neighbours as places among all members; the lag counts those in between, plus 1."""

    first: Ints
    second: Ints
    lag: Ints


def _pairs(chain: Ints, place: Ints, rows: Ints, max_gap: int) -> Pairs:
    """Return the neighbours up to `LAGS` apart in their chain whose pictures are known."""
    found = []
    for lag in range(1, LAGS + 1):
        near = (chain[lag:] == chain[:-lag]) & (place[lag:] - place[:-lag] <= max_gap)
        first = np.flatnonzero(near & (rows[lag:] >= 0) & (rows[:-lag] >= 0))
        found.append(np.stack([first, first + lag, np.full_like(first, lag)]))
    return Pairs(*np.concatenate(found, axis=1))


def _thinned(chain: Ints, crosses: Bools) -> Ints:
    """Return which pairs to compare: of each chain at most so many, evenly, crossing and not."""
    keys = chain * 2 + crosses
    order = np.argsort(keys, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
    return np.sort(np.concatenate([part[:: -(-len(part) // MAX_PAIRS) or 1] for part in parts]))


def _looks(pictures: pl.DataFrame, rows: Ints, chain: Ints, place: Ints) -> Looks:
    import polars as pl

    n = len(pictures)
    positions = np.full((n, 2), -1, np.int64)
    known = rows >= 0
    positions[rows[known]] = np.stack([chain[known], place[known]], axis=1)
    tones = pictures.select(pl.col(c).cast(pl.Float64) for c in LOOK_COLUMNS).to_numpy()
    bits = np.frombuffer(bytes.fromhex("".join(pictures["phash256"])), np.uint8).reshape(n, 32)
    return Looks(standardised(tones), bits, pictures["cell"].to_numpy().astype(np.int64), positions)


def _verdicts(
    n: int, chain: Ints, runs: Ints, pairs: Pairs, crosses: Bools, ranks: Floats,
    rule: ChainRule,
) -> list[Verdict | None]:  # fmt: skip
    known = np.isfinite(ranks)
    of_pair, steps = chain[pairs.first], known & (pairs.lag == 1)
    testable = np.unique(of_pair[known & crosses])
    p_values = chain_p_values(ranks[steps], of_pair[steps], n)
    adjusted = dict(zip(testable.tolist(), benjamini_hochberg(p_values[testable]), strict=True))
    verdicts: list[Verdict | None] = [None] * n
    for number in (c for c, p in adjusted.items() if p <= rule.rate):
        own, across = of_pair == number, (of_pair == number) & known & crosses
        medians = np.median(ranks[own & steps]), np.median(ranks[across])
        if max(medians) > rule.max_rank:
            continue
        alike = runs[pairs.first[across & (ranks <= rule.max_rank)]]
        members = np.flatnonzero(np.isin(runs[chain == number], alike))
        evidence: dict[str, float | int | str] = {
            "neighbours": int((own & steps).sum()), "pairs_across_splits": int(across.sum()),
            "median_rank": float(medians[0]), "median_rank_across": float(medians[1]),
            "p": float(adjusted[number]),
        }  # fmt: skip
        verdicts[number] = Verdict(members.tolist(), evidence)
    return verdicts
