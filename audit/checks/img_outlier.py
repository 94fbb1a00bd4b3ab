"""IMG008: images that lie far from their class in some measured property.

The rule in short: sort the images of a class by a property; an image is an outlier if the gap that
separates it (alone, or with at most two others) from the rest is far larger than the spacings at the end
of the rest promise. Why so: percentile rules flag a fixed share of every dataset, standard deviations
assume a bell curve, and distances from a centre break on two modes. Gaps between order statistics need
none of these: any number of modes is allowed, and what is assumed is only that tails are exponential or
heavier by a factor that is estimated. Logarithms and logits make that so for every distribution whose
ends follow power laws, such as sizes, shares and ratios.

Everything is one sort a property and a few passes over the sorted array, for all classes at once: about
0.4 s a million images and property.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.cases import Case
from audit.check import Check
from audit.records import Action, Finding, Severity
from audit.store import Store

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Each property on a scale where its tails are exponential: a logit for shares, a logarithm else.
TINY = 1 / 512
PROPERTIES: Mapping[str, str] = {
    "brightness": f"ln((brightness + {TINY}) / (1 - brightness + {TINY}))",
    "contrast": f"ln((contrast + {TINY}) / (0.5 - least(contrast, 0.5) + {TINY}))",
    "saturation": f"ln((saturation + {TINY}) / (1 - saturation + {TINY}))",
    "edge density": f"ln((edge_density + {TINY}) / (1 - edge_density + {TINY}))",
    "entropy": "ln((entropy + 0.1) / (8.1 - least(entropy, 8)))",
    "noise": f"ln(noise + {TINY / 4})",
    "red over green": f"ln((red + {TINY}) / (green + {TINY}))",
    "blue over green": f"ln((blue + {TINY}) / (green + {TINY}))",
    "width over height": "ln(aspect)",
    "pixels": "ln(pixels)",
    "bytes per pixel": "ln(greatest(n_bytes, 1) / pixels)",
}
# What is shown to the reader: the property itself.
SHOWN: Mapping[str, str] = {
    "brightness": "brightness", "contrast": "contrast", "saturation": "saturation",
    "edge density": "edge_density", "entropy": "entropy", "noise": "noise",
    "red over green": "red / greatest(green, 0.002)",
    "blue over green": "blue / greatest(green, 0.002)", "width over height": "aspect",
    "pixels": "pixels :: DOUBLE", "bytes per pixel": "n_bytes / pixels",
}  # fmt: skip
TAIL = 100  # most order statistics that describe an end
LEVELS = 20  # a property with fewer distinct values in a group has no spacings to speak of


class Oddity(NamedTuple):
    """One image that is odd in one property; gaps in units of the scale at the end of the rest."""

    row: int
    gap: float
    needed: float
    neighbour: int


def isolated(values: Floats, groups: Ints, rate: float, tests: int) -> list[Oddity]:
    raise
