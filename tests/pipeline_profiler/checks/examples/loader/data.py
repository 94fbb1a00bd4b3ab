"""The data that a loader gives: images, labels, files, two loaders."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

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


def _two(train: Any, evaluation: Any) -> LoaderSubject:
    return LoaderSubject(lambda: toy_loader(train), lambda: toy_loader(evaluation, shuffle=False))


def _unit(pixels: Any) -> Any:
    return (pixels - pixels.min()) / (pixels.max() - pixels.min())


def _scaled(factor: float, shift: float) -> Any:
    return toy_loader(changed_images(lambda p: (_unit(p) * factor + shift).astype(np.float32)))


def _grey(change: Callable[[Any], Any]) -> Any:
    return toy_loader(changed_images(lambda p: change(_unit(p[:, :1])).astype(np.float32)))


def _stepped(mean: float, deviation: float) -> LoaderSubject:
    """Images that the loader moves to -1..1, and the user's step changes."""
    loader = _scaled(2.0, -1.0)
    steps = [(batch, (batch[0] - mean) / deviation, batch[1]) for batch in loader]
    return LoaderSubject(lambda: loader, entered=lambda: (steps, []))


def _coloured(reshape: bool) -> Any:
    rng = np.random.default_rng(0)
    slope = rng.uniform(-1, 1, (64, 16, 1, 3)).cumsum(axis=1).repeat(16, axis=2)
    images = slope + rng.uniform(-3, 3, (64, 1, 1, 3)) + rng.normal(0, 0.1, slope.shape)
    images += rng.uniform(-1, 1, (64, 1, 16, 1)).cumsum(axis=2)
    chw = images.reshape(64, 3, 16, 16) if reshape else images.transpose(0, 3, 1, 2)
    return toy_loader(ToyRows((chw / chw.std()).astype(np.float32), np.arange(64) % 4))


def _filled(index: Any, value: Any) -> Any:
    dataset = ToyImages()
    dataset.pixels[index] = value
    return toy_loader(dataset)


def _stream(images: Any, labels: Any) -> Any:
    """Batches without indices."""
    return list(zip(np.split(images, 8), np.split(labels, 8), strict=True))


def _buffered(images: int, labels: int) -> Any:
    rows = np.arange(64)
    return _stream(ToyImages(16).pixels[rows % images], rows % labels)


def _declared(mean: float) -> LoaderSubject:
    """Bytes that are normalised with 0.45 and 0.22; a model of timm's form declares `mean`."""

    class Model:
        pretrained_cfg = {"mean": (mean,) * 3, "std": (0.22,) * 3}  # noqa: RUF012

    def change(pixels: Any) -> Any:
        return ((np.round(_unit(pixels) * 255) / 255 - 0.45) / 0.22).astype(np.float32)

    return LoaderSubject(lambda: toy_loader(changed_images(change)), make_model=Model)


def _labels(change: Callable[[Any], Any], classes: int | None = None) -> LoaderSubject:
    return LoaderSubject(lambda: toy_loader(changed_images(labels=change)), classes=classes)


def _targets(make: Callable[[int], Any]) -> Any:
    placed = ChangedImages(lambda pixels, label: (pixels, make(label)))
    if isinstance(make(1), np.ndarray):
        return toy_loader(placed)
    return LoaderSubject(lambda: toy_loader(placed, collate_fn=list), split=lambda rows: (
        np.stack([x for x, _ in rows]), [y for _, y in rows]))  # fmt: skip


def _mask(label: int) -> Any:
    return np.pad(np.full((3, 3), label), ((1, 4), (2, 3)))


def _boxes(count: int) -> Any:
    return {"boxes": np.ones((count, 4), np.float32), "labels": np.arange(count)}


def _discs(how: str, classes: tuple[int, int], inner: float) -> Any:
    """Masks of discs in discs, 48 pixels made 32."""
    from PIL import Image

    rng, (rows, cols), masks = np.random.default_rng(0), np.mgrid[:48, :48], list[Any]()
    for _ in range(256):
        mask = np.zeros((48, 48), np.uint8)
        for at in range(2):
            top, left, radius = rng.uniform((8, 8, 5), (40, 40, 9))
            far = np.hypot(rows - top, cols - left)
            mask[far < radius] = classes[at] if inner == 1 else classes[0]
            mask[far < inner * radius] = classes[at if inner == 1 else 1]
        masks.append(np.asarray(Image.fromarray(mask).resize((32, 32), Image.Resampling[how])))
    return _stream(np.zeros((256, 3, 8, 8), np.float32), np.array(masks))


