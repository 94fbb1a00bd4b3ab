"""Which part of a dataset lies otherwise: turned by a quarter, upside down, a negative.

What is up and what is light shows in most scenes, whatever they are of. So a linear model learns,
from all groups of pictures but one, to tell a picture from the same picture changed, and is asked
of the group left out: of a class that was turned, most pictures look more like the others when they
are turned back. Ridge regression on the difference of two descriptions of one picture, each group
weighed by the root of its size; no picture is compared with another, so what a class shows matters
only as far as it has a side that is up.

A class may have such a side of its own: dogs look up. Hence three conditions beside the test within
the part (pictures, paired, `LEAST_SURE` standard errors). The other groups must agree on what is up
when each is left out, and none may lie otherwise too; the part must lie further from them than they
from one another (the spread of their log odds, DerSimonian and Laird 1986, Controlled Clinical
Trials 7:177); and turned back it must fit about as they do. Where groups agree on nothing, as in
pictures from above, nothing is said.

Of random choices of 3 to 10 classes of CIFAR-10 (25 to 120 pictures each), of which none is
changed, .4 % have a part that is accused (5 of 1,300), all among three to five classes: where few
agree on what is up, it is worth a look and no more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
LEARNT_TOGETHER = {1: (3,), 3: (1,)}
"""Quarter turns to either side: what is upright is neither."""
RIDGE = 0.03
"""Penalty, as a share of the mean eigenvalue."""
FOLDS = 20
"""Parts into which more groups are put: one that was changed is lost among so many others."""
LEAST = 20
"""Pictures of a group that is asked."""
LEAST_SURE = 4.5
"""Standard errors; a dataset of ten classes is asked about 50 questions."""
LEAST_SHARE = 0.6
MOST_ODDS = -0.4
"""Log odds of the other groups, at most: 40 % of their pictures look better changed."""
MOST_OTHER = 3.0
"""Standard errors by which another group may look better changed: it shows no side that is up."""
LEAST_APART = 2.5
LEAST_FIT = 0.5
"""Of the log odds of the others, how much the part must have when it is changed back."""


class Turned(NamedTuple):
    """A part whose `n` pictures look more like the others in another `version`: `share` of them.

    `others`: this share among the `groups` beside it; `sure`: standard errors of the part's mean;
    `rows`: its pictures, the clearest first.
    """

    part: int
    version: int
    n: int
    share: float
    others: float
    groups: int
    sure: float
    rows: Ints


def find_turned(described: Floats, part: Ints, group: Ints) -> list[Turned]:
    """Return the parts that lie otherwise, each in the version that explains it best.

    `described` (v, n, d): n pictures as they lie, then in v - 1 other versions; `part` (n,) is what
    may be accused, `group` (n,) what is left out to see whether the others agree: -1 for neither.
    """
    found: dict[int, Turned] = {}
    for version in range(1, len(described)):
        used = [version, *(v for v in LEARNT_TOGETHER.get(version, ()) if v < len(described))]
        changes = (described[used] - described[0]).astype(np.float64)
        for one in _of_version(changes, part, group, version):
            if one.part not in found or one.sure > found[one.part].sure:
                found[one.part] = one
    return [found[key] for key in sorted(found)]


def errors_changed(change: Floats, inside: Mask, group: Ints) -> float:
    """Return by how many standard errors pictures look better changed, by a model of the others.

    `change` (n, d) is what a version differs in, `inside` (n,) says which pictures are asked.
    """
    weights = _learn(*_sums(change[None, ~inside].astype(np.float64), group[~inside]))
    return _errors(change[inside] @ weights)


def _of_version(changes: Doubles, part: Ints, group: Ints, version: int) -> list[Turned]:
    """Return the parts that look better in a version: of `changes` (c, n, d) the first is asked
    about, and all are learnt from."""
    sizes = np.bincount(part[part >= 0])
    asked = [int(p) for p in np.flatnonzero(sizes >= LEAST)]
    first = _left_out(changes, part, np.ones(len(part), bool))
    suspects = [p for p in asked if _is_sure(first[part == p])]
    if len(suspects) == 2 == len(asked):  # each is turned for the other: the smaller one was
        suspects = [min(suspects, key=lambda p: sizes[p])]
    rest = ~np.isin(part, suspects)
    if not suspects or (len(asked) > 2 and 3 * len(suspects) > len(asked)):
        return []  # none, or so many that it is not said who lies otherwise
    others = _left_out(changes, group, rest)
    if not _agree(others, group, rest):
        return []
    odds, spread = _typical(others, group, rest)
    weights, found = _learn(*_sums(changes[:, rest], group[rest])), []
    for suspect in suspects:
        rows = np.flatnonzero(part == suspect)
        gain = changes[0, rows] @ weights
        own, error = _log_odds(np.array([gain > 0]))
        apart = (own[0] - odds) / np.hypot(spread, error[0])
        if _is_sure(gain) and apart >= LEAST_APART and own[0] >= -LEAST_FIT * odds:
            found.append(Turned(
                suspect, version, len(rows), float((gain > 0).mean()),
                float((others[rest & (group >= 0)] > 0).mean()),
                len(_groups(others, group, rest)), _errors(gain),
                rows[np.argsort(-gain, kind="stable")],
            ))  # fmt: skip
    return found


def _sums(changes: Doubles, group: Ints) -> tuple[Doubles, Doubles]:
    """Return the products (k, d, d) of each group's changes and their sums (k, d), of k groups."""
    group = _folded(group)
    numbers = np.unique(group[group >= 0])
    width = changes.shape[2]
    squares, sums = np.zeros((len(numbers), width, width)), np.zeros((len(numbers), width))
    for at, number in enumerate(numbers):
        rows = changes[:, group == number]
        weight = rows.shape[1] ** -0.5
        rows = rows.reshape(-1, width)
        squares[at], sums[at] = rows.T @ rows * weight, rows.sum(0) * weight
    return squares, sums


