"""Trainings of Keras: known losses, what the checks fail and pass, and sentences for bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checks.caught_keras import CaughtFit, FitBatches, _caught
from pipeline_profiler.checks.keras_subject import KerasSubject, as_labels, choose_subject
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.conftest import import_late
from tests.pipeline_profiler.checks.conftest import judged

pytestmark = pytest.mark.slow

keras = import_late("keras")

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


PASSED = ("TRAIN002", "TRAIN005", "TRAIN006", "TRAIN007", "TRAIN010", "TRAIN020", "TRAIN023")
ABSENT = ("TRAIN021", "TRAIN022", "TRAIN033", "TRAIN034", "TRAIN035", "TRAIN041")


@pytest.mark.parametrize("code", ABSENT)
def test_what_is_not_there_is_said_to_be_absent(healthy: KerasSubject, code: str) -> None:
    answer = judged(code, healthy).answer
    assert answer.evidence.get("absent"), answer.sentence


@pytest.mark.parametrize("code", PASSED)
def test_a_healthy_training_passes(healthy: KerasSubject, code: str) -> None:
    assert judged(code, healthy).answer.judgement == "passed"


def test_what_is_read_from_torch_only_cannot_be_told(healthy: KerasSubject) -> None:
    answer = judged("TRAIN028", healthy).answer
    assert answer.judgement == "inconclusive"
    assert answer.sentence.startswith("Trainings of Keras are not supported: ")


DEFECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax twice": ("TRAIN010", {"logits": True}),
    "from_logits forgotten": ("TRAIN010", {"last": None}),
    "frozen head": ("TRAIN006", {"frozen": True}),
    "rate 0": ("TRAIN012", {"rate": 0.0}),
    "labels beyond K": ("TRAIN020", {"first": 3}),
    "decay of 0.3": ("TRAIN007", {"decay": 0.3}),
    "dead units": ("TRAIN023", {"bias": -50.0}),
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

    answer = judged("TRAIN010", choose_subject({"make_training": training})).answer  # type: ignore[arg-type]
    assert answer.judgement == wanted, answer.sentence
