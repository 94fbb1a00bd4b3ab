"""The data that a loader gives: pictures, labels, files, two loaders."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.loader.contents import BLOCK
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import (
    ChangedImages,
    ColourFiles,
    ToyImages,
    ToyRows,
    changed_images,
    colour_folder,
    toy_loader,
    toy_pictures,
)


def _as_text(count: int) -> NDArray[np.int64]:
    return np.array(sorted(range(count), key=str))


def _unit(pixels: Any) -> Any:
    return (pixels - pixels.min()) / (pixels.max() - pixels.min())


def _scaled(factor: float, shift: float) -> Any:
    return toy_loader(changed_images(lambda p: (_unit(p) * factor + shift).astype(np.float32)))


def _decibels() -> Any:
    """Spectrograms: one channel, in decibels."""
    return toy_loader(changed_images(lambda p: 10 * np.log10(_unit(p[:, :1]) ** 3 + 1e-3)))


def _grey_twice() -> Any:
    """Bytes of one channel that are normalised twice."""

    def twice(pixels: Any) -> Any:
        unit = (_unit(pixels[:, :1]) * 255).round() / 255
        return (((unit - 0.13) / 0.31 - 0.13) / 0.31).astype(np.float32)

    return toy_loader(changed_images(lambda p: 2 * twice(p)))


def _stepped(factor: float, shift: float, mean: float, deviation: float) -> LoaderSubject:
    """Pictures scaled by the loader, and by the user's step as they enter the model."""
    loader = _scaled(factor, shift)
    steps = [(batch, (batch[0] - mean) / deviation, batch[1]) for batch in loader]
    return LoaderSubject(lambda: loader, entered=lambda: (steps, []))


def _coloured(reshape: bool) -> Any:
    rng = np.random.default_rng(0)
    dataset = ToyImages(64)
    slope = rng.uniform(-1, 1, (64, 16, 1, 3)).cumsum(axis=1).repeat(16, axis=2)
    pictures = slope + rng.uniform(-3, 3, (64, 1, 1, 3)) + rng.normal(0, 0.1, slope.shape)
    pictures += rng.uniform(-1, 1, (64, 1, 16, 1)).cumsum(axis=2)
    chw = pictures.reshape(64, 3, 16, 16) if reshape else pictures.transpose(0, 3, 1, 2)
    dataset.pixels = (chw / chw.std()).astype(np.float32)
    return toy_loader(dataset)


def _filled(index: Any, value: Any) -> Any:
    dataset = ToyImages()
    dataset.pixels[index] = value
    return toy_loader(dataset)


def _buffered(labels_go_on: bool) -> Any:
    rows = np.arange(64)
    pictures = ToyImages(16).pixels[rows * 0 if labels_go_on else rows % 16]
    labels = rows % (4 if labels_go_on else 16)
    return list(zip(np.split(pictures, 8), np.split(labels, 8), strict=True))


def _declared(mean: float, deviation: float = 0.22, levels: bool = False) -> LoaderSubject:
    """Normalised with 0.45 and 0.22; declared are other numbers, by a model of timm's form."""

    class Model:
        pretrained_cfg = {"mean": (mean,) * 3, "std": (deviation,) * 3}  # noqa: RUF012

    def change(pixels: Any) -> Any:
        made = np.round(_unit(pixels) * 255) / 255 if levels else _unit(pixels)
        return ((made - 0.45) / 0.22).astype(np.float32)

    return LoaderSubject(lambda: toy_loader(changed_images(change)), make_model=Model)


def _shifted(classes: int | None, shift: int) -> Any:
    dataset = changed_images(labels=lambda labels: labels + shift)
    return LoaderSubject(lambda: toy_loader(dataset), classes=classes)


