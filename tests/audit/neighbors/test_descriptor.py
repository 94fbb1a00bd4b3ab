"""Descriptors, orientations and verification: copies are seen through, strangers are not."""

import itertools
from collections.abc import Callable, Iterator

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.neighbors import verification
from audit.neighbors.affine import lay_over, map_in_pixels, refine_map
from audit.neighbors.candidates import find_turned_pairs, hash_orientations
from audit.neighbors.dense import find_nearest, find_nearest_in, similarity_table
from audit.neighbors.descriptor import compare_orientations, describe
from audit.neighbors.orientations import (
    INVERSE,
    ORIENTATIONS,
    orient,
    orient_frequencies,
    parity_sign,
)
from audit.neighbors.synthetic import TRANSFORMATIONS, make_duplicate
from audit.neighbors.transformation import PairTransformation, describe_pair
from audit.neighbors.verification import NO_MATCH, key_ranks, verify
from audit.picture.signatures import GREY_SIDE, SIGNATURE_DTYPE, make_signature, stack_signatures


def source_place(y: int, x: int, n: int, orientation: int) -> tuple[int, int]:
    """Return the (row, column) of an n x n picture that `orient` moves to (y, x)."""
    v, u = (x, y) if orientation & 4 else (y, x)
    if orientation & 1:
        u = n - 1 - u
    if orientation & 2:
        v = n - 1 - v
    return v, u


def random_table(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = np.zeros(n, SIGNATURE_DTYPE)
    table["grey"] = rng.integers(0, 256, (n, 32, 32))
    table["colour"] = rng.integers(0, 256, (n, 8, 8, 3))
    table["size"] = 200
    return table


def laid_down(table: np.ndarray, k: int) -> np.ndarray:
    out = table.copy()
    for row in range(len(table)):
        out["grey"][row] = orient(table["grey"][row], k)
        out["colour"][row] = orient(table["colour"][row], k)
    return out


@pytest.mark.parametrize("k", range(len(ORIENTATIONS)))
def test_each_orientation_is_recognised(k: int) -> None:
    table = random_table(0, 8)
    # similarity k of (laid down, original): the original laid down that way is the first
    found = compare_orientations(describe(laid_down(table, k)), describe(table))
    assert (found.argmax(axis=1) == k).all()
    assert np.allclose(found[:, k], 1.0, atol=1e-4)


def test_brightness_and_contrast_hardly_matter() -> None:
    table = stack_signatures(
        [
            make_signature(p)
            for p in np.random.default_rng(1).integers(40, 200, (5, 64, 64, 3)).astype(np.uint8)
        ]
    )
    dimmed = table.copy()
    dimmed["grey"] = table["grey"] // 2 + 20
    dimmed["colour"] = table["colour"] // 2 + 20
    assert compare_orientations(describe(table), describe(dimmed))[:, 0].min() > 0.97


def brute(table: np.ndarray) -> np.ndarray:
    n = len(table)
    d = describe(table)
    first, second = (a.ravel() for a in np.indices((n, n)))
    return compare_orientations(d[first], d[second]).max(axis=1).reshape(n, n)


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), n=st.integers(2, 60), k=st.integers(1, 12))
def test_the_exact_search_is_exact(seed: int, n: int, k: int) -> None:
    table = random_table(seed, n)
    all_pairs = brute(table)
    np.fill_diagonal(all_pairs, -9)
    found = find_nearest(describe(table), k)
    m = min(k, n - 1)
    assert np.allclose(found.similarity[:, :m], -np.sort(-all_pairs, axis=1)[:, :m], atol=4e-5)
    assert (found.index[:, m:] == -1).all()
    assert (found.index != np.arange(n)[:, None]).all()
    assert found.exact


@pytest.mark.slow
def test_blocks_join_without_a_seam() -> None:
    table = random_table(3, 2300)  # three blocks
    d = describe(table)
    found = find_nearest(d, 5)
    rows = np.array([0, 1023, 1024, 2047, 2048, 2299])
    truth = similarity_table(d[rows], d)
    truth[np.arange(len(rows)), rows] = -9
    assert np.allclose(found.similarity[rows], -np.sort(-truth, axis=1)[:, :5], atol=1e-5)


def test_the_approximate_search_measures_its_recall_and_finds_copies() -> None:
    table = random_table(4, 1500)
    copies = laid_down(table[:300], 1)
    d = describe(np.concatenate([table, copies]))
    found = find_nearest(d, 5, exact_limit=100)
    assert not found.exact
    assert 0.0 < found.recall < 1.0
    assert found.sample == 500
    hit = (found.index[:300] == np.arange(1500, 1800)[:, None]).any(axis=1)
    assert hit.mean() > 0.97


def test_queries_find_their_copies_in_a_library() -> None:
    table = random_table(5, 700)
    found = find_nearest_in(describe(laid_down(table[:50], 6)), describe(table), 3)
    assert found.index[:, 0].tolist() == list(range(50))


ALL = range(len(ORIENTATIONS))


def square(seed: int = 0, n: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n * n).reshape(n, n).astype(np.float32)


