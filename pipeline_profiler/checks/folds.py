"""Samples that a model was trained on with an earlier loader, such as those of another fold."""

from __future__ import annotations

import contextlib
from itertools import takewhile
from typing import Any

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.user_code import Patience

COMPARED, MAX_ROWS, SECONDS, SHARE = 40, 5000, 2.0, 0.5
WHOLE = ("SequentialSampler", "RandomSampler")


class Folds:
    """Follows which loaders trained a model since its weights were last set."""

    def __init__(self) -> None:
        self.model: Any = None
        self.version: int | None = None  # of the weights after the last step
        self.loaders: list[Any] = []  # of the model, in the order of their first step

    def before_step(self, model: Any, version: int | None) -> None:
        """Forget the loaders of another model, or of weights that were set anew."""
        if model is not self.model or version != self.version:
            self.model, self.loaders = model, []

    def after_step(self, model: Any, loader: Any, version: int | None) -> None:
        """Note a step on a batch of a loader."""
        self.model, self.version = model, version
        if not any(loader is known for known in self.loaders):
            self.loaders.append(loader)

    def was_trained(self, loader: Any) -> bool:
        """Return whether an earlier loader trained on the samples of this one, and the last not."""
        rows = _rows(loader)
        if len(self.loaders) < 2 or not rows:
            return False
        wanted = _digests(loader, rows[:: max(1, len(rows) // COMPARED)])
        *earlier, last = [_digests(known, _rows(known)) for known in self.loaders]
        shared = wanted & set().union(*earlier)
        return bool(wanted) and not wanted & last and len(shared) >= SHARE * len(wanted)


def _rows(loader: Any) -> Any:
    """The indices of a loader's samples; () where they are not known."""
    sampler = getattr(loader, "sampler", None)
    if type(sampler).__name__ in WHOLE and hasattr(loader.dataset, "__len__"):
        return range(len(loader.dataset))
    return getattr(sampler, "indices", ())


def _digests(loader: Any, rows: Any) -> set[str]:
    found, patience = set[str](), Patience(SECONDS, 3 * SECONDS)
    with contextlib.suppress(Exception):  # of the user's dataset
        for index in takewhile(lambda _: not patience.over, rows[:MAX_ROWS]):
            found.add(digest_of(loader.dataset[int(index)]))
    return found
