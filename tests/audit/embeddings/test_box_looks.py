"""Boxes that look like another class or like background: found where planted, else silence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.checking.label_facts import LEAST_AGREED
from audit.embeddings.box_looks import Question, judge_looks
from audit.embeddings.judged import SURE_GAIN

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
CLASSES, WIDTH = 5, 40


def crops(rng: np.random.Generator, n: int, apart: float = 4.0) -> tuple[Floats, Ints, Ints]:
    """Return vectors, labels (-1 for background) and pictures of n crops, a third background."""
    labels = rng.integers(0, CLASSES, n)
    labels[rng.random(n) < 1 / 3] = -1
    middle = rng.normal(size=(CLASSES + 1, WIDTH)) * apart / np.sqrt(WIDTH) * 3
    vectors = middle[labels] + rng.normal(size=(n, WIDTH))
    return vectors.astype(np.float32), labels, rng.integers(0, n // 4, n)


def reported(question: Question) -> Ints:
    return np.flatnonzero((question.chance >= 0.8) & (question.gain >= SURE_GAIN))


def test_a_box_of_another_class_and_one_on_background_are_told_apart() -> None:
    vectors, labels, pictures = crops(np.random.default_rng(1), 900)
    boxes, ground = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    swapped, bare = boxes[::20], ground[::12]
    true = labels[swapped].copy()
    labels[swapped] = (labels[swapped] + 1) % CLASSES
    labels[bare] = np.arange(len(bare)) % CLASSES  # boxes around nothing
    by_class, by_ground = judge_looks(vectors, labels, pictures, CLASSES)
    found = reported(by_class)
    told = np.intersect1d(found, swapped)
    assert len(told) > 0.8 * len(swapped)
    assert (by_class.suggested[told] == true[np.searchsorted(swapped, told)]).mean() > 0.9
    assert len(np.setdiff1d(found, np.union1d(swapped, bare))) <= 0.1 * len(found)
    empty = reported(by_ground)
    assert len(np.intersect1d(empty, bare)) > 0.6 * len(bare)
    assert len(np.setdiff1d(empty, bare)) <= 0.1 * len(empty)
    assert (by_ground.chance[labels < 0] == 0).all()  # no box is there


def test_nothing_is_said_of_sound_boxes_nor_of_classes_dealt_at_random() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        vectors, labels, pictures = crops(rng, 400, apart=float(rng.uniform(0.5, 4)))
        boxes = labels >= 0
        for dealt in (False, True):
            if dealt:
                labels[boxes] = rng.permutation(labels[boxes])
            first, second = judge_looks(vectors, labels, pictures, CLASSES)
            assert not len(reported(first))
            assert not len(reported(second))
        assert first.agreed < LEAST_AGREED


def test_a_box_is_not_judged_by_those_of_its_own_picture() -> None:
    """Ten films of forty frames: each object has the class that was dealt to it, in all frames."""
    rng = np.random.default_rng(3)
    thing = rng.normal(size=(30, WIDTH)) * 3
    row = np.repeat(np.arange(30), 20)
    vectors = (thing[row] + rng.normal(size=(600, WIDTH))).astype(np.float32)
    labels = rng.integers(0, 3, 30)[row]
    together, _ = judge_looks(vectors, labels, row // 3, 3)
    alone, _ = judge_looks(vectors, labels, np.arange(600), 3)
    assert together.accuracy < 0.7
    assert alone.accuracy > 0.95


def test_one_class_is_asked_for_background_alone_and_few_boxes_for_nothing() -> None:
    vectors, labels, pictures = crops(np.random.default_rng(5), 300)
    labels[labels >= 0] = 0
    first, second = judge_looks(vectors, labels, pictures, 1)
    assert first.reason == "there is one class"
    assert not second.reason
    first, second = judge_looks(vectors[:60], labels[:60], pictures[:60], 1)
    assert "50 are needed" in second.reason
    bare = labels >= 0
    _, second = judge_looks(vectors[bare], labels[bare], pictures[bare], 1)
    assert "places without a box" in second.reason


def test_many_small_classes_beside_much_background_are_not_accused() -> None:
    for seed in (3, 22):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 33, 1900)
        labels[rng.random(1900) < 1 / 3] = -1
        middle = rng.normal(size=(34, 128)) * 0.54
        vectors = (middle[labels] + rng.normal(size=(1900, 128)) * 2).astype(np.float32)
        for question in judge_looks(vectors, labels, np.arange(1900) // 7, 33):
            assert question.agreed > LEAST_AGREED
            assert not len(reported(question))
