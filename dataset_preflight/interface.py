"""The Python API: `dataset_preflight.check(data, script)` returns the page as a typed object."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dataset_preflight.foundation.terminal import show_progress
from dataset_preflight.page.documents import Preflight
from dataset_preflight.page.runner import run_page
from dataset_preflight.request import Request


def check_training(
    data: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    script: str | Sequence[str] = (),
    *,
    run: str | os.PathLike[str] = "",
    progress: bool = True,
    **options: Any,
) -> Preflight:
    """Return the answer to: may I start this training?

    `data`: a folder, or {"train": folder, "test": folder}. `script`: the command of the training,
    such as "python train.py --epochs 3". `run`: the folder of the results (default runs/NAME).
    `options`: loader, step, step_ms, predictions, min_difference, quick, again, yes, as in
    `dataset-preflight`. Raises UsageError and ProfileError for input that no part can use.
    """
    named = {"": data} if isinstance(data, str | os.PathLike) else data
    roots = [f"{name}={os.fspath(path)}".removeprefix("=") for name, path in named.items()]
    words = shlex.split(script) if isinstance(script, str) else script
    request = Request(tuple(roots), os.fspath(run), tuple(words), **options)
    page, interrupted = run_page(request, show_progress if progress else lambda text: None)
    if interrupted:
        raise KeyboardInterrupt
    return page