def _targets(make: Callable[[int], Any]) -> Any:
    placed = ChangedImages(lambda pixels, label: (pixels, make(label)))
    if isinstance(make(1), np.ndarray):
        return toy_loader(placed)
    return LoaderSubject(lambda: toy_loader(placed, collate_fn=list), split=lambda rows: (
        np.stack([x for x, _ in rows]), [y for _, y in rows]))  # fmt: skip


def _mask(label: int) -> NDArray[Any]:
    return np.pad(np.full((3, 3), label), ((1, 4), (2, 3)))


def _boxes(count: int) -> dict[str, NDArray[Any]]:
    return {"boxes": np.ones((count, 4), np.float32), "labels": np.arange(count)}


def _resized(how: str, border: bool = False) -> Any:
    from PIL import Image

    rng, (rows, cols) = np.random.default_rng(0), np.mgrid[:48, :48]
    masks = []
    for _ in range(32):
        mask = np.zeros((48, 48), np.uint8)
        for number in (1, 2):
            top, left = rng.integers(12, 36, 2)
            far = np.hypot(rows - top, cols - left)
            mask[far < 9] = 1 if border else number
            mask[far < 7.5] = 2 if border else number
        small = Image.fromarray(mask).resize((32, 32), Image.Resampling[how])
        masks.append(mask[:32, :32] if border else np.asarray(small))
    pictures = np.zeros((32, 3, 8, 8), np.float32)
    return list(zip(np.split(pictures, 4), np.split(np.array(masks), 4), strict=True))


def _nested() -> Any:
    rng, (rows, cols) = np.random.default_rng(0), np.mgrid[:48, :48]
    masks = np.zeros((256, 48, 48), np.int64)
    for mask in masks:
        for top, left, radius in rng.uniform((8, 8, 5), (40, 40, 9), (4, 3)):
            far = np.hypot(rows - top, cols - left)
            mask[far < radius], mask[far < 0.45 * radius] = 1, 2
    pictures = np.zeros((256, 3, 8, 8), np.float32)
    return list(zip(np.split(pictures, 4), np.split(masks, 4), strict=True))


def _scenes(smooth: bool) -> Any:
    """Rectangles of five classes, 72 pixels made 48; else with thin lines of any class."""
    import torch

    rng, masks = np.random.default_rng(0), np.zeros((48, 72, 72), np.float32)
    for mask in masks:
        for number in rng.permutation(5):
            (y, x), (height, width) = rng.integers(0, 50, 2), rng.integers(12, 40, 2)
            mask[y : y + height, x : x + width] = number
        for number in range(0 if smooth else 5):
            at = int(rng.integers(0, 70))
            mask[at : at + 2] = number
    small = torch.nn.functional.interpolate(
        torch.from_numpy(masks)[:, None], (48, 48), mode="bilinear" if smooth else "nearest"
    )
    pictures = np.zeros((48, 3, 8, 8), np.float32)
    found = small[:, 0].long().numpy()
    return list(zip(np.split(pictures, 4), np.split(found, 4), strict=True))


def _flipping(form: str, follow: bool = True, beyond: float = 0.0) -> Any:
    """Flipped pictures, whose mask or box follows, or stays; `corners` are mirrored in place."""

    def change(pixels: Any, label: int) -> Any:
        ends, mask = label % 3 + np.array([0, 2]), np.zeros((8, 8), np.int64)
        if np.random.random() < 0.5:
            pixels = pixels[..., ::-1].copy()
            ends = 8 - ends[::-1] if follow else 8 - ends if form == "corners" else ends
        if form == "mask":
            mask[1:5, ends[0] : ends[1]] = 1
            return pixels, mask
        corners = np.array([ends[0], 1, ends[1], 5], np.float32)
        if form == "boxes":
            return pixels, {"boxes": corners[None], "labels": np.array([label])}
        if form == "corners":
            return pixels, corners / 8
        box = np.array([ends[0], 1, 2, 4], np.float32) + np.float32(beyond)
        if form == "center":
            box = np.array([ends.mean(), 3, 2, 4], np.float32) / 8
        return {"image": pixels, "bbox": box, "label": label}

    return toy_loader(ChangedImages(change))


