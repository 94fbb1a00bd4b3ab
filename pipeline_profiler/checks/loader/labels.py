"""The targets of the first batches: range, number of classes, whether they follow a flip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, inputs_and_targets
from pipeline_profiler.checks.check import Answer, Check, Judgement, absent, passed, unclear, wrong
from pipeline_profiler.checks.indexed import rows_of, spread_indices
from pipeline_profiler.checks.loader_subject import LoaderSubject, dataset_layers, decisive
from pipeline_profiler.checks.user_code import users_code

Array = NDArray[Any]
IGNORED = (-100, -1, 255)  # torch's ignore_index, and those of common segmentation sets
MIN_TARGETS = 64
MAX_SCALED = 32  # values of masks that were scaled like pixels; images as targets have more


class LabelRange(Check):
    """Labels below 0, from K on, or one label for all samples.

    ## How it decides
    Reads the first batches, also as they enter the loss. Fails with a negative label, or one of the
    number of classes K or more (`check.classes`, or the dataset's `classes`). Ignores -100, -1 and
    255. Exact. Fails if all of 64 samples have one target, all of 64 masks one value, or 64 images
    no bounding box. Fails if masks have values of 0..1 in steps of 1/255, as scaled pixels do.

    ## Limits
    Inconclusive if K is unknown and none of 64 labels is 0. A loader for rare objects can have
    batches of one class: skip this check there.
    """

    code = "LOAD011"
    name = "labels-out-of-range"
    causes = (
        "labels are read from the wrong part of the path, file or table",
        "only one folder or class was listed, or the data are stored class by class",
    )
    next_step = "Print the targets of the dataset, as they enter the loss."

    def run(self, subject: LoaderSubject) -> Answer:
        answers, view = [], subject.at_model
        for judge in (_judge_variety, _judge_range):
            answer = judge(subject)
            entered = None if view is None else judge(view)
            # a step may make targets of its own: those of a discriminator are all 0 or all 1
            own = judge is _judge_variety and answer.judgement is not Judgement.FAIL
            if entered is not None and not (own and entered.judgement is Judgement.FAIL):
                answer = self._both(answer, entered)
            answers.append(answer)
        return decisive(answers)


def _judge_range(subject: LoaderSubject) -> Answer:
    parts = [b.targets for b in subject.batches if b.targets is not None]
    if not parts or any(p.dtype.kind not in "iu" for p in parts):
        return absent("The targets are no whole numbers.")
    labels = np.concatenate([p.reshape(-1) for p in parts]).astype(np.int64)
    labels = labels[~np.isin(labels, IGNORED)]
    if not len(labels):
        return unclear("All targets are of the ignored kind.")
    classes = subject.classes or _declared_classes(subject)
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or (classes is not None and high >= classes):
        shifted = low == 1 and high == classes
        return wrong(
            f"Labels run from {low} to {high}, and {classes or 'K'} classes allow 0 to "
            f"{classes - 1 if classes else 'K-1'}.",
            [
                "labels begin at 1" if shifted else "labels come from another mapping of names",
                "the number of classes is too small",
                "a label for 'ignore' that the loss does not accept",
            ],
            "Subtract 1." if shifted else "Print the mapping from names to labels of every split.",
        )
    if classes is None and low > 0 and len(labels) >= MIN_TARGETS:
        return unclear(
            f"Labels run from {low} to {high}: none is 0 among {len(labels)}.",
            "Give the number of classes: --set check.classes=K.",
        )
    known = f"of {classes} classes" if classes else "none negative"
    return passed(f"Labels run from {low} to {high}, {known}.")


def _declared_classes(subject: LoaderSubject) -> int | None:
    layers = dataset_layers(getattr(subject.loader, "dataset", None))
    names = (getattr(layer, "classes", None) for layer in layers)
    return next((len(n) for n in names if isinstance(n, list | tuple) and len(n) > 1), None)


def _judge_variety(subject: LoaderSubject) -> Answer:
    labels = subject.labels
    if labels is None:
        return _judge_boxes(subject) or _judge_masks(subject)
    values, counts = np.unique(labels, return_counts=True)
    if len(labels) < MIN_TARGETS:
        return absent(f"{len(labels)} samples are too few for a histogram.")
    if len(values) == 1:
        return LabelRange.failed(f"All {len(labels)} samples have the target {values[0]}.")
    return passed(
        f"{len(labels)} samples have {len(values)} different targets; the most "
        f"frequent has {counts.max() / len(labels):.0%}."
    )


def _judge_boxes(subject: LoaderSubject) -> Answer | None:
    """Judge the number of bounding boxes; None where targets have none."""
    rows = list[Any]()
    for batch in subject.batches:
        targets = inputs_and_targets(batch.raw, subject.split)[1]
        rows += targets if isinstance(targets, list | tuple) else [targets]
    if not rows or any(not isinstance(row, Mapping) or "boxes" not in row for row in rows):
        return None
    count = sum(len(row["boxes"]) for row in rows)
    text = f"{len(rows)} images have {count or 'no'} bounding boxes."
    if not count and len(rows) >= MIN_TARGETS:
        return LabelRange.failed(text)
    return passed(text) if count else unclear(text)


def _judge_masks(subject: LoaderSubject) -> Answer:
    masks = [b.targets for b in subject.batches if b.targets is not None and b.targets.ndim > 2]
    if not masks or any(m.dtype.kind not in "biuf" for m in masks):
        return absent("Targets are neither one value a sample, nor masks, nor boxes.")
    count = sum(map(len, masks))
    values = np.unique(np.concatenate([np.unique(m) for m in masks]))
    below = values[values < 1].astype(np.float64)  # 255, ignored, became 1
    few = masks[0].dtype.kind == "f" and 1 < len(values) <= MAX_SCALED and values.max() <= 1
    scaled = few and len(below) and below.min() >= 0 and 0 < below.max() < 0.5
    if scaled and np.abs(below * 255 - (below * 255).round()).max() < 1e-3:
        return LabelRange.failed(
            f"{count} masks hold {len(values)} values in steps of 1/255 up to {below.max():.3g}: "
            "classes were scaled like pixels, and as whole numbers all are 0.",
            "ToTensor was applied to the mask, which divides by 255",
        )
    if len(values) == 1 and count >= MIN_TARGETS:
        return LabelRange.failed(
            f"All places of {count} masks have the value {values[0]}.",
            "ToTensor was applied to the mask, and .long() after it",
            "masks are read from the wrong file or channel",
        )
    text = f"{count} masks hold {len(values)} different values."
    return passed(text) if len(values) > 1 else unclear(text)


MIN_EDGES, MIN_MASKS, BETWEEN, SOME, FEW = 50, 8, 0.5, 0.25, 0.2
OFTEN, RARELY = 10, 4
MAX_RAMP, BLOCK, SEVERAL = 2, 4, 3  # pixels of a ramp; of a class's own square; values of ramps
WIDER = (3, 4, 5)  # pixels of what lies between and is no ramp


class MaskInterpolated(Check):
    """Masks resized with interpolation, which adds wrong classes along every edge.

    ## How it decides
    Counts direct edges between non-adjacent class numbers in rows and columns, and edges with one
    or two pixels of a number in between. Needs 8 masks with 50 such edges. Fails if over half have
    a number in between: three or more numbers, or one that covers 4 x 4 pixels, so borders
    (trimaps) pass. Fails above a quarter if two pairs of classes have several numbers in between,
    ten times each. Thin lines of other numbers must be four times rarer. Inconclusive if gaps of
    3 to 5 pixels are half as frequent: one class surrounds another.

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
        if (
            any(m.ndim != 3 or m.dtype.kind not in "iuf" or (m % 1).any() for m in masks)
            or not masks
        ):
            return absent("Targets are no masks of one class for each place.")
        whole = [m.astype(np.int64) for m in masks]
        touching, lines, wide, ramps = 0, 0, 0, Counter[tuple[int, ...]]()
        for mask in (view for m in whole for view in (m, m.swapaxes(1, 2))):
            touching += len(_edges(mask, 0)[0])
            wide += sum(len(_edges(mask, width)[0]) for width in WIDER)
            for width in range(1, MAX_RAMP + 1):
                rows, others = _edges(mask, width)
                ramps.update(map(tuple, rows.tolist()))
                lines += others
        between, values = ramps.total(), {middle for _, middle, _ in ramps}
        pairs = Counter((low, high) for (low, _, high), n in ramps.items() if n >= OFTEN)
        ramped = sum(n > 1 for n in pairs.values()) > 1 and lines * RARELY < between
        count, share = between + touching, between / max(1, between + touching)
        text = f"{count} edges between classes whose numbers are not neighbours"
        if sum(map(len, whole)) < MIN_MASKS or count < MIN_EDGES:
            return unclear(f"{sum(map(len, whole))} masks have {text}: too few.")
        text = f"In {share:.0%} of {text}, {MAX_RAMP} pixels or fewer of a number between them lie "
        text += "at the edge"
        if share > FEW and 2 * wide > between:
            return unclear(f"{text}, and as often {WIDER[0]} or more: a class surrounds another.")
        several = len(values) >= SEVERAL or any(_has_block(m, v) for v in values for m in whole)
        if (share > SOME and ramped) or (share > BETWEEN and several):
            return self.failed(f"{text}: masks are interpolated.")
        return (unclear if share > FEW else passed)(f"{text}.")


def _edges(mask: Array, width: int) -> tuple[Array, int]:
    """Return edges along the last axis with `width` pixels between two classes, and thin lines.

    An edge: lower class, first pixel between, higher class; all pixels between lie between them.
    """
    if mask.shape[2] < width + 4:
        return np.zeros((0, 3), np.int64), 0
    windows = np.lib.stride_tricks.sliding_window_view(mask, width + 4, axis=2)
    a, b, middle = windows[..., 1], windows[..., -2], windows[..., 2:-2]
    low, high = np.minimum(a, b), np.maximum(a, b)
    flat = (windows[..., 0] == a) & (windows[..., -1] == b) & (high - low > 1)
    inside = (middle > low[..., None]) & (middle < high[..., None])
    beyond = (middle < low[..., None]) | (middle > high[..., None])
    found = flat & inside.all(axis=-1)
    rows = np.stack([low[found], windows[..., 2][found], high[found]], axis=1)
    return rows, int((flat & beyond.any(axis=-1)).sum())


def _has_block(masks: Array, value: int) -> bool:
    """Whether a class covers a square of its own somewhere."""
    if min(masks.shape[1:]) < BLOCK:
        return False
    views = np.lib.stride_tricks.sliding_window_view(masks == value, (BLOCK, BLOCK), axis=(1, 2))
    return bool(views.all(axis=(-1, -2)).any())


TRIES, SAMPLES, MIN_PAIRS = 8, 8, 3
NEARER = 0.25  # a flip is seen where it explains all but a quarter of the difference
TURNS = {  # (columns, rows) are reversed
    "flipped left to right": (True, False),
    "flipped upside down": (False, True),
    "turned by 180 degrees": (True, True),
}


class FlippedAlone(Check):
    """Images that are flipped while their masks or bounding boxes are not.

    ## How it decides
    Makes up to eight samples eight times each. Fails if in at least three pairs the image is
    mirrored and its asymmetric target is not. A mirrored image must explain three quarters of the
    difference.

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
    next_step = "Transform both in one call (v2 with tv_tensors), or draw the parameters once."

    def run(self, subject: LoaderSubject) -> Answer:
        dataset = rows_of(subject.loader)
        if dataset is None:
            return unclear("Samples without indices cannot be made again.")
        pairs = list(_pairs(subject, dataset))
        if not pairs:
            return absent("The samples have neither masks of the size of the images nor boxes.")
        turned = [turn for turn, _ in pairs if turn]
        left = [turn for turn, follows in pairs if turn and not follows]
        if len(left) >= MIN_PAIRS:
            return self.failed(
                f"In {len(left)} of {len(turned)} pairs the image is {left[0]} and its mask or its "
                "bounding boxes are not."
            )
        if not turned:
            return unclear(f"No image came out flipped in {len(pairs)} pairs.")
        return passed(
            f"The masks follow in all but {len(left)} of {len(turned)} pairs whose image is "
            "flipped."
        )


def _pairs(subject: LoaderSubject, dataset: Any) -> Iterator[tuple[str, bool]]:
    """(turn of the image or "", whether the target is turned too) for pairs of one sample."""
    for index in spread_indices(dataset, SAMPLES):
        made = [_image_and_target(subject, dataset, index) for _ in range(TRIES)]
        if made[0] is None:
            return
        image, target, boxes = made[0]
        for other in made[1:]:
            if other is None or other[0].shape != image.shape:
                continue
            turn = _turn_between(image, other[0])
            views = _turned(image, target, boxes, turn) if turn else []
            if any(_same_target(view, target, boxes) for view in views):
                continue  # symmetric: whether it follows cannot be seen
            follows = any(_same_target(view, other[1], boxes) for view in views)
            left = target
            if views and boxes:  # corners that are mirrored, and not exchanged
                size = np.array(image.shape[:-3:-1] * 2)
                left = np.where(TURNS[turn] * 2, size - target, target)
            stayed = np.array_equal(target, other[1]) or _same_target(left, other[1], boxes)
            yield turn, follows or not stayed


def _image_and_target(
    subject: LoaderSubject, dataset: Any, index: int
) -> tuple[Array, Array, bool] | None:
    """(image, mask or boxes in pixels, whether these are boxes)."""
    with users_code(f"dataset[{index}]"):
        sample = dataset[index]
        inputs, targets = inputs_and_targets(sample, subject.split)
    named = sample if isinstance(sample, Mapping) else targets
    keys = [k for k in named if "box" in str(k).lower()] if isinstance(named, Mapping) else []
    image = as_array(inputs)
    target = as_array(named[keys[0]] if keys else targets) if keys or targets is not None else None
    if image is None or image.ndim != 3 or target is None or not target.ndim:
        return None
    image = image.astype(np.float64)
    if keys or (target.dtype.kind == "f" and target.shape[-1] == 4 and target.ndim < 3):
        if target.shape[-1] != 4 or not target.size:
            return None
        size = np.array(image.shape[:-3:-1] * 2)
        boxes = target.reshape(-1, 4) * (size if target.max() <= 1 else 1.0)
        inside = boxes.min() >= 0 and (boxes <= size).all()  # else of another image
        return (image, boxes, True) if inside else None
    return (image, target, False) if image.shape[-2:] == target.shape[-2:] else None


def _same_target(one: Array, two: Array, boxes: bool) -> bool:
    """Equal masks; boxes within a pixel and a half, in any order."""
    if not boxes or one.shape != two.shape:
        return np.array_equal(one, two)
    one, two = (rows[np.lexsort(rows.T)] for rows in (one, two))
    return bool(np.abs(one - two).max() <= 1.5)


def _flipped(array: Array, turn: str) -> Array:
    columns, rows = TURNS[turn]
    array = array[..., ::-1] if columns else array
    return array[..., ::-1, :] if rows else array


def _turned(image: Array, target: Array, boxes: bool, turn: str) -> list[Array]:
    """Return the mask turned; or boxes turned as corners, as corner and size, center and size."""
    if not boxes:
        return [_flipped(target, turn)]
    size, axes = np.array(image.shape[:-3:-1]), TURNS[turn]  # (width, height)
    one, two = target[:, :2], target[:, 2:]
    corners = np.where(axes, size - two, one), np.where(axes, size - one, two)
    others = [(np.where(axes, size - one - two * part, one), two) for part in (1, 0)]
    return [np.hstack(pair) for pair in (corners, *others)]


def _turn_between(one: Array, two: Array) -> str:
    """The turn that explains most of the difference of two images, or ""."""
    distances = {turn: float(np.abs(_flipped(one, turn) - two).mean()) for turn in TURNS}
    turn = min(distances, key=lambda key: distances[key])
    return turn if distances[turn] < NEARER * np.abs(one - two).mean() else ""
