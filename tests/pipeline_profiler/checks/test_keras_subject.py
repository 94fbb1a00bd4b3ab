"""Trainings of Keras: known losses, what the checks fail and pass, and sentences for bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checks.keras_subject import KerasSubject, as_labels, choose_subject
from tests.pipeline_profiler.checks.conftest import judged

pytestmark = pytest.mark.slow

keras = pytest.importorskip("keras")

K, SIDE = 4, 6


def shapes(first: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(96) % 8 == 0, 1, 0)
    pixels = rng.normal(0, 1, (96, SIDE)) + labels[:, None]
    return pixels.astype("float32"), (labels + first).astype("int32")


def made(logits: bool = False, last: str | None = "softmax", **options: Any) -> dict[str, Any]:
    layers = [keras.Input((SIDE,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(K, last)]
    model = keras.Sequential(layers)
    if options.get("frozen"):
        model.layers[-1].trainable = False
    model.compile(
        optimizer=keras.optimizers.Adam(options.get("rate", 0.01)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=logits),
    )
    return {"model": model, "loader": shapes(options.get("first", 0))}


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


@pytest.mark.parametrize("code", ["TRAIN002", "TRAIN005", "TRAIN006", "TRAIN010", "TRAIN020"])
def test_a_healthy_training_passes(healthy: KerasSubject, code: str) -> None:
    assert judged(code, healthy).answer.judgement == "pass"


def test_what_is_read_from_torch_only_cannot_be_told(healthy: KerasSubject) -> None:
    answer = judged("TRAIN023", healthy).answer
    assert answer.judgement == "cannot_tell"
    assert answer.sentence.startswith("Trainings of Keras are not examined here: ")


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("TRAIN010", {"logits": True}),
        ("TRAIN010", {"last": None}),
        ("TRAIN006", {"frozen": True}),
        ("TRAIN017", {"rate": 0.0}),
        ("TRAIN020", {"first": 3}),
    ],
    ids=["softmax twice", "from_logits forgotten", "frozen head", "rate 0", "labels beyond K"],
)
def test_a_defect_fails(code: str, options: dict[str, Any]) -> None:
    assert judged(code, subject(**options)).answer.judgement == "fail"


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
