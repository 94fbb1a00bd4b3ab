"""Parts of the pictures whose boxes fit better elsewhere, and shares that nothing names."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.statistics.box_fit import (
    Floats,
    Ints,
    gains_elsewhere,
    turned_boxes,
)
from audit.statistics.box_parts import ANY, CLASS, NEAR, RUNS, find_parts, shares_turned
from tests.audit.statistics.test_box_fit import objects_on_grounds

N = 240
UNIT = np.arange(N)
PARTS = {
    "folder": UNIT % 4,
    "size": np.random.default_rng(1).integers(0, 2, N),
    "rank": UNIT * 32 // N,
    "sample_id": UNIT * 32 // N,
}


def gains_of(wrong: NDArray[np.bool_], seed: int = 1, of: str = "mirrored") -> dict[str, Floats]:
    """Return gains at three places: boxes of `wrong` pictures fit better at `of`, others worse."""
    rng = np.random.default_rng(seed)
    gains = {name: rng.normal(-1, 1, N) for name in ("mirrored", "upside down")}
    gains[ANY] = rng.normal(-1, 0.5, N)
    for gain in gains.values():
        gain[:3] = np.nan  # boxes without a ring
    gains[NEAR] = gains[ANY].copy()
    gains[of][wrong] += 2 if of != ANY else 1
    return gains


@pytest.mark.parametrize("seed", range(5))
def test_boxes_that_lie_right_have_no_part(seed: int) -> None:
    assert not list(find_parts(gains_of(np.zeros(N, bool), seed), UNIT, PARTS))


@pytest.mark.parametrize(
    ("wrong", "column", "first"), [(UNIT % 4 == 2, "folder", 2), (UNIT >= 150, "rank", 20)]
)
def test_a_part_is_told_by_its_name(wrong: NDArray[np.bool_], column: str, first: int) -> None:
    [part] = find_parts(gains_of(wrong), UNIT, PARTS)
    assert (part.column, part.first, part.row["elsewhere"]) == (column, first, "mirrored")
    assert part.row["apart_z"] > part.row["gain_z"] > 5
    assert part.row["units"] == wrong[3:].sum()


def test_two_parts_are_told_one_after_the_other() -> None:
    gains = gains_of(UNIT % 4 == 2)
    gains["upside down"][UNIT % 4 == 1] += 2
    found = {(part.first, part.row["elsewhere"]) for part in find_parts(gains, UNIT, PARTS)}
    assert found == {(2, "mirrored"), (1, "upside down")}


def test_mirrored_copies_are_told_in_place_of_the_picture_before() -> None:
    gains = gains_of(UNIT % 4 == 2)
    gains["on the picture before"] = gains["mirrored"] + np.where(UNIT % 4 == 2, 0.05, 0)
    [part] = find_parts(gains, UNIT, PARTS)
    assert part.row["elsewhere"] == "mirrored"


def test_pictures_without_a_value_are_others() -> None:
    turned_by_exif = np.where(UNIT % 4 == 2, 0, -1)
    [part] = find_parts(gains_of(UNIT % 4 == 2), UNIT, {**PARTS, "folder": turned_by_exif})
    assert part.row["units"] == N // 4 - 1


def test_all_of_a_file_is_no_part() -> None:
    assert not list(find_parts(gains_of(np.ones(N, bool)), UNIT, PARTS))


@pytest.mark.parametrize("seed", range(4, 12))
def test_films_are_alike(seed: int) -> None:
    films, gains = UNIT // 20, gains_of(np.zeros(N, bool))
    gains["mirrored"] = np.random.default_rng(seed).normal(-1, 2, 12)[films] + gains["mirrored"] / 4
    assert not list(find_parts(gains, UNIT, PARTS))


def test_boxes_that_were_dealt_out_fit_no_better_than_on_any_picture() -> None:
    wrong = UNIT % 4 == 2
    gains = gains_of(wrong, of=ANY)
    assert not list(find_parts(gains, UNIT, PARTS))  # they do fit better than on those near
    gains[NEAR] = gains[ANY]
    [part] = find_parts(gains, UNIT, PARTS)
    assert (part.column, part.first, part.row["elsewhere"]) == ("folder", 2, ANY)


@pytest.mark.parametrize("own", [False, True], ids=["classes in all", "a class of its own"])
def test_what_nobody_sees_in_a_class_is_no_other_picture(own: bool) -> None:
    """A folder holds boxes of other pictures where its classes fit elsewhere, else cannot tell."""
    wrong = UNIT % 4 == 2
    gains = gains_of(wrong, of=ANY)
    gains[NEAR] = gains[ANY]
    label = np.where(wrong, 1, 0) if own else UNIT // 4 % 2
    found = list(find_parts(gains, UNIT, {**PARTS, CLASS: label}))
    assert [part.column for part in found] == ([] if own else ["folder"])


def test_in_the_dark_all_places_fit_alike() -> None:
    dark = UNIT % 4 == 2
    gains = gains_of(dark, of=ANY)
    gains[NEAR] = gains[ANY]
    gains = {name: np.where(dark, gain / 9, gain) for name, gain in gains.items()}
    assert not list(find_parts(gains, UNIT, PARTS))


@pytest.fixture(scope="module")
def scenes() -> tuple[Floats, Floats]:
    """Summed planes of grounds with an object each, and the corners of its box in cells."""
    return objects_on_grounds(N, seed=5)


def shares(sums: Floats, boxes: Floats, unit: Ints = UNIT) -> dict[str, tuple[float, float]]:
    runs = {name: PARTS[name] for name in RUNS}
    return {one.name: (one.z, one.share) for one in shares_turned(sums, UNIT, boxes, unit, runs)}


@pytest.mark.parametrize("name", ["mirrored", "upside down", "turned by half"])
def test_a_share_that_nothing_names_is_estimated(scenes: tuple[Floats, Floats], name: str) -> None:
    sums, boxes = scenes
    wrong = np.random.default_rng(6).random(N) < 0.3
    found = shares(sums, np.where(wrong[:, None], turned_boxes(boxes)[name], boxes))
    assert found[name][0] > 4
    assert abs(found[name][1] - wrong.mean()) < 0.08
    assert all(z < 3 for other, (z, _) in found.items() if other != name)


def test_boxes_that_lie_right_are_no_share(scenes: tuple[Floats, Floats]) -> None:
    assert all(z < 3 for z, _ in shares(*scenes).values())


def test_twins_on_the_other_side_are_no_share(scenes: tuple[Floats, Floats]) -> None:
    sums, boxes = scenes
    planes = np.diff(np.diff(sums, axis=2), axis=3)
    sums = sums.copy()
    sums[:, :, 1:, 1:] = (planes + planes[:, :, :, ::-1]).cumsum(2).cumsum(3)
    assert shares(sums, boxes)["mirrored"][0] < 3


def test_gains_have_the_ways_to_turn(scenes: tuple[Floats, Floats]) -> None:
    gains = gains_elsewhere(scenes[0], UNIT, turned_boxes(scenes[1])["with x and y exchanged"])
    assert np.nanmean(gains["with x and y exchanged"]) > 1 > np.nanmean(gains["mirrored"])
