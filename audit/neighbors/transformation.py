"""What was done to a picture, in words: "mirrored, cropped to 91 %, brighter by 12 %".

The map that alignment found says how the picture was laid down, cropped, stretched and turned; the
thumbnails, laid over each other by that map, say what happened to light and colour, and where
something was written over it. It is evidence for a person, not a proof: amounts are estimates
from 32 px (crops and rotations within about 2 % and 1 degree, brightness within 5 %), and two
changes of one kind that cancel are not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from audit.neighbors.align import ORIENTATIONS, orient
from audit.neighbors.thumbnails import GREY_SIDE, Flag
from audit.neighbors.verification import Verified, geometry, kept_size

Plane = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Transformation:
    """What turns the first picture of a pair into the second.

    `words`: for people. `orientation`: index into `ORIENTATIONS`. `kept`: share of each side of
    the first that the second shows (over 1 where the second shows more). `rotation`: degrees,
    anticlockwise. `stretch`: ratio of horizontal to vertical scale. `brightness`, `contrast`:
    ratios second to first of mean and standard deviation.
    """

    words: str
    orientation: int
    kept: float
    rotation: float
    stretch: float
    brightness: float
    contrast: float


def describe_pair(first: np.void, second: np.void, verified: Verified, row: int) -> Transformation:
    """Describe how `second` differs from `first`: signatures of `verified.pairs[row]`."""
    turned = int(verified.template[row]) == 1
    template, other = (second, first) if turned else (first, second)
    orientation = int(verified.orientation[row])
    matrix = verified.matrix[row]
    two = np.array([[template, other]], dtype=first.dtype)
    rotation, _, zoom = geometry(matrix[None], np.array([orientation]), two)
    light = _light(template, other, orientation, matrix)
    shape = _stretch(matrix, orientation, two)
    kept, angle = float(np.exp(zoom[0])), float(np.degrees(rotation[0]))
    seen = _Seen(orientation, 1 / kept, angle, shape, *light)
    if turned:
        seen = seen.inverse()
    words = _words(seen, first, second)
    return Transformation(
        words,
        seen.orientation,
        seen.kept,
        seen.rotation,
        seen.stretch,
        seen.brightness,
        seen.contrast,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """Measured changes, from template to the other picture."""

    orientation: int
    kept: float
    rotation: float
    stretch: float
    brightness: float
    contrast: float
    overlaid: str

    def inverse(self) -> _Seen:
        """The changes that lead back: quarter turns swap, the rest inverts."""
        swap = {5: 6, 6: 5}.get(self.orientation, self.orientation)
        odd = self.orientation in (1, 2, 4, 7)
        across = self.orientation & 4
        return _Seen(
            swap,
            1 / self.kept,
            self.rotation if odd else -self.rotation,
            self.stretch if across else 1 / self.stretch,
            1 / self.brightness,
            1 / self.contrast,
            self.overlaid,
        )


def _stretch(matrix: npt.NDArray[np.float64], orientation: int, two: npt.NDArray[np.void]) -> float:
    """How much wider than higher the other shows what the template shows, in real pixels."""
    size = kept_size(two)[0].astype(np.float64)
    other = size[1, ::-1] if orientation & 4 else size[1]
    across = np.hypot(1 + matrix[0], matrix[3]) * other[0] / size[0, 0]
    down = np.hypot(matrix[1], 1 + matrix[4]) * other[1] / size[0, 1]
    return float(across / max(down, 1e-6))


def _warp(plane: Plane, matrix: npt.NDArray[np.float64]) -> tuple[Plane, npt.NDArray[np.bool_]]:
    """Lay a 32-px plane over the template by the map; say where it reaches."""
    half, middle = GREY_SIDE / 2, (GREY_SIDE - 1) / 2
    linear = np.array([[1 + matrix[0], matrix[1]], [matrix[3], 1 + matrix[4]]])
    shift = half * matrix[[2, 5]] + middle - linear @ np.array([middle, middle])
    warp = np.concatenate([linear, shift[:, None]], axis=1)
    size, flags = (GREY_SIDE, GREY_SIDE), cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    moved = cv2.warpAffine(plane, warp, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    seen = cv2.warpAffine(np.ones_like(plane), warp, size, flags=flags) > 0.9
    return np.asarray(moved, np.float32), seen


def _light(
    template: np.void, other: np.void, orientation: int, matrix: npt.NDArray[np.float64]
) -> tuple[float, float, str]:
    """Ratios of brightness and contrast over the overlap, and where something was laid over."""
    a = template["grey"].astype(np.float32)
    b, seen = _warp(np.asarray(orient(other["grey"], orientation), np.float32), matrix)
    if seen.sum() < 64:
        return 1.0, 1.0, ""
    x, y = a[seen], b[seen]
    # medians of pixelwise relations: a caption does not count as a change of light
    brightness = float((np.median(y) + 1) / (np.median(x) + 1))
    spread = [float(np.subtract(*np.percentile(v, [90, 10]))) + 1 for v in (x, y)]
    gain = spread[1] / spread[0]
    error = np.abs((b - np.median(y)) / max(gain, 1e-3) - (a - np.median(x)))
    error[~seen] = 0
    return brightness, gain, _strip(error, seen)


def _strip(error: Plane, seen: npt.NDArray[np.bool_]) -> str:
    """Name the outer eighth (of rows or columns) that differs far more than the rest."""
    edge = GREY_SIDE // 8
    inner = float(np.median(error[edge:-edge, edge:-edge])) + 2.0
    sides = {
        "top": (slice(0, edge), slice(None)),
        "bottom": (slice(-edge, None), slice(None)),
        "left": (slice(None), slice(0, edge)),
        "right": (slice(None), slice(-edge, None)),
    }
    levels = {
        name: float(np.median(error[cut][seen[cut]])) if seen[cut].mean() > 0.5 else 0.0
        for name, cut in sides.items()
    }
    worst = max(levels, key=lambda name: levels[name])
    return worst if levels[worst] > max(6 * inner, 25.0) else ""


def _words(seen: _Seen, first: np.void, second: np.void) -> str:
    """Put the changes that are large enough to mean anything into words."""
    parts = [] if seen.orientation == 0 else [ORIENTATIONS[seen.orientation]]
    if seen.kept < 0.97:
        parts.append(f"cropped to {seen.kept:.0%}".replace("%", " %"))
    elif seen.kept > 1.03:
        parts.append(f"shows more: the first is {1 / seen.kept:.0%} of it".replace("%", " %"))
    if abs(seen.rotation) >= 1.5:
        way = "anticlockwise" if seen.rotation < 0 else "clockwise"
        parts.append(f"rotated {abs(seen.rotation):.0f} degrees {way}")
    if abs(np.log(seen.stretch)) > 0.04:
        parts.append(_percent("stretched", "squeezed", seen.stretch))
    parts += _colour_words(first, second, seen)
    parts += _frame_words(first, second)
    if seen.overlaid:
        parts.append(f"{seen.overlaid} strip overlaid")
    return ", ".join(parts) or "same view, re-encoded or resized"


def _percent(more: str, less: str, ratio: float) -> str:
    word = more if ratio > 1 else less
    return f"{word} by {abs(ratio - 1) * 100:.0f} %"


def _colour_words(first: np.void, second: np.void, seen: _Seen) -> list[str]:
    """Brightness, contrast, and colour taken away, added or changed."""
    parts = []
    if abs(np.log(seen.brightness)) > 0.08:
        parts.append(_percent("brighter", "darker", seen.brightness))
    if abs(np.log(seen.contrast)) > 0.15:
        parts.append(_percent("more contrast", "less contrast", seen.contrast))
    grey = [bool(s["flags"] & Flag.GREYSCALE) for s in (first, second)]
    if grey[0] != grey[1]:
        parts.append("made grey" if grey[1] else "in colour")
    elif not grey[0]:
        tint = [s["colour"].astype(np.float32).mean(axis=(0, 1)) for s in (first, second)]
        casts = [t / max(float(t.mean()), 1.0) for t in tint]
        if float(np.abs(casts[0] - casts[1]).max()) > 0.12:
            parts.append("colours shifted")
    return parts


def _frame_words(first: np.void, second: np.void) -> list[str]:
    """A uniform border added or taken away."""
    shares = []
    for s in (first, second):
        size = np.array([s["size"][0], s["size"][1]] * 2, np.float64)
        shares.append(float((s["trim"] / np.maximum(size, 1)).max()))
    if abs(shares[0] - shares[1]) < 0.03:
        return []
    return ["border added" if shares[1] > shares[0] else "border removed"]
