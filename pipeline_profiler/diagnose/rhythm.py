"""After how many steps the step's own time repeats: gradients that are accumulated, weights kept.

Where every fourth step is twice as long, a window of ten steps holds two such steps or three, and
the mean of it says more of the cut than of the loader. Windows of whole rounds hold equally many.
Batches in hand, which come round too, are told apart only where that rhythm is taken out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_ROUNDS = 3  # of a rhythm that were seen
LEAST_STEPS = 18  # of noise, so many have a rhythm in less than one of 1,000 cases
EXPLAINED = 0.8  # of the variance of the step, from which the place in the round decides it
LEAST_SPREAD = 0.02  # standard deviation over mean, below which a step is the same for every batch
SETTLING = 2  # first steps, which fill caches
LOOKED_AT = 1000  # steps: a rhythm is there from the start, and looking costs their square


def find_rhythm(walls: NDArray[np.int64]) -> int:
    """Return the number of steps after which step times (ns, one a step) repeat; 1 where not.

    The smallest number of places in a round that explains the variance, less what as many places
    explain by chance.
    """
    x = np.asarray(walls[SETTLING : SETTLING + LOOKED_AT], dtype=np.float64)
    n = len(x)
    if n < LEAST_STEPS or x.std() <= LEAST_SPREAD * x.mean():
        return 1
    whole = float(((x - x.mean()) ** 2).sum()) / (n - 1)
    for length in range(2, n // LEAST_ROUNDS + 1):
        place = np.arange(n) % length
        means = np.bincount(place, x) / np.bincount(place)
        left = float(((x - means[place]) ** 2).sum()) / (n - length)
        if left <= (1 - EXPLAINED) * whole:
            return length
    return 1


def without_rhythm(walls: NDArray[np.int64], length: int) -> NDArray[np.float64]:
    """Return step times with the mean of each place in a round of `length` taken to the mean."""
    x = np.asarray(walls, dtype=np.float64)
    place = np.arange(len(x)) % length
    means = np.bincount(place, x) / np.maximum(np.bincount(place), 1)
    return x - means[place] + (x.mean() if len(x) else 0.0)
