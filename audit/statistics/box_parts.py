"""Parts of a file whose boxes fit better elsewhere while those of the others fit as they lie.

What goes wrong with a share of the pictures mostly goes wrong with those of one split, folder,
size, or with all from some entry on. Each such part is asked what a whole file is (`box_fit`): do
its boxes fit better elsewhere? Two more answers are needed: the others fit better where they lie,
and the two differ. Each by so much that chance shows it in any of all parts and places once in 200
files. Parts of which one is told are taken out, and the rest is asked again.

Boxes that were dealt out among the pictures of a part fit nowhere better. They fit no better than
on any other picture (`ANY`), though theirs are pictures where some places fit as well as elsewhere:
in the dark and in fog, all places fit alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.statistics.box_fit import (
    SIZES,
    Alternative,
    mean_of_units,
    standard_score,
    standing_out,
    turned,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAST = 20  # units of a part, and of the others
CHANCE = 0.005  # of any part where boxes fit as well elsewhere
FIT = 2.0  # standard errors by which the others fit better where they lie
MOST = 3
NAMED = 0.9  # a name is told in place of a run of pictures that explains hardly more
ANY = "on any other picture"
SPREAD = "spread"
LOST = 1 / 3  # of how boxes of the others fit better than on any picture: hardly more, with limits
EVENTFUL = 0.8  # of how fits of the others spread over places
PRIOR = 4  # values that are imagined to vary as by chance
BLOCKS = 32  # of a sorted order, where runs begin and end


class Column(NamedTuple):
    """What parts pictures or boxes: `code` (m,) of each box, -1 without; `run`: codes in order."""

    code: Ints
    run: bool = False


class Part(NamedTuple):
    """Boxes of column `column` with codes `first` to `last`, and where they fit better.

    `z` is the standard score of the gain, `apart_z` that of the difference to the others; `n` and
    `others` count units, `share` and `others_share` those that gain.
    """

    column: str
    first: int
    last: int
    elsewhere: str
    n: int
    share: float
    z: float
    others: int
    others_share: float
    apart_z: float


def find_parts(
    gains: Mapping[str, Floats], unit: Ints, columns: Mapping[str, Column]
) -> Iterator[Part]:
    """Yield parts, the clearest first; `gains` of each box by place, `unit` the scene of each.

    The places may have `ANY`.
    """
    names = [name for name in gains if name not in SIZES and name != ANY]
    table = np.stack([gains[name] for name in names], axis=1)
    table = np.column_stack([table, gains[ANY], _spread(table)])
    names += [ANY, SPREAD]
    left = np.ones(len(unit), bool)
    for _ in range(MOST):
        found = _clearest(
            table[left],
            unit[left],
            {name: column._replace(code=column.code[left]) for name, column in columns.items()},
            names,
        )
        if found is None:
            return
        yield found
        code = columns[found.column].code
        left &= (code < found.first) | (code > found.last)


def _spread(table: Floats) -> Floats:
    """Return the standard deviation of each row, of what is known of it."""
    known = np.isfinite(table)
    n, filled = np.maximum(known.sum(1), 1), np.where(known, table, 0)
    squares = (filled**2).sum(1) / n - (filled.sum(1) / n) ** 2
    return np.where(known.any(1), np.sqrt(np.maximum(squares, 0)), np.nan)


def _clearest(
    gains: Floats, unit: Ints, columns: Mapping[str, Column], names: list[str]
) -> Part | None:
    from scipy.special import ndtri

    found = []
    for name, (code, run) in columns.items():
        tally = _tally(gains, unit, code)
        total, tally = tally.sum(1, keepdims=True), tally[:, :-1]
        first = last = np.arange(tally.shape[1])
        if run:
            first, last = np.triu_indices(tally.shape[1])
            until = np.concatenate([np.zeros_like(total), tally.cumsum(1)], axis=1)
            tally = until[:, last + 1] - until[:, first]
        others = total - tally
        tests = ((tally[0] >= LEAST) & (others[0] >= LEAST)).sum()
        needed = -float(ndtri(CHANCE / len(columns) / max(tests, 1)))
        at, clear = _told(tally, others, needed)
        if clear:
            numbers = _numbers(tally[:, *at], others[:, *at])
            part = Part(name, int(first[at[0]]), int(last[at[0]]), names[at[1]], *numbers)
            found.append((round(clear * (NAMED if run else 1), 6), needed, part))
    for _, needed, part in sorted(found, key=lambda one: -one[0]):
        gain, (code, _) = gains[:, names.index(part.elsewhere)], columns[part.column]
        within = (code >= part.first) & (code <= part.last)
        score, apart = _scores_of_alike(gain, unit, within, columns)
        if min(apart, apart if part.elsewhere == ANY else score) >= needed:
            return part
    return None


def _scores_of_alike(
    gain: Floats, unit: Ints, within: NDArray[np.bool_], columns: Mapping[str, Column]
) -> tuple[float, float]:
    """Return the scores of a part and of its difference, by how far the means of all vary."""
    rest, means, counts = gain.copy(), [], []
    for of in (within, ~within):
        values = mean_of_units(gain[of], unit[of])
        rest[of] -= values.mean()
        means.append(float(values.mean()))
        counts.append(len(values))
    spread = float(mean_of_units(rest, unit).std()) * _alike(rest, unit, columns) + 1e-9
    error, of_others = (spread / np.sqrt(n) for n in counts)
    return means[0] / error, (means[0] - means[1]) / float(np.hypot(error, of_others))


def _alike(rest: Floats, unit: Ints, columns: Mapping[str, Column]) -> float:
    """Return how much more means of pictures of one value, or side by side, vary than by chance.

    Frames of one film are alike, and so are those of one place: their number proves less.
    """
    most = 1.0
    for code, _ in columns.values():
        n, total, squares, _ = _tally(rest[:, None], unit, code)[:, :-1, 0]
        n, total = n[n > 0], total[n > 0]
        if len(n) > 1 and squares.any():
            between = (total**2 / n).sum() / (squares.sum() / n.sum())
            most = max(most, (between + PRIOR) / (len(n) - 1 + PRIOR))
    return float(np.sqrt(most))


def _told(tally: Floats, others: Floats, needed: float) -> tuple[tuple[int, int], float]:
    """Return where a part is told most clearly, as code and place, and how clearly; 0: nowhere."""
    (n, mean, error), (m, mean_of_others, error_of_others) = _moments(tally), _moments(others)
    apart = (mean - mean_of_others) / np.hypot(error, error_of_others)
    told = (n >= LEAST) & (m >= LEAST) & (apart >= needed)
    told &= mean_of_others <= -FIT * error_of_others
    lost = 2 * error - mean <= -LOST * mean_of_others
    lost &= mean[:, -1:] >= EVENTFUL * mean_of_others[:, -1:]
    better = (mean >= needed * error) & (tally[3] > 0.5 * n)
    told[:, :-2] &= better[:, :-2]
    told[:, -2] &= lost[:, -2]
    told[:, -1] = False
    if told[:, :-2].any():
        told[:, -2] = False
    clear = np.where(told, apart, 0)
    at = np.unravel_index(clear.argmax(), clear.shape)
    return (int(at[0]), int(at[1])), float(clear[at])


def _numbers(tally: Floats, others: Floats) -> tuple[int, float, float, int, float, float]:
    (n, mean, error), (m, mean_of_others, error_of_others) = _moments(tally), _moments(others)
    apart = (mean - mean_of_others) / np.hypot(error, error_of_others)
    return (int(n), float(tally[3] / n), float(mean / error), int(m), float(others[3] / m),
            float(apart))  # fmt: skip


def _tally(gains: Floats, unit: Ints, code: Ints) -> Floats:
    """Return units, sum, sum of squares and units that gain, of each code and place."""
    kinds = max(int(code.max(initial=-1)) + 1, 1)
    keys, at = np.unique(unit * (kinds + 1) + np.where(code < 0, kinds, code), return_inverse=True)
    known = np.isfinite(gains)
    sums, counts = (np.zeros((len(keys), gains.shape[1])) for _ in range(2))
    np.add.at(sums, at, np.where(known, gains, 0))
    np.add.at(counts, at, known)
    mean, some = sums / np.maximum(counts, 1), counts > 0
    tally = np.zeros((4, kinds + 1, gains.shape[1]))
    kind = keys % (kinds + 1)
    for to, values in zip(tally, (some, mean, mean**2, some & (mean > 0)), strict=True):
        np.add.at(to, kind, values)
    return tally


def _moments(tally: Floats) -> tuple[Floats, Floats, Floats]:
    n = tally[0]
    mean = tally[1] / np.maximum(n, 1)
    spread = np.maximum(tally[2] / np.maximum(n, 1) - mean**2, 0)
    return n, mean, np.sqrt(spread / np.maximum(n - 1, 1)) + 1e-9


# ---- a share that nothing names ----


def shares_turned(
    sums: Floats, picture: Ints, boxes: Floats, unit: Ints, columns: Mapping[str, Column]
) -> Iterator[Alternative]:
    """Yield for each way to turn a picture the share of them that is probably annotated so.

    A box stands out from the same box half its size further to all sides where it is on its
    object. Elsewhere nothing does on average, whatever the scene: so a mean above zero is made by
    the pictures whose boxes belong there, and in these they do not stand out where they lie.
    Twins of objects on the other side stand out in both places. `z` is the smaller of the two
    scores, that of standing out there and twice that of doing so in one of two places.
    """
    here = standing_out(sums, picture, boxes)
    for name, moved in turned(boxes).items():
        near = np.minimum(boxes[:, 2:], moved[:, 2:]) > np.maximum(boxes[:, :2], moved[:, :2])
        there = np.where(near.all(1), np.nan, standing_out(sums, picture, moved))
        known = np.isfinite(there) & np.isfinite(here)
        if len(np.unique(unit[known])) < LEAST:
            continue
        mine, other = (mean_of_units(of[known], unit[known]) for of in (here, there))
        either = standard_score(-(mine - mine.mean()) * (other - other.mean()))
        by = {key: column._replace(code=column.code[known]) for key, column in columns.items()}
        z = standard_score(other) / _alike(there[known] - other.mean(), unit[known], by)
        share = max(other.mean(), 0) / max(other.mean() + max(mine.mean(), 0), 1e-9)
        yield Alternative(name, min(z, 2 * either), float(share), len(mine))
