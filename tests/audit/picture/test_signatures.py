"""Signatures: borders are cut exactly, flat pictures are marked, nothing is eaten."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from audit.picture.signatures import (
    SIGNATURE_DTYPE,
    Flag,
    find_border,
    is_comparable,
    make_signature,
    stack_signatures,
)


def framed(picture: np.ndarray, level: int, x: int, y: int) -> np.ndarray:
    return np.pad(picture, ((y, y), (x, x), (0, 0)), constant_values=level)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_border_is_cut_and_recorded(scene: Callable[..., np.ndarray], level: int) -> None:
    picture = scene(1)
    left, top, right, bottom = find_border(framed(picture, level, 16, 12))
    # one pixel more than the frame is allowed: the blurred line between frame and picture
    assert 16 <= left <= 17
    assert 16 <= right <= 17
    assert 12 <= top <= 13
    assert 12 <= bottom <= 13


def test_a_frame_hardly_changes_the_thumbnail(scene: Callable[..., np.ndarray]) -> None:
    plain, cut = make_signature(scene(2)), make_signature(framed(scene(2), 255, 20, 20))
    apart = np.abs(plain["grey"].astype(int) - cut["grey"].astype(int))
    assert np.median(apart) <= 6
    assert Flag.TRIMMED in Flag(int(cut["flags"]))
    assert Flag.TRIMMED not in Flag(int(plain["flags"]))


def test_a_noisy_border_is_still_a_border(scene: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    noisy = framed(scene(3, 190, 256), 128, 20, 20) + rng.normal(0, 6, (230, 296, 3))
    left, top, _, _ = find_border(np.clip(noisy, 0, 255).astype(np.uint8))
    assert left >= 19
    assert top >= 19


def test_a_picture_that_is_mostly_background_is_not_eaten() -> None:
    board = np.full((100, 100, 3), 255, np.uint8)
    board[50:54, 50:54] = 0
    assert find_border(board) == (0, 0, 0, 0)


def test_a_scene_has_no_border(scenes: list[np.ndarray]) -> None:
    assert all(find_border(picture) == (0, 0, 0, 0) for picture in scenes)


def test_flat_and_transparent_pictures_are_not_comparable(scene: Callable[..., np.ndarray]) -> None:
    flat = np.full((64, 64, 3), 77, np.uint8)
    noisy = np.clip(flat + np.random.default_rng(0).normal(0, 2, flat.shape), 0, 255)
    table = stack_signatures(
        [
            make_signature(flat),
            make_signature(np.asarray(noisy, np.uint8)),
            make_signature(scene(1), opaque_share=0.0),
            make_signature(scene(1)),
        ]
    )
    assert is_comparable(table).tolist() == [False, False, False, True]


def test_grey_pictures_of_two_axes_are_accepted(scene: Callable[..., np.ndarray]) -> None:
    assert Flag.GREYSCALE in Flag(int(make_signature(scene(1)[..., 0])["flags"]))


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 50, 3), (50, 2, 3), (9, 9, 3)])
def test_tiny_pictures_have_signatures(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    record = make_signature(picture)
    assert record.dtype == SIGNATURE_DTYPE
    assert tuple(record["size"]) == (shape[1], shape[0])


def test_an_empty_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="no pixels"):
        make_signature(np.zeros((0, 5, 3), np.uint8))


def test_a_signature_is_about_a_kilobyte() -> None:
    assert SIGNATURE_DTYPE.itemsize < 1300
