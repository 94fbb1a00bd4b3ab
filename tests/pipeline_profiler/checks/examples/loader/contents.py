"""Planted faults and healthy twins for `loader/contents.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline_profiler.checks.loader.contents import BLOCK, _as_text
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
)
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import ToyImages, toy_loader


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
    class Cached(ToyImages):
        def __getitem__(self, index: int) -> Any:
            pixels = self.pixels[index] if in_place else self.pixels[index].copy()
            pixels /= 2
            return pixels, int(self.labels[index])

    rows: Any = Cached()
    return toy_loader(rows)


def last_held_out(ordered: bool, kept: int = 8) -> LoaderSubject:
    """The last part held out; of the evaluation every `kept`-th sample of the first class."""
    from torch.utils.data import Subset

    whole: Any = ToyImages(800, ordered=ordered)
    held = [i for i in range(640, 800) if whole.labels[i] or not i % kept]
    one, two = Subset(whole, range(640)), Subset(whole, held)
    return LoaderSubject(lambda: toy_loader(one), lambda: toy_loader(two, shuffle=False))


def _ordered(change: Callable[[Any], Any], both: bool = True) -> LoaderSubject:
    sets = [ToyImages(240, seed=seed) for seed in range(2)]
    for dataset in sets[: 2 if both else 1]:
        dataset.labels = change(dataset.labels)
    return LoaderSubject(lambda: toy_loader(sets[0]), lambda: toy_loader(sets[1]))


def _mixup(one_order: bool) -> LoaderSubject:
    loader, rng = toy_loader(ToyImages(128)), np.random.default_rng(0)
    steps = []
    for x, y in itertools.islice(loader, 4):
        first, second = rng.permutation(len(x)), rng.permutation(len(x))
        mixed = 0.7 * x + 0.3 * x[first]
        steps.append(((x, y), mixed, (y, y[first if one_order else second])))
    return LoaderSubject(lambda: loader, entered=lambda: (steps, []))


def _sorted() -> LoaderSubject:
    """Stored by class, of which the first samples hold two that look alike."""
    sets = [ToyImages(2 * BLOCK, seed=0), ToyImages(240, seed=1)]
    first, rng = sets[0], np.random.default_rng(0)
    first.pixels[:BLOCK] = rng.normal(0, 1, first.pixels[:BLOCK].shape)
    first.labels[:BLOCK] = rng.integers(0, 2, BLOCK)
    return LoaderSubject(lambda: toy_loader(sets[0]), lambda: toy_loader(sets[1]))


EXAMPLES = {
    "LOAD019": Examples(
        planted=(
            ("noise", lambda: _pair(ToyImages(augment=True, seed=1))),
            ("moved, flipped, brighter", lambda: _cropped()),
        ),
        healthy=(
            ("as they are", lambda: _pair(ToyImages(seed=1))),
            ("drawn anew for each label", lambda: _drawn()),
        ),
    ),
    "LOAD020": Examples(
        planted=(
            ("places of one dataset", lambda: _shared_places(20)),
            ("two datasets of equal arrays", lambda: _shared_places(20, True, True)),
            ("copies", lambda: _copied(16)),
        ),
        healthy=(
            ("disjoint", lambda: _shared_places(0)),
            ("disjoint, of two datasets", lambda: _shared_places(0, True, True)),
            ("a copy or two", lambda: _copied(2)),
        ),
    ),
    "LOAD021": Examples(
        planted=(("behind the transform", lambda: _cached(_flipped, True)),),
        healthy=(
            ("before it", lambda: _cached(_flipped, False)),
            ("made data", lambda: _cached(None, True)),
        ),
    ),
    "LOAD027": Examples(
        planted=(("divided in place", lambda: _normalised(True)),),
        healthy=(("a copy", lambda: _normalised(False)),),
    ),
    "LOAD026": Examples(
        planted=(("stored by class", lambda: last_held_out(True)),),
        healthy=(("shuffled before", lambda: last_held_out(False)),),
    ),
    "LOAD022": Examples(
        planted=(
            ("mixed by two orders", lambda: _mixup(False)),
            ("one place off", lambda: _ordered(lambda y: np.roll(y, 1))),
            ("turned round", lambda: _ordered(lambda y: y[::-1])),
            ("sorted as text", lambda: _ordered(lambda y: y[_as_text(len(y))])),
            (
                "shuffled in training alone",
                lambda: _ordered(np.random.default_rng(0).permutation, False),
            ),
        ),
        healthy=(
            ("mixed by one order", lambda: _mixup(True)),
            ("their own", lambda: _ordered(lambda y: y)),
            (
                "not to be learned",
                lambda: _ordered(np.random.default_rng(0).permutation),
            ),
            ("two classes of noise before the others", lambda: _sorted()),
        ),
    ),
}