def _windows(kind: str, calendar: bool = False) -> LoaderSubject:
    """Windows of recordings, split at random, by recording or by time."""
    rng, starts = np.random.default_rng(0), range(0, 257, 16)
    signal = rng.normal(size=(12, 320, 3)).astype(np.float32).cumsum(axis=1)
    if calendar:
        signal[..., :] = np.sin(np.arange(320) % 48 / 7.6)[:, None]
        signal[..., 0] = rng.random((12, 320)) < 0.05
    rows = np.stack([s[i : i + 64].T for s in signal for i in starts])
    order = rng.permutation(len(rows)) if kind == "at random" else np.arange(len(rows))
    if kind == "by time":
        order = np.argsort(order % len(starts), kind="stable")
    parts = (ToyRows(rows[i], np.arange(len(i))) for i in np.split(order, [153]))
    train, test = (lambda p=p: toy_loader(p) for p in parts)
    return LoaderSubject(train, test)


def _padded(pixels: Any) -> Any:
    pixels = pixels + 6
    return np.pad(pixels[..., 2:-2, 2:-2], [*[(0, 0)] * (pixels.ndim - 2), (2, 2), (2, 2)]) - 6


def _pair(evaluated: Any) -> LoaderSubject:
    return LoaderSubject(
        lambda: toy_loader(ToyImages()), lambda: toy_loader(evaluated, shuffle=False)
    )


def _drawn() -> Any:
    class Drawn(ToyImages):
        def __getitem__(self, index: int) -> Any:
            label = int(self.labels[index])
            return self.pixels[np.random.choice(np.flatnonzero(self.labels == label))], label

    return _pair(Drawn())


def _cropped() -> Any:
    dataset = ToyImages(seed=1)

    def change(pixels: Any) -> Any:
        moved = np.roll(pixels, np.random.randint(-1, 2, 2), axis=(1, 2))
        return _flipped(moved) * np.float32(np.random.uniform(0.8, 1.2))

    class Changed(ToyImages):
        transform = staticmethod(change)

        def __getitem__(self, index: int) -> Any:
            return change(dataset.pixels[index]), int(dataset.labels[index])

    return _pair(Changed())


def _shared_places(shared: int, anew: bool = False, augment: bool = False) -> LoaderSubject:
    from torch.utils.data import Subset

    whole: Any = ToyImages()
    other: Any = ToyImages(augment=augment) if anew else whole
    one, two = Subset(other, range(200)), Subset(whole, range(200 - shared, 256))
    return LoaderSubject(lambda: toy_loader(one), lambda: toy_loader(two))


def _copied(shared: int) -> LoaderSubject:
    one, two = ToyImages(), ToyImages(64, seed=1)
    two.pixels[:shared] = one.pixels[:shared]
    return LoaderSubject(lambda: toy_loader(one), lambda: toy_loader(two))


def _cached(transform: Callable[[Any], Any] | None, behind: bool) -> Any:
    class Cached(ToyImages):
        def __init__(self) -> None:
            super().__init__()
            self.transform, self.cache = transform, dict[int, Any]()

        def __getitem__(self, index: int) -> Any:
            change = self.transform or _flipped
            if index not in self.cache:
                pixels = super().__getitem__(index)[0]
                self.cache[index] = change(pixels) if behind else pixels
            pixels = self.cache[index]
            return pixels if behind else change(pixels), int(self.labels[index])

    return toy_loader(Cached())


def _flipped(pixels: Any) -> Any:
    return pixels[..., ::-1].copy() if np.random.random() < 0.5 else pixels


def _normalised(in_place: bool) -> Any:
    def change(pixels: Any, label: int) -> Any:
        pixels = pixels if in_place else pixels.copy()
        pixels /= 2
        return pixels, label

    return toy_loader(ChangedImages(change))


