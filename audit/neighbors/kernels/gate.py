"""The kernel of `gate`: a few cheap steps of registration; compiled, else in numpy."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from audit.kernels.library import find_kernel
from audit.neighbors.kernels import plain

Array = npt.NDArray[Any]


def pass_batch(
    grey: Array, pairs: Array, orientations: Array, starts: Array, n_steps: int, needed: Array,
    passed: Array,
) -> None:  # fmt: skip
    """Set `passed` where some start leads to the gradient correlation that the pair needs.

    `grey` (n, 32, 32) planes of signatures; the template of a pair is its first. `needed` (m,): -1
    or less passes without a search.
    """
    kernel = find_kernel("pass_batch") or plain.pass_pairs
    kernel(grey, pairs, orientations, starts, n_steps, needed, passed)
