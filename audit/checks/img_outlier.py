"""IMG008: images that lie far from their class in some measured property.

An image is an outlier if the gap to the rest of its class is far larger than the spacings at the
end of the rest predict. Gaps allow any number of modes, unlike percentiles or standard deviations.
Logarithms and logits make tails nearly exponential; their shape is estimated over all classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.checking.check import Check, asked
from audit.checking.properties import FEW_TONES, MISSING_TONES
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.outlying import MAX_BLOCK, Oddity, chances_of_largest, find_apart

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# name: (value shown, value on a scale with exponential tails); addends are half a grey level.
PROPERTIES: Mapping[str, tuple[str, str]] = {
    "brightness": ("brightness", "ln((brightness + 0.002) / (1.002 - brightness))"),
    "contrast": ("contrast", "ln((contrast + 0.002) / (0.502 - least(contrast, 0.5)))"),
    "saturation": ("saturation", "ln((saturation + 0.002) / (1.002 - saturation))"),
    "edge_density": ("edge_density", "ln((edge_density + 0.002) / (1.002 - edge_density))"),
    "entropy": ("entropy", "ln((entropy + 0.1) / (8.1 - least(entropy, 8)))"),
    "noise": ("noise", "ln(noise + 0.0005)"),
    "missing_tones": (MISSING_TONES, f"ln(greatest({MISSING_TONES}, 0) + 0.3)"),
    "red_over_green": ("red / greatest(green, 0.002)", "ln((red + 0.002) / (green + 0.002))"),
    "blue_over_green": ("blue / greatest(green, 0.002)", "ln((blue + 0.002) / (green + 0.002))"),
    "width_over_height": ("aspect", "ln(aspect)"),
    "pixels": ("pixels :: DOUBLE", "ln(pixels)"),
    "bytes_per_pixel": (
        "n_bytes / pixels",
        "CASE WHEN n_bytes < 0 THEN 0 ELSE ln(greatest(n_bytes, 1) / pixels) END",
    ),
}
LEAST_NOISE = 0.008  # two grey levels: below that nobody sees it
LEAST_GAP = 0.15
"""On those scales, a gap from which anybody would mind: 15 % more pixels, 4 % of full scale."""
LOUD, LOUDER, MOST_LOUD = 0.08, 1.25, 8
"""Noise in the smoothest patch of a large picture that texture has not (of 1,000 photographs one
has it, which was taken from a screen; bright sand comes to .074), how much more than all others
that is, and how many at most."""
MEASURABLE = """
    status = 'ok' AND contrast >= 0.004 AND transparent < 0.5 AND pixels > 0
    AND brightness_p99 >= $max_p99_dark AND brightness_p1 <= $min_p1_bright
