"""Signatures and the parts of a picture: borders are cut exactly, flat pictures are marked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from audit.picture.pixels import Pixels
from audit.picture.places import measure_places
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
    assert min(left, top) >= 19


def test_a_scene_and_a_picture_that_is_mostly_background_have_no_border(
    scenes: list[np.ndarray],
) -> None:
    board = np.full((100, 100, 3), 255, np.uint8)
    board[50:54, 50:54] = 0
    assert {find_border(picture) for picture in (board, *scenes)} == {(0, 0, 0, 0)}


def test_flat_and_transparent_pictures_are_not_comparable(scene: Callable[..., np.ndarray]) -> None:
    flat = np.full((64, 64, 3), 77, np.uint8)
    noisy = np.clip(flat + np.random.default_rng(0).normal(0, 2, flat.shape), 0, 255)
    records = [make_signature(one) for one in (flat, noisy.astype(np.uint8), scene(1))]
    records.append(make_signature(scene(1), opaque_share=0.0))
    assert is_comparable(stack_signatures(records)).tolist() == [False, False, True, False]
    grey = make_signature(scene(1)[..., 0])  # of two axes
    assert Flag.GREYSCALE in Flag(int(grey["flags"]))


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 50, 3), (50, 2, 3), (9, 9, 3)])
def test_tiny_pictures_have_signatures(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    record = make_signature(picture)
    assert record.dtype == SIGNATURE_DTYPE
    assert SIGNATURE_DTYPE.itemsize < 1300
    assert tuple(record["size"]) == (shape[1], shape[0])
    with pytest.raises(ValueError, match="no pixels"):
        make_signature(picture[:0])


def scene(seed: int = 0) -> Pixels:
    """Smooth grey noise, 96x128."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(60, 220, (12, 16))
    return np.repeat(np.kron(coarse, np.ones((8, 8)))[..., None], 3, axis=2).astype(np.uint8)


def places(picture: Pixels) -> dict[str, float]:
    """Return the columns of one picture."""
    edge = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    table = stack_signatures([make_signature(picture)])
    found = measure_places(table, np.array([edge.mean() / 255]))
    return {name: float(values[0]) for name, values in found.items()}


def in_frame(picture: Pixels, level: int) -> Pixels:
    out = picture.copy()
    out[:8], out[-8:], out[:, :8], out[:, -8:] = level, level, level, level
    return out


@pytest.mark.parametrize("level", [0, 255])
def test_a_frame_takes_its_share_of_the_picture(level: int) -> None:
    share = 1 - (96 - 18) * (128 - 18) / (96 * 128)  # a signature cuts one pixel more
    assert places(in_frame(scene(), level))["frame"] == pytest.approx(share)


def test_a_plain_ground_is_no_frame() -> None:
    ground = np.full((96, 128, 3), 0, np.uint8)
    ground[20:70, 40:60] = 230  # a stroke on black touches the cut at a few pixels of each side
    ground[40:44, 30:100] = 230
    assert places(ground)["frame"] == places(scene())["frame"] == 0.0
    for above, below in ((4, 4), (4, 60), (60, 4)):  # a box somewhere on it
        box = np.pad(in_frame(scene(), 255), ((above, below), (0, 0), (0, 0)), constant_values=255)
        assert (places(box)["frame"] > 0) == (above == below)


def test_a_tint_is_over_all_of_the_picture() -> None:
    found = places((scene() * (1.0, 1.0, 0.7)).astype(np.uint8))
    assert found["cast_blue"] == pytest.approx(np.log(0.7), abs=0.03)
    assert found["cast_red"] == pytest.approx(0.0, abs=0.02)
    picture = scene()
    picture[30:60, 40:90] = (230, 200, 20)  # an object of one colour
    assert abs(places(picture)["cast_blue"]) < 0.02
