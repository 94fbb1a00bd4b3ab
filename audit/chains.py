"""Chains of pictures that names or times propose, and whether their neighbours look alike.

A chain is a sequence of shots if its neighbours look more alike than pictures of their class do, by
a permutation test over all chains at once (`audit.likeness`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.likeness import (
    LOOK_COLUMNS,
    Floats,
    Ints,
    Looks,
    chain_p_values,
    pair_ranks,
    standardised,
)
from audit.stats import benjamini_hochberg

Bools = npt.NDArray[np.bool_]
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
    number = dict(zip(pictures["id"], range(len(pictures)), strict=True))
    rows = np.array([number.get(i, -1) for c in chains for i, _ in c.members], np.int64)
    chain = np.repeat(np.arange(len(chains)), [len(c.members) for c in chains])
    place = np.array([n for c in chains for n in c.numbers], np.int64)
    split = pictures["split"].rank("dense").cast(pl.Int64).to_numpy()
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
