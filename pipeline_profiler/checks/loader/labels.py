"""The targets of the first batches: range, number of classes, whether they follow a flip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, inputs_and_targets
from pipeline_profiler.checks.check import Answer, Check, Judgement, absent, passed, unclear, wrong
from pipeline_profiler.checks.indexed import rows_of
from pipeline_profiler.checks.loader_subject import LoaderSubject, dataset_layers
from pipeline_profiler.checks.user_code import users_code

IGNORED = (-100, -1, 255)  # torch's ignore_index, and those of common segmentation sets
LEAST_RANGE = 64


class LabelRange(Check):
    """Labels below 0, from K on, or all shifted by one.

    ## What it does
    Compares the smallest and largest label of the first batches with the number of classes K. K is
    the setting `check.classes`, or the dataset's `classes`.

    ## Why is this bad
    A label of K raises an index error on the CPU, and gives garbage on some devices. Labels from 1
    to K leave output 0 without a class.

    ## How it decides
    Fails with a negative label, or a label of K or more. Ignores -100, -1 and 255. Exact.
    Inconclusive if K is unknown and none of 64 labels is 0.

    ## What to do
    Subtract 1, or build the mapping from names to numbers once for all splits.

    ## Limits
    Whole-number targets only. Regression targets are inconclusive.
    """

    code = "LOAD011"
    name = "labels-out-of-range"
    entering = True

    def run(self, subject: LoaderSubject) -> Answer:
        parts = [b.targets for b in subject.batches if b.targets is not None]
        if not parts or any(p.dtype.kind not in "iu" for p in parts):
            return unclear("The targets are no whole numbers.")
        labels = np.concatenate([p.reshape(-1) for p in parts]).astype(np.int64)
        labels = labels[~np.isin(labels, IGNORED)]
        if not len(labels):
            return unclear("All targets are of the ignored kind.")
        classes = subject.classes or _declared_classes(subject)
        low, high = int(labels.min()), int(labels.max())
        numbers: dict[str, Any] = {"least": low, "largest": high, "classes": classes or "unknown"}
        beyond = classes is not None and high >= classes
        if low < 0 or beyond:
            shifted = low == 1 and high == classes
            causes = [
                "labels begin at 1" if shifted else "labels come from another mapping of names",
                "the number of classes is too small",
                "a label for 'ignore' that the loss does not accept",
            ]
            return wrong(
                f"Labels run from {low} to {high}, and {classes or 'K'} classes allow 0 to "
                f"{classes - 1 if classes else 'K-1'}.",
                causes,
                "Subtract 1."
                if shifted
                else "Print the mapping from names to labels of every split.",
                **numbers,
            )
        if classes is None:
            if low > 0 and len(labels) >= LEAST_RANGE:
                return unclear(
                    f"Labels run from {low} to {high}: none is 0 among {len(labels)}.",
                    "Give the number of classes: --set check.classes=K.",
                    **numbers,
                )
            return passed(f"Labels run from {low} to {high}, none negative.", **numbers)
        return passed(f"Labels run from {low} to {high} of {classes} classes.", **numbers)


def _declared_classes(subject: LoaderSubject) -> int | None:
    for layer in dataset_layers(getattr(subject.loader, "dataset", None)):
        names = getattr(layer, "classes", None)
        if isinstance(names, list | tuple) and len(names) > 1:
            return len(names)
    return None


LEAST_HISTOGRAM = 64
MOST_SCALED = 32  # values of masks that were scaled like pixels; pictures as targets have more


class LabelHistogram(Check):
    """A loader whose labels are all the same.

    ## What it does
    Counts the labels (or regression targets) of the first batches. For masks, counts the values.
    For detection, counts the bounding boxes.

    ## Why is this bad
    With one label there is nothing to learn, and the loss falls to zero at once.

    ## How it decides
    Fails if all of 64 samples have one target, all of 64 masks one value, or 64 images no bounding
    box. Fails if masks have values of 0..1 in steps of 1/255, as scaled pixels do. A random order
    of two classes (13% or more each) fails less than once in 7,000.

    ## Limits
    A loader for rare objects can have batches of one class: skip this check there.
    """

    code = "LOAD012"
    name = "one-label-only"
    entering = True
    causes = (
        "labels are read from the wrong part of the path or table",
        "only one folder or class was listed",
        "the data are stored class by class and not shuffled",
    )
    next_step = "Print the targets of the dataset, as they enter the loss."

    def run(self, subject: LoaderSubject) -> Answer:
        labels = subject.labels
        if labels is None:
            return _of_places(subject)
        values, counts = np.unique(labels, return_counts=True)
        if len(labels) < LEAST_HISTOGRAM:
            return unclear(f"{len(labels)} samples are too few for a histogram.")
        most = int(counts.max())
        numbers = {"samples": len(labels), "different": len(values), "most": most}
        if len(values) == 1:
            return self.failed(f"All {len(labels)} samples have the target {values[0]}.", **numbers)
        return passed(
            f"{len(labels)} samples have {len(values)} different targets; the most "
            f"frequent has {most / len(labels):.0%}.",
            **numbers,
        )

    def _both(self, given: Answer, entered: Answer) -> Answer:
        # a step may make targets of its own: those of a discriminator are all 0 or all 1
        own = entered.judgement is Judgement.FAIL and given.judgement is not Judgement.FAIL
        return given if own else super()._both(given, entered)


def _of_places(subject: LoaderSubject) -> Answer:
    if (counts := _box_counts(subject)) is not None:
        numbers = {"samples": len(counts), "boxes": sum(counts)}
        if not any(counts) and len(counts) >= LEAST_HISTOGRAM:
            return LabelHistogram.failed(f"None of {len(counts)} images has a box.", **numbers)
        said = f"{len(counts)} images have {sum(counts)} boxes."
        return passed(said, **numbers) if any(counts) else unclear(said, **numbers)
    masks = [b.targets for b in subject.batches if b.targets is not None and b.targets.ndim > 2]
    if not masks or any(m.dtype.kind not in "biuf" for m in masks):
        return unclear("Targets are neither one value a sample, nor masks, nor boxes.")
    count = sum(map(len, masks))
    values = np.unique(np.concatenate([np.unique(m) for m in masks]))
    numbers = {"samples": count, "different": len(values)}
    below = values[values < 1].astype(np.float64)  # 255, ignored, became 1
    steps = below * 255.0
    few = masks[0].dtype.kind == "f" and 1 < len(values) <= MOST_SCALED and values.max() <= 1
    scaled = few and len(below) and below.min() >= 0 and 0 < below.max() < 0.5
    if scaled and np.abs(steps - steps.round()).max() < 1e-3:
        return LabelHistogram.failed(
            f"{count} masks hold {len(values)} values in steps of 1/255 up to {below.max():.3g}: "
            "classes were scaled like pixels, and as whole numbers all are 0.",
            "ToTensor was applied to the mask, which divides by 255",
            **numbers,
        )
    if len(values) == 1 and count >= LEAST_HISTOGRAM:
        return LabelHistogram.failed(
            f"All places of {count} masks have the value {values[0]}.",
            "ToTensor was applied to the mask, and .long() after it",
            "masks are read from the wrong file or channel",
            **numbers,
        )
    said = f"{count} masks hold {len(values)} different values."
    return passed(said, **numbers) if len(values) > 1 else unclear(said, **numbers)


def _box_counts(subject: LoaderSubject) -> list[int] | None:
    """Boxes of each sample; None where targets have none."""
    found = []
    for batch in subject.batches:
        targets = inputs_and_targets(batch.raw, subject.split)[1]
        rows = targets if isinstance(targets, list | tuple) else [targets]
        for row in rows:
            if not isinstance(row, Mapping) or "boxes" not in row:
                return None
            found.append(len(row["boxes"]))
    return found or None


LEAST_EDGES, LEAST_MASKS, BETWEEN, SOME, FEW = 50, 8, 0.5, 0.25, 0.2
OFTEN, RARELY = 10, 4
WIDEST, BLOCK, SEVERAL = 2, 4, 3  # pixels of a ramp; of a class's own place; values of ramps
WIDER = (3, 4, 5)  # pixels of what lies between and is no ramp


class MaskInterpolated(Check):
    """Masks resized with interpolation, which adds wrong classes along every edge.

    ## What it does
    Follows rows and columns of the masks across edges between non-adjacent class numbers. Counts
    direct edges, and edges with one or two pixels of a number in between.

    ## Why is this bad
    Halfway between class 0 and class 2 is class 1. Bilinear resizing draws a rim of another class
    around each object.

    ## How it decides
    Needs 8 masks with 50 such edges. Fails if over half of the edges have a number in between.
    These must be three or more numbers, or one that covers 4 x 4 pixels, so borders (trimaps) pass.

    Also fails above a quarter if two pairs of classes have several numbers in between, ten times
    each. Thin lines of other numbers must be four times rarer. Inconclusive if gaps of 3 to 5
    pixels are half as frequent: one class surrounds another.

    ## Limits
    Masks of whole numbers with three values or more. Masks of classes 0 and 1 show nothing.
    """

    code = "LOAD023"
    name = "mask-interpolated"
    entering = True
    causes = (
        "the mask is resized with the image's interpolation (bilinear by default)",
        "masks are saved as JPEG",
    )
    next_step = "Resize masks with nearest neighbour, and save them without loss."

    def run(self, subject: LoaderSubject) -> Answer:
        masks = [b.targets for b in subject.batches if b.targets is not None]
        masks = [m[:, 0] if m.ndim == 4 and m.shape[1] == 1 else m for m in masks]
        if not masks or any(m.ndim != 3 or m.dtype.kind not in "iuf" for m in masks):
            return absent("Targets are no masks of one class for each place.")
        if any(bool((m != np.round(m)).any()) for m in masks):
            return unclear("The masks hold no whole numbers.")
        whole = [m.astype(np.int64) for m in masks]
        count = sum(map(len, whole))
        touching, beside, wide, ramps = 0, 0, 0, Counter[tuple[int, int, int]]()
        for mask in (view for m in whole for view in (m, m.swapaxes(1, 2))):
            for width in range(WIDEST + 1):
                edges, others, rows = _edges(mask, width)
                touching += 0 if width else edges
                beside += others
                found, often = np.unique(rows, axis=0, return_counts=True)
                ramps.update(dict(zip(map(tuple, found.tolist()), often.tolist(), strict=True)))
            wide += sum(_edges(mask, width)[0] for width in WIDER)
        between, values = ramps.total(), {middle for _, middle, _ in ramps}
        pairs = Counter((low, high) for (low, _, high), n in ramps.items() if n >= OFTEN)
        ramped = sum(n > 1 for n in pairs.values()) > 1 and beside * RARELY < between
        share = between / max(1, between + touching)
        numbers = {"masks": count, "touching": touching, "between": between, "values": len(values)}
        said = (
            f"In {share:.0%} of {between + touching} edges between classes whose numbers are not "
            f"neighbours, {WIDEST} pixels or fewer of a number between them lie at the edge"
        )
        if count < LEAST_MASKS or between + touching < LEAST_EDGES:
            return unclear(
                f"{count} masks have {between + touching} edges between classes whose numbers are "
                "not neighbours: too few.",
                **numbers,
            )
        if share > FEW and 2 * wide > between:
            said = f"{said}, and as often {WIDER[0]} or more: a class surrounds another."
            return unclear(said, "", **numbers)
        if share > SOME and ramped:
            return self.failed(f"{said}: masks are interpolated.", **numbers)
        if share > BETWEEN:
            own = any(_has_place(m, value) for value in values for m in whole)
            if own or len(values) >= SEVERAL:
                return self.failed(f"{said}: masks are interpolated.", **numbers)
        return (unclear if share > FEW else passed)(f"{said}.", **numbers)


def _edges(mask: NDArray[Any], width: int) -> tuple[int, int, NDArray[Any]]:
    """Return (edges along the last axis with `width` pixels between two places, lines, their rows).

    Values of edges lie between both places. A row: lower place, first pixel between, higher place.
    """
    span = width + 4
    if mask.shape[2] < span:
        return 0, 0, np.zeros((0, 3), np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(mask, span, axis=2)
    a, b, middle = windows[..., 1], windows[..., -2], windows[..., 2:-2]
    low, high = np.minimum(a, b), np.maximum(a, b)
    flat = (windows[..., 0] == a) & (windows[..., -1] == b) & (high - low > 1)
    inside = (middle > low[..., None]) & (middle < high[..., None])
    beyond = (middle < low[..., None]) | (middle > high[..., None])
    found, lines = flat & inside.all(axis=-1), flat & beyond.any(axis=-1)
    if not width:
        return int(found.sum()), 0, np.zeros((0, 3), np.int64)
    rows = np.stack([low[found], middle[found][:, 0], high[found]], axis=1)
    return int(found.sum()), int(lines.sum()), rows


def _has_place(masks: NDArray[Any], value: int) -> bool:
    """Whether a class covers a square of its own somewhere."""
    if min(masks.shape[1:]) < BLOCK:
        return False
    views = np.lib.stride_tricks.sliding_window_view(masks == value, (BLOCK, BLOCK), axis=(1, 2))
    return bool(views.all(axis=(-1, -2)).any())


TRIES, SAMPLES, LEAST = 8, 8, 3
NEARER = 0.25  # a flip is seen where it explains all but a quarter of the difference
TURNS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "flipped left to right": lambda a: a[..., ::-1],
    "flipped upside down": lambda a: a[..., ::-1, :],
    "turned by 180 degrees": lambda a: a[..., ::-1, ::-1],
}


class FlippedAlone(Check):
    """Images that are flipped while their masks are not.

    ## What it does
    Makes up to eight samples eight times each. If an image is flipped, its mask and bounding boxes
    must be flipped too.

    ## Why is this bad
    Half of the masks then belong to another position, and the model learns the mean of both.

    ## How it decides
    Fails if in at least three pairs the image is mirrored and its asymmetric mask is not. A
    mirrored image must explain three quarters of the difference.

    ## What to do
    Transform image and mask in one call (`v2` with tv_tensors, or albumentations).

    ## Limits
    Masks of the size of the image, and boxes under a name with "box": corners, or a corner or the
    center and the size, in pixels or 0..1. Keypoints, classes such as "left hand", and crops are
    not followed.
    """

    code = "LOAD015"
    name = "flipped-without-target"
    causes = (
        "the random transform is applied to the image only",
        "image and mask draw their own random numbers",
    )
    next_step = "Transform both in one call, or draw the parameters once."

    def run(self, subject: LoaderSubject) -> Answer:
        dataset = rows_of(subject.loader)
        if dataset is None:
            return unclear("Samples without indices cannot be made again.")
        pairs = list(_pairs(subject, dataset))
        if not pairs:
            return absent("The samples have neither masks of the size of the images nor boxes.")
        wrong_pairs = [turn for turn, follows in pairs if turn and not follows]
        turned = [turn for turn, _ in pairs if turn]
        numbers = {"pairs": len(pairs), "turned": len(turned), "mask_left": len(wrong_pairs)}
        if len(wrong_pairs) >= LEAST:
            return self.failed(
                f"In {len(wrong_pairs)} of {len(turned)} pairs the image is "
                f"{wrong_pairs[0]} and its mask or its bounding boxes are not.",
                **numbers,
            )
        if not turned:
            return unclear(f"No image came out flipped in {len(pairs)} pairs.", **numbers)
        return passed(
            f"The masks follow in all but {len(wrong_pairs)} of {len(turned)} pairs whose "
            "image is flipped.",
            **numbers,
        )


def _pairs(subject: LoaderSubject, dataset: Any) -> Iterator[tuple[str, bool]]:
    """(turn of the picture or "", whether the mask is turned too) for pairs of one sample."""
    count = min(SAMPLES, len(dataset))
    for index in np.linspace(0, len(dataset) - 1, count).astype(int).tolist():
        made = [_arrays(subject, dataset, index) for _ in range(TRIES)]
        first = made[0]
        if first is None:
            return
        for other in made[1:]:
            if other is None or other[0].shape != first[0].shape:
                continue
            turn = _turn_between(first[0], other[0])
            views = _turned(first, turn) if turn else []
            if any(_same_rows(view, *first[1:]) for view in views):
                continue  # symmetric: whether it follows cannot be seen
            follows = any(_same_rows(view, other[1], first[2]) for view in views)
            stayed = np.array_equal(first[1], other[1])
            crossed = bool(views) and first[2] and _same_rows(_crossed(first, turn), *other[1:])
            yield turn, follows or not (stayed or crossed)


def _arrays(subject: LoaderSubject, dataset: Any, index: int) -> tuple[Any, Any, bool] | None:
    """(picture, mask or boxes in pixels, whether these are boxes)."""
    with users_code(f"dataset[{index}]"):
        sample = dataset[index]
        inputs, targets = inputs_and_targets(sample, subject.split)
    named = sample if isinstance(sample, Mapping) else targets
    keys = [k for k in named if "box" in str(k).lower()] if isinstance(named, Mapping) else []
    given = None if targets is None or keys else as_array(targets)
    if keys or (given is not None and given.dtype.kind == "f" and given.shape[-1:] == (4,)):
        picture, boxes = as_array(inputs), as_array(named[keys[0]]) if keys else given
        if picture is None or picture.ndim != 3 or boxes is None or boxes.shape[-1:] != (4,):
            return None
        size = np.array(picture.shape[:-3:-1] * 2)
        boxes = boxes.reshape(-1, 4) * (size if boxes.size and boxes.max() <= 1 else 1.0)
        inside = len(boxes) and boxes.min() >= 0 and (boxes <= size).all()  # else of another image
        return (picture.astype(np.float64), boxes, True) if inside else None
    picture, mask = as_array(inputs), None if targets is None else as_array(targets)
    if picture is None or mask is None or picture.ndim != 3 or mask.ndim < 2:
        return None
    if picture.shape[-2:] != mask.shape[-2:]:
        return None
    return picture.astype(np.float64), mask, False


def _same_rows(one: NDArray[Any], two: NDArray[Any], boxes: bool) -> bool:
    """Equal masks; boxes within a pixel and a half, in any order."""
    if one.shape != two.shape:
        return False
    if not boxes:
        return bool(np.array_equal(one, two))
    one, two = (rows[np.lexsort(rows.T)] for rows in (one, two))
    return bool(np.abs(one - two).max() <= 1.5)


def _turned(made: tuple[Any, Any, bool], turn: str) -> list[NDArray[Any]]:
    """Return the mask turned; or boxes turned as corners, as corner and size, center and size."""
    picture, target, boxes = made
    if not boxes:
        return [TURNS[turn](target)]
    size = np.array(picture.shape[:-3:-1])  # (width, height)
    axes = [turn != "flipped upside down", turn != "flipped left to right"]
    one, two = target[:, :2], target[:, 2:]
    corners = np.where(axes, size - two, one), np.where(axes, size - one, two)
    others = [(np.where(axes, size - one - two * part, one), two) for part in (1, 0)]
    return [np.hstack(pair) for pair in (corners, *others)]


def _crossed(made: tuple[Any, Any, bool], turn: str) -> NDArray[Any]:
    """Return boxes whose corners are mirrored, and do not change places."""
    size = np.array(made[0].shape[:-3:-1] * 2)
    axes = [turn != "flipped upside down", turn != "flipped left to right"] * 2
    mirrored: NDArray[Any] = np.where(axes, size - made[1], made[1])
    return mirrored


def _turn_between(one: NDArray[Any], two: NDArray[Any]) -> str:
    plain = float(np.abs(one - two).mean())
    if plain == 0:
        return ""
    distances = {name: float(np.abs(turn(one) - two).mean()) for name, turn in TURNS.items()}
    name = min(distances, key=lambda key: distances[key])
    return name if distances[name] < NEARER * plain else ""
