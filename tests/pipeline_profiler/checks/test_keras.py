"""Trainings of Keras and loaders of TensorFlow: known losses, defects, samples by index."""

import math
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checks.caught_keras import CaughtKeras, caught_fit
from pipeline_profiler.checks.indexed import MOST, reshuffled_split, rows_of
from pipeline_profiler.checks.keras_subject import (
    FitBatches,
    KerasSubject,
    as_labels,
    as_loader,
    choose_subject,
)
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.conftest import ROOT, import_late
from tests.pipeline_profiler.checks.conftest import judged

pytestmark = pytest.mark.slow
sys.path.append(str(ROOT / "benchmarks"))
keras, tf, planted = map(import_late, ("keras", "tensorflow", "planted_keras"))
WIDE = 8


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Keras is imported, as it is where a user's training is one of Keras."""
    assert keras.layers


def subject(name: str) -> KerasSubject:
    """A training of the benchmark."""
    makers = {row[0]: row[-1] for row in (*planted.DEFECTS, *planted.TWINS)}
    chosen = choose_subject({"make_training": lambda: makers[name](0)})
    assert isinstance(chosen, KerasSubject)
    return chosen


@pytest.fixture(scope="module")
def healthy() -> KerasSubject:
    return subject("keras: a CNN")


def test_zero_outputs_and_the_best_constant_have_their_known_losses(healthy: KerasSubject) -> None:
    assert healthy.loss_alone.uniform == pytest.approx(math.log(planted.K), abs=1e-4)
    shares = np.bincount(healthy.targets) / len(healthy.targets)
    assert healthy.loss_alone.constant == pytest.approx(-shares @ np.log(shares), abs=0.02)
    assert healthy.task == ("classes", planted.K, 1)


def test_a_fresh_training_starts_where_the_first_one_did(healthy: KerasSubject) -> None:
    before = healthy.state(healthy.fresh())
    healthy.step(healthy.fresh(), healthy.batches[0])
    moved, again = healthy.state(healthy.settings), healthy.state(healthy.fresh())
    assert any(not np.array_equal(before[name], moved[name]) for name in before)
    assert all(np.array_equal(before[name], again[name]) for name in before)


@pytest.mark.parametrize("code", ["004", "005", "020", "021", "033", "041"])
def test_a_healthy_training(healthy: KerasSubject, code: str) -> None:
    answer = judged(f"TRAIN{code}", healthy).answer
    assert (answer.judgement == "passed") is (code <= "020"), answer.sentence
    assert bool(answer.evidence.get("absent")) is ("020" < code < "045")


@pytest.mark.parametrize(
    ("name", "code", "wanted"),
    [
        ("keras: softmax twice", "TRAIN020", "failed"),
        ("keras: from_logits forgotten", "TRAIN020", "failed"),
        ("keras: sigmoid twice", "TRAIN020", "failed"),
        ("keras: a softmax over one output", "TRAIN020", "failed"),
        ("keras: binary", "TRAIN020", "passed"),
        ("keras: the head frozen", "TRAIN005", "failed"),
        ("keras: learning rate 1e-9", "TRAIN015", "failed"),
        ("keras: labels from 1", "TRAIN020", "failed"),
        ("keras: class weights inverted", "TRAIN041", "failed"),
        ("tape: a softmax before that of the loss", "TRAIN020", "failed"),
        ("tape: a loss of tf.nn", "TRAIN020", "passed"),
        ("tape: gradients for the first layer alone", "TRAIN005", "failed"),
        ("tape: a function of keras.losses, summed", "TRAIN005", "passed"),
        ("tape: training=True forgotten", "TRAIN009", "failed"),
        ("tape: a CNN", "TRAIN009", "passed"),
    ],
)
def test_a_planted_defect_fails(name: str, code: str, wanted: str) -> None:
    answer = judged(code, subject(name)).answer
    assert answer.judgement == wanted, answer.sentence


def test_a_model_that_is_not_compiled_is_a_sentence() -> None:
    plain = {"model": planted.cnn(), "loader": planted.shapes(0)}
    answer = judged("TRAIN001", choose_subject({"make_training": lambda: plain})).answer
    assert "not compiled" in answer.sentence


def test_targets_become_classes() -> None:
    outputs, column = np.zeros((3, 4)), np.array([[1.0], [3.0], [0.0]])
    name = "sparse_categorical_crossentropy"
    assert as_labels(column, outputs, name).tolist() == [1, 3, 0]
    hot = np.eye(4)[[2, 0, 1]]
    assert as_labels(hot, outputs, "categorical_crossentropy").tolist() == [2, 0, 1]
    assert as_labels(column, np.zeros((3, 1)), "mean_squared_error") is column


