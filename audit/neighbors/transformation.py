"""Describe how a copy differs, in words: "mirrored, cropped to 91%, brighter by 12%".

The map of the alignment gives the geometry; the signatures, laid over each other by it, give light,
colour and overlays. Amounts are estimates from 32 px, and two changes of one kind that cancel are
not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from audit.neighbors.affine import Plane, lay_over, map_in_pixels
from audit.neighbors.orientations import INVERSE, ORIENTATIONS, SWAP_AXES, orient
from audit.neighbors.verification import VerifiedPairs, kept_size, measure_geometry
from audit.picture.signatures import GREY_SIDE, Flag


@dataclass(frozen=True, slots=True)
class PairTransformation:
    """What turns the first picture of a pair into the second.

    `orientation`: index into `ORIENTATIONS`. `share_kept`: share of each side of the first that the
    second shows (over 1 where the second shows more). `rotation`: degrees, anticlockwise.
    `stretch`: ratio of horizontal to vertical scale. `brightness`, `contrast`: ratios second to
    first of mean and standard deviation. `overlaid`: the side of a strip laid over, if there is
    one. `words`: all of it for people.
    """

    orientation: int
    share_kept: float
    rotation: float
    stretch: float
    brightness: float
    contrast: float
    overlaid: str
    words: str = ""

    def inverse(self) -> PairTransformation:
        """The changes that lead back: quarter turns swap, the rest inverts."""
        # a mirror turns the sense of rotation round once more, so the inverse keeps its sign
        mirrored = self.orientation.bit_count() % 2 == 1
        across = self.orientation & SWAP_AXES
        return PairTransformation(
            int(INVERSE[self.orientation]),
            1 / self.share_kept,
            self.rotation if mirrored else -self.rotation,
            # after a swap wide has become high, which inverts the ratio already
            self.stretch if across else 1 / self.stretch,
            1 / self.brightness,
            1 / self.contrast,
            self.overlaid,
        )


def describe_pair(
    first: np.void, second: np.void, verified: VerifiedPairs, row: int
) -> PairTransformation:
    """Describe how `second` differs from `first`: signatures of `verified.pairs[row]`."""
    turned = int(verified.template[row]) == 1
    template, other = (second, first) if turned else (first, second)
    orientation = int(verified.orientation[row])
    matrix = verified.matrix[row]
    two = np.array([[template, other]], dtype=first.dtype)
    rotation, _, zoom = measure_geometry(matrix[None], np.array([orientation]), two)
    light = _light(template, other, orientation, matrix)
    shape = _stretch(matrix, orientation, two)
    kept, angle = float(np.exp(zoom[0])), float(np.degrees(rotation[0]))
    # measured from the template to the other picture
    change = PairTransformation(orientation, 1 / kept, angle, shape, *light)
    change = change.inverse() if turned else change
    return replace(change, words=_words(change, first, second))


def _stretch(matrix: npt.NDArray[np.float64], orientation: int, two: npt.NDArray[np.void]) -> float:
    """How much wider than higher the other shows what the template shows, in real pixels."""
    size = kept_size(two)[0].astype(np.float64)
    other = size[1, ::-1] if orientation & SWAP_AXES else size[1]
    # lengths of the images of the two unit steps: a rotation alone keeps both
    across = np.hypot(1 + matrix[0], matrix[3]) * other[0] / size[0, 0]
    down = np.hypot(matrix[1], 1 + matrix[4]) * other[1] / size[0, 1]
    return float(across / max(down, 1e-6))


def _light(
    template: np.void, other: np.void, orientation: int, matrix: npt.NDArray[np.float64]
) -> tuple[float, float, str]:
    """Ratios of brightness and contrast over the overlap, and where something was laid over."""
    a = template["grey"].astype(np.float32)
    laid = orient(other["grey"], orientation).astype(np.float32)
    warp = map_in_pixels(matrix, GREY_SIDE)
    b, covered = lay_over(laid, warp, (GREY_SIDE, GREY_SIDE), least_cover=0.9)
    # fewer than 64 of the 1,024 pixels say nothing about light
    if covered.sum() < 64:
        return 1.0, 1.0, ""
    x, y = a[covered], b[covered]
    # medians of pixelwise relations: a caption does not count as a change of light
    brightness = float((np.median(y) + 1) / (np.median(x) + 1))
    # the range of the middle 80 %: a black border or a white caption leaves it alone
    spread = [float(np.subtract(*np.percentile(v, [90, 10]))) + 1 for v in (x, y)]
    gain = spread[1] / spread[0]
    # what is left after the change of light has been taken back: something laid over
    error = np.abs((b - np.median(y)) / max(gain, 1e-3) - (a - np.median(x)))
    error[~covered] = 0
    return brightness, gain, _strip(error, covered)


def _strip(error: Plane, covered: npt.NDArray[np.bool_]) -> str:
    """Name the outer eighth (of rows or columns) that differs far more than the rest."""
    edge = GREY_SIDE // 8
    # against the middle of the same pair: a noisy copy differs everywhere and has no strip
    inner = float(np.median(error[edge:-edge, edge:-edge])) + 2.0
    sides = {
        "top": (slice(0, edge), slice(None)),
        "bottom": (slice(-edge, None), slice(None)),
        "left": (slice(None), slice(0, edge)),
        "right": (slice(None), slice(-edge, None)),
    }
    levels = {
        name: float(np.median(error[cut][covered[cut]])) if covered[cut].mean() > 0.5 else 0.0
        for name, cut in sides.items()
    }
    worst = max(levels, key=lambda name: levels[name])
    # 25 levels at least: on a smooth picture six times nothing would name a strip everywhere
    return worst if levels[worst] > max(6 * inner, 25.0) else ""


def _words(change: PairTransformation, first: np.void, second: np.void) -> str:
    """Put the changes that are large enough to mean anything into words."""
    parts = [] if change.orientation == 0 else [ORIENTATIONS[change.orientation]]
    if change.share_kept < 0.97:
        parts.append(f"cropped to {change.share_kept:.0%}")
    elif change.share_kept > 1.03:
        parts.append(f"shows more: the first image is {1 / change.share_kept:.0%} of it")
    if abs(change.rotation) >= 1.5:
        way = "anticlockwise" if change.rotation < 0 else "clockwise"
        parts.append(f"rotated {abs(change.rotation):.0f} degrees {way}")
    # bounds below which the estimate from 32 px is noise: 4 % of stretch, 8 % of light
    if abs(np.log(change.stretch)) > 0.04:
        parts.append(_percent("stretched", "squeezed", change.stretch))
    parts += _colour_words(first, second, change)
    parts += _frame_words(first, second)
    if change.overlaid:
        parts.append(f"{change.overlaid} strip overlaid")
    return ", ".join(parts) or "same view, re-encoded or resized"


def _percent(more: str, less: str, ratio: float) -> str:
    word = more if ratio > 1 else less
    return f"{word} by {abs(ratio - 1) * 100:.0f}%"


def _colour_words(first: np.void, second: np.void, change: PairTransformation) -> list[str]:
    """Brightness, contrast, and colour taken away, added or changed."""
    parts = []
    if abs(np.log(change.brightness)) > 0.08:
        parts.append(_percent("brighter", "darker", change.brightness))
    if abs(np.log(change.contrast)) > 0.15:
        parts.append(_percent("more contrast", "less contrast", change.contrast))
    grey = [bool(s["flags"] & Flag.GREYSCALE) for s in (first, second)]
    if grey[0] != grey[1]:
        parts.append("made grey" if grey[1] else "in colour")
    elif not grey[0]:
        tint = [s["colour"].astype(np.float32).mean(axis=(0, 1)) for s in (first, second)]
        # relative to the mean: a darker copy has no other cast
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
