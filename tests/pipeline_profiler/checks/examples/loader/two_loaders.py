"""Planted faults and healthy twins for `loader/two_loaders.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import (
    ColourFiles,
    ToyImages,
    changed_images,
    colour_folder,
    toy_loader,
    toy_pictures,
)


def _changed_pair(change: Any) -> LoaderSubject:
    def evaluation() -> Any:
        dataset = changed_images(lambda p: change(p).astype(np.float32), seed=1)
        return toy_loader(dataset, shuffle=False)

    return LoaderSubject(toy_pictures, evaluation)


def _files(order: tuple[int, ...], shift: float = 0.0) -> LoaderSubject:
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


EXAMPLES = {
    "LOAD013": Examples(
        planted=(
            ("one file, another mean", lambda: _files((0, 1, 2), 0.1)),
            ("one file, BGR", lambda: _files((2, 1, 0))),
            ("not normalised", lambda: _changed_pair(lambda p: p * 0.25 + 0.45)),
            ("another scale", lambda: _changed_pair(lambda p: p * 2)),
        ),
        healthy=(
            ("one file, flipped at random", lambda: _files((0, 1, 2))),
            ("flipped", lambda: _changed_pair(lambda p: p[..., ::-1])),
        ),
    ),
    "LOAD018": Examples(
        planted=(
            (
                "a folder is missing",
                lambda: _numbered_pair({"ant": 0, "bee": 1, "cat": 2}, {"ant": 0, "cat": 1}),
            ),
        ),
        healthy=(
            ("the last class has no example", lambda: _numbered_pair(["ant", "bee"], {"ant": 0})),
            ("other names", lambda: _numbered_pair(["n01", "n02"], ["cat", "dog"])),
            (
                "numbered anew by a transform",
                lambda: _numbered_pair(["a", "b"], ["b", "a"], target_transform=lambda t: 1 - t),
            ),
            (
                "a name for each sample, not for each class",
                lambda: _numbered_pair(*([f"{n * f % 257}" for n in range(256)] for f in (1, 2))),
            ),
        ),
    ),
}
