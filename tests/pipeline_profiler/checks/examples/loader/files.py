"""Planted faults and healthy twins for `loader/files.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.loader.files import NUMBERS
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.pipeline_profiler.checks.examples import Examples
from tests.pipeline_profiler.checks.toys import ColourFiles, colour_folder, toy_loader


def _made(order: tuple[int, ...], *steps: str) -> LoaderSubject:
    """Files of random colours, with these channels, normalised by these numbers in turn."""

    def change(picture: Any) -> Any:
        pixels = (np.asarray(picture, np.float32) / 255)[:, ::-1, list(order)].transpose(2, 0, 1)
        for step in steps:
            mean, deviation = (np.array(n, np.float32)[:, None, None] for n in NUMBERS[step])
            pixels = (pixels - mean) / deviation
        return np.ascontiguousarray(pixels)

    folder = colour_folder()
    return LoaderSubject(lambda: toy_loader(ColourFiles(folder, change)))


EXAMPLES = {
    "LOAD024": Examples(
        planted=(
            ("BGR by ImageNet's numbers", lambda: _made((2, 1, 0), "ImageNet's")),
            ("twice by a half", lambda: _made((0, 1, 2), "0.5, 0.5", "0.5, 0.5")),
        ),
        healthy=(
            ("RGB", lambda: _made((0, 1, 2), "ImageNet's")),
            ("by a half", lambda: _made((0, 1, 2), "0.5, 0.5")),
            ("BGR from scratch", lambda: _made((2, 1, 0), "0.5, 0.5")),
            ("grey files", lambda: _made((0, 0, 0), "0.5, 0.5")),
        ),
    ),
}
