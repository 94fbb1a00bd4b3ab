"""Capture a training of Keras in an unmodified script: its first `fit`, or its own tape loop."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import (
    as_array,
    batch_size,
    entering,
    inputs_and_targets,
    main_tensor,
    map_nested,
)
from pipeline_profiler.checks.caught_torch import NO_SEED
from pipeline_profiler.checks.keras_subject import (
    ARRAY_BATCH,
    ENOUGH_EXAMPLES,
    MOST_BATCHES,
    as_arrays,
)
from pipeline_profiler.checks.loop_facts import MODE_DEPENDENT, LoopFacts
from pipeline_profiler.checks.user_code import Patience, user_place, users_code
from pipeline_profiler.checks.user_training import Training

SCALES = ("Rescaling", "Normalization")  # layers of Keras
RECENT = 8  # calls between two gradients
LEAST_STEPS = 4
PLACES = ("loader", "eval_loader", "model", "evaluation", "loss")
TF_LOSSES = {  # functions of tf.nn, and those of Keras that compute the same
    "sparse_softmax_cross_entropy_with_logits": "sparse_categorical_crossentropy",
    "softmax_cross_entropy_with_logits": "categorical_crossentropy",
    "sigmoid_cross_entropy_with_logits": "binary_crossentropy",
}
NO_LOSS = (
    "model and loss: the target of tape.gradient() is no loss of keras.losses or tf.nn, called on "
    "the output of a model. Compute it by one of them"
)


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
class CaughtKeras:
    """A compiled model at its first state, and its data.

    batches: as given to model and loss, of a tape loop. missing: what was not captured.
    """

    model: Any
    loader: Any
    validation: Any = None
    facts: LoopFacts = field(default_factory=LoopFacts)
    batches: list[Any] | None = None
    missing: list[str] = field(default_factory=list)
    made: int = 0

    @property
    def make_eval(self) -> Callable[[], Any] | None:
        """Return what makes the validation data; None without."""
        return None if self.validation is None else lambda: self.validation

    def training(self) -> Training:
        """Return the script's own model the first time, later a clone with new weights."""
        self.made += 1
        model = self.model if self.made == 1 else _cloned(self.model)
        data = self.loader if self.batches is None else self.batches
        return Training(model, data, eval_loader=self.validation, loop=self.facts)

    def entered(self) -> tuple[list[Any], list[Any]]:
        """Return (batch, inputs behind scaling layers, targets); empty where none scales."""
        import keras

        scaling = [x for x in self.model._flatten_layers() if type(x).__name__ in SCALES]
        head = None
        try:
            head = keras.Model(self.model.inputs, scaling[-1].output)
        except (IndexError, ValueError, AttributeError):
            if self.batches is None:
                return [], []
        found: tuple[list[Any], list[Any]] = [], []
        loaders = (self.loader, self.validation) if self.batches is None else (self.batches, None)
        for rows, loader in zip(found, loaders, strict=True):
            for raw in itertools.islice(loader if loader is not None else (), MOST_BATCHES):
                inputs, targets = inputs_and_targets(raw)
                inputs = inputs if head is None else head(inputs, training=False)
                rows.append((raw if self.batches is None else None, inputs, targets))
        return found


def _cloned(model: Any) -> Any:
    """A model of the same form, compiled alike: trained weights drawn anew, frozen ones copied."""
    import keras

    with users_code("Making your model again (give make_model for it)"):
        made = keras.models.clone_model(model)
        for new, old in zip(made.weights, model.weights, strict=True):
            if not old.trainable:
                new.assign(old)
                new.trainable = False
        made.compile(optimizer=_as_made(model.optimizer), loss=model.loss)
    return made


def _as_made(optimizer: Any) -> Any:
    return type(optimizer).from_config(optimizer.get_config())


@dataclass
class ModelCall:
    """A call of a model by the user's code."""

    model: Any
    inputs: Any
    outputs: Any
    trains: bool
    place: str


@dataclass
class LossCall:
    """A call of a loss of Keras or tf.nn by the user's code."""

    function: Any
    targets: Any
    outputs: Any
    options: dict[str, Any]
    value: Any
    place: str

    def activation(self, outputs: Any) -> str | None:
        """Return what the script applies to the outputs of a model first; None if unknown."""
        import keras

        names = ("linear", "softmax", "sigmoid")
        pairs = ((name, keras.activations.get(name)(outputs)) for name in names)
        return next((name for name, value in pairs if _equal(value, self.outputs)), None)

    def as_function(self, total: float) -> Any:
        """Return a loss of Keras that is `total` for these outputs; None without."""
        import tensorflow as tf

        sums = (tf.reduce_mean, tf.reduce_sum)
        sum_up = next((f for f in sums if math.isclose(f(self.value), total, rel_tol=1e-4)), None)
        if sum_up is None or (hasattr(self.function, "call") and not self.value.shape.rank):
            return sum_up and self.function
        shape, kind = self.outputs.shape[1:], as_array(self.targets).dtype

        def loss(y_true: Any, y_pred: Any) -> Any:
            given = tf.reshape(y_pred, (-1, *shape))
            return sum_up(self.function(tf.cast(y_true, kind), given, **self.options))

        name = getattr(self.function, "__name__", getattr(self.function, "name", "loss"))
        loss.__name__ = TF_LOSSES.get(name, name)
        return loss


