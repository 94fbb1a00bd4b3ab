"""Drawings are copies only where nothing is left of their difference."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from audit.neighbors.drawings import is_drawn
from audit.neighbors.inspection import DOUBTED, EQUAL, SAME_DRAWING, check_full_size
from audit.neighbors.orientations import orient
from audit.neighbors.search import Relation, find_near_duplicates
from audit.neighbors.synthetic import make_duplicate
from audit.picture.signatures import make_signature, stack_signatures

Picture = np.ndarray


def dial(angle: float, side: int = 160) -> Picture:
    """A needle on a scale, four times as large and shrunk."""
    board = np.full((4 * side, 4 * side, 3), (250, 250, 245), np.uint8)
    middle = 2 * side
    cv2.circle(board, (middle, middle), int(1.8 * side), (30, 30, 30), 12)
    for mark in np.radians(np.arange(0, 360, 15)):
        ends = [
            (int(middle + far * side * np.cos(mark)), int(middle + far * side * np.sin(mark)))
            for far in (1.5, 1.7)
        ]
        cv2.line(board, *ends, (30, 30, 30), 10)
    turn = np.radians(angle)
    tip = (int(middle + 1.4 * side * np.cos(turn)), int(middle + 1.4 * side * np.sin(turn)))
    cv2.line(board, (middle, middle), tip, (200, 20, 20), 22)
    return cv2.resize(board, (side, side), interpolation=cv2.INTER_AREA)


def shape(x: int, y: int) -> Picture:
    board = np.zeros((64, 64, 3), np.uint8)
    return cv2.rectangle(board, (x, y), (x + 18, y + 10), (255, 255, 255), -1)


def changed(picture: Picture, name: str) -> Picture:
    return make_duplicate(picture, name, np.random.default_rng(0))


@pytest.mark.parametrize("angle", range(0, 360, 40))
def test_a_needle_that_moved_by_two_degrees_is_another_reading(angle: int) -> None:
    assert not check_full_size(dial(angle), dial(angle + 2)).same


@pytest.mark.parametrize("name", ["jpeg_70", "jpeg_50", "resize_50", "png"])
def test_copies_that_were_compressed_or_resized_are_found(name: str) -> None:
    for angle in range(0, 360, 45):
        found = check_full_size(dial(angle), changed(dial(angle), name))
        assert found.contrast in (EQUAL, SAME_DRAWING), (angle, found)


def test_what_a_drawing_may_mean_is_never_sure() -> None:
    letter = np.full((96, 96, 3), 255, np.uint8)
    cv2.putText(letter, "b", (24, 72), cv2.FONT_HERSHEY_SIMPLEX, 2.4, (0, 0, 0), 6, cv2.LINE_AA)
    for turned in range(1, 8):
        check = check_full_size(letter, orient(letter, turned), turned)
        assert not check.same or check.contrast == DOUBTED
    assert check_full_size(dial(20), changed(dial(20), "darker")).contrast == DOUBTED
    assert check_full_size(shape(5, 5), shape(5, 5)).contrast == EQUAL
    assert not check_full_size(shape(5, 5), shape(30, 40)).same


def search(pictures: list[Picture]) -> Relation:
    table = stack_signatures([make_signature(picture) for picture in pictures])
    hashes = np.arange(len(pictures), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys = [f"{k * 7919 % 997:03d}".encode() for k in range(len(pictures))]
    return find_near_duplicates(table, keys, hashes, open_picture=lambda row: pictures[row])


def test_copies_among_dials_are_found_and_dials_are_none() -> None:
    dials = [dial(2.5 * k) for k in range(140)]
    copies = [changed(dials[14 * k], ("jpeg_70", "resize_50")[k % 2]) for k in range(10)]
    relation = search(dials + copies)
    # a dial that was turned by a quarter has other numbers, were there any: it is doubted
    sure = relation.pairs.score > relation.calibration.threshold
    found = {tuple(sorted(pair)) for pair in relation.pairs.pairs[sure].tolist()}
    wanted = {(14 * k, 140 + k) for k in range(10)}
    assert found <= wanted
    assert len(found) >= 9


def test_a_noisy_jpeg_of_few_colours_is_a_drawing() -> None:
    board = np.full((160, 160, 3), (220, 180, 110), np.uint8)
    for k in range(8, 160, 16):
        cv2.line(board, (k, 0), (k, 159), (0, 0, 0), 1)
        cv2.line(board, (0, k), (159, k), (0, 0, 0), 1)
    other = cv2.circle(board.copy(), (72, 72), 7, (10, 10, 10), -1)
    stored, another = changed(board, "jpeg_50"), changed(other, "jpeg_50")
    assert is_drawn(stored)
    assert not check_full_size(stored, another).same
    assert check_full_size(stored, board).same


def test_photographs_are_no_drawings(scene: object) -> None:
    assert is_drawn(dial(3))
    assert not is_drawn(scene(3, 192, 256))  # type: ignore[operator]
