"""What is measured of the parts of a picture, on pictures whose values are known."""

from __future__ import annotations

import numpy as np
import pytest

from audit.picture.pixels import Pixels
from audit.picture.places import measure_places
from audit.picture.signatures import make_signature, stack_signatures


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


def framed(picture: Pixels, level: int) -> Pixels:
    out = picture.copy()
    out[:8], out[-8:], out[:, :8], out[:, -8:] = level, level, level, level
    return out


@pytest.mark.parametrize("level", [0, 255])
def test_a_frame_takes_its_share_of_the_picture(level: int) -> None:
    share = 1 - (96 - 18) * (128 - 18) / (96 * 128)  # a signature cuts one pixel more
    assert places(framed(scene(), level))["frame"] == pytest.approx(share)


def test_a_box_somewhere_on_a_plain_ground_has_no_frame() -> None:
    for above, below in ((4, 4), (4, 60), (60, 4)):
        box = np.pad(framed(scene(), 255), ((above, below), (0, 0), (0, 0)), constant_values=255)
        assert (places(box)["frame"] > 0) == (above == below)


def test_a_plain_ground_is_no_frame() -> None:
    ground = np.full((96, 128, 3), 0, np.uint8)
    ground[20:70, 40:60] = 230  # a stroke on black touches the cut at a few pixels of each side
    ground[40:44, 30:100] = 230
    assert places(ground)["frame"] == 0.0
    assert places(scene())["frame"] == 0.0


def test_a_tint_is_over_all_of_the_picture() -> None:
    tinted = (scene() * (1.0, 1.0, 0.7)).astype(np.uint8)
    found = places(tinted)
    assert found["cast_blue"] == pytest.approx(np.log(0.7), abs=0.03)
    assert found["cast_red"] == pytest.approx(0.0, abs=0.02)


def test_an_object_of_one_colour_is_no_tint() -> None:
    picture = scene()
    picture[30:60, 40:90] = (230, 200, 20)
    assert abs(places(picture)["cast_blue"]) < 0.02
