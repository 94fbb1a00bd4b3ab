"""The kernels of `align` and of the strangers' gradients: compiled, else in numpy."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from audit.kernels.library import find_kernel
from audit.neighbors.kernels import plain

Array = npt.NDArray[Any]


def align_batch(
    grey: Array, colour: Array, pairs: Array, orientations: Array, starts: Array, margins: Array,
    abandon: float, maps: Array, scores: Array,
) -> None:  # fmt: skip
    """Align every pair, the coarse search first; see `align_pairs` for arguments and results."""
    kernel = find_kernel("align_batch") or plain.align
    kernel(grey, colour, pairs, orientations, starts, margins, abandon, maps, scores)


def lay_gradients(
    grey: Array,
    rows: Array,
    orientations: Array,
    maps: Array,
    soft: Array,
    out: Array,
    reach: Array,
) -> None:
    """Lay images `rows` of grey (n, 32, 32) over their templates, softened `soft` times; write
    gradients (m, 2, 32, 32) and where they are known (m, 32, 32), which come in as zeros.
    """
    kernel = find_kernel("lay_gradients") or plain.find_gradients
    kernel(grey, rows, orientations, maps, soft, out, reach)
