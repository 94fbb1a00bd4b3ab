"""Whether boxes fit better elsewhere than where they lie."""

from __future__ import annotations

import numpy as np
import pytest

from audit.statistics.box_fit import (
    DIRECTIONS,
    SIDE,
    Floats,
    Ints,
    better_elsewhere,
    fit_of_boxes,
    gains_elsewhere,
    integral_planes,
)

N = 60


def objects_on_grounds(n: int, seed: int) -> tuple[Floats, Floats]:
    """Summed planes of n grounds with one object each, and the corners of its box in cells."""
    rng = np.random.default_rng(seed)
    grey = rng.normal(120, 12, (n, SIDE, SIDE))
    low = rng.integers(0, 22, (n, 2))
    boxes = np.concatenate([low, low + rng.integers(6, 10, (n, 2))], axis=1).astype(float)
    for k, (x0, y0, x1, y1) in enumerate(boxes.astype(int)):
        grey[k, y0:y1, x0:x1] += rng.choice([-50, 50])
    planes = grey.clip(0, 255).astype(np.uint8)
    return integral_planes(planes, np.repeat(planes[:, ::4, ::4, None], 3, axis=3)), boxes


@pytest.fixture(scope="module")
def scenes() -> tuple[Floats, Ints, Floats]:
    """Such planes, the pictures of the boxes, and these."""
    sums, boxes = objects_on_grounds(N, seed=4)
    return sums, np.arange(N), boxes


def best(scenes: tuple[Floats, Ints, Floats], picture: Ints, boxes: Floats) -> tuple[str, float]:
    gains = gains_elsewhere(scenes[0], picture, boxes)
    found = max(better_elsewhere(gains, picture), key=lambda a: a.z)
    return found.name, found.z


def test_boxes_that_lie_right_fit_nowhere_better(scenes: tuple[Floats, Ints, Floats]) -> None:
    assert best(scenes, scenes[1], scenes[2])[1] < -3


@pytest.mark.parametrize("name", DIRECTIONS)
def test_a_move_is_told_by_the_way_back(scenes: tuple[Floats, Ints, Floats], name: str) -> None:
    dx, dy = DIRECTIONS[name]
    said, z = best(scenes, scenes[1], scenes[2] - 4 * np.array([dx, dy, dx, dy]))
    # half of these boxes is as much
    assert said in (f"12% further {name}", f"half a box further {name}")
    assert z > 4


@pytest.mark.parametrize(("size", "said"), [(2.0, "half as large"), (0.6, "twice as large")])
def test_a_wrong_size_is_told(scenes: tuple[Floats, Ints, Floats], size: float, said: str) -> None:
    sides = np.tile(scenes[2][:, 2:] - scenes[2][:, :2], 2)
    name, z = best(scenes, scenes[1], scenes[2] + (size - 1) / 2 * sides * [-1, -1, 1, 1])
    assert (name, z > 4) == (said, True)
    # a centre that is read as a corner
    assert best(scenes, scenes[1], scenes[2] + sides / 2)[0] == "half a box further left and up"


def test_mirrored_boxes_and_those_of_another_picture_are_told(
    scenes: tuple[Floats, Ints, Floats],
) -> None:
    _, picture, boxes = scenes
    x0, y0, x1, y1 = boxes.T
    said, z = best(scenes, picture, np.stack([SIDE - x1, y0, SIDE - x0, y1], axis=1))
    assert (said, z > 4) == ("mirrored", True)
    said, z = best(scenes, (picture + 1) % N, boxes)
    assert (said, z > 4) == ("on the previous image", True)


def test_scenes_count_once_and_a_box_without_ground_around_it_not_at_all(
    scenes: tuple[Floats, Ints, Floats],
) -> None:
    found = better_elsewhere(gains_elsewhere(*scenes), scenes[1] // 2)
    assert {one.n for one in found} <= {N // 2}
    whole = np.array([[0.0, 0.0, SIDE, SIDE], [4.0, 4.0, 5.0, 5.0]])
    assert np.isnan(fit_of_boxes(scenes[0], np.zeros(2, np.int64), whole)).all()
