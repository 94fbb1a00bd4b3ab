"""A second check tells pages of one layout apart, sees through captions, and knows its limits."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest

from audit.neighbors.descriptor import describe
from audit.neighbors.inspection import FullSizeCheck, check_full_size
from audit.neighbors.synthetic import make_duplicate
from audit.neighbors.verification import verify
from audit.picture.signatures import make_signature, stack_signatures


def check_both(first: np.ndarray, second: np.ndarray) -> FullSizeCheck:
    table = stack_signatures([make_signature(first), make_signature(second)])
    found = verify(table, describe(table), np.array([[0, 1]]), np.array([0, 1]))
    pair = (first, second) if found.template[0] == 0 else (second, first)
    return check_full_size(*pair, int(found.orientation[0]), found.matrix[0])


@pytest.mark.parametrize("name", ["jpeg_30", "crop_80", "caption", "watermark", "mirror", "blur"])
def test_copies_are_recognised(name: str, scene: Callable[..., np.ndarray]) -> None:
    seen = []
    for seed in range(12):
        picture = scene(seed, 192, 256)
        seen.append(check_both(picture, make_duplicate(picture, name, np.random.default_rng(seed))))
    assert np.mean([check.same for check in seen]) >= 0.9


@pytest.mark.slow
def test_strangers_are_refused(scene: Callable[..., np.ndarray]) -> None:
    checks = [check_full_size(scene(k, 192, 256), scene(k + 100, 192, 256)) for k in range(20)]
    assert not any(check.same for check in checks)
    assert all(check.decided for check in checks)


def page(seed: int) -> np.ndarray:
    """Lines of writing, the same layout every time."""
    rng = np.random.default_rng(seed)
    sheet = np.full((320, 256, 3), 255, np.uint8)
    for line in range(17):
        words = "".join(chr(97 + int(c)) if c < 26 else " " for c in rng.integers(0, 31, 24))
        place = (12, 24 + 18 * line)
        cv2.putText(sheet, words, place, cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 0), 1, cv2.LINE_AA)
    return sheet


@pytest.mark.slow
def test_pages_of_one_layout_are_told_apart() -> None:
    assert not any(check_full_size(page(k), page(k + 50)).same for k in range(15))
    copies = [
        check_full_size(page(k), make_duplicate(page(k), "jpeg_30", np.random.default_rng(k))).same
        for k in range(15)
    ]
    assert np.mean(copies) >= 0.9


@pytest.mark.parametrize("side", [8, 32, 47])
def test_small_pictures_are_left_to_the_thumbnails(side: int) -> None:
    small = np.random.default_rng(0).integers(0, 256, (side, 200, 3)).astype(np.uint8)
    assert not check_full_size(small, small).decided


def test_plain_pictures_are_left_to_the_thumbnails() -> None:
    plain = np.full((200, 200, 3), 90, np.uint8)
    disc = cv2.circle(plain.copy(), (100, 100), 12, (200, 0, 0), -1)
    rough = np.random.default_rng(0).integers(-9, 10, plain.shape)
    rough_disc = (disc + rough).astype(np.uint8)
    assert not check_full_size(rough_disc, rough_disc).decided


def test_the_same_answer_every_time(scene: Callable[..., np.ndarray]) -> None:
    first = scene(1, 192, 256)
    second = make_duplicate(first, "crop_80", np.random.default_rng(0))
    assert check_full_size(first, second) == check_full_size(first, second)