def test_they_are_eight_different_ones() -> None:
    assert len({orient(square(), k).tobytes() for k in ALL}) == len(ORIENTATIONS) == 8


@pytest.mark.parametrize("k", ALL)
def test_the_inverse_leads_back(k: int) -> None:
    assert (orient(orient(square(), k), int(INVERSE[k])) == square()).all()


@pytest.mark.parametrize("k", ALL)
def test_places_are_those_of_the_picture(k: int) -> None:
    picture, laid = square(), orient(square(), k)
    for y, x in itertools.product(range(6), range(6)):
        assert laid[y, x] == picture[source_place(y, x, 6, k)]


@pytest.mark.parametrize("k", ALL)
def test_frequencies_and_signs_follow_the_picture(k: int) -> None:
    before, after = cv2.dct(square()), cv2.dct(orient(square(), k))
    assert np.allclose(orient_frequencies(before[None], k)[0], after, atol=1e-3)
    for v, u in itertools.product(range(6), range(6)):
        place = (u, v) if k & 4 else (v, u)
        signed = parity_sign(k, (u % 2) + 2 * (v % 2)) * before[v, u]
        assert after[place] == pytest.approx(signed, abs=1e-3)


def test_names_say_what_is_undone_clockwise() -> None:
    turned = {90: np.rot90(square(), -1), 180: np.rot90(square(), 2), 270: np.rot90(square())}
    for degrees, picture in turned.items():
        k = ORIENTATIONS.index(f"rotated by {degrees} degrees")
        assert (orient(np.ascontiguousarray(picture), k) == square()).all()
    mirrored = ORIENTATIONS.index("mirrored")
    assert (orient(square()[:, ::-1], mirrored) == square()).all()


def table_of_grey(*thumbnails: np.ndarray) -> np.ndarray:
    table = stack_signatures([make_signature(np.zeros((40, 40, 3), np.uint8))] * len(thumbnails))
    for row, grey in enumerate(thumbnails):
        table["grey"][row] = grey
    return table


@given(st.integers(0, 2**32 - 1), st.integers(0, 7))
def test_the_code_of_a_turned_picture_is_the_turned_code(seed: int, orientation: int) -> None:
    grey = np.random.default_rng(seed).integers(0, 256, (GREY_SIDE, GREY_SIDE), np.uint8)
    turned = grey[:, ::-1] if orientation & 1 else grey
    turned = turned[::-1] if orientation & 2 else turned
    turned = turned.T if orientation & 4 else turned
    codes = hash_orientations(table_of_grey(grey, turned))
    # rounding may decide a frequency that equals the median
    assert int(np.bitwise_count(codes[orientation, 0] ^ codes[0, 1])) <= 1


