"""One file through the transforms of two loaders: what each makes of the same picture.

Datasets as torchvision has them: a list of files (`samples`, `imgs`, `paths`, `files`) and a
`transform` that takes a picture of Pillow. Anything else gives nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checking.batch_parts import Array, as_array
from pipeline_profiler.checking.user_calls import users_code

LISTS = ("samples", "imgs", "paths", "files", "image_paths")
DEEPEST = 8


def same_files(ours: Any, theirs: Any, most: int) -> list[tuple[Array, Array]]:
    """(ours, theirs): the pictures that both datasets' transforms make of the same files."""
    first, second = _transform_of(ours), _transform_of(theirs)
    files = _files_of(ours)
    if first is None or second is None or not files:
        return []
    from PIL import Image

    pairs = []
    for file in files[:: max(1, len(files) // most)][:most]:
        with users_code(f"The transform of {file.name}"), Image.open(file) as picture:
            whole = picture.convert("RGB")
            made = as_array(first(whole)), as_array(second(whole))
        if made[0] is None or made[1] is None or made[0].ndim != 3 or made[1].ndim != 3:
            return []
        pairs.append((np.asarray(made[0]), np.asarray(made[1])))
    return pairs


def dataset_layers(dataset: Any) -> Iterator[Any]:
    """The dataset and those inside it (`Subset` and the like), up to eight."""
    for _ in range(DEEPEST):
        yield dataset
        dataset = getattr(dataset, "dataset", None)
        if dataset is None:
            return


def _transform_of(dataset: Any) -> Callable[[Any], Any] | None:
    found = (getattr(layer, "transform", None) for layer in dataset_layers(dataset))
    return next((function for function in found if callable(function)), None)


def _files_of(dataset: Any) -> list[Path]:
    for layer in dataset_layers(dataset):
        for name in LISTS:
            rows = getattr(layer, name, None)
            if isinstance(rows, list | tuple) and rows:
                heads = [row[0] if isinstance(row, list | tuple) else row for row in rows]
                root = Path(str(getattr(layer, "root", "") or ""))
                paths = [root / str(h) if not Path(str(h)).is_file() else Path(h) for h in heads]
                return paths if paths[0].is_file() else []
    return []
