"""Trainings of Keras and loaders of TensorFlow: known losses, defects, samples by index."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checks.caught_keras import CaughtFit, FitBatches, _caught
from pipeline_profiler.checks.indexed import MOST, reshuffled_split, rows_of
from pipeline_profiler.checks.keras_subject import KerasSubject, as_labels, choose_subject
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.loss_alone import KerasLossAlone, Task
from tests.conftest import import_late
from tests.pipeline_profiler.checks.conftest import judged

pytestmark = pytest.mark.slow


keras = import_late("keras")


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Keras is imported, as it is where a user's training is one of Keras."""
    assert keras.layers


K, SIDE = 4, 6


def shapes(first: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(96) % 8 == 0, 1, 0)
    pixels = rng.normal(0, 1, (96, SIDE)) + labels[:, None]
    return pixels.astype("float32"), (labels + first).astype("int32")


def made(logits: bool = False, last: str | None = "softmax", **options: Any) -> dict[str, Any]:
    bias = keras.initializers.Constant(options.get("bias", 0.0))
    hidden = keras.layers.Dense(16, "relu", bias_initializer=bias)
    model = keras.Sequential([keras.Input((SIDE,)), hidden, keras.layers.Dense(K, last)])
    if options.get("frozen"):
        model.layers[-1].trainable = False
    model.compile(
        optimizer=keras.optimizers.AdamW(
            options.get("rate", 0.01), weight_decay=options.get("decay", 0.05)
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=logits),
    )
    pixels, labels = shapes(options.get("first", 0))
    weighted = options.get("weights")
    rows = (pixels, labels) if weighted is None else (pixels, labels, np.take(weighted, labels))
    return {"model": model, "loader": rows}


def subject(**options: Any) -> KerasSubject:
    chosen = choose_subject({"make_training": lambda: made(**options)})
    assert isinstance(chosen, KerasSubject)
    return chosen


@pytest.fixture(scope="module")
def healthy() -> KerasSubject:
    return subject()


def test_zero_outputs_and_the_best_constant_have_their_known_losses(healthy: KerasSubject) -> None:
    assert healthy.loss_alone.uniform == pytest.approx(math.log(K), abs=1e-4)
    prior = -(7 / 8 * math.log(7 / 8) + 1 / 8 * math.log(1 / 8))
    assert healthy.loss_alone.constant == pytest.approx(prior, abs=0.02)
    assert healthy.task == ("classes", K, 1)


def test_a_fresh_training_starts_where_the_first_one_did(healthy: KerasSubject) -> None:
    before = healthy.state(healthy.fresh())
    healthy.step(healthy.fresh(), healthy.batches[0])
    moved = healthy.state(healthy.settings)
    again = healthy.state(healthy.fresh())
    assert any(not np.array_equal(before[name], moved[name]) for name in before)
    assert all(np.array_equal(before[name], again[name]) for name in before)


PASSED = ("TRAIN004", "TRAIN005", "TRAIN020")
ABSENT = ("TRAIN021", "TRAIN033", "TRAIN035", "TRAIN041")


@pytest.mark.parametrize("code", ABSENT)
def test_what_is_not_there_is_said_to_be_absent(healthy: KerasSubject, code: str) -> None:
    answer = judged(code, healthy).answer
    assert answer.evidence.get("absent"), answer.sentence


@pytest.mark.parametrize("code", PASSED)
def test_a_healthy_training_passes(healthy: KerasSubject, code: str) -> None:
    assert judged(code, healthy).answer.judgement == "passed"


def test_what_is_read_from_torch_only_cannot_be_told(healthy: KerasSubject) -> None:
    answer = judged("TRAIN046", healthy).answer
    assert answer.judgement == "inconclusive"
    assert answer.sentence.startswith("Trainings of Keras are not supported: ")


DEFECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax twice": ("TRAIN020", {"logits": True}),
    "from_logits forgotten": ("TRAIN020", {"last": None}),
    "frozen head": ("TRAIN005", {"frozen": True}),
    "rate 0": ("TRAIN015", {"rate": 0.0}),
    "labels beyond K": ("TRAIN020", {"first": 3}),
    "weights inverted": ("TRAIN041", {"weights": [7.0, 1.0]}),
}


@pytest.mark.parametrize(("code", "options"), DEFECTS.values(), ids=DEFECTS)
def test_a_defect_fails(code: str, options: dict[str, Any]) -> None:
    assert judged(code, subject(**options)).answer.judgement == "failed"