@pytest.mark.parametrize(("scale", "wanted"), [(1 / 255, "passed"), (1 / 255**2, "failed")])
def test_inputs_are_judged_behind_the_layer_that_scales(scale: float, wanted: str) -> None:
    layers = [keras.layers.Rescaling(scale), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
    pixels = np.random.default_rng(0).uniform(0, 255, (64, 8, 8, 3)).astype("float32")
    caught = CaughtKeras(model, FitBatches((pixels, np.arange(64) % 2), 16, True))
    looked = LoaderSubject(
        lambda: caught.loader, made_anew=False, scaled_later="Rescaling", entered=caught.entered
    )
    answer = judged("LOAD008", looked).answer
    assert answer.judgement == wanted, answer.sentence
    assert answer.sentence.startswith("As it enters the model:")


def test_weights_of_classes_become_weights_of_examples() -> None:
    options = {"class_weight": {0: 1.0, 1: 7.0}, "validation_split": 0.25}
    caught = caught_fit(planted.cnn(), *planted.shapes(0), **options)
    batch = next(iter(caught.loader))
    assert batch[2].tolist() == np.where(batch[1] == 1, 7.0, 1.0).tolist()
    assert len(next(iter(caught.validation))) == 2
    assert len(caught.loader.indexed_rows) == 0.75 * planted.COUNT


# ---- samples by index where a loader has none: graphs of tf.data, arrays of fit ----


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


GRAPHS = {  # (length, total, augments, kept)
    "shuffled": (lambda: slices().shuffle(99).batch(8).prefetch(1), (200, 200, False, False)),
    "long": (lambda: slices(MOST + 9).batch(16), (MOST, MOST + 9, False, False)),
    "augmented": (lambda: slices().cache().map(flipped).batch(16), (200, 200, True, False)),
    "cached": (lambda: slices().map(flipped).cache().batch(16), (200, 200, True, True)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_read_in_one_order(name: str) -> None:
    make, facts = GRAPHS[name]
    rows = rows_of(make())
    assert (len(rows), rows.total, rows.augments, rows.kept) == facts
    pixels, labels = pictures(facts[1])
    assert [int(rows[i][1]) for i in range(50)] == labels[:50].tolist()
    same = [np.array_equal(rows[i][0], pixels[i]) for i in range(50)]
    assert all(same) is not rows.augments
    again = [np.array_equal(rows[i][0], rows[i][0]) for i in range(50)]
    assert all(again) is (not rows.augments or rows.kept)


def test_what_has_no_order_of_its_own_has_no_rows() -> None:
    assert rows_of(slices().shuffle(200).take(100).batch(8)) is None
    assert rows_of([1, 2]) is None


def split(reshuffled: bool) -> tuple[Any, Any]:
    drawn = slices().shuffle(200, reshuffle_each_iteration=reshuffled)
    return drawn.take(150).batch(16), drawn.skip(150).batch(16)


def named(names: list[str], seed: int = 0) -> Any:
    dataset = slices(seed=seed).batch(16)
    dataset.class_names = names
    return dataset.prefetch(1)


def arrays(shift: int = 0, seed: int = 0) -> FitBatches:
    pixels, labels = pictures(seed=seed)
    return FitBatches((pixels, np.roll(labels, shift)), 32, True)


def batched(function: Any = None, seed: int = 0) -> Any:
    dataset = slices(seed=seed)
    return (dataset if function is None else dataset.map(function)).batch(16)


def cached() -> Any:
    return slices().map(flipped).cache().batch(16)


PAIRS: list[tuple[str, str, Any]] = [
    ("LOAD020", "failed", lambda: split(True)),
    ("LOAD020", "failed", lambda: (batched(), slices().batch(8))),
    ("LOAD020", "passed", lambda: (batched(), batched(seed=1))),
    ("LOAD020", "failed", lambda: (arrays(), arrays())),
    ("LOAD020", "passed", lambda: (arrays(), arrays(seed=1))),
    ("LOAD018", "failed", lambda: (named(["a", "b"]), named(["b", "a"], 1))),
    ("LOAD018", "passed", lambda: (named(["a", "b"]), named(["a", "b"], 1))),
    ("LOAD013", "failed", lambda: (batched(), batched(flipped, 1))),
    ("LOAD013", "passed", lambda: (batched(flipped), batched(seed=1))),
    ("LOAD021", "failed", lambda: (cached(), batched(seed=1))),
    ("LOAD021", "passed", lambda: (batched(flipped), batched(seed=1))),
    ("LOAD021", "passed", lambda: (arrays(), arrays(seed=1))),
    ("LOAD021", "inconclusive", lambda: (batched(seeded), batched(seed=1))),
    ("LOAD022", "failed", lambda: (arrays(1), arrays(seed=1))),
    ("LOAD022", "passed", lambda: (arrays(), arrays(seed=1))),
]


@pytest.mark.parametrize(("code", "wanted", "make"), PAIRS)
def test_contents_are_compared(code: str, wanted: str, make: Any) -> None:
    train, test = make()
    answer = judged(code, LoaderSubject(lambda: train, lambda: test, made_anew=False)).answer
    assert answer.judgement == wanted, answer.sentence


def test_a_graph_is_split_once_or_anew() -> None:
    assert reshuffled_split(*split(True))
    assert not reshuffled_split(*split(False))
    assert not reshuffled_split(slices().batch(8), batched(seed=1))


def test_a_dataset_that_reorders_at_the_end_of_an_epoch_does_so_here() -> None:
    class Reversing:
        def __init__(self) -> None:
            self.order = [0, 1, 2]

        def __len__(self) -> int:
            return 3

        def __getitem__(self, number: int) -> int:
            return self.order[number]

        def on_epoch_end(self) -> None:
            self.order = self.order[::-1]

    loader = as_loader(Reversing())
    assert [list(loader), list(loader)] == [[0, 1, 2], [2, 1, 0]]
    shuffled = as_loader(Reversing(), shuffled=True)
    assert len({tuple(shuffled) for _ in range(20)}) > 2
