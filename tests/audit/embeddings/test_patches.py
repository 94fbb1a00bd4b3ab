"""Built-in vectors, and what relates classes and boxes to the stored signatures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from audit.embeddings import nearest, patches
from audit.embeddings.box_fits import EACH, relate_box_fits
from audit.embeddings.class_marks import relate_marks
from audit.embeddings.nearest import Compared, KnownNearest, Nearest, nearest_places, nearest_rows
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
from audit.neighbors.pairs.signature_store import write_signatures
from audit.picture.measure import signature_table
from audit.picture.signatures import make_signature, stack_signatures
from audit.testing import Case, case_store
from tests.audit.checks.case_tables import boxed
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


N = 80


def write(run: Path, pictures: list[np.ndarray]) -> list[dict[str, Any]]:
    """Store the signatures of pictures; return their rows, every fourth of class b."""
    hashes = [f"{number:064x}" for number in range(len(pictures))]
    write_signatures(run, signature_table(hashes, [make_signature(p) for p in pictures]))
    return [{"content_hash": h, "label": "ab"[n % 4 == 0]} for n, h in enumerate(hashes)]


def textures(count: int = N) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [np.clip(rng.normal(120, 30, (32, 32, 3)), 0, 255).astype(np.uint8)
            for _ in range(count)]  # fmt: skip


def test_the_mark_of_a_class_is_kept_for_every_picture(tmp_path: Path) -> None:
    pictures = textures()
    for drawing in pictures[::4]:
        drawing[27:29, 20:27] = 250
    with case_store(Case("", write(tmp_path, pictures))) as store:
        relate_marks(store, tmp_path)
        found = store.query("SELECT * FROM class_marks")
    assert found["label"].unique().to_list() == ["b"]
    assert found["place"].unique().to_list() == ["bottom right"]
    assert found["sample_id"].n_unique() == N


@pytest.mark.parametrize("why", ["none", "few", "copies", "one class", "plain ground"])
def test_no_mark_is_found(tmp_path: Path, why: str) -> None:
    pictures = textures(36 if why == "few" else N)
    if why != "none":
        for drawing in pictures[::4]:
            drawing[27:29, 20:27] = 250
    if why == "plain ground":
        for drawing in pictures:
            drawing[:3], drawing[-3:], drawing[:, :3], drawing[:, -3:] = 0, 0, 0, 0
    rows = write(tmp_path, pictures)
    for row in rows:
        if why == "one class":
            row["label"] = "a"
        if why == "copies" and row["label"] == "b":
            row["pixel_hash"] = "f" * 32
    with case_store(Case("", rows)) as store:
        relate_marks(store, tmp_path)
        assert store.scalar("SELECT count(*) FROM class_marks") == 0


def fits(tmp_path: Path, mirrored: bool, crowd: int = 1) -> pl.DataFrame:
    """Return `box_fits`, the best first: one object an image."""
    rng, pictures, boxes, listed = np.random.default_rng(8), textures(), [], []
    for number, drawing in enumerate(pictures):
        x, y = (int(v) for v in rng.integers(1, 20, 2))
        drawing[y : y + 8, x : x + 9] = rng.choice([10, 245])
        place = {"x": 20.0 * (32 - x - 9 if mirrored else x), "y": 15.0 * y}
        name = f"{number:04d}.jpg"
        boxes.append({"sample_id": name, "width": 180.0, "height": 120.0, **place})
        listed.append({"file": "boxes.json", "image_key": name, "sample_id": name, "entry": number})
    boxes += boxes[:1] * (crowd - 1)
    tables = boxed(*boxes, annotated_images=listed)
    with case_store(Case("", write(tmp_path, pictures), tables=tables)) as store:
        relate_box_fits(store, tmp_path)
        return store.query("SELECT * FROM box_fits ORDER BY gain_z DESC")


@pytest.mark.parametrize("mirrored", [False, True])
def test_boxes_on_mirrored_pictures_fit_better_mirrored(tmp_path: Path, mirrored: bool) -> None:
    row = fits(tmp_path, mirrored).row(0, named=True)
    assert row["gain_z"] > 4 if mirrored else row["gain_z"] < -2
    assert not mirrored or row["elsewhere"] == "mirrored"
    assert row["boxes"] == row["units"] == N


def test_of_a_crowded_picture_some_boxes_are_looked_at(tmp_path: Path) -> None:
    assert fits(tmp_path, False, crowd=30)["boxes"][0] == N - 1 + EACH