def test_every_way_up_is_found(scenes: list[np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    changed = [
        make_duplicate(scenes[k], kind, rng) for k, kind in enumerate(("mirror", "rotate_90"))
    ]
    flipped = np.ascontiguousarray(scenes[2][::-1])
    table = stack_signatures([make_signature(p) for p in (*scenes[:6], *changed, flipped)])
    pairs = find_turned_pairs(table, 4).tolist()
    assert [0, 6] in pairs
    assert [1, 7] in pairs
    assert [2, 8] in pairs
    assert len(pairs) == 3


def test_one_picture_has_no_pair(scenes: list[np.ndarray]) -> None:
    assert find_turned_pairs(stack_signatures([make_signature(scenes[0])]), 4).shape == (0, 2)


HARD = {"crop_80", "caption"}


def scores(first: list[np.ndarray], second: list[np.ndarray]) -> np.ndarray:
    table = stack_signatures([make_signature(p) for p in (*first, *second)])
    pairs = np.stack([np.arange(len(first)), np.arange(len(first)) + len(first)], axis=1)
    return verify(table, describe(table), pairs, np.arange(len(table))).score


@pytest.mark.parametrize("name", sorted(TRANSFORMATIONS))
def test_known_changes_are_seen_through(name: str, scenes: list[np.ndarray]) -> None:
    changed = [make_duplicate(p, name, np.random.default_rng(k)) for k, p in enumerate(scenes[:20])]
    found = scores(scenes[:20], changed) > 0
    assert found.mean() >= (0.8 if name in HARD else 0.95)


def test_strangers_are_not_taken_for_copies(scenes: list[np.ndarray]) -> None:
    table = stack_signatures([make_signature(p) for p in scenes])
    pairs = np.array(list(itertools.combinations(range(len(scenes)), 2)))
    verified = verify(table, describe(table), pairs, np.arange(len(table)))
    assert verified.score.max() < -1.5


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_symmetric_to_the_last_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = np.zeros(12, SIGNATURE_DTYPE)
    base = rng.integers(0, 256, (3, 8, 8)).repeat(4, axis=1).repeat(4, axis=2)
    table["grey"] = np.clip(
        base[rng.integers(0, 3, 12)] + rng.integers(-40, 40, (12, 32, 32)), 0, 255
    )
    table["colour"] = rng.integers(0, 256, (12, 8, 8, 3))
    table["size"] = rng.integers(20, 400, (12, 2))
    ranks = key_ranks([rng.bytes(8) for _ in range(12)])
    pairs = np.array(list(itertools.combinations(range(12), 2)))
    d = describe(table)
    one = verify(table, d, pairs, ranks)
    # the other way round, in another order, in small batches
    order = rng.permutation(len(pairs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "BATCH", 7)
        other = verify(table, d, pairs[order][:, ::-1], ranks)
    assert one.score[order].tolist() == other.score.tolist()
    assert one.matrix[order].tolist() == other.matrix.tolist()
    assert one.similarity[order].tolist() == other.similarity.tolist()


def test_flat_pictures_match_nothing_not_even_each_other(scenes: list[np.ndarray]) -> None:
    flat = np.full((80, 80, 3), 200, np.uint8)
    assert scores([flat, flat], [flat, scenes[0]]).tolist() == [NO_MATCH, NO_MATCH]


def test_no_pairs_is_no_error(scenes: list[np.ndarray]) -> None:
    table = stack_signatures([make_signature(scenes[0])])
    empty = verify(table, describe(table), np.zeros((0, 2), np.int64), np.arange(1))
    assert len(empty.score) == 0


def described(
    scenes: list[np.ndarray], name: str, flipped: bool = False
) -> Iterator[PairTransformation]:
    """What is said of pictures beside their changed copies; `flipped`: the copy is the template."""
    for k, picture in enumerate(scenes):
        changed = make_duplicate(picture, name, np.random.default_rng(k))
        table = stack_signatures([make_signature(picture), make_signature(changed)])
        ranks = np.array([1, 0] if flipped else [0, 1])
        verified = verify(table, describe(table), np.array([[0, 1]]), ranks)
        yield describe_pair(table[0], table[1], verified, 0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mirror", "mirrored"),
        ("rotate_180", "rotated by 180 degrees"),
        ("crop_80", "cropped to"),
        ("brighter", "brighter by"),
        ("darker", "darker by"),
        ("grey", "made grey"),
        ("border", "border added"),
        ("rotate_3", "rotated 3 degrees"),
        ("png", "same view"),
    ],
)
@pytest.mark.parametrize("flipped", [False, True])
def test_the_change_is_put_into_words(
    name: str, words: str, flipped: bool, scenes: list[np.ndarray]
) -> None:
    # whichever of the two is the template, the words go from the first to the second
    said = [words in change.words for change in described(scenes[:10], name, flipped)]
    assert sum(said) >= 8


def test_amounts_are_about_right(scenes: list[np.ndarray]) -> None:
    kept = [change.share_kept for change in described(scenes[:12], "crop_80")]
    turned = [abs(change.rotation) for change in described(scenes[:12], "rotate_3")]
    assert abs(np.median(kept) - 0.8) < 0.02
    assert abs(np.median(turned) - 3.0) < 0.5


MAP = np.array([-0.1, 0.03, 0.05, -0.02, -0.08, 0.04])


@pytest.mark.parametrize("side", [32, 128, 480])
def test_units_and_pixels_are_one_map(side: int) -> None:
    # a corner of the picture goes to the same corner in both forms
    corner = map_in_pixels(MAP, side) @ np.array([-0.5, -0.5, 1.0])
    wanted = (
        (1 + MAP[0]) * -1 + MAP[1] * -1 + MAP[2],
        MAP[3] * -1 + (1 + MAP[4]) * -1 + MAP[5],
    )
    assert (corner + 0.5) / (side / 2) - 1 == pytest.approx(wanted)


def test_a_known_map_is_found_and_undone(scene: Callable[..., np.ndarray]) -> None:
    plane = cv2.cvtColor(scene(1, 128, 128), cv2.COLOR_RGB2GRAY).astype(np.float32)
    plane = cv2.GaussianBlur(plane, (0, 0), 1.5)
    warp = map_in_pixels(MAP, 128).astype(np.float32)
    moved = cv2.warpAffine(plane, warp, (128, 128), borderMode=cv2.BORDER_REPLICATE)
    found = refine_map(plane, moved, np.eye(2, 3, dtype=np.float32), steps=80, precision=1e-6)
    assert found is not None
    laid, covered = lay_over(moved, found, (128, 128))
    assert 0.5 < covered.mean() <= 1.0
    middle = (slice(24, -24), slice(24, -24))
    assert np.abs(laid - plane)[middle].mean() < 2.0
    assert np.abs(moved - plane)[middle].mean() > 10.0


def test_nothing_to_register_gives_no_map() -> None:
    flat = np.full((64, 64), 90, np.float32)
    start = np.eye(2, 3, dtype=np.float32)
    assert refine_map(flat, flat, start, steps=10, precision=1e-4) is None


def test_where_a_shifted_picture_does_not_reach_is_told() -> None:
    warp = np.array([[1, 0, 16], [0, 1, 0]], np.float32)
    _, covered = lay_over(np.ones((64, 64), np.float32), warp, (64, 64))
    assert covered[:, :48].all()
    assert not covered[:, 48:].any()