def _flipping(form: str, follow: bool = True, beyond: float = 0.0) -> Any:
    """Flipped images, whose mask or box follows, or stays; `corners` are mirrored in place."""

    def change(pixels: Any, label: int) -> Any:
        ends, mask = label % 3 + np.array([0, 2]), np.zeros((8, 8), np.int64)
        turned = np.random.random() < 0.5
        if turned:
            pixels = pixels[..., ::-1].copy()
            ends = 8 - ends[::-1] if follow else 8 - ends if form == "corners" else ends
        if form in ("mask", "upside down"):
            mask[1:5, ends[0] : ends[1]] = 1
            return pixels, mask[::-1].copy() if turned and form == "upside down" else mask
        corners = np.array([ends[0], 1, ends[1], 5], np.float32)
        if form == "tags":
            return pixels, np.array([label == 0, label > 1, label % 2, 1], np.float32)
        if form == "boxes":
            return pixels, {"boxes": corners[None], "labels": np.array([label])}
        if form == "corners":
            return pixels, corners / 8
        box = np.array([ends[0], 1, 2, 4], np.float32) + np.float32(beyond)
        return {"image": pixels, "bbox": box, "label": label}

    return toy_loader(ChangedImages(change))


def _windows(kind: str) -> LoaderSubject:
    """Windows of recordings, split at random or by recording."""
    rng, starts = np.random.default_rng(0), range(0, 257, 16)
    signal = rng.normal(size=(12, 320, 3)).astype(np.float32).cumsum(axis=1)
    rows = np.stack([s[i : i + 64].T for s in signal for i in starts])
    order = rng.permutation(len(rows)) if kind == "at random" else np.arange(len(rows))
    return _two(*(ToyRows(rows[i], np.arange(len(i))) for i in np.split(order, [153])))


def _moved(pixels: Any) -> Any:
    shifted = np.roll(pixels, np.random.randint(-1, 2, 2), axis=(1, 2))
    return _flipped(shifted) * np.float32(np.random.uniform(0.8, 1.2))


def _flipped(pixels: Any) -> Any:
    return pixels[..., ::-1].copy() if np.random.random() < 0.5 else pixels


def _drawn() -> LoaderSubject:
    """Each access draws an image of the label."""
    images = ToyImages()
    members = [images.pixels[images.labels == label] for label in range(4)]
    drawn = ChangedImages(lambda _, y: (members[y][np.random.choice(len(members[y]))], y))
    return _two(images, drawn)


def _transformed(change: Callable[[Any], Any]) -> LoaderSubject:
    evaluation = ChangedImages(lambda pixels, label: (change(pixels), label))
    vars(evaluation)["transform"] = change
    return _two(ToyImages(), evaluation)


def _shared_places(shared: int, anew: bool = False) -> LoaderSubject:
    from torch.utils.data import Subset

    whole: Any = ToyImages()
    other: Any = ToyImages(augment=True) if anew else whole
    return _two(Subset(other, range(200)), Subset(whole, range(200 - shared, 256)))


def _copied(shared: int) -> LoaderSubject:
    one, two = ToyImages(), ToyImages(64, seed=1)
    two.pixels[:shared] = one.pixels[:shared]
    return _two(one, two)


def _cached(behind: bool) -> Any:
    cache, step = dict[int, Any](), _flipped

    class Cached(ToyImages):
        transform = None

        def __getitem__(self, index: int) -> Any:
            if index not in cache:
                pixels = super().__getitem__(index)[0]
                cache[index] = step(pixels) if behind else pixels
            return cache[index] if behind else step(cache[index]), int(self.labels[index])

    dataset = Cached()
    vars(dataset)["transform"] = step
    return toy_loader(dataset)


def _halved(pixels: Any, label: int) -> Any:
    pixels /= 2
    return pixels, label


