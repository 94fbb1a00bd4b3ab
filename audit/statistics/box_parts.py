"""Parts of a file whose boxes fit better elsewhere while those of the others fit as they lie.

What goes wrong with a share of the pictures mostly goes wrong with those of one split, folder,
size, or with all from some entry on. Each such part is asked what a whole file is (`box_fit`): do
its boxes fit better elsewhere? Two more answers are needed: the others fit better where they lie,
and the two differ. Each by so much that chance shows it in any of all parts and places once in 200
files, and by so much more as means of pictures side by side differ: frames of a film are alike, and
their number proves less. Parts of which one is told are taken out, and the rest is asked again.

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
    turned_boxes,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = Mapping[str, Ints]  # what parts boxes: the code (m,) of each in a column, -1 without
RUNS = {"rank": "the file", "sample_id": "their names"}  # columns with codes in this order
BLOCKS = 32  # so many codes, of as many pictures: a part is a run of them
LEAST = 20  # units of a part, and of the others
CHANCE = 0.005  # of any part where boxes fit as well elsewhere
FIT = 2.0  # standard errors by which the others fit better where they lie
FEW = 0.4  # of the others may fit better elsewhere, too
MOST = 3
NAMED = 0.9  # a name is told in place of a run, a turn in place of another picture, that tell more
ANY, NEAR = "on any other picture", "on others near in the file"
LOST = 1 / 3  # of how the others fit better than on any picture: less fit nowhere, more must be won
NOWHERE = 2.0  # standard errors by which they may fit better on theirs
CLASS = "with boxes of {}"  # this column is of shapes, of which one may fill its box less
LEAST_MOVE = "6%"  # of the picture: by so much boxes of a shape fit better that fill them unevenly
EVENTFUL = 0.8  # of how far the fits of the others range over places: at least so much
LONG = 4  # blocks of a long stretch
USUAL, CHI = 0.7, 0.3095  # share of stretches, and the mean of so many of the lowest chi squares
PRIOR = 4  # means that are imagined to vary as by chance


class BoxPart(NamedTuple):
    """Boxes of a column with codes `first` to `last`, and where they fit better (of box_parts)."""

    column: str
    first: int
    last: int
    row: Mapping[str, float | str]

    def holds(self, columns: Codes) -> NDArray[np.bool_]:
        """Return which boxes these are."""
        return (columns[self.column] >= self.first) & (columns[self.column] <= self.last)


def find_parts(gains: Mapping[str, Floats], unit: Ints, columns: Codes) -> Iterator[BoxPart]:
    """Yield parts, the clearest first; `gains` (m,) by place, `ANY` and `NEAR`, `unit` by box."""
    names = [name for name in gains if name not in (*SIZES, ANY, NEAR) and LEAST_MOVE not in name]
    places = np.stack([gains[name] for name in names], axis=1)
    reach = np.fmax.reduce(places, axis=1) - np.fmin.reduce(places, axis=1)
    table = np.column_stack([places, gains[ANY], gains[NEAR], reach])  # asked otherwise
    for _ in range(MOST):
        found = _clearest(table, unit, columns, [*names, ANY])
        if found is None:
            return
        yield found
        left = ~found.holds(columns)
        table, unit = table[left], unit[left]
        columns = {name: code[left] for name, code in columns.items()}


def _clearest(table: Floats, unit: Ints, columns: Codes, names: list[str]) -> BoxPart | None:
    from scipy.special import ndtri

    found, to = [], names.index(ANY)  # behind it: the near ones and the reach
    for name, code in columns.items():
        first, last, tally, others = _candidates(table, unit, code, name in RUNS)
        (n, mean, error), (m, mean_of_others, error_of_others) = _moments(tally), _moments(others)
        enough = (n >= LEAST) & (m >= LEAST)
        needed = -float(ndtri(CHANCE / len(columns) / max(enough.sum(), 1)))
        apart = (mean - mean_of_others) / np.hypot(error, error_of_others)
        told = enough & (apart >= needed) & (mean_of_others <= -FIT * error_of_others)
        better = told & (mean >= needed * error) & (tally[3] > 0.5 * n)
        better &= (others[3] <= FEW * m) & (mean >= -LOST * mean_of_others[:, to : to + 1])
        lost = told & (2 * error - mean <= -LOST * mean_of_others)
        lost &= (mean >= -NOWHERE * error) & (name != CLASS) & ~better[:, :to].any()
        eventful = mean[:, -1] >= EVENTFUL * mean_of_others[:, -1]
        better[:, to] = lost[:, to] & lost[:, to + 1] & eventful
        other = np.array(["picture" in place for place in names])
        clear = np.where(better[:, : to + 1], apart[:, : to + 1] * np.where(other, NAMED, 1), 0)
        at = np.unravel_index(clear.argmax(), clear.shape)
        if clear[at]:
            numbers = {"units": n, "share": tally[3] / np.maximum(n, 1), "gain_z": mean / error,
                       "others_share": others[3] / np.maximum(m, 1), "apart_z": apart}  # fmt: skip
            row: dict[str, float | str] = {key: float(value[at]) for key, value in numbers.items()}
            row["elsewhere"] = names[at[1]]
            part = BoxPart(name, int(first[at[0]]), int(last[at[0]]), row)
            found.append((round(clear[at] * (NAMED if name in RUNS else 1), 6), needed, part))
    for _, needed, part in sorted(found, key=lambda one: -one[0]):
        gain, within = table[:, names.index(str(part.row["elsewhere"]))], part.holds(columns)
        nowhere = part.row["elsewhere"] == ANY
        if nowhere and CLASS in columns:
            gain = _beside_its_class(gain, unit, columns[CLASS], within)
        score, apart_z = _among_alike(gain, unit, columns, within)
        if min(apart_z, apart_z if nowhere else score) >= needed:
            return part
    return None


def _beside_its_class(gain: Floats, unit: Ints, label: Ints, within: NDArray[np.bool_]) -> Floats:
    """Return gains less the mean of their class in the other pictures, NaN where these are few.

    Cracks that nobody sees in a small picture fit nowhere, in any folder.
    """
    beside = np.full(len(gain), np.nan)
    for number in np.unique(label[label >= 0]):
        of, others = label == number, (label == number) & ~within & np.isfinite(gain)
        if len(np.unique(unit[others])) >= LEAST:
            beside[of] = gain[of] - mean_of_units(gain[others], unit[others]).mean()
    return beside


def _candidates(
    table: Floats, unit: Ints, code: Ints, run: bool
) -> tuple[Ints, Ints, Floats, Floats]:
    """Return the first and last code of each part, its tally and that of the others."""
    tally = _tally(table, unit, code)
    total, tally = tally.sum(1, keepdims=True), tally[:, :-1]
    first = last = np.arange(tally.shape[1])
    if run:
        first, last = np.triu_indices(tally.shape[1])
        until = np.concatenate([np.zeros_like(total), tally.cumsum(1)], axis=1)
        tally = until[:, last + 1] - until[:, first]
    return first, last, tally, total - tally


def _tally(table: Floats, unit: Ints, code: Ints) -> Floats:
    """Return units, sum, squares and units that gain, of each code (last: none) and place."""
    kinds = max(int(code.max(initial=-1)) + 1, 1)
    keys, at = np.unique(unit * (kinds + 1) + np.where(code < 0, kinds, code), return_inverse=True)
    known = np.isfinite(table)
    sums, counts = (np.zeros((len(keys), table.shape[1])) for _ in range(2))
    np.add.at(sums, at, np.where(known, table, 0))
    np.add.at(counts, at, known)
    mean, some = sums / np.maximum(counts, 1), counts > 0
    tally = np.zeros((4, kinds + 1, table.shape[1]))
    for to, values in zip(tally, (some, mean, mean**2, some & (mean > 0)), strict=True):
        np.add.at(to, keys % (kinds + 1), values)
    return tally


def _moments(tally: Floats) -> tuple[Floats, Floats, Floats]:
    n = tally[0]
    mean = tally[1] / np.maximum(n, 1)
    spread = np.maximum(tally[2] / np.maximum(n, 1) - mean**2, 0)
    return n, mean, np.sqrt(spread / np.maximum(n - 1, 1)) + 1e-9


def _among_alike(
    gain: Floats, unit: Ints, columns: Codes, within: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the scores of a part and of its difference, by how far means of pictures vary."""
    rest, means, errors = gain.copy(), [], []
    for of in (within, ~within):
        values = mean_of_units(gain[of], unit[of])
        if len(values) < LEAST:
            return 0.0, 0.0
        rest[of] -= values.mean()
        means.append(float(values.mean()))
        errors.append(1 / np.sqrt(len(values)))
    spread = float(mean_of_units(rest, unit).std()) * _alike(rest, unit, columns) + 1e-9
    apart = (means[0] - means[1]) / float(np.hypot(*errors))
    return means[0] / errors[0] / spread, apart / spread