def last_held_out(ordered: bool, kept: int = 8) -> LoaderSubject:
    """The last part held out; of the evaluation every `kept`-th sample of the first class."""
    from torch.utils.data import Subset

    whole: Any = ToyImages(800, ordered=ordered)
    held = [i for i in range(640, 800) if whole.labels[i] or not i % kept]
    one, two = Subset(whole, range(640)), Subset(whole, held)
    return LoaderSubject(lambda: toy_loader(one), lambda: toy_loader(two, shuffle=False))


def _in_words() -> LoaderSubject:
    def make() -> Any:
        return toy_loader(ChangedImages(lambda pixels, label: (pixels, f"class {label}")))

    return LoaderSubject(make, make)


def _ordered(change: Callable[[Any], Any], both: bool = True) -> LoaderSubject:
    sets = [ToyImages(240, seed=seed) for seed in range(2)]
    for dataset in sets[: 2 if both else 1]:
        dataset.labels = change(dataset.labels)
    return LoaderSubject(lambda: toy_loader(sets[0]), lambda: toy_loader(sets[1]))


def _rows(
    make: Callable[[Any], list[Any]], shuffled: bool = False, placed: Any = None
) -> LoaderSubject:
    """Rows of inputs that are no images, with labels; in training, `shuffled`, of other rows."""
    sets = [make(np.random.default_rng(seed)) for seed in range(2)]
    if shuffled:
        order = np.random.default_rng(2).permutation(len(sets[0]))
        sets[0] = [(x, sets[0][n][1]) for (x, _), n in zip(sets[0], order, strict=True)]
    if placed is not None:
        sets = [
            [(x, rows[n][1]) for (x, _), n in zip(rows, placed(len(rows)), strict=True)]
            for rows in sets
        ]
    return LoaderSubject(lambda: toy_loader(sets[0]), lambda: toy_loader(sets[1]))


def _texts(rng: Any) -> list[Any]:
    """Tokens of other length in each row, as a dict; two tokens are those of a class."""
    labels = rng.integers(0, 3, 300)
    rows = [np.r_[rng.integers(9, 60, rng.integers(6, 20)), 2 * k, 2 * k + 1] for k in labels]
    return [
        ({"input_ids": row, "attention_mask": 0 * row + 1}, k)
        for row, k in zip(rows, labels, strict=True)
    ]


def _table(rng: Any) -> list[Any]:
    x = rng.normal(size=(300, 12))
    return [(row, np.float32(row[0] + row[3] > 0)) for row in x]


def _parity(rng: Any) -> list[Any]:
    x = rng.integers(0, 2, (300, 12)).astype(np.float32)
    return [(row, int(row[:4].sum() % 2)) for row in x]


def _forecasts(rng: Any) -> list[Any]:
    """Windows of a random walk, and whether it rises after: known of the window before."""
    walk = rng.normal(size=320).cumsum()
    return [(walk[n : n + 12], int(walk[n + 12] > walk[n + 11])) for n in range(300)]


def _groups(rng: Any) -> list[Any]:
    """Samples of 20 groups of one label each: nothing of a group is known from the others."""
    places, labels = rng.normal(size=(20, 12)), np.arange(20) % 2
    return [(places[n % 20] + 0.1 * rng.normal(size=12), labels[n % 20]) for n in range(300)]


def _mixup(one_order: bool) -> LoaderSubject:
    loader, rng = toy_loader(ToyImages(128)), np.random.default_rng(0)
    steps = []
    for x, y in itertools.islice(loader, 4):
        first, second = rng.permutation(len(x)), rng.permutation(len(x))
        mixed = 0.7 * x + 0.3 * x[first]
        steps.append(((x, y), mixed, (y, y[first if one_order else second])))
    return LoaderSubject(lambda: loader, entered=lambda: (steps, []))


