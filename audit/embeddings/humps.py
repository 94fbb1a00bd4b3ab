"""Humps: labels that lie where another class is, with nothing on the way there.

Classes that overlap have pictures half way between them, and more of them half way than beyond.
Labels set at random lie where their picture's class is: beyond. So, for each class, pictures are
counted by how far their margin (log odds of the label against the best other class) falls below
that of the class: from c to 3 c, and beyond 3 c, where c is at least half the way to the border and
1.5 robust deviations. Whatever the shape of the tails, if their variance is finite, thrice as far
out there is a ninth of what is beyond c, or less (a Pareto tail of index 2 has just that). How many
labels lie beyond 3 c is therefore tested against a ninth, by an exact binomial, and what goes
beyond an eighth of those on the way is counted as wrong.

It finds a few wrong labels among classes that lie apart, where a logistic model makes itself
believe in overlap (`audit.embeddings.label_noise`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
TAIL = 1 / 9
"""Share of what is beyond c that a tail of finite variance has beyond 3 c, at most."""
LEAST_DEVIATIONS = 1.5
"""Robust deviations at which a tail may begin: before that, the body of the class is counted."""


@dataclass(frozen=True, slots=True)
class Hump:
    """`beyond` (n,) says which labels lie where another class is; `gain`: how much that tells, on
    the scale of a log likelihood (4: p = 0.002); `chance` that each of them is wrong, 0..1.
    """

    beyond: npt.NDArray[np.bool_]
    gain: float
    chance: float


def find_hump(logits: Floats, labels: Ints) -> Hump:
    """Return the labels that lie beyond the tail of their class; `logits` are (n, K)."""
    rows = np.arange(len(labels))
    own = logits[rows, labels]
    others = logits.copy()
    others[rows, labels] = -np.inf
    margins = own - others.max(1)
    between, beyond = (np.zeros(len(labels), np.bool_) for _ in range(2))
    for label in np.unique(labels).tolist():
        here = np.flatnonzero(labels == label)
        middle = float(np.median(margins[here]))
        # 1.4826: of a normal distribution, the median distance from the middle is one deviation
        deviation = 1.4826 * float(np.median(np.abs(margins[here] - middle)))
        step = max(middle / 2, LEAST_DEVIATIONS * deviation)
        if middle > 0:  # else the model does not know this class
            below = middle - margins[here]
            between[here] = (below > step) & (below <= 3 * step)
            beyond[here] = below > 3 * step
    return _conclude(beyond, int(between.sum()))


def _conclude(beyond: npt.NDArray[np.bool_], between: int) -> Hump:
    from scipy.special import bdtrc, ndtri

    found = int(beyond.sum())
    if not found:
        return Hump(beyond, 0.0, 0.0)
    p = max(float(bdtrc(found - 1, found + between, TAIL)), 1e-300)
    z = max(-float(ndtri(p)), 0.0)
    chance = max(0.0, 1 - between * TAIL / (1 - TAIL) / found)
    return Hump(beyond, z * z / 2, chance)
