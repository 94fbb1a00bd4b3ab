"""Samples by index where a loader has none: graphs of tf.data, arrays of fit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checks.caught_keras import FitBatches
from pipeline_profiler.checks.indexed import MOST, reshuffled_split, rows_of
from pipeline_profiler.checks.loader_subject import LoaderSubject
from tests.conftest import import_late
from tests.pipeline_profiler.checks.conftest import judged

pytestmark = pytest.mark.slow

tf = import_late("tensorflow")

SIDE = 8


def pictures(count: int = 200, seed: int = 0) -> tuple[Any, Any]:
    """Pictures whose brightness tells their label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    shades = 0.3 + 0.4 * labels[:, None, None, None]
    return rng.normal(shades, 0.1, (count, SIDE, SIDE, 3)).astype("float32"), labels


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
        "LOAD019",
        lambda: (slices().batch(16), slices(seed=1).map(flipped).batch(16)),
        "failed",
    ),
    "evaluation as it is": (
        "LOAD019",
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