def _numbered(change: Callable[[Any], Any], more: int = 0) -> LoaderSubject:
    """Evaluation labels that are changed; its inputs have some `more` tokens."""
    sets = [_texts(np.random.default_rng(seed)) for seed in range(2)]
    held = [
        ({key: np.r_[row, np.full(more, 61)] for key, row in inputs.items()}, change(label))
        for inputs, label in sets[1]
    ]
    return LoaderSubject(lambda: toy_loader(sets[0]), lambda: toy_loader(held))


def _sorted() -> LoaderSubject:
    """Stored by class, of which the first samples hold two that look alike."""
    sets = [ToyImages(2 * BLOCK, seed=0), ToyImages(240, seed=1)]
    first, rng = sets[0], np.random.default_rng(0)
    first.pixels[:BLOCK] = rng.normal(0, 1, first.pixels[:BLOCK].shape)
    first.labels[:BLOCK] = rng.integers(0, 2, BLOCK)
    return LoaderSubject(lambda: toy_loader(sets[0]), lambda: toy_loader(sets[1]))


def _changed_pair(change: Any) -> LoaderSubject:
    def evaluation() -> Any:
        dataset = changed_images(lambda p: change(p).astype(np.float32), seed=1)
        return toy_loader(dataset, shuffle=False)

    return LoaderSubject(toy_pictures, evaluation)


def _files_of_two(order: tuple[int, ...], shift: float = 0.0) -> LoaderSubject:
    folder = colour_folder()

    def plain(picture: Any) -> Any:
        pixels = np.array(picture, np.float32).transpose(2, 0, 1) / 255
        return pixels[:, :, ::-1].copy() if np.random.random() < 0.5 else pixels

    def other(picture: Any) -> Any:
        return plain(picture)[list(order)] + np.float32(shift)

    sets = [ColourFiles(folder, change) for change in (plain, other)]
    return LoaderSubject(lambda: toy_loader(sets[0]), lambda: toy_loader(sets[1], shuffle=False))


def _numbered_pair(ours: Any, theirs: Any, **more: Any) -> LoaderSubject:
    made = [ToyImages(), ToyImages(seed=1)]
    for dataset, names in zip(made, (ours, theirs), strict=True):
        key = "class_to_idx" if isinstance(names, dict) else "classes"
        vars(dataset)[key] = names
    vars(made[1]).update(more)
    return LoaderSubject(lambda: toy_loader(made[0]), lambda: toy_loader(made[1]))


def _scaled_table(change: Callable[[Any, Any, Any], Any]) -> LoaderSubject:
    """Rows of eight numbers and a class; `change(rows, labels, first)` prepares all of them."""
    rng = np.random.default_rng(2)
    rows, labels = rng.normal(3, 2, (400, 8)), rng.integers(0, 2, 400)
    rows = change(rows, labels, rows[:300]).astype(np.float32)
    sets = [ToyRows(rows[part], labels[part]) for part in (slice(300), slice(300, None))]
    return LoaderSubject(lambda: toy_loader(sets[0]), lambda: toy_loader(sets[1]))


def _windows_of_a_wave(ahead: int) -> LoaderSubject:
    """Windows of a slow wave, and the value `ahead` steps after their end."""
    series = np.sin(np.arange(700) / 60).astype(np.float32)
    ends = np.arange(20, 620)
    rows = np.stack([series[end - 20 : end, None] for end in ends])
    return LoaderSubject(lambda: toy_loader(ToyRows(rows, series[ends - 1 + ahead])))


def _with_target(noise: float) -> LoaderSubject:
    rng = np.random.default_rng(3)
    return _scaled_table(lambda x, y, _: np.c_[x, y + rng.normal(0, noise, len(y))])


def _standardised(x: Any, y: Any, by: Any) -> Any:
    return (x - by.mean(axis=0)) / by.std(axis=0)


def _to_range(x: Any, y: Any, by: Any) -> Any:
    return (x - by.min(axis=0)) / np.ptp(by, axis=0)