def test_a_model_that_is_not_compiled_is_a_sentence() -> None:
    def plain() -> dict[str, Any]:
        return {"model": keras.Sequential([keras.layers.Dense(K)]), "loader": shapes()}

    answer = judged("TRAIN001", choose_subject({"make_training": plain})).answer  # type: ignore[arg-type]
    assert "not compiled" in answer.sentence


def test_free_outputs_of_two_classes_are_probabilities() -> None:
    labels, outputs = np.array([[0], [1], [1]]), np.full((3, 1), 0.4, np.float32)

    def loss(given: Any) -> Any:
        return keras.losses.BinaryCrossentropy()(labels, given)

    alone = KerasLossAlone(loss, outputs, labels, Task("binary", 2))
    assert alone.form == "unit"
    assert alone.best_outputs[0] == pytest.approx(0, abs=0.02)


def test_targets_become_classes() -> None:
    outputs, column = np.zeros((3, 4)), np.array([[1.0], [3.0], [0.0]])
    name = "sparse_categorical_crossentropy"
    assert as_labels(column, outputs, name).tolist() == [1, 3, 0]
    hot = np.eye(4)[[2, 0, 1]]
    assert as_labels(hot, outputs, "categorical_crossentropy").tolist() == [2, 0, 1]
    assert as_labels(column, np.zeros((3, 1)), "mean_squared_error") is column


@pytest.mark.parametrize(
    ("scale", "wanted"), [(1 / 255, "passed"), (1 / 255**2, "failed")], ids=["once", "twice"]
)
def test_inputs_are_judged_behind_the_layer_that_scales(scale: float, wanted: str) -> None:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Rescaling(scale),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    pixels = np.random.default_rng(0).uniform(0, 255, (64, 8, 8, 3)).astype("float32")
    caught = CaughtFit(model, FitBatches((pixels, np.arange(64) % 2), 16, True), None, "")
    looked = LoaderSubject(
        caught.loader, made_anew=False, scaled_later="Rescaling", entered=caught.entered
    )
    answer = judged("LOAD008", looked).answer
    assert answer.judgement == wanted, answer.sentence
    assert answer.sentence.startswith("As it enters the model:")


def test_weights_of_classes_become_weights_of_examples() -> None:
    model = made()["model"]
    pixels, labels = shapes()
    given = {"x": pixels, "y": labels, "class_weight": {0: 1.0, 1: 7.0}, "validation_split": 0.25}
    caught = _caught(model, given)
    batch = next(iter(caught.loader()))
    assert batch[2].tolist() == np.where(batch[1] == 1, 7.0, 1.0).tolist()
    assert len(next(iter(caught.validation))) == 2
    assert len(caught.loader().indexed_rows) == 72


@pytest.mark.parametrize(
    ("last", "logits", "wanted"),
    [("softmax", False, "failed"), ("sigmoid", False, "passed"), ("sigmoid", True, "failed"),
     (None, True, "passed")],
    ids=["a softmax over one output", "a sigmoid", "a sigmoid twice", "logits between 0 and 1"],
)  # fmt: skip
def test_one_output(last: str | None, logits: bool, wanted: str) -> None:
    def training() -> dict[str, Any]:
        small = keras.initializers.RandomNormal(stddev=0.01)
        half = keras.initializers.Constant(0.5)
        last_layer = keras.layers.Dense(1, last, kernel_initializer=small, bias_initializer=half)
        model = keras.Sequential([keras.Input((SIDE,)), last_layer])
        model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=logits))
        pixels, labels = shapes()
        return {"model": model, "loader": (pixels, labels.astype("float32")[:, None])}

    answer = judged("TRAIN020", choose_subject({"make_training": training})).answer  # type: ignore[arg-type]
    assert answer.judgement == wanted, answer.sentence


# ---- samples by index where a loader has none: graphs of tf.data, arrays of fit ----


tf = import_late("tensorflow")

WIDE = 8