def _folded(group: Ints) -> Ints:
    """Return the groups (n,), put together where they are many; -1 stays."""
    numbers, place = np.unique(group, return_inverse=True)
    many = (numbers >= 0).sum() > FOLDS
    return np.where(group >= 0, place % FOLDS, -1) if many else group


def _learn(squares: Doubles, sums: Doubles) -> Doubles:
    """Return the weights (d,) that give changes of pictures that lie right about -1."""
    total = squares.sum(0)
    width = len(total)
    ridge = np.eye(width) * (RIDGE * np.trace(total) / width + 1e-9)
    return np.asarray(np.linalg.solve(total + ridge, -sums.sum(0)))


def _left_out(changes: Doubles, group: Ints, rows: Mask) -> Doubles:
    """Return how much better each picture looks changed (n,), by a model of other groups; 0 for
    those that are in none of the `rows`."""
    gain = np.zeros(len(group))
    known = np.flatnonzero(rows & (group >= 0))
    folds = _folded(group[known])
    numbers = np.unique(folds)
    if len(numbers) < 2:
        return gain
    squares, sums = _sums(changes[:, known], folds)
    for at, number in enumerate(numbers):
        asked = known[folds == number]
        weights = _learn(np.delete(squares, at, 0), np.delete(sums, at, 0))
        gain[asked] = changes[0, asked] @ weights
    return gain


def _errors(gain: Doubles) -> float:
    """Return the mean in standard errors."""
    return float(gain.mean() / (gain.std() / len(gain) ** 0.5 + 1e-12))


def _is_sure(gain: Doubles) -> bool:
    return _errors(gain) >= LEAST_SURE and (gain > 0).mean() >= LEAST_SHARE


def _agree(gain: Doubles, group: Ints, rest: Mask) -> bool:
    """Say whether at least two other groups are there, and none of them looks better changed."""
    each = _groups(gain, group, rest)
    return len(each) >= 2 and max(_errors(one) for one in each) < MOST_OTHER


def _groups(gain: Doubles, group: Ints, rest: Mask) -> list[Doubles]:
    numbers, counts = np.unique(group[rest & (group >= 0)], return_counts=True)
    return [gain[rest & (group == number)] for number in numbers[counts >= LEAST]]


def _log_odds(better: list[NDArray[np.bool_]] | NDArray[np.bool_]) -> tuple[Doubles, Doubles]:
    """Return the log odds of each share and their standard errors."""
    n = np.array([len(one) for one in better], float)
    share = (np.array([one.sum() for one in better]) + 0.5) / (n + 1)
    return np.log(share / (1 - share)), 1 / np.sqrt(n * share * (1 - share))


def _typical(gain: Doubles, group: Ints, rest: Mask) -> tuple[float, float]:
    """Return the mean of the groups' log odds and the spread of a group that is like them."""
    odds, error = _log_odds([one > 0 for one in _groups(gain, group, rest)])
    weight = error**-2
    mean = (weight * odds).sum() / weight.sum()
    excess = (weight * (odds - mean) ** 2).sum() - (len(odds) - 1)
    between = max(0.0, excess / (weight.sum() - (weight**2).sum() / weight.sum()))
    weight = 1 / (error**2 + between)
    mean = float((weight * odds).sum() / weight.sum())
    if mean > MOST_ODDS:  # they show no side that is up
        return mean, float("inf")
    return mean, float(np.sqrt(between * (1 + 1 / len(odds))))
