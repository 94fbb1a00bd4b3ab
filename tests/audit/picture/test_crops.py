"""Crops of boxes, and places without a box: corners, names, and the same answer each time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.picture.crops import (
    BOX,
    CORNERS_SQL,
    GROUND,
    LEAST_SIDE,
    MOST_OF_PICTURE,
    NOTHING,
    TOUCHING,
    BoxesOf,
    Corners,
    clip_corners,
    cut_crops,
)
from audit.picture.features import feature_picture
from audit.run.store import Store
from tests.conftest import picture

CONTENT = "ab" * 32


def cut(
    rgb: NDArray[np.uint8], *boxes: tuple[float, ...], digest: str = "d1"
) -> dict[str, np.void]:
    asked = BoxesOf(digest, [(*box, 0.0) if len(box) == 4 else box for box in boxes])
    names, signatures = cut_crops(rgb, feature_picture(rgb), asked, CONTENT)
    assert len(names) == len(signatures) == len(set(names))
    return dict(zip(names, signatures, strict=True))


def of_kind(names: dict[str, np.void], kind: str) -> list[Corners]:
    found = [name.split("/") for name in names]
    corners = [tuple(map(int, part[3].split(","))) for part in found if part[2] == kind]
    return [(a, b, c, d) for a, b, c, d in corners]


def shared(one: Corners, other: Corners) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    area = min((c[2] - c[0]) * (c[3] - c[1]) for c in (one, other))
    return max(wide, 0) * max(high, 0) / area


def test_a_crop_shows_what_is_in_its_box() -> None:
    rgb = np.full((200, 300, 3), 40, np.uint8)
    rgb[50:110, 100:180] = (200, 30, 30)
    found = cut(rgb, (100, 50, 80, 60))
    box = found[f"{CONTENT}/d1/{BOX}/100,50,180,110"]
    assert (box["colour"] == (200, 30, 30)).all()
    assert box["size"].tolist() == [80, 60]
    grounds = [s for name, s in found.items() if f"/{GROUND}/" in name]
    assert grounds
    assert all((s["colour"] == 40).all() for s in grounds)


def test_a_large_crop_is_cut_from_the_reduced_picture_and_a_small_one_is_not() -> None:
    rgb = np.zeros((1600, 1600, 3), np.uint8)
    rgb[::2] = 255  # lines that the reduced picture has lost
    rgb[:40, :40] = 255
    whole, part = cut(rgb, (0, 0, 1600, 1600)), cut(rgb, (0, 0, 40, 40))
    assert np.ptp(whole[f"{CONTENT}/d1/{BOX}/0,0,1600,1600"]["grey"][2:, 2:]) < 20
    assert (part[f"{CONTENT}/d1/{BOX}/0,0,40,40"]["grey"] == 255).all()


def test_background_touches_no_box_and_no_other_background() -> None:
    rng = np.random.default_rng(1)
    boxes = [(*rng.uniform(0, 400, 2), *rng.uniform(20, 60, 2)) for _ in range(12)]
    found = cut(picture(3, 480, 480), *boxes)
    ground, drawn = of_kind(found, GROUND), of_kind(found, BOX)
    assert len(drawn) == 12
    assert len(ground) >= 4
    sizes = {(c[2] - c[0], c[3] - c[1]) for c in drawn}
    assert {(c[2] - c[0], c[3] - c[1]) for c in ground} <= sizes
    for at, one in enumerate(ground):
        assert min(one) >= 0
        assert max(one) <= 480
        assert all(shared(one, other) < TOUCHING for other in [*drawn, *ground[:at]])


def test_crops_are_the_same_each_time_and_others_for_other_boxes() -> None:
    rgb, box = picture(5, 300, 400), (30.0, 40.0, 60.0, 50.0)
    first, again, other = cut(rgb, box), cut(rgb, box), cut(rgb, box, digest="d2")
    assert list(first) == list(again)
    assert all(first[name] == again[name] for name in first)
    assert of_kind(first, BOX) == of_kind(other, BOX)
    assert of_kind(first, GROUND) != of_kind(other, GROUND)


def test_shares_of_the_picture_and_px_are_one_box() -> None:
    rgb = picture(7, 400, 300)
    by_px, by_share = cut(rgb, (40, 30, 100, 60)), cut(rgb, (0.1, 0.1, 0.25, 0.2, 1.0))
    assert of_kind(by_px, BOX) == of_kind(by_share, BOX) == [(40, 30, 140, 90)]


@pytest.mark.parametrize(
    "box", [(5.0, 5.0, LEAST_SIDE - 1.0, 90.0), (500.0, 5.0, 40.0, 40.0), (np.nan, 0.0, 9.0, 9.0)]
)
def test_a_box_that_shows_nothing_is_not_cut(box: tuple[float, ...]) -> None:
    assert list(cut(picture(9, 300, 400), box)) == [f"{CONTENT}/d1/{NOTHING}/0,0,0,0"]


def test_of_a_crowd_some_are_cut_and_no_background_lies_on_the_others() -> None:
    step = range(0, 400, 20)
    found = cut(picture(11, 400, 400), *((x, y, 20.0, 20.0) for y in step for x in step))
    assert len(of_kind(found, BOX)) == MOST_OF_PICTURE
    assert not of_kind(found, GROUND)


def test_sql_rounds_and_clips_as_the_worker_does() -> None:
    rng = np.random.default_rng(2)
    values = np.vstack([rng.uniform(-20, 120, (200, 4)), rng.integers(-9, 220, (200, 4)) / 2])
    with Store.memory() as store:
        for x, y, w, h in values.tolist():
            sql = f"SELECT {CORNERS_SQL} FROM (SELECT ? AS x, ? AS y, ? AS width, ? AS height, "
            row = store.query(f"{sql} 100 AS picture_width, 80 AS picture_height)", [x, y, w, h])
            assert row.row(0) == clip_corners(x, y, x + w, y + h, 100, 80)
