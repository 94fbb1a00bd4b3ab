"""Capture the first `fit` of a Keras model where an unmodified script calls it."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import inputs_and_targets, map_nested
from pipeline_profiler.checks.caught_torch import NO_SEED
from pipeline_profiler.checks.keras_subject import ARRAY_BATCH, MOST_BATCHES, KerasSubject
from pipeline_profiler.checks.user_code import user_place, users_code
from pipeline_profiler.checks.user_training import Training

SCALES = ("Rescaling", "Normalization")  # layers of Keras


class ArrayRows:
    """Arrays of fit as a dataset: row i of each."""

    augments = False

    def __init__(self, parts: Any) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return _length(self.parts)

    def __getitem__(self, index: int) -> Any:
        return _rows(self.parts, index)


class FitBatches:
    """Batches of arrays or of a PyDataset, each time they are iterated; shuffled as fit does."""

    def __init__(self, parts: Any, size: int, shuffled: bool) -> None:
        self.parts, self.size, self.shuffled = parts, size, shuffled

    def __len__(self) -> int:
        return len(self.parts) if self.size == 0 else -(-_length(self.parts) // self.size)

    @property
    def indexed_rows(self) -> ArrayRows | None:
        """The samples by index; None of a PyDataset."""
        return ArrayRows(self.parts) if self.size else None

    def __iter__(self) -> Iterator[Any]:
        if self.size == 0:
            yield from map(self.parts.__getitem__, range(len(self.parts)))
            return
        order = np.arange(_length(self.parts))
        if self.shuffled:
            np.random.shuffle(order)  # seeded with everything else
        for start in range(0, len(order), self.size):
            rows = order[start : start + self.size]
            yield _rows(self.parts, rows)


def _rows(value: Any, rows: Any) -> Any:
    if hasattr(value, "shape"):
        return np.asarray(value)[rows]
    return map_nested(value, lambda part: _rows(part, rows))


def _length(value: Any) -> int:
    while not hasattr(value, "shape"):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return int(value.shape[0])


@dataclass
class CaughtFit:
    """What fit was given; `again`: the next training is made anew, not the script's own."""

    model: Any
    loader_of_fit: Any
    validation: Any
    place: str
    again: bool = False
    unseeded: str = ""  # a sentence where the script sets no seed

    def loader(self) -> Any:
        """The training data as fit iterates them."""
        return self.loader_of_fit

    @property
    def eval_loader(self) -> Callable[[], Any] | None:
        """What makes the validation data; None without."""
        return None if self.validation is None else lambda: self.validation

    def training(self) -> Training:
        """The script's own model, or one made anew."""
        model = _cloned(self.model) if self.again else self.model
        return Training(model, self.loader_of_fit, eval_loader=self.validation)

    def entered(self) -> tuple[list[Any], list[Any]]:
        """Return (batch, inputs behind scaling layers, targets); empty without such layers."""
        import keras

        scaling = [x for x in self.model._flatten_layers() if type(x).__name__ in SCALES]
        try:
            head = keras.Model(self.model.inputs, scaling[-1].output)
        except (IndexError, ValueError, AttributeError):
            return [], []
        found: tuple[list[Any], list[Any]] = [], []
        for rows, loader in zip(found, (self.loader_of_fit, self.validation), strict=True):
            for raw in itertools.islice(loader if loader is not None else (), MOST_BATCHES):
                inputs, targets = inputs_and_targets(raw)
                rows.append((raw, head(inputs, training=False), targets))
        return found


class CaughtKeras(KerasSubject):
    """The caught model is the first one; trainings of another seed are clones."""

    def _made(self, seed: int, eager: bool) -> Training:
        caught: Any = self.make.__self__  # type: ignore[attr-defined]
        caught.again = eager
        return super()._made(seed, eager)


def _cloned(model: Any) -> Any:
    """A model of the same form, compiled alike: trained weights drawn anew, frozen ones copied."""
    import keras

    with users_code("Making your model again (give make_model for it)"):
        made = keras.models.clone_model(model)
        for new, old in zip(made.weights, model.weights, strict=True):
            if not old.trainable:
                new.assign(old)
        optimizer = type(model.optimizer).from_config(model.optimizer.get_config())
        made.compile(optimizer=optimizer, loss=model.loss)
    return made


def catch_fit(module: Any, on_end: Callable[[CaughtFit], None]) -> None:
    """Catch the first fit of any model; `on_end` does not come back."""
    for owner in module.Model.__mro__:
        plain = owner.__dict__.get("fit")
        if plain is not None and not getattr(plain, "__isabstractmethod__", False):
            owner.fit = _catching(owner, plain, on_end)
            return


def _catching(owner: Any, plain: Any, on_end: Callable[[CaughtFit], None]) -> Any:
    @functools.wraps(plain)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        owner.fit = plain  # the checks may fit
        on_end(_caught(self, inspect.signature(plain).bind(self, *args, **kwargs).arguments))
        return plain(self, *args, **kwargs)

    return fit


def _caught(model: Any, given: dict[str, Any]) -> CaughtFit:
    size = int(given.get("batch_size") or ARRAY_BATCH)
    x, y, held = given.get("x"), given.get("y"), given.get("validation_data")
    share = float(given.get("validation_split") or 0)
    weights = given.get("sample_weight")
    if given.get("class_weight") and y is not None:
        weights = _weights_of(given["class_weight"], np.asarray(y), weights)
    parts = x if y is None else (x, y) if weights is None else (x, y, weights)
    if share and held is None and y is not None:
        cut = int(_length(x) * (1 - share))
        held, parts = _rows((x, y), slice(cut, None)), _rows(parts, slice(0, cut))
    loader = _as_loader(parts, size, bool(given.get("shuffle", True)))
    validation = None if held is None else _as_loader(held, size, shuffled=False)
    return CaughtFit(model, loader, validation, user_place(), unseeded=_unseeded())


def _unseeded() -> str:
    """A sentence where neither Keras nor TensorFlow has a seed of the script."""
    from keras.src.utils.rng_utils import get_random_seed

    context = sys.modules.get("tensorflow.python.eager.context")
    seeds = [get_random_seed(), context.global_seed() if context is not None else None]
    if any(seed is not None for seed in seeds):
        return ""
    return NO_SEED.format("keras.utils.set_random_seed")


def _weights_of(by_class: dict[int, float], labels: Any, others: Any) -> Any:
    """The weight of each example, as fit takes it from the weights of classes."""
    labels = labels.reshape(len(labels), -1)
    labels = labels.argmax(1) if labels.shape[1] > 1 else labels[:, 0].astype(int)
    found = np.vectorize(lambda label: by_class.get(label, 1.0), otypes=["f4"])(labels)
    return found if others is None else found * np.asarray(others)


def _as_loader(value: Any, size: int, shuffled: bool) -> Any:
    """Any form of data of fit as something that can be iterated again."""
    if isinstance(value, tuple | list | dict) or hasattr(value, "shape"):
        return FitBatches(value, size, shuffled)
    if hasattr(value, "__getitem__") and hasattr(value, "__len__"):  # a PyDataset
        return FitBatches(value, 0, shuffled)
    if inspect.isgenerator(value) or hasattr(value, "__next__"):
        return list(itertools.islice(value, MOST_BATCHES))
    return value
