"""Capture a training of Keras in an unmodified script: its first `fit`, or its own tape loop."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.batches import (
    as_array,
    batch_size,
    entering,
    inputs_and_targets,
    main_tensor,
)
from pipeline_profiler.checks.caught_torch import NO_SEED
from pipeline_profiler.checks.keras_subject import (
    ARRAY_BATCH,
    ENOUGH_EXAMPLES,
    MOST_BATCHES,
    as_arrays,
    as_loader,
    length_of,
    rows_at,
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
NO_LOADER = "the loader: the batches come from no tf.data.Dataset"
NO_LOSS = (
    "model and loss: the target of tape.gradient() is no loss of keras.losses or tf.nn, called on "
    "the output of a model. Compute it by one of them"
)


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
        try:
            head = keras.Model(self.model.inputs, scaling[-1].output)
        except (IndexError, ValueError, AttributeError):
            head = None
        if self.batches is not None:
            sources: tuple[Any, Any] = self.batches, None
        else:
            sources = (self.loader, self.validation) if head else (None, None)
        found: tuple[list[Any], list[Any]] = [], []
        for rows, source in zip(found, sources, strict=True):
            for raw in itertools.islice(source if source is not None else (), MOST_BATCHES):
                inputs, targets = inputs_and_targets(raw)
                inputs = head(inputs, training=False) if head else inputs
                rows.append((None if self.batches else raw, inputs, targets))
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


class KerasCall(NamedTuple):
    """A call of a model by the user's code."""

    model: Any
    inputs: Any
    outputs: Any
    trains: bool
    place: str