class KerasRecorder:
    """Record the first `fit` of any model, or the steps of a loop around a GradientTape.

    `on_end` gets the CaughtKeras; `patience` limits the steps until the second epoch.
    """

    def __init__(self, patience: Patience, on_end: Callable[[CaughtKeras], None]) -> None:
        self.patience, self.on_end = patience, on_end
        self.replaced: list[tuple[Any, str, Any]] = []
        self.within = False  # a recorded call: the calls inside are parts of it
        self.calls: deque[ModelCall] = deque(maxlen=RECENT)
        self.losses: deque[LossCall] = deque(maxlen=RECENT)
        self.starts: dict[int, list[tuple[Any, Any]]] = {}  # first values, by model
        self.applied: set[int] = set()
        self.optimizer: Any = None
        self.loss: Any = None
        self.activation: str | None = None
        self.opened: Any = None  # the last dataset that was iterated
        self.gradients = self.examples = 0
        self.epoch_ended = False
        self.batches: list[Any] = []
        self.caught = CaughtKeras(None, None, batches=self.batches)

    def hook(self, model_class: Any, backend: str = "tensorflow") -> None:
        """Replace the functions that a training calls; without TensorFlow only `fit`."""
        table = [(model_class, "fit", self._fit)]
        if backend == "tensorflow":
            import tensorflow as tf

            table += [(model_class, "__call__", self._call), *self._tape_table(tf)]
            warnings.filterwarnings("ignore", message="Even though the `tf.config")
            tf.config.run_functions_eagerly(True)  # a step inside @tf.function has values then
        for owner, name, handler in table:
            self.replaced.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, self._recorded(getattr(owner, name), handler))

    def _tape_table(self, tf: Any) -> list[tuple[Any, str, Any]]:
        from keras.src import losses as exported
        from keras.src.losses import loss, losses
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        named = inspect.getmembers(losses, inspect.isfunction)
        functions = [name for name, f in named if "y_pred" in inspect.signature(f).parameters]
        owners = [(losses, functions), (tf.nn, TF_LOSSES)]
        owners.append((exported, [name for name in functions if hasattr(exported, name)]))
        return [
            (loss.Loss, "__call__", self._loss),
            *((owner, name, self._loss) for owner, names in owners for name in names),
            (tf.GradientTape, "gradient", self._gradient),
            (BaseOptimizer, "apply", self._apply),
            (tf.data.Dataset, "__iter__", self._iterate),
        ]

    def unhook(self) -> None:
        """Put the functions back."""
        for owner, name, plain in reversed(self.replaced):
            delattr(owner, name) if plain is None else setattr(owner, name, plain)
        if len(self.replaced) > 1:
            sys.modules["tensorflow"].config.run_functions_eagerly(False)
        self.replaced = []

    def end(self) -> None:
        """Give what was recorded of a tape loop to `on_end`, if there was one."""
        caught, model = self.caught, self.caught.model
        if not self.gradients or not self.replaced:
            return
        self.unhook()
        if caught.loader is None:
            caught.missing.append("the loader: the batches come from no tf.data.Dataset")
        if model is None:
            caught.missing.append(NO_LOSS)
        else:
            for variable, value in self.starts[id(model)]:
                variable.assign(value)
            for variable in model.trainable_variables:
                variable.trainable = id(variable) in self.applied
            if self.activation != "linear":
                keras = sys.modules["keras"]
                last = keras.layers.Activation(self.activation)
                caught.model = keras.Sequential([model, last])
            if self.loss is not getattr(model, "_compile_loss", None):
                optimizer = "sgd" if self.optimizer is None else _as_made(self.optimizer)
                caught.model.compile(optimizer=optimizer, loss=self.loss)
        self.on_end(caught)

    def _recorded(self, plain: Any, handler: Any) -> Any:
        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.within or not self.replaced:
                return plain(*args, **kwargs)
            return handler(plain, *args, **kwargs)

        return call

    def _run(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        self.within = True
        try:
            return plain(*args, **kwargs)
        finally:
            self.within = False

    def _fit(self, plain: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        self.unhook()  # the checks may fit
        self.on_end(
            caught_fit(model, inspect.signature(plain).bind(model, *args, **kwargs).arguments)
        )
        return plain(model, *args, **kwargs)

    def _call(self, plain: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if not args or not _has_values(args):
            return plain(model, *args, **kwargs)
        if id(model) not in self.starts:
            if not model.built:
                self._run(plain, model, *args, **{**kwargs, "training": False})
            self.starts[id(model)] = [(v, v.numpy().copy()) for v in model.variables]
        outputs = self._run(plain, model, *args, **kwargs)
        default = getattr(inspect.signature(model.call).parameters.get("training"), "default", None)
        trains = kwargs.get("training", default) is True
        self.calls.append(
            ModelCall(model, entering(args, None), main_tensor(outputs), trains, user_place())
        )
        return outputs

    def _loss(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        value = self._run(plain, *args, **kwargs)
        given = inspect.signature(plain).bind(*args, **kwargs).arguments
        function = given.pop("self", plain)
        targets, outputs = (given.pop(name) for name in list(given)[:2])
        if _has_values((targets, outputs, value)):
            self.losses.append(LossCall(function, targets, outputs, given, value, user_place()))
        return value

    def _gradient(self, plain: Any, *given: Any, **kwargs: Any) -> Any:
        found, caught = self._run(plain, *given, **kwargs), self.caught
        _, target, sources = (*given, *kwargs.values())[:3]
        if self.opened is caught.validation is not None:  # it is data of the second epoch
            caught.validation, self.epoch_ended = None, True
        enough = self.examples >= ENOUGH_EXAMPLES and len(self.batches) >= LEAST_STEPS
        if enough or self.gradients >= MOST_BATCHES:
            if self.epoch_ended or caught.loader is None or self.patience.over:
                self.end()
        elif hasattr(target, "numpy") and not target.shape.rank:
            self._record(float(target), _identities(sources))
        self.gradients += 1
        return found

    def _record(self, total: float, sources: set[int]) -> None:
        """Record a step whose loss is that of a recent call on the output of a trained model."""
        caught = self.caught
        for call, loss in itertools.product(reversed(self.calls), reversed(self.losses)):
            trained = sources & _identities(call.model.trainable_variables)
            if not trained or caught.model not in (None, call.model):
                continue
            found, self.activation = loss.as_function(total), loss.activation(call.outputs)
            if found is None or self.activation is None:
                continue
            if caught.model is None:
                caught.model, self.loss = call.model, found
                caught.facts.places |= {"model": call.place, "loss": loss.place}
                layers = " ".join(type(layer).__name__ for layer in call.model._flatten_layers())
                modes = any(kind in layers for kind in MODE_DEPENDENT)
                caught.facts.asleep = modes and not call.trains
            weights = loss.options.get("sample_weight")
            batch = (call.inputs, loss.targets, *(() if weights is None else (weights,)))
            self.batches.append(as_arrays(batch))
            self.examples += batch_size(self.batches[-1][0])
            return

    def _apply(self, plain: Any, optimizer: Any, grads: Any, variables: Any = None) -> Any:
        if self.batches:
            given = optimizer._trainable_variables if variables is None else variables
            ours = _identities(given) & _identities(self.caught.model.trainable_variables)
            if self.optimizer is None or (ours and not self.applied):
                self.optimizer = optimizer
            self.applied |= ours
        return self._run(plain, optimizer, grads, variables)

    def _iterate(self, plain: Any, dataset: Any) -> Any:
        caught, self.opened = self.caught, dataset
        if not self.gradients:
            caught.loader, caught.facts.places["loader"] = dataset, user_place()
        elif dataset is caught.loader:
            self.epoch_ended = True
        elif caught.validation is None:
            caught.validation, caught.facts.places["eval_loader"] = dataset, user_place()
        return plain(dataset)


def _has_values(value: Any) -> bool:
    """Return whether no tensor is symbolic."""
    leaves = [leaf for leaf in _flat(value) if hasattr(leaf, "shape")]
    return all(
        isinstance(leaf, np.ndarray | np.generic) or hasattr(leaf, "numpy") for leaf in leaves
    )


def _identities(variables: Any) -> set[int]:
    return {id(variable) for variable in _flat(variables)}


def _flat(value: Any) -> list[Any]:
    found: list[Any] = sys.modules["tensorflow"].nest.flatten(value)
    return found


def _equal(one: Any, other: Any) -> bool:
    first, second = (np.ravel(as_array(value)) for value in (one, other))
    return len(first) == len(second) and np.allclose(first, second, rtol=1e-4, atol=1e-6)


def caught_fit(model: Any, given: dict[str, Any]) -> CaughtKeras:
    """Return the training that the arguments of fit describe."""
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
    facts = LoopFacts(places=dict.fromkeys(PLACES, user_place()))
    return CaughtKeras(model, loader, validation, facts)


def unseeded_sentence() -> str:
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