"""


class StatisticalOutlier(Check):
    """Images that are isolated from their class in a measured property.

    ## What it does
    Compares each image with its class (with the whole dataset, for classes of fewer than
    `min_class` images and for images without a label) in brightness, contrast, saturation, edge
    density, entropy, noise, missing tones (as in IMG003: few in photographs, many in strokes and
    pages), red and blue over green, aspect, pixels, and bytes per pixel. An image is reported, with
    its odd properties, if it lies beyond a gap that is too large for the estimated tail. In a
    dataset without outliers, at most `rate` false findings per image are expected, and at most
    `max_false` in all. Several modes are allowed, and up to 3 images can be outliers together. Gaps
    of a few percent are not reported, nor values that images of several other classes have. Noise
    is compared over all classes. Up to 8 images that are noisier than all others are reported
    together, if chance makes such a gap in half of `max_false` of the datasets. So are images with
    more than 20 grey levels of noise in their smoothest patch at full size, 25% more than all
    others.

    ## Why is this bad
    Outliers are often not what the label says: a screenshot among photographs, a rendered image, an
    image with a colour cast, a page of text, or noise.

    ## Example
    A dog photograph with blue at 2.3 times green; the nearest of the other 599 has 1.4.

    ## What to do
    Compare it with other images of its class. Keep it if it is only rare; relabel or drop it if it
    does not belong there.

    ## Limits
    A finding is a hypothesis, not a proof. Each property is tested alone: an image that is odd only
    in a combination of properties is not found. Properties with fewer than 20 different values in a
    group are left out (IMG005 and IMG006 compare sizes and shapes). Modes with less than a tenth of
    a class of 50 may be reported as outliers. If even the logarithms have heavy tails (Student's t
    with 3 degrees of freedom) and classes are small, false findings can reach 30 times the rate.
    Noise under 20 grey levels is measured at a reduced size, which averages much of it away. Flat,
    dark, washed-out, damaged and transparent images are left out: other checks report them.

    ## References
    Renyi (1953), On the theory of order statistics, Acta Math. Hung. 4: normalised spacings of
    exponential samples are independent. Balkema and de Haan (1974) and Pickands (1975): tails tend
    to generalised Pareto laws. Hosking and Wallis (1987), Technometrics 29(3): their shape from
    probability-weighted moments.
    """

    code = "IMG008"
    name = "statistical-outlier"
    severity = Severity.INFO
    features = (
        "brightness", "brightness_p1", "brightness_p99", "contrast", "saturation", "edge_density",
        "entropy", "noise", "noise_floor", "red", "green", "blue", "transparent",
    )  # fmt: skip

    @dataclass(frozen=True)
    class Params:
        """rate: false findings per image that are expected in a dataset without outliers, 0..1
        max_false: largest number of expected false findings in such a dataset as a whole
        min_class: classes smaller than this are compared with the whole dataset
        max_p99_dark: images below this 99th percentile of luma are left to IMG001, 0..1
        min_p1_bright: images above this 1st percentile of luma are left to IMG002, 0..1
        """

        rate: float = 0.0001
        max_false: float = 0.01
        min_class: int = 50
        max_p99_dark: float = 0.16
        min_p1_bright: float = 0.7

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        frame, classes, names = _measurements(store, params)
        odd: dict[int, dict[str, Oddity]] = defaultdict(dict)
        # the noise of a page or of strokes is what is drawn, or a gap of what nobody sees
        grained = frame["missing_tones"].to_numpy() <= FEW_TONES
        seen = grained & (frame["noise"].to_numpy() >= LEAST_NOISE)
        for name in PROPERTIES:
            values = frame[f"log {name}"].to_numpy()
            for oddity in _odd_rows(values, classes, params):
                shown = name != "noise" or seen[oddity.row] or seen[oddity.nearest]
                if shown and abs(values[oddity.row] - values[oddity.nearest]) >= LEAST_GAP:
                    odd[oddity.row][name] = oddity
        sizes = np.bincount(classes[classes >= 0], minlength=len(names))
        for row in sorted(odd):
            group = int(classes[row])
            compared = int(sizes[group]) if group >= 0 else len(frame)
            where = f"class {names[group]}" if group >= 0 else "the dataset"
            yield self._finding(frame, odd[row], f"{compared - 1:,} of {where}", params)
        # copies and frames of a burst are one picture
        _, once = np.unique(frame["unit"].to_numpy(), return_index=True)
        places, chance = _noisiest(frame["log noise"].to_numpy()[once], params.max_false / 2)
        noisy = once[places].tolist()
        for place in sorted(set(noisy[:-1]) - set(odd)):
            if seen[place]:
                odd[place] = {}
                yield self._noisy(frame, place, noisy, chance)
        loud = _loudest(frame["noise_floor"].drop_nulls().to_numpy())
        for place in frame["noise_floor"].arg_sort(descending=True, nulls_last=True)[:loud]:
            if place not in odd:
                yield self._loud(frame, place, loud)

    def _noisy(self, frame: pl.DataFrame, row: int, noisy: Sequence[int], chance: float) -> Finding:
        *together, nearest = (float(frame["noise"][i]) for i in noisy)
        value = float(frame["noise"][row])
        return self.finding(
            frame["subject"][row],
            f"This image is one of {len(together)} that are noisier than all others: {value:.3g} "
            f"(the next of {len(frame):,} images has {nearest:.3g}; p = {chance:.2g}).",
            {
                "noise": value,
                "noise_nearest": nearest,
                "together": len(together),
                "chance": chance,
                "compared_with": f"{len(frame):,} of the dataset",
            },
            (frame["id"][row],),
        )

    def _loud(self, frame: pl.DataFrame, row: int, together: int) -> Finding:
        value = float(frame["noise_floor"][row])
        return self.finding(
            frame["subject"][row],
            f"Even the smoothest part of this image has noise of {255 * value:.0f} grey levels, "
            f"more than texture has; {together} of {len(frame):,} images have this much noise.",
            {"noise_floor": value, "together": together},
            (frame["id"][row],),
        )

    def _finding(
        self, frame: pl.DataFrame, odd: Mapping[str, Oddity], others: str, params: Params
    ) -> Finding:
        ranked = sorted(odd.items(), key=lambda item: -item[1].ratio)
        values: list[str] = []
        evidence: dict[str, float | int | str] = {"compared_with": others, "rate": params.rate}
        for name, oddity in ranked:
            value = float(frame[name][oddity.row])
            nearest = float(frame[name][oddity.nearest])
            values.append(f"{name.replace('_', ' ')} {value:.3g} (nearest {nearest:.3g})")
            evidence |= {name: value, f"{name}_nearest": nearest, f"{name}_ratio": oddity.ratio}
        row = ranked[0][1].row
        return self.finding(
            frame["subject"][row],
            f"This image is far from the other {others} in {', '.join(values)}: the gap is "
            f"{ranked[0][1].ratio:.1f} times the gap expected by chance.",
            evidence,
            (frame["id"][row],),
        )

    def completeness(self, store: Store, params: Params) -> str:
        sql = f"""
            WITH classes AS (
                SELECT count(*) AS n, label IS NOT NULL AND n >= $min_class AS own FROM images
                WHERE {MEASURABLE} GROUP BY label
            )
            SELECT coalesce(sum(n), 0) :: BIGINT AS n, count(*) FILTER (WHERE own) AS classes,
                coalesce(sum(n) FILTER (WHERE own), 0) :: BIGINT AS own,
                (SELECT count(*) FROM images) AS total
            FROM classes
        """
        n, classes, own, total = asked(store, sql, params).row(0)
        if n < params.min_class:
            return f"Outliers were not searched: {n:,} images, but {params.min_class} are needed."
        return (
            f"{own:,} images were compared with their class ({classes:,} classes), {n - own:,} "
            f"with the dataset; {total - n:,} flat, dark, bright, damaged or unreadable images "
            "were left out."
        )


def _measurements(
    store: Store, params: StatisticalOutlier.Params
) -> tuple[pl.DataFrame, Ints, list[str]]:
    """Return the images to compare, the class number of each (-1: the dataset), class names."""
    columns = ", ".join(
        f'{shown} AS "{name}", {scaled} AS "log {name}"'
        for name, (shown, scaled) in PROPERTIES.items()
    )
    sql = f"""
        SELECT id, subject, noise_floor, coalesce(unit, id) AS unit,
            CASE WHEN count(*) OVER (PARTITION BY label) >= $min_class THEN label END AS label,
            {columns}
        FROM images LEFT JOIN (SELECT id, unit FROM pictures) USING (id)
        WHERE {MEASURABLE} ORDER BY id
    """
    frame = asked(store, sql, params)
    names = frame["label"].drop_nulls().unique().sort().to_list()
    numbers = {name: number for number, name in enumerate(names)}
    classes = frame["label"].replace_strict(numbers, default=-1, return_dtype=pl.Int64)
    return frame, classes.fill_null(-1).to_numpy(), names


def _noisiest(values: Floats, most: float) -> tuple[list[int], float]:
    """Return the rows noisier than all others together, and the next; and the chance of their gap.

    No rows where the chance of such a gap without outliers is above `most`.
    """
    order = np.argsort(-values, kind="stable")
    # ten spacings: the logarithm of noise has no tail that becomes heavier outwards
    chances = chances_of_largest(values[order])
    found = int((chances <= most).sum())
    return (order[: found + 1].tolist(), float(chances[0])) if found else ([], 1.0)


def _loudest(floors: Floats) -> int:
    """Return how many large pictures have noise that texture has not; 0 where they are no few."""
    falling = -np.sort(-floors)[: min(MOST_LOUD, len(floors) // 20) + 1]
    apart = (falling[:-1] >= LOUD) & (falling[:-1] > LOUDER * falling[1:])
    return int(np.flatnonzero(apart)[-1]) + 1 if apart.any() else 0


def _odd_rows(values: Floats, classes: Ints, params: StatisticalOutlier.Params) -> list[Oddity]:
    rate = min(params.rate, params.max_false / max(len(values), 1))
    own = np.flatnonzero(classes >= 0)
    odd = [
        Oddity(int(own[o.row]), int(own[o.nearest]), o.ratio)
        for o in find_apart(values[own], classes[own], rate, len(PROPERTIES))
    ]
    if odd:
        order = np.argsort(values, kind="stable")
        by_value = values[order], classes[order], int(classes.max())
        odd = [o for o in odd if not _common_elsewhere(o, values, classes, *by_value)]
    if len(own) < len(values) and len(values) >= params.min_class:
        everything = np.zeros(len(values), np.int64)
        odd += [
            o for o in find_apart(values, everything, rate, len(PROPERTIES)) if classes[o.row] < 0
        ]
    return odd


def _common_elsewhere(
    odd: Oddity, values: Floats, classes: Ints, ordered: Floats, ordered_classes: Ints, most: int
) -> bool:
    # The same value in several other classes is a mode of the dataset; within a quarter of the gap.
    value = values[odd.row]
    radius = abs(value - values[odd.nearest]) / 4
    # Sorted values: where many rows are odd, to look at all rows for each takes minutes.
    first = np.searchsorted(ordered, value - radius)
    last = np.searchsorted(ordered, value + radius, side="right")
    there = ordered_classes[first:last]
    there = there[there != classes[odd.row]]
    needed = min(MAX_BLOCK, max(1, most // 2))
    return len(there) > MAX_BLOCK and len(np.unique(there)) >= needed
