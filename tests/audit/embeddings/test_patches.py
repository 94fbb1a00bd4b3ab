"""Built-in vectors: the same for a mirror image, in every set, near for what looks alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from audit.embeddings import nearest, patches
from audit.embeddings.nearest import Compared, KnownNearest, Nearest, nearest_places, nearest_rows
from audit.embeddings.orientation_views import NEGATIVE, ORIENTATIONS, describe, reorient
from audit.embeddings.patches import (
    AXES,
    SQUARE,
    STEPS,
    VIEWS,
    code_view,
    colour_pictures,
    describe_patches,
    encode,
    load_coder,
    vectors_of,
)
from audit.picture.signatures import make_signature, stack_signatures
from tests.conftest import picture

Search = Callable[..., Nearest]


def table(n: int) -> np.ndarray:
    return stack_signatures([make_signature(picture(seed)) for seed in range(n)])


def test_a_mirror_image_has_the_same_code() -> None:
    words, pictures = load_coder().words, colour_pictures(table(12))
    turned = np.ascontiguousarray(pictures[:, :, ::-1])
    np.testing.assert_allclose(encode(pictures, words), encode(turned, words), atol=2e-3)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("region", VIEWS[::3])
def test_a_picture_has_one_code_wherever_it_stands(
    region: tuple[int, int, int], many: bool
) -> None:
    some, coder = table(90), load_coder(many)
    every = code_view(some, coder, region)
    for rows in (slice(17, 18), slice(5, 77), slice(None, None, -1)):
        np.testing.assert_array_equal(code_view(some[rows], coder, region), every[rows])


def test_codes_are_spread_as_those_of_drawn_pictures() -> None:
    codes = code_view(table(60), load_coder(), VIEWS[0]).astype(float) / STEPS
    assert 0.3 < codes.std() < 3
    assert (np.abs(codes) > 5).mean() < 0.02


def test_few_pictures_are_seen_in_all_views() -> None:
    found = describe_patches(table(5))
    assert found.views.shape[:2] == (len(VIEWS), 5)
    assert np.isfinite(found.views).all()


def test_none_and_one_picture() -> None:
    assert describe_patches(table(1)[:0]).views.shape[1] == 0
    assert np.isfinite(describe_patches(table(1)).views).all()


def test_neighbours_are_compared_by_whole_numbers_that_say_what_the_vectors_say() -> None:
    found = describe_patches(table(120))
    for numbers in (found.points, found.directions):
        assert numbers.shape == (120, AXES)
        np.testing.assert_array_equal(numbers, np.rint(numbers))
        assert np.abs(numbers @ numbers.T).max() < 2**24
    squares = (found.directions.astype(float) ** 2).sum(1)
    np.testing.assert_allclose(squares, SQUARE, rtol=2e-3)
    mean = found.views.mean(0) * STEPS
    apart = [((x[:, None] - x) ** 2).sum(2) for x in (mean, found.points)]
    assert np.corrcoef(apart[0].ravel(), apart[1].ravel())[0, 1] > 0.9


def test_of_many_pictures_the_main_axes_say_nearly_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes, coder = [code_view(table(150), load_coder(), VIEWS[0])], load_coder()
    whole = vectors_of(codes, coder).views[0]
    monkeypatch.setattr(patches, "LEAST_AXES", 100)
    monkeypatch.setattr(patches, "MOST_NUMBERS", 120 * 150)
    main = vectors_of(codes, coder).views[0]
    assert main.shape == (150, 120)
    monkeypatch.setattr(patches, "MOST_NUMBERS", 50 * 150)
    assert vectors_of(codes, coder).views[0].shape == (150, 100), "never fewer than the least"
    assert np.abs(main.mean(0)).max() < 1e-3
    # 120 of the at most 149 axes that 150 pictures have
    assert np.allclose((main**2).sum(), (whole**2).sum(), rtol=0.1)
    assert np.corrcoef((whole @ whole.T).ravel(), (main @ main.T).ravel())[0, 1] > 0.99


@pytest.mark.parametrize("search", [nearest_rows, nearest_places])
@pytest.mark.parametrize("references", [40, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_neighbours_are_brought_up_to_date(
    seed: int, references: int, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures that come, go and change groups leave what one search of all would find."""
    for name in ("REFERENCES", "DISTANCE_REFERENCES"):
        monkeypatch.setattr(nearest, name, references)
    monkeypatch.setattr(nearest, "ROWS", 16)
    monkeypatch.setattr(nearest, "MOST_CHANGED", 1.0)
    rng, n = np.random.default_rng(seed), 150
    codes = rng.integers(0, 2**63, n).astype(np.uint64)
    places = np.rint(rng.normal(size=(n, 8)) * 4).astype(np.float32)  # many are equally near
    owner = rng.integers(0, 60, n)
    before = np.sort(rng.permutation(n)[:130])
    came = np.setdiff1d(np.arange(n), before)[:9]
    after = np.sort(np.append(rng.permutation(before)[:120], came))
    moved = owner.copy()
    moved[rng.permutation(n)[:4]] = 61
    compared: list[int] = []
    whole = nearest._search
    monkeypatch.setattr(
        nearest, "_search", lambda *a: (compared.append(len(a[4]) * len(a[5])), whole(*a))[1]
    )

    def found(rows: np.ndarray, groups: np.ndarray, known: KnownNearest | None = None) -> Nearest:
        points = Compared(places[rows], places[rows], 64.0, codes[rows])
        return search(points, np.unique(groups[rows], return_inverse=True)[1], 2, known)

    first = found(before, owner)
    groups = np.unique(owner[before], return_inverse=True)[1]
    known = KnownNearest.of(first, codes[before], groups)
    compared.clear()
    again, asked = found(after, moved, known), sum(compared)
    fresh = found(after, moved)
    assert asked < 0.9 * len(after) * min(references, len(after))
    np.testing.assert_array_equal(again.index, fresh.index)
    np.testing.assert_array_equal(again.similarity, fresh.similarity)


def test_a_rotated_signature_is_described_as_its_rotated_image() -> None:
    few = table(3)
    described = describe(few)
    assert described.shape == (len(ORIENTATIONS), 3, 128)
    for k in range(4):
        rotated = describe(reorient(few, ORIENTATIONS[k]))[0]
        assert np.allclose(rotated, described[k])
    assert not np.allclose(described[0], described[1], atol=0.1)


def test_the_negative_of_a_negative_is_the_image() -> None:
    few = table(3)
    again = reorient(reorient(few, NEGATIVE), NEGATIVE)
    assert (again["grey"] == few["grey"]).all()
