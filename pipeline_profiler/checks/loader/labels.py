"""The targets of the first batches: range, number of classes, whether they follow their image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, inputs_and_targets
from pipeline_profiler.checks.check import Answer, Check, Judgement, absent, passed, unclear
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
    number of classes K or more (`check.classes`, or the dataset's `classes`); -100, -1 and 255 are
    ignored. Fails if all of 64 samples have one target, all of 64 masks one value or values of 0..1
    in steps of 1/255, as scaled pixels do, or 64 images no bounding box.

    ## Limits
    A loader for rare objects can have batches of one class: skip this check there.
    """

    code = "LOAD011"
    name = "labels-out-of-range"
    causes = (
        "labels are read from the wrong part of the path, file or table",
        "only one folder or class was listed, or the data are stored class by class",
    )
    next_step = "Print the targets of the dataset, as they enter the loss."

    def run(self, subject: LoaderSubject) -> Answer:
        given = _judge_variety(subject)
        variety = self.as_entered(subject, given, _judge_variety)
        if given.judgement is not Judgement.FAIL and variety.judgement is Judgement.FAIL:
            variety = given  # a step may make targets of its own: a discriminator's are all 0 or 1
        return decisive([variety, self.as_entered(subject, _judge_range(subject), _judge_range)])


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
        return LabelRange.failed(
            f"Labels run from {low} to {high}, and {classes or 'K'} classes allow 0 to "
            f"{classes - 1 if classes else 'K-1'}.",
            "labels begin at 1: subtract 1" if shifted else "another mapping of names to labels",
            "the number of classes is too small, or the loss does not accept a label for 'ignore'",
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
    """Whether targets differ: labels, bounding boxes or masks."""
    labels, rows = subject.labels, list[Any]()
    if labels is not None:
        count, values = len(labels), np.unique(labels)
        fault = f"All {count} samples have the target {values[0]}." * (len(values) == 1)
        return _varied(fault, f"{count} samples have {len(values)} different targets.", count)
    for batch in subject.batches:
        targets = inputs_and_targets(batch.raw, subject.split)[1]
        rows += targets if isinstance(targets, list | tuple) else [targets]
    if rows and all(isinstance(row, Mapping) and "boxes" in row for row in rows):
        boxes = sum(len(row["boxes"]) for row in rows)
        fault = f"{len(rows)} images have no bounding boxes." * (not boxes)
        return _varied(fault, f"{len(rows)} images have {boxes} bounding boxes.", len(rows))
    masks = [b.targets for b in subject.batches if b.targets is not None and b.targets.ndim > 2]
    if not masks or any(m.dtype.kind not in "biuf" for m in masks):
        return absent("Targets are neither one value a sample, nor masks, nor boxes.")
    count, values = sum(map(len, masks)), np.unique(np.concatenate([np.unique(m) for m in masks]))
    levels = values[values < 1].astype(np.float64) * 255  # 255, ignored, became 1
    fault = f"All pixels of {count} masks have the value {values[0]}." * (len(values) == 1)
    few = masks[0].dtype.kind == "f" and 1 < len(values) <= MAX_SCALED and values.max() <= 1
    small = few and len(levels) and levels.min() >= 0 and 0 < levels.max() < 128
    if small and np.abs(levels - levels.round()).max() < 1e-3:
        return LabelRange.failed(
            f"{count} masks hold {len(values)} values in steps of 1/255 up to "
            f"{levels.max() / 255:.3g}: classes were scaled like pixels by ToTensor."
        )
    return _varied(fault, f"{count} masks hold {len(values)} different values.", count)


def _varied(fault: str, text: str, count: int) -> Answer:
    if fault and count >= MIN_TARGETS:
        return LabelRange.failed(fault)
    return absent(f"{count} samples are too few to compare.") if fault else passed(text)


MIN_EDGES, MIN_MASKS, MAX_SHARE = 50, 8, 0.3  # direct edges; masks; edges with a number between
MAX_RAMP, MAX_GAP, BLOCK = 2, 5, 4  # pixels of a ramp; of a gap; of a class's own square
TRIES, SAMPLES, MIN_PAIRS = 8, 8, 3
NEARER = 0.25  # a flip is seen where it explains all but a quarter of the difference
NEAR_PIXELS = 1.5
TURNS = {  # (columns, rows) are reversed
    "flipped left to right": (True, False),
    "flipped upside down": (False, True),
    "turned by 180 degrees": (True, True),
}


class FollowsImage(Check):
    """Masks or bounding boxes that do not follow their image.

    ## How it decides
    Makes up to eight samples eight times each. Fails if in at least three pairs the image is
    mirrored and its asymmetric target stays. Fails if masks are interpolated: of at least 50 edges
    between non-adjacent class numbers, 30% have one or two pixels of a number between, which covers
    4 x 4 pixels elsewhere. Gaps of 3 to 5 pixels must be half as frequent, or rarer.

    ## Limits
    Masks of the size of the image, and boxes under a name with "box". No keypoints, no crops.
    """

    code = "LOAD015"
    name = "target-apart-from-image"
    causes = (
        "the random transform is applied to the image only",
        "image and mask draw their own random numbers",
    )
    next_step = "Transform both in one call (v2 with tv_tensors), masks by nearest neighbour."

    def run(self, subject: LoaderSubject) -> Answer:
        resized = self.as_entered(subject, _judge_resized(subject), _judge_resized)
        return decisive([_judge_flips(subject), resized])


def _judge_resized(subject: LoaderSubject) -> Answer:
    """Whether masks were resized with interpolation, which adds wrong classes along every edge."""
    masks = [b.targets for b in subject.batches if b.targets is not None]
    masks = [m[:, 0] if m.ndim == 4 and m.shape[1] == 1 else m for m in masks]
    if not masks or any(m.ndim != 3 or m.dtype.kind not in "iuf" or (m % 1).any() for m in masks):
        return absent("Targets are no masks of one class for each pixel.")
    masks = [m.astype(np.int64) for m in masks]
    views = [view for m in masks for view in (m, m.swapaxes(1, 2))]
    edges = [np.concatenate([_edges(v, width) for v in views]) for width in range(MAX_GAP + 1)]
    touching, *gaps = map(len, edges)
    near, wide = sum(gaps[:MAX_RAMP]), sum(gaps[MAX_RAMP:])
    count, share = near + touching, near / max(1, near + touching)
    text = f"{count} edges between classes whose numbers are not neighbours"
    if sum(map(len, masks)) < MIN_MASKS or count < MIN_EDGES:
        return absent(f"{sum(map(len, masks))} masks have {text}: too few.")
    text = f"{share:.0%} of {text} have {MAX_RAMP} pixels or fewer of a number between"
    if share <= MAX_SHARE:
        return passed(f"{text}.")
    values = np.unique(np.concatenate(edges[1 : MAX_RAMP + 1]))
    if 2 * wide > near or not any(_has_block(m, value) for m in masks for value in values):
        return unclear(f"{text}: borders, and classes around others, look the same.")
    causes = "the mask is resized with the image's interpolation", "masks are saved as JPEG"
    return FollowsImage.failed(f"{text}: masks are interpolated.", *causes)


def _edges(mask: Array, width: int) -> Array:
    """The first of `width` pixels between two classes along rows, whose numbers lie between."""
    if mask.shape[2] < width + 4:
        return np.zeros(0, np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(mask, width + 4, axis=2)
    low, high = np.sort(windows[..., [1, -2]], axis=-1).transpose(3, 0, 1, 2)[..., None]
    middle = windows[..., 2:-2]
    inside = ((middle > low) & (middle < high)).all(axis=-1)
    flat = (windows[..., 0] == windows[..., 1]) & (windows[..., -1] == windows[..., -2])
    found: Array = windows[..., 2][flat & inside & (high - low > 1)[..., 0]]
    return found


def _has_block(masks: Array, value: int) -> bool:
    """Whether a class covers a square of its own somewhere."""
    if min(masks.shape[1:]) < BLOCK:
        return False
    views = np.lib.stride_tricks.sliding_window_view(masks == value, (BLOCK, BLOCK), axis=(1, 2))
    return bool(views.all(axis=(-1, -2)).any())


def _judge_flips(subject: LoaderSubject) -> Answer:
    """Whether the target is mirrored with its image."""
    dataset = rows_of(subject.loader)
    if dataset is None:
        return absent("Samples without indices cannot be made again.")
    pairs, turned, left = 0, 0, list[str]()
    for index in spread_indices(dataset, SAMPLES):
        made = [_image_and_target(subject, dataset, index) for _ in range(TRIES)]
        if made[0] is None:
            break
        image, target, boxes = made[0]
        stays = _boxes_stay if boxes else _mask_stays
        for other in made[1:]:
            if other is None or other[0].shape != image.shape:
                continue
            pairs, turn = pairs + 1, _turn_between(image, other[0])
            stayed = stays(target, other[1], turn, image.shape) if turn else None
            turned += stayed is not None
            left += [turn] if stayed else []
    if not pairs:
        return absent("The samples have neither masks of the size of the images nor boxes.")
    if len(left) >= MIN_PAIRS:
        return FollowsImage.failed(
            f"In {len(left)} of {turned} pairs the image is {left[0]} and its mask or its bounding "
            "boxes are not."
        )
    if not turned:
        return absent(f"No image came out flipped in {pairs} pairs.")
    if left:
        return unclear(f"The target stays in {len(left)} of {turned} pairs whose image is flipped.")
    return passed(f"The targets follow in all {turned} pairs whose image is flipped.")


def _mask_stays(before: Array, after: Array, turn: str, shape: tuple[int, ...]) -> bool | None:
    """Whether a mask is not turned, or in another way; None if it is symmetric."""
    expected = _flipped(before, turn)
    if np.array_equal(expected, before):
        return None
    others = [before, *(_flipped(before, other) for other in TURNS if other != turn)]
    return not np.array_equal(expected, after) and any(np.array_equal(o, after) for o in others)


def _boxes_stay(before: Array, after: Array, turn: str, shape: tuple[int, ...]) -> bool | None:
    """Whether boxes are not turned, or their corners not exchanged; None if they are symmetric.

    Boxes are corners, or a corner or the center and the size.
    """

    def near(one: Array, two: Array) -> bool:
        return one.shape == two.shape and bool(np.abs(one - two).max() <= NEAR_PIXELS)

    axes, size = np.array(TURNS[turn]), np.array(shape[:-3:-1])  # (width, height)
    first, second = before[:, :2], before[:, 2:]
    for total in (first + second, 2 * first + second, 2 * first):
        if near(total[:, axes], np.broadcast_to(size[axes], total[:, axes].shape)):
            return None
    crossed = np.where([*axes, *axes], [*size, *size] - before, before)
    return near(before, after) or (near(crossed, after) and not near(second, after[:, 2:]))


def _image_and_target(
    subject: LoaderSubject, dataset: Any, index: int
) -> tuple[Array, Array, bool] | None:
    """(image, mask or boxes in pixels, whether these are boxes)."""
    with users_code(f"dataset[{index}]"):
        sample = dataset[index]
        inputs, targets = inputs_and_targets(sample, subject.split)
    named = sample if isinstance(sample, Mapping) else targets
    keys = [k for k in named if "box" in str(k).lower()] if isinstance(named, Mapping) else []
    image, target = as_array(inputs), as_array(named[keys[0]] if keys else targets)
    if image is None or image.ndim != 3 or target is None or not target.size or not target.ndim:
        return None
    image = image.astype(np.float64)
    tags = bool(np.isin(target, (0, 1)).all())  # four labels, each given or not
    four = target.dtype.kind == "f" and target.shape[-1] == 4 and target.ndim < 3
    if keys or (four and not tags):
        size = np.array(image.shape[:-3:-1] * 2)
        if target.shape[-1] != 4:
            return None
        boxes = target.reshape(-1, 4) * (size if target.max() <= 1 else 1.0)
        inside = boxes.min() >= 0 and (boxes <= size).all()  # else of another image
        return (image, boxes, True) if inside else None
    return (image, target, False) if image.shape[-2:] == target.shape[-2:] else None


def _flipped(array: Array, turn: str) -> Array:
    columns, rows = TURNS[turn]
    array = array[..., ::-1] if columns else array
    return array[..., ::-1, :] if rows else array


def _turn_between(one: Array, two: Array) -> str:
    """The turn that explains most of the difference of two images, or ""."""
    distances = {turn: float(np.abs(_flipped(one, turn) - two).mean()) for turn in TURNS}
    turn = min(distances, key=lambda key: distances[key])
    return turn if distances[turn] < NEARER * np.abs(one - two).mean() else ""