def _alike(rest: Floats, unit: Ints, columns: Codes) -> float:
    """Return how much more means of pictures side by side vary than by chance.

    By most of the stretches, short and long: some that are wrong make the others no film.
    """
    most = 1.0
    for code in (columns[name] // size for name in RUNS for size in (1, LONG)):
        n, total, squares, _ = _tally(rest[:, None], unit, code)[:, :-1, 0]
        n, total = n[n > 0], total[n > 0]
        if squares.any():
            between = np.sort(total**2 / n)[: max(int(USUAL * len(n)), 1)].mean()
            between /= squares.sum() / n.sum() * CHI
            most = max(most, (len(n) * between + PRIOR) / (len(n) + PRIOR))
    return float(np.sqrt(most))


# ---- a share that nothing names ----


def shares_turned(
    sums: Floats, picture: Ints, boxes: Floats, unit: Ints, columns: Codes
) -> Iterator[Alternative]:
    """Yield for each way to turn a picture the share of them that is probably annotated so.

    A box stands out from the same box half its size further to all sides where it is on its
    object. Elsewhere nothing does on average, whatever the scene: so a mean above zero is made by
    the pictures whose boxes belong there, and in these they do not stand out where they lie.
    Twins of objects on the other side stand out in both places. `z` is the smaller of the two
    scores, that of standing out there and twice that of doing so in one of two places.
    """
    here = standing_out(sums, picture, boxes)
    for name, moved in turned_boxes(boxes).items():
        near = np.minimum(boxes[:, 2:], moved[:, 2:]) > np.maximum(boxes[:, :2], moved[:, :2])
        there = np.where(near.all(1), np.nan, standing_out(sums, picture, moved))
        known = np.isfinite(there) & np.isfinite(here)
        if len(np.unique(unit[known])) < LEAST:
            continue
        mine, other = (mean_of_units(of[known], unit[known]) for of in (here, there))
        either = standard_score(-(mine - mine.mean()) * (other - other.mean()))
        runs = {key: columns[key][known] for key in RUNS}
        z = standard_score(other) / _alike(there[known] - other.mean(), unit[known], runs)
        share = max(other.mean(), 0) / max(other.mean() + max(mine.mean(), 0), 1e-9)
        yield Alternative(name, min(z, 2 * either), float(share), len(mine))