def last_held_out(ordered: bool, kept: int = 8) -> LoaderSubject:
    """The last part held out; of the evaluation every `kept`-th sample of the first class."""
    from torch.utils.data import Subset

    whole: Any = ToyImages(800, ordered=ordered)
    held = [i for i in range(640, 800) if whole.labels[i] or not i % kept]
    return _two(Subset(whole, range(640)), Subset(whole, held))


def _ordered(change: Callable[[Any], Any], both: bool = True) -> LoaderSubject:
    sets = [ToyImages(240, seed=seed) for seed in range(2)]
    for dataset in sets[: 2 if both else 1]:
        dataset.labels = change(dataset.labels)
    return _two(*sets)


def _shuffled_numbers() -> LoaderSubject:
    rows = np.random.default_rng(0).normal(size=(600, 12))
    labels = (rows[:, 0] + rows[:, 3] > 0).astype(np.float32)
    return _two(ToyRows(rows[:300], SHUFFLE(labels[:300])), ToyRows(rows[300:], labels[300:]))


def _renumbered_texts(more: int) -> LoaderSubject:
    """Texts with two tokens of each class; with `more` tokens in the evaluation."""
    rng, sets = np.random.default_rng(0), list[Any]()
    for number in range(2):
        labels = rng.integers(0, 3, 300)
        rows = [np.r_[rng.integers(9, 60, 9 + k), 2 * k, 2 * k + 1] for k in labels]
        rows = [np.append(row, [61] * more * number).astype(int) for row in rows]
        sets.append(list(zip(rows, (labels + number) % 3, strict=True)))
    return _two(*sets)


def _mixup(one_order: bool, share: float = 0.3) -> LoaderSubject:
    loader, rng = toy_loader(ToyImages(128)), np.random.default_rng(0)
    steps = []
    for x, y in itertools.islice(loader, 4):
        first, second = rng.permutation(len(x)), rng.permutation(len(x))
        mixed = (1 - share) * x + share * x[first]
        steps.append(((x, y), mixed, (y, y[first if one_order else second])))
    return LoaderSubject(lambda: loader, entered=lambda: (steps, []))


def _changed_pair(change: Any) -> LoaderSubject:
    evaluation = changed_images(lambda p: change(p).astype(np.float32), seed=1)
    return LoaderSubject(toy_pictures, lambda: toy_loader(evaluation, shuffle=False))


def _padded(pixels: Any) -> Any:
    inner = pixels[..., 2:-2, 2:-2] + 6
    return np.pad(inner, [*[(0, 0)] * (pixels.ndim - 2), (2, 2), (2, 2)]) - 6


def _files_of_two(order: tuple[int, ...], shift: float = 0.0) -> LoaderSubject:
    folder = colour_folder()

    def plain(image: Any) -> Any:
        return np.array(image, np.float32).transpose(2, 0, 1) / 255

    def other(image: Any) -> Any:
        return plain(image)[list(order)] + np.float32(shift)

    return _two(*(ColourFiles(folder, change) for change in (plain, other)))


def _numbered_pair(ours: Any, theirs: Any, **more: Any) -> LoaderSubject:
    made = [ToyImages(), ToyImages(seed=1)]
    for dataset, names in zip(made, (ours, theirs), strict=True):
        vars(dataset)["classes"] = names
    vars(made[1]).update(more)
    return _two(*made)


def _table(change: Callable[[Any, Any, Any], Any]) -> LoaderSubject:
    """Rows of eight numbers and a class; `change(rows, labels, first)` prepares all of them."""
    rng = np.random.default_rng(2)
    rows, labels = rng.normal(3, 2, (400, 8)), rng.integers(0, 2, 400)
    rows = change(rows, labels, rows[:300]).astype(np.float32)
    return _two(*(ToyRows(rows[part], labels[part]) for part in (slice(300), slice(300, None))))


def _standardised(x: Any, by: Any) -> Any:
    return (x - by.mean(axis=0)) / by.std(axis=0)


def _wave(ahead: int) -> LoaderSubject:
    """Windows of a slow wave, and the value `ahead` steps after their end."""
    series, ends = np.sin(np.arange(700) / 60).astype(np.float32), np.arange(20, 620)
    rows = np.stack([series[end - 20 : end, None] for end in ends])
    return LoaderSubject(lambda: toy_loader(ToyRows(rows, series[ends - 1 + ahead])))