def pictures(count: int = 200, seed: int = 0) -> tuple[Any, Any]:
    """Pictures whose brightness tells their label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    shades = 0.3 + 0.4 * labels[:, None, None, None]
    return rng.normal(shades, 0.1, (count, WIDE, WIDE, 3)).astype("float32"), labels


def slices(count: int = 200, seed: int = 0) -> Any:
    return tf.data.Dataset.from_tensor_slices(pictures(count, seed))


@cache
def random() -> Any:
    """A generator that goes on where another pass has left it."""
    return tf.random.Generator.from_seed(0)


def flipped(pixels: Any, label: Any) -> Any:
    turned = random().uniform(()) < 0.5
    return tf.cond(turned, lambda: pixels[:, ::-1], lambda: pixels), label


def seeded(pixels: Any, label: Any) -> Any:
    return pixels * tf.random.uniform((), 0.5, 1.0, seed=1), label


GRAPHS = {  # (length, total, whole, augments, kept)
    "plain": (lambda: slices().batch(16), (200, 200, True, False, False)),
    "shuffled": (lambda: slices().shuffle(99).batch(8).prefetch(1), (200, 200, True, False, False)),
    "long": (lambda: slices(MOST + 9).batch(16), (MOST, MOST + 9, False, False, False)),
    "augmented": (lambda: slices().map(flipped, 2).batch(16), (200, 200, True, True, False)),
    "cached": (lambda: slices().map(flipped).cache().batch(16), (200, 200, True, True, True)),
    "cached before": (
        lambda: slices().cache().map(flipped).batch(9),
        (200, 200, True, True, False),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_read_in_one_order(name: str) -> None:
    make, told = GRAPHS[name]
    rows = rows_of(make())
    assert (len(rows), rows.total, rows.whole, rows.augments, rows.kept) == told
    pixels, labels = pictures(told[1])
    assert [int(rows[i][1]) for i in range(50)] == labels[:50].tolist()
    same = [np.array_equal(rows[i][0], pixels[i]) for i in range(50)]
    assert all(same) is not rows.augments
    again = [np.array_equal(rows[i][0], rows[i][0]) for i in range(50)]
    assert all(again) is (not rows.augments or rows.kept)


def test_what_has_no_order_of_its_own_has_no_rows() -> None:
    assert rows_of(slices().shuffle(200).take(100).batch(8)) is None
    assert rows_of([1, 2]) is None
    assert rows_of(None) is None


def split(reshuffled: bool) -> tuple[Any, Any]:
    drawn = slices().shuffle(200, reshuffle_each_iteration=reshuffled)
    return drawn.take(150).batch(16), drawn.skip(150).batch(16)


def named(names: list[str], seed: int = 0) -> Any:
    made = slices(seed=seed).batch(16)
    made.class_names = names
    return made.prefetch(1)


def arrays(shift: int = 0, seed: int = 0) -> FitBatches:
    pixels, labels = pictures(seed=seed)
    return FitBatches((pixels, np.roll(labels, shift)), 32, True)


def other() -> Any:
    return slices(seed=1).batch(16)


PAIRS: dict[str, tuple[str, Any, str]] = {
    "a split that is drawn anew": ("LOAD020", lambda: split(True), "failed"),
    "a split that stays": ("LOAD020", lambda: split(False), "inconclusive"),
    "the training data again": (
        "LOAD020",
        lambda: (slices().batch(9), slices().batch(8)),
        "failed",
    ),
    "other data": ("LOAD020", lambda: (slices().batch(16), other()), "passed"),
    "arrays of training again": ("LOAD020", lambda: (arrays(), arrays()), "failed"),
    "other arrays": ("LOAD020", lambda: (arrays(), arrays(seed=1)), "passed"),
    "names in another order": (
        "LOAD018",
        lambda: (named(["a", "b"]), named(["b", "a"], 1)),
        "failed",
    ),
    "the same names": ("LOAD018", lambda: (named(["a", "b"]), named(["a", "b"], 1)), "passed"),
    "evaluation augmented": (
        "LOAD013",
        lambda: (slices().batch(16), slices(seed=1).map(flipped).batch(16)),
        "failed",
    ),
    "evaluation as it is": (
        "LOAD013",
        lambda: (slices().map(flipped).batch(16), other()),
        "passed",
    ),
    "a cache behind the flips": (
        "LOAD021",
        lambda: (slices().map(flipped).cache().batch(16), other()),
        "failed",
    ),
    "a cache before": (
        "LOAD021",
        lambda: (slices().cache().map(flipped).batch(9), other()),
        "passed",
    ),
    "begun again by a seed": (
        "LOAD021",
        lambda: (slices().map(seeded).batch(16), other()),
        "inconclusive",
    ),
    "labels of others": ("LOAD022", lambda: (arrays(1), arrays(seed=1)), "failed"),
    "labels of their own": ("LOAD022", lambda: (arrays(), arrays(seed=1)), "passed"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_contents_are_compared(name: str) -> None:
    code, make, wanted = PAIRS[name]
    train, test = make()
    subject = LoaderSubject(lambda: train, lambda: test, made_anew=False)
    answer = judged(code, subject).answer
    assert answer.judgement == wanted, answer.sentence


def test_a_graph_is_split_once_or_anew() -> None:
    assert reshuffled_split(*split(True))
    assert not reshuffled_split(*split(False))
    assert not reshuffled_split(slices().batch(8), other())