class LossCall(NamedTuple):
    """A call of a loss of Keras or tf.nn by the user's code."""

    function: Any
    targets: Any
    outputs: Any
    weights: Any
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
        shape, kind = self.outputs.shape[1:], np.asarray(self.targets).dtype

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
        self.calls: deque[KerasCall] = deque(maxlen=RECENT)
        self.losses: deque[LossCall] = deque(maxlen=RECENT)
        self.starts: dict[int, list[tuple[Any, Any]]] = {}  # first values, by model
        self.applied: set[int] = set()
        self.optimizer: Any = None
        self.loss: Any = None
        self.activation: str | None = None
        self.opened: Any = None  # the last dataset that was iterated
        self.gradients = 0
        self.epoch_ended = False
        self.batches: list[Any] = []
        self.caught = CaughtKeras(None, None, batches=self.batches)

    def hook(self, model_class: Any, backend: str = "tensorflow") -> None:
        """Replace the functions that a training calls; without TensorFlow only `fit`."""
        table: list[tuple[Any, Iterable[str], Any]] = [(model_class, ["fit"], self._fit)]
        if backend == "tensorflow":
            import tensorflow as tf
            from keras.src import losses, optimizers

            named = inspect.getmembers(losses, inspect.isfunction)
            functions = [name for name, f in named if "y_pred" in inspect.signature(f).parameters]
            table += [
                (model_class, ["__call__"], self._call),
                (losses.Loss, ["__call__"], self._loss),
                (losses, functions, self._loss),
                (losses.losses, functions, self._loss),
                (tf.nn, TF_LOSSES, self._loss),
                (tf.GradientTape, ["gradient"], self._gradient),
                (optimizers.base_optimizer.BaseOptimizer, ["apply"], self._apply),
                (tf.data.Dataset, ["__iter__"], self._iterate),
            ]
            warnings.filterwarnings("ignore", message="Even though the `tf.config")
            tf.config.run_functions_eagerly(True)  # a step inside @tf.function has values then
        for owner, names, handler in table:
            for name in names:
                self.replaced.append((owner, name, vars(owner).get(name)))
                setattr(owner, name, self._recorded(getattr(owner, name), handler))

    def unhook(self) -> None:
        """Put the functions back."""
        for owner, name, plain in reversed(self.replaced):
            delattr(owner, name) if plain is None else setattr(owner, name, plain)
        if len(self.replaced) > 1:
            sys.modules["tensorflow"].config.run_functions_eagerly(False)
        self.replaced = []

    def end(self) -> None:
        """Give what was recorded of a tape loop to `on_end`, if there was one."""
        caught = self.caught
        if not self.gradients or not self.replaced:
            return
        self.unhook()
        if caught.loader is None:
            caught.missing.append(NO_LOADER)
        if caught.model is None:
            caught.missing.append(NO_LOSS)
        else:
            self._compile(caught.model)
        self.on_end(caught)

    def _compile(self, model: Any) -> None:
        """Put the model to its first state, compiled with what the loop used."""
        import keras

        for variable, value in self.starts[id(model)]:
            variable.assign(value)
        for variable in model.trainable_variables:
            variable.trainable = id(variable) in self.applied
        if self.loss is getattr(model, "_compile_loss", None):  # of train_on_batch
            return
        if self.activation != "linear":
            model = keras.Sequential([model, keras.layers.Activation(self.activation)])
        optimizer = "sgd" if self.optimizer is None else _as_made(self.optimizer)
        model.compile(optimizer=optimizer, loss=self.loss)
        self.caught.model = model

    def _recorded(self, plain: Any, handler: Any) -> Any:
        @functools.wraps(plain)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.within = True
            try:
                return plain(*args, **kwargs)
            finally:
                self.within = False

        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.within or not self.replaced:
                return plain(*args, **kwargs)
            return handler(run, *args, **kwargs)

        return call

    def _fit(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        self.unhook()  # the checks may fit
        self.on_end(caught_fit(**inspect.signature(plain).bind(*args, **kwargs).arguments))
        return plain(*args, **kwargs)

    def _call(self, plain: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if not args or not _has_values(args):
            return plain(model, *args, **kwargs)
        if not self.batches:
            if not model.built:
                plain(model, *args, **{**kwargs, "training": False})
            self.starts[id(model)] = [(v, v.numpy().copy()) for v in model.variables]
        outputs = plain(model, *args, **kwargs)
        default = getattr(inspect.signature(model.call).parameters.get("training"), "default", None)
        trains = kwargs.get("training", default) is True
        self.calls.append(
            KerasCall(model, entering(args, None), main_tensor(outputs), trains, user_place())
        )
        return outputs

    def _loss(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        value = plain(*args, **kwargs)
        given = inspect.signature(plain).bind(*args, **kwargs).arguments
        function = given.pop("self", plain)
        targets, outputs = (given.pop(name) for name in list(given)[:2])
        if _has_values((targets, outputs, value)):
            weights, place = given.pop("sample_weight", None), user_place()
            self.losses.append(LossCall(function, targets, outputs, weights, given, value, place))
        return value

    def _gradient(self, plain: Any, *given: Any, **kwargs: Any) -> Any:
        found, caught = plain(*given, **kwargs), self.caught
        _, target, sources = (*given, *kwargs.values())[:3]
        if self.opened is caught.validation is not None:  # it is data of the second epoch
            caught.validation, self.epoch_ended = None, True
        examples = sum(batch_size(batch[0]) for batch in self.batches)
        enough = examples >= ENOUGH_EXAMPLES and len(self.batches) >= LEAST_STEPS
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
            penalty, activation = float(sum(call.model.losses)), loss.activation(call.outputs)
            found = loss.as_function(total) or loss.as_function(total - penalty)
            if found is None or activation is None:
                continue
            if caught.model is None:
                caught.model, self.loss, self.activation = call.model, found, activation
                caught.facts.places |= {"model": call.place, "loss": loss.place}
                layers = " ".join(type(layer).__name__ for layer in call.model._flatten_layers())
                modes = any(kind in layers for kind in MODE_DEPENDENT)
                caught.facts.asleep = modes and not call.trains
            weights = () if loss.weights is None else (loss.weights,)
            self.batches.append(as_arrays((call.inputs, loss.targets, *weights)))
            return

    def _apply(self, plain: Any, optimizer: Any, grads: Any, variables: Any = None) -> Any:
        if self.batches:
            given = optimizer._trainable_variables if variables is None else variables
            ours = _identities(given) & _identities(self.caught.model.trainable_variables)
            if self.optimizer is None or (ours and not self.applied):
                self.optimizer = optimizer
            self.applied |= ours
        return plain(optimizer, grads, variables)

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
    known = ("numpy", "tobytes")  # of a tensor with values, and of an array
    return all(any(hasattr(leaf, name) for name in known) for leaf in _flat(value))


def _identities(variables: Any) -> set[int]:
    return set(map(id, _flat(variables)))


def _flat(value: Any) -> list[Any]:
    found: list[Any] = sys.modules["tensorflow"].nest.flatten(value)
    return found


def _equal(one: Any, other: Any) -> bool:
    first, second = (np.ravel(np.asarray(as_array(value))) for value in (one, other))
    return len(first) == len(second) and np.allclose(first, second, rtol=1e-4, atol=1e-6)


def caught_fit(self: Any, x: Any = None, y: Any = None, **given: Any) -> CaughtKeras:
    """Return the training of a model, `self`, that the arguments of fit describe."""
    size, held = int(given.get("batch_size") or ARRAY_BATCH), given.get("validation_data")
    share, weights = float(given.get("validation_split") or 0), given.get("sample_weight")
    if given.get("class_weight") and y is not None:
        weights = _weights_of(given["class_weight"], np.asarray(y), weights)
    parts = x if y is None else (x, y) if weights is None else (x, y, weights)
    if share and held is None and y is not None:
        cut = int(length_of(x) * (1 - share))
        held, parts = rows_at((x, y), slice(cut, None)), rows_at(parts, slice(0, cut))
    loader = as_loader(parts, size, bool(given.get("shuffle", True)))
    validation = None if held is None else as_loader(held, size)
    facts = LoopFacts(places=dict.fromkeys(PLACES, user_place()))
    return CaughtKeras(self, loader, validation, facts)


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