def _each_alone(x: Any, y: Any, first: Any) -> Any:
    return np.concatenate([_standardised(p, y, p) for p in (first, x[len(first) :])])


def _by_all_rows(scale: Any) -> LoaderSubject:
    return _scaled_table(lambda x, y, _: scale(x, y, x))


def _channels_last() -> Any:
    return toy_loader(changed_images(lambda p: p.transpose(0, 2, 3, 1)))


def _permuted(count: int) -> Any:
    return np.random.default_rng(5).permutation(count)


def _shuffled() -> LoaderSubject:
    return _ordered(np.random.default_rng(0).permutation, False)


TURNED = ["a", "b"], ["b", "a"]
NAMES = [[f"{n * f % 257}" for n in range(256)] for f in (1, 2)]
EXAMPLES: Rows = [
    ("LOAD020", FAULT, "the target as a column", lambda: _with_target(0)),
    ("LOAD020", FAULT, "windows that end with it", lambda: _windows_of_a_wave(0)),
    ("LOAD020", TWIN, "windows before it", lambda: _windows_of_a_wave(1)),
    ("LOAD020", TWIN, "a good predictor", lambda: _with_target(0.3)),
    ("LOAD020", FAULT, "all rows", lambda: _by_all_rows(_standardised)),
    ("LOAD020", FAULT, "ranges of all rows", lambda: _by_all_rows(_to_range)),
    ("LOAD020", FAULT, "each set alone", lambda: _scaled_table(_each_alone)),
    ("LOAD020", TWIN, "training rows", lambda: _scaled_table(_standardised)),
    ("LOAD020", TWIN, "ranges of training rows", lambda: _scaled_table(_to_range)),
    ("LOAD020", TWIN, "as they are", lambda: _scaled_table(lambda x, y, _: x)),
    ("LOAD008", FAULT, "one NaN", lambda: _filled((10, 0, 0, 0), np.nan)),
    ("LOAD008", FAULT, "0..255", lambda: _scaled(255, 0)),
    ("LOAD008", FAULT, "divided twice", lambda: _scaled(1 / 255, 0)),
    ("LOAD008", FAULT, "normalised twice", lambda: _scaled(1 / 0.22**2, -11.3)),
    ("LOAD008", FAULT, "a sixtieth of a normalised image", lambda: _scaled(0.08, -0.03)),
    ("LOAD008", FAULT, "normalised in the step again", lambda: _stepped(2.0, -1.0, 0.5, 0.5)),
    ("LOAD008", FAULT, "one channel normalised twice", _grey_twice),
    ("LOAD008", TWIN, "decibels", _decibels),
    ("LOAD008", TWIN, "0..1", lambda: _scaled(1, 0)),
    ("LOAD008", TWIN, "normalised in the step", lambda: _stepped(255.0, 0.0, 120.0, 58.0)),
    ("LOAD008", TWIN, "centred, then moved to 0..1", lambda: _stepped(2.0, -1.0, -1.0, 2.0)),
    ("LOAD008", FAULT, "channels last", _channels_last),
    ("LOAD008", FAULT, "reshaped", lambda: _coloured(True)),
    ("LOAD008", TWIN, "transposed", lambda: _coloured(False)),
    ("LOAD008", FAULT, "every second is zeros", lambda: _filled(slice(None, None, 2), 0)),
    ("LOAD008", FAULT, "one image for all", lambda: _filled(slice(None), np.eye(8))),
    ("LOAD008", FAULT, "a stream with one buffer", lambda: _buffered(True)),
    ("LOAD008", TWIN, "a stream that repeats a small set", lambda: _buffered(False)),
    ("LOAD008", FAULT, "another mean", lambda: _declared(0.0)),
    ("LOAD008", FAULT, "another deviation", lambda: _declared(0.45, 0.225, True)),
    ("LOAD008", FAULT, "half a level off", lambda: _declared(0.452, 0.22, True)),
    ("LOAD008", TWIN, "as declared", lambda: _declared(0.45)),
    ("LOAD008", TWIN, "as declared, bytes", lambda: _declared(0.45, 0.22, True)),
    ("LOAD011", FAULT, "1 to K", lambda: _shifted(4, 1)),
    ("LOAD011", FAULT, "negative", lambda: _shifted(None, -3)),
    ("LOAD011", TWIN, "0 to K-1", lambda: _shifted(4, 0)),
    ("LOAD011", TWIN, "K is not known", lambda: _shifted(None, 1)),
    ("LOAD011", FAULT, "one label", lambda: toy_loader(changed_images(labels=lambda y: 0 * y + 2))),
    ("LOAD011", FAULT, "masks of zeros", lambda: _targets(lambda y: np.zeros((8, 8), np.int64))),
    ("LOAD011", FAULT, "masks like pixels", lambda: _targets(lambda y: _mask(y) / np.float32(255))),
    ("LOAD011", FAULT, "no boxes", lambda: _targets(lambda y: _boxes(0))),
    ("LOAD011", TWIN, "few samples", lambda: toy_loader(ToyImages(16))),
    ("LOAD011", TWIN, "masks", lambda: _targets(_mask)),
    ("LOAD011", TWIN, "masks of 0 and 1", lambda: _targets(lambda y: np.float32(_mask(y) > 0))),
    ("LOAD011", TWIN, "boxes", lambda: _targets(_boxes)),
    ("LOAD015", FAULT, "bilinear", lambda: _resized("BILINEAR")),
    ("LOAD015", FAULT, "bilinear, to two thirds", lambda: _scenes(True)),
    ("LOAD015", TWIN, "nearest", lambda: _resized("NEAREST")),
    ("LOAD015", TWIN, "a border of its own", lambda: _resized("NEAREST", True)),
    ("LOAD015", TWIN, "a cell around its nucleus", lambda: _nested()),
    ("LOAD015", TWIN, "thin lines", lambda: _scenes(False)),
    *(
        ("LOAD015", kind, f"{form} {kind}", partial(_flipping, form, kind == TWIN))
        for form in ("mask", "boxes", "xywh", "center", "corners")
        for kind in (FAULT, TWIN)
    ),
    ("LOAD015", TWIN, "where a crop was in a scan", lambda: _flipping("xywh", False, 40.0)),
    ("LOAD013", FAULT, "noise", lambda: _pair(ToyImages(augment=True, seed=1))),
    ("LOAD013", FAULT, "moved, flipped, brighter", lambda: _cropped()),
    ("LOAD013", TWIN, "as they are", lambda: _pair(ToyImages(seed=1))),
    ("LOAD013", TWIN, "drawn anew for each label", lambda: _drawn()),
    ("LOAD020", FAULT, "places of one dataset", lambda: _shared_places(20)),
    ("LOAD020", FAULT, "two datasets of equal arrays", lambda: _shared_places(20, True, True)),
    ("LOAD020", FAULT, "copies", lambda: _copied(16)),
    ("LOAD020", FAULT, "windows at random", lambda: _windows("at random")),
    ("LOAD020", TWIN, "windows by recording", lambda: _windows("by recording")),
    ("LOAD020", TWIN, "windows by time", lambda: _windows("by time")),
    ("LOAD020", TWIN, "rare events by day", lambda: _windows("by recording", True)),
    ("LOAD020", TWIN, "disjoint", lambda: _shared_places(0)),
    ("LOAD020", TWIN, "disjoint, of two datasets", lambda: _shared_places(0, True, True)),
    ("LOAD020", TWIN, "a copy or two", lambda: _copied(2)),
    ("LOAD021", FAULT, "behind the transform", lambda: _cached(_flipped, True)),
    ("LOAD021", TWIN, "before it", lambda: _cached(_flipped, False)),
    ("LOAD021", TWIN, "made data", lambda: _cached(None, True)),
    ("LOAD021", FAULT, "divided in place", lambda: _normalised(True)),
    ("LOAD021", TWIN, "a copy", lambda: _normalised(False)),
    ("LOAD018", FAULT, "stored by class", lambda: last_held_out(True)),
    ("LOAD018", TWIN, "labels in words", lambda: _in_words()),
    ("LOAD018", TWIN, "shuffled before", lambda: last_held_out(False)),
    ("LOAD022", FAULT, "mixed by two orders", lambda: _mixup(False)),
    ("LOAD022", FAULT, "one place off", lambda: _ordered(lambda y: np.roll(y, 1))),
    ("LOAD022", FAULT, "turned round", lambda: _ordered(lambda y: y[::-1])),
    ("LOAD022", FAULT, "sorted as text", lambda: _ordered(lambda y: y[_as_text(len(y))])),
    ("LOAD022", FAULT, "shuffled in training", _shuffled),
    ("LOAD022", FAULT, "texts shuffled in training", lambda: _rows(_texts, True)),
    ("LOAD022", FAULT, "numbers shuffled in training", lambda: _rows(_table, True)),
    ("LOAD022", FAULT, "texts sorted as text", lambda: _rows(_texts, placed=_as_text)),
    ("LOAD022", TWIN, "texts in any order", lambda: _rows(_texts, placed=_permuted)),
    ("LOAD022", FAULT, "numbered anew", lambda: _numbered(lambda k: (k + 1) % 3)),
    ("LOAD022", FAULT, "two numbers exchanged", lambda: _numbered(lambda k: (0, 2, 1)[k])),
    ("LOAD022", TWIN, "numbered alike", lambda: _numbered(lambda k: k)),
    ("LOAD022", TWIN, "other inputs", lambda: _numbered(lambda k: (k + 1) % 3, 2)),
    ("LOAD022", TWIN, "numbers", lambda: _rows(_table)),
    ("LOAD022", TWIN, "a parity", lambda: _rows(_parity)),
    ("LOAD022", TWIN, "a forecast", lambda: _rows(_forecasts)),
    ("LOAD022", TWIN, "other groups", lambda: _rows(_groups)),
    ("LOAD022", TWIN, "mixed by one order", lambda: _mixup(True)),
    ("LOAD022", TWIN, "their own", lambda: _ordered(lambda y: y)),
    ("LOAD022", TWIN, "not to be learned", lambda: _ordered(np.random.default_rng(0).permutation)),
    ("LOAD022", TWIN, "two classes of noise before the others", lambda: _sorted()),
    ("LOAD013", FAULT, "one file, another mean", lambda: _files_of_two((0, 1, 2), 0.1)),
    ("LOAD013", FAULT, "one file, BGR", lambda: _files_of_two((2, 1, 0))),
    ("LOAD013", FAULT, "not normalised", lambda: _changed_pair(lambda p: p * 0.25 + 0.45)),
    ("LOAD013", FAULT, "another scale", lambda: _changed_pair(lambda p: p * 2)),
    ("LOAD013", TWIN, "one file, flipped at random", lambda: _files_of_two((0, 1, 2))),
    ("LOAD013", TWIN, "a border of padding", lambda: _changed_pair(_padded)),
    ("LOAD013", TWIN, "flipped", lambda: _changed_pair(lambda p: p[..., ::-1])),
    ("LOAD018", FAULT, "a folder is missing", lambda: _numbered_pair(["a", "b", "c"], ["a", "c"])),
    ("LOAD018", TWIN, "the last class is empty", lambda: _numbered_pair(["a", "b"], {"a": 0})),
    ("LOAD018", TWIN, "other names", lambda: _numbered_pair(["n01", "n02"], ["cat", "dog"])),
    ("LOAD018", TWIN, "numbered anew", lambda: _numbered_pair(*TURNED, target_transform=abs)),
    ("LOAD018", TWIN, "a name for each sample", lambda: _numbered_pair(*NAMES)),
]