CHANNELS_LAST = lambda pixels: pixels.transpose(0, 2, 3, 1)  # noqa: E731
AS_TEXT = np.array(sorted(range(240), key=str))
TURNED = ["a", "b"], ["b", "a"]
NAMES = [[f"{n * f % 257}" for n in range(256)] for f in (1, 2)]
RANGE = lambda x, by: (x - by.min(axis=0)) / np.ptp(by, axis=0)  # noqa: E731
SHUFFLE = np.random.default_rng(0).permutation
EXAMPLES: Rows = [
    ("LOAD008", FAULT, "one NaN", lambda: _filled((10, 0, 0, 0), np.nan)),
    ("LOAD008", FAULT, "0..255", lambda: _scaled(255, 0)),
    ("LOAD008", FAULT, "divided twice", lambda: _scaled(1 / 255, 0)),
    ("LOAD008", FAULT, "normalised twice", lambda: _scaled(1 / 0.22**2, -11.3)),
    ("LOAD008", FAULT, "normalised in the step again", lambda: _stepped(0.5, 0.5)),
    ("LOAD008", FAULT, "one channel, twice", lambda: _grey(lambda p: np.rint(255 * p) / 12 - 3)),
    ("LOAD008", TWIN, "decibels", lambda: _grey(lambda p: 10 * np.log10(p**3 + 1e-3))),
    ("LOAD008", TWIN, "0..1", lambda: _scaled(1, 0)),
    ("LOAD008", TWIN, "centred, then moved to 0..1", lambda: _stepped(-1.0, 2.0)),
    ("LOAD008", FAULT, "channels last", lambda: toy_loader(changed_images(CHANNELS_LAST))),
    ("LOAD008", FAULT, "reshaped", lambda: _coloured(True)),
    ("LOAD008", TWIN, "transposed", lambda: _coloured(False)),
    ("LOAD008", FAULT, "every second is zeros", lambda: _filled(slice(None, None, 2), 0)),
    ("LOAD008", FAULT, "one image for all", lambda: _filled(slice(None), np.eye(8))),
    ("LOAD008", FAULT, "a stream with one buffer", lambda: _buffered(1, 4)),
    ("LOAD008", TWIN, "a stream that repeats a small set", lambda: _buffered(16, 16)),
    ("LOAD008", FAULT, "another mean", lambda: _declared(0.0)),
    ("LOAD008", FAULT, "half a level off", lambda: _declared(0.452)),
    ("LOAD008", TWIN, "as declared", lambda: _declared(0.45)),
    ("LOAD011", FAULT, "1 to K", lambda: _labels(lambda y: y + 1, 4)),
    ("LOAD011", FAULT, "negative", lambda: _labels(lambda y: y - 3)),
    ("LOAD011", FAULT, "one label", lambda: _labels(lambda y: 0 * y + 2)),
    ("LOAD011", FAULT, "masks of zeros", lambda: _targets(lambda y: np.zeros((8, 8), np.int64))),
    ("LOAD011", FAULT, "masks like pixels", lambda: _targets(lambda y: _mask(y) / np.float32(255))),
    ("LOAD011", FAULT, "no boxes", lambda: _targets(lambda y: _boxes(0))),
    ("LOAD011", TWIN, "masks", lambda: _targets(_mask)),
    ("LOAD011", TWIN, "boxes", lambda: _targets(_boxes)),
    ("LOAD013", FAULT, "one file, another mean", lambda: _files_of_two((0, 1, 2), 0.1)),
    ("LOAD013", FAULT, "one file, BGR", lambda: _files_of_two((2, 1, 0))),
    ("LOAD013", FAULT, "not normalised", lambda: _changed_pair(lambda p: p * 0.25 + 0.45)),
    ("LOAD013", FAULT, "another scale", lambda: _changed_pair(lambda p: p * 2)),
    ("LOAD013", TWIN, "a border of padding", lambda: _changed_pair(_padded)),
    ("LOAD013", FAULT, "noise", lambda: _two(ToyImages(), ToyImages(augment=True, seed=1))),
    ("LOAD013", FAULT, "moved, flipped, brighter", lambda: _transformed(_moved)),
    ("LOAD013", TWIN, "drawn anew for each label", _drawn),
    *(
        ("LOAD015", kind, f"{form} {kind}", partial(_flipping, form, kind == TWIN))
        for form in ("mask", "boxes", "xywh", "corners")
        for kind in (FAULT, TWIN)
    ),
    ("LOAD015", TWIN, "four labels, each given or not", lambda: _flipping("tags", False)),
    ("LOAD015", FAULT, "a mask turned upside down", lambda: _flipping("upside down", False)),
    ("LOAD015", TWIN, "where a crop was in a scan", lambda: _flipping("xywh", False, 40.0)),
    ("LOAD015", FAULT, "bilinear", lambda: _discs("BILINEAR", (1, 2), 1)),
    ("LOAD015", TWIN, "a border of its own", lambda: _discs("NEAREST", (1, 2), 0.85)),
    ("LOAD015", TWIN, "a cell around its nucleus", lambda: _discs("NEAREST", (1, 2), 0.45)),
    ("LOAD018", FAULT, "stored by class", lambda: last_held_out(True)),
    ("LOAD018", TWIN, "shuffled before", lambda: last_held_out(False)),
    ("LOAD018", FAULT, "a folder is missing", lambda: _numbered_pair(["a", "b", "c"], ["a", "c"])),
    ("LOAD018", TWIN, "numbered anew", lambda: _numbered_pair(*TURNED, target_transform=abs)),
    ("LOAD018", TWIN, "a name for each sample", lambda: _numbered_pair(*NAMES)),
    ("LOAD020", FAULT, "places of one dataset", lambda: _shared_places(20)),
    ("LOAD020", FAULT, "two datasets of equal arrays", lambda: _shared_places(20, True)),
    ("LOAD020", TWIN, "disjoint", lambda: _shared_places(0, True)),
    ("LOAD020", FAULT, "copies", lambda: _copied(16)),
    ("LOAD020", TWIN, "a copy or two", lambda: _copied(2)),
    ("LOAD020", FAULT, "windows at random", lambda: _windows("at random")),
    ("LOAD020", TWIN, "windows by recording", lambda: _windows("by recording")),
    ("LOAD020", FAULT, "the target as a column", lambda: _table(lambda x, y, _: np.c_[x, y])),
    ("LOAD020", FAULT, "windows that end with it", lambda: _wave(0)),
    ("LOAD020", TWIN, "windows before it", lambda: _wave(1)),
    ("LOAD020", FAULT, "all rows", lambda: _table(lambda x, *_: _standardised(x, x))),
    ("LOAD020", FAULT, "ranges of all rows", lambda: _table(lambda x, *_: RANGE(x, x))),
    (
        "LOAD020",
        FAULT,
        "each set alone",
        lambda: _table(
            lambda x, *_: np.concatenate([_standardised(part, part) for part in (x[:300], x[300:])])
        ),
    ),
    ("LOAD020", TWIN, "training rows", lambda: _table(lambda x, _, by: _standardised(x, by))),
    ("LOAD021", FAULT, "behind the transform", lambda: _cached(True)),
    ("LOAD021", TWIN, "before it", lambda: _cached(False)),
    ("LOAD021", FAULT, "divided in place", lambda: toy_loader(ChangedImages(_halved))),
    ("LOAD021", TWIN, "a copy", lambda: toy_loader(ChangedImages(lambda p, y: (p / 2, y)))),
    ("LOAD022", FAULT, "mixed by two orders", lambda: _mixup(False)),
    ("LOAD022", TWIN, "mixed by one order", lambda: _mixup(True)),
    ("LOAD022", TWIN, "hardly mixed", lambda: _mixup(True, 1e-4)),
    ("LOAD022", FAULT, "one place off", lambda: _ordered(lambda y: np.roll(y, 1))),
    ("LOAD022", FAULT, "turned round", lambda: _ordered(lambda y: y[::-1])),
    ("LOAD022", FAULT, "sorted as text", lambda: _ordered(lambda y: y[AS_TEXT])),
    ("LOAD022", FAULT, "shuffled in training", lambda: _ordered(SHUFFLE, False)),
    ("LOAD022", TWIN, "not to be learned", lambda: _ordered(SHUFFLE)),
    ("LOAD022", FAULT, "numbers shuffled in training", _shuffled_numbers),
    ("LOAD022", FAULT, "numbered anew", lambda: _renumbered_texts(0)),
    ("LOAD022", TWIN, "other inputs", lambda: _renumbered_texts(2)),
]
