"""The whole search on drawn scenes: groups, order, strangers, bounds, a library."""

import hashlib
import sys
from dataclasses import replace

import numpy as np
import pytest

from audit.neighbors import inspection, verification
from audit.neighbors.descriptor import describe
from audit.neighbors.library import Library
from audit.neighbors.overlap import search_against
from audit.neighbors.pairs.stored_pairs import pack_search_state, unpack_search_state
from audit.neighbors.search import Relation, SearchOptions
from audit.neighbors.synthetic import make_duplicate
from audit.picture.signatures import make_signature, stack_signatures
from tests.conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from any_order import find_near_duplicates

pytestmark = pytest.mark.slow

CHANGES = ("jpeg_50", "mirror", "crop_90")


def key(picture: np.ndarray) -> bytes:
    return hashlib.blake2b(picture.tobytes(), digest_size=16).digest()


def mean_hash(signature: np.void) -> int:
    """A 64-bit hash is all the search asks for; this one is enough here."""
    small = signature["grey"].reshape(8, 4, 8, 4).mean(axis=(1, 3)).ravel()
    return int("".join("1" if v > np.median(small) else "0" for v in small), 2)


def signed(pictures: list[np.ndarray]) -> tuple[np.ndarray, list[bytes], np.ndarray]:
    table = stack_signatures([make_signature(p) for p in pictures])
    return table, [key(p) for p in pictures], np.array([mean_hash(s) for s in table], np.uint64)


def search(pictures: list[np.ndarray], **options: object) -> Relation:
    """Search with the pictures at hand; see `SearchOptions`."""
    return find_near_duplicates(
        *signed(pictures), options=SearchOptions(**options), open_picture=pictures.__getitem__
    )


@pytest.fixture(scope="module")
def families(scenes: list[np.ndarray]) -> list[np.ndarray]:
    """Thirty scenes; the first ten with three changed copies each."""
    out = list(scenes[:30])
    for k in range(10):
        out += [make_duplicate(scenes[k], name, np.random.default_rng(k)) for name in CHANGES]
    return out


@pytest.fixture(scope="module")
def known(families: list[np.ndarray]) -> tuple[np.ndarray, list[bytes], np.ndarray]:
    return signed(families)


@pytest.fixture(scope="module")
def found(families: list[np.ndarray]) -> Relation:
    return search(families)


def member_keys(relation: Relation, pictures: list[np.ndarray]) -> set[frozenset[bytes]]:
    return {
        frozenset(key(pictures[m]) for m in group.members) for group in relation.grouping.groups
    }


def test_families_of_duplicates_are_the_groups(families: list[np.ndarray], found: Relation) -> None:
    wanted = {
        frozenset(key(families[m]) for m in (k, 30 + 3 * k, 31 + 3 * k, 32 + 3 * k))
        for k in range(10)
    }
    assert member_keys(found, families) == wanted
    assert all(
        min(group.scores[1:]) >= found.calibration.threshold for group in found.grouping.groups
    )


def test_shuffling_the_input_changes_nothing(families: list[np.ndarray], found: Relation) -> None:
    order = np.random.default_rng(3).permutation(len(families))
    shuffled = [families[k] for k in order]
    other = search(shuffled)
    assert member_keys(found, families) == member_keys(other, shuffled)
    pairs = [
        {
            (frozenset((key(p[a]), key(p[b]))), round(float(s), 9))
            for (a, b), s in zip(r.pairs.pairs, r.pairs.score, strict=True)
        }
        for r, p in ((found, families), (other, shuffled))
    ]
    assert pairs[0] == pairs[1]
    assert found.completeness == other.completeness


def test_a_stranger_changes_no_group(families, found, scene):
    more = [*families, scene(777)]
    assert member_keys(found, families) == member_keys(search(more), more)


def test_flat_pictures_are_left_out_and_counted(families: list[np.ndarray]) -> None:
    flat = [np.full((64, 64, 3), level, np.uint8) for level in (10, 11, 200)]
    found = search([*families, *flat])
    assert found.completeness.left_out == {"one colour or nearly (nothing to align)": 3}
    assert found.pairs.pairs.max() < len(families)
    assert (found.neighbours.index[-3:] == -1).all()
    assert any("3 images left out" in line for line in found.completeness.sentences())


def test_checks_are_bounded_and_counted(families: list[np.ndarray]) -> None:
    options = {"uncertainty_band": 50.0, "nearest": 3, "synthetic_sources": 0}
    free, bound = search(families, **options), search(families, **options, rechecks=2)
    assert free.completeness.rechecks == free.completeness.rechecks_wanted > 2
    assert bound.completeness.rechecks == 2
    assert "more uncertain pairs had none" in " ".join(bound.completeness.sentences())


def test_without_the_files_signatures_decide_alone(known: tuple) -> None:
    alone = find_near_duplicates(*known)
    assert alone.completeness.rechecks == 0
    unread = find_near_duplicates(
        *known, options=SearchOptions(uncertainty_band=50.0), open_picture=lambda row: None
    )
    for one in (alone, unread):
        assert len(one.grouping.groups) == 10
        assert not one.verified_full_size.any()


def test_a_sure_pair_is_checked_too_while_checks_refuse_any(families, known, scene, monkeypatch):
    monkeypatch.setattr(inspection, "SURE_AT_ONCE", 3)
    options = SearchOptions(uncertainty_band=0.0, synthetic_sources=0)
    others = find_near_duplicates(
        *known, options=options, open_picture=lambda row: scene(1000 + row)
    )
    same = find_near_duplicates(*known, options=options, open_picture=families.__getitem__)
    assert len(same.grouping.groups) == 10
    # what shares the middle stays
    assert len(others.pairs.pairs) < len(same.pairs.pairs) / 2
    assert same.completeness.rechecks < len(same.pairs.pairs)


def test_a_decided_pair_is_not_opened_again(families: list[np.ndarray], known: tuple) -> None:
    opened: list[int] = []

    def opener(row: int) -> np.ndarray:
        opened.append(row)
        return families[row]

    options = SearchOptions(uncertainty_band=50.0, nearest=3, synthetic_sources=0)
    first = find_near_duplicates(*known, options=options, open_picture=opener)
    assert opened
    opened.clear()
    again = find_near_duplicates(*known, options=options, open_picture=opener, known=first.cache)
    assert not opened
    assert again.pairs.pairs.tolist() == first.pairs.pairs.tolist()


def test_a_rejected_pair_is_not_aligned_again(known: tuple) -> None:
    first = find_near_duplicates(*known)
    again = find_near_duplicates(*known, known=first.cache)
    assert 0 < len(first.cache.rejected_pairs) <= first.completeness.verified_pairs
    assert first.completeness.rejected_before == 0
    assert again.completeness.rejected_before == len(first.cache.rejected_pairs)
    assert again.completeness.verified_pairs == first.completeness.verified_pairs
    assert again.pairs.pairs.tolist() == first.pairs.pairs.tolist()
    assert again.pairs.score.tolist() == first.pairs.score.tolist()
    assert again.grouping.groups == first.grouping.groups
    assert again.cache.rejected_pairs.tolist() == first.cache.rejected_pairs.tolist()


@pytest.mark.parametrize("gate_from", [0, 10**6])
def test_after_pictures_came_and_went_the_search_finds_what_a_first_one_does(
    known: tuple, monkeypatch: pytest.MonkeyPatch, gate_from: int
) -> None:
    monkeypatch.setattr("audit.neighbors.search.KEPT_FROM", 0)
    monkeypatch.setattr("audit.neighbors.strangers.POOL", 12)
    aligned: list[int] = []
    real = verification.align_pairs
    monkeypatch.setattr(
        verification, "align_pairs", lambda *a: (aligned.append(len(a[2])), real(*a))[1]
    )
    options = SearchOptions(nearest=4, gate_from=gate_from)
    table, keys, hashes = known
    n, rng = len(table), np.random.default_rng(5)
    for gone, come in ((3, 0), (0, 3), (2, 3)):
        rows = rng.permutation(n)
        before, now = np.sort(rows[come:]), np.sort(rows[gone:] if gone else rows)
        now = np.setdiff1d(now, rows[come : come + gone]) if gone else now

        def part(rows: np.ndarray) -> tuple:
            return table[rows], [keys[k] for k in rows], hashes[rows]

        first = find_near_duplicates(*part(before), options=options)
        aligned.clear()
        fresh = find_near_duplicates(*part(now), options=options)
        anew = sum(aligned)
        aligned.clear()
        stored = unpack_search_state(pack_search_state(first.cache))  # as in a run
        known_now = replace(first.cache, **stored)
        again = find_near_duplicates(*part(now), options=options, known=known_now)
        assert sum(aligned) < anew / 2
        assert again.neighbours.index.tolist() == fresh.neighbours.index.tolist()
        assert again.neighbours.similarity == pytest.approx(fresh.neighbours.similarity, abs=1e-4)
        assert again.pairs.pairs.tolist() == fresh.pairs.pairs.tolist()
        assert again.pairs.matrix.tolist() == fresh.pairs.matrix.tolist()
        assert again.pairs.score == pytest.approx(fresh.pairs.score, abs=1e-5)
        assert [g.members for g in again.grouping.groups] == [
            g.members for g in fresh.grouping.groups
        ]
        assert again.calibration.threshold == pytest.approx(fresh.calibration.threshold, abs=1e-5)
        assert again.completeness.gated_pairs == fresh.completeness.gated_pairs


def test_the_recall_to_expect_comes_from_pictures_of_the_set(families: list[np.ndarray]) -> None:
    expected = search(families, synthetic_sources=3, recall_from=0).calibration
    assert expected.synthetic_copies == 3 * len(expected.recall)
    assert 0.5 < np.mean(list(expected.recall.values())) <= 1.0
    assert "Expected recall on synthetic copies" in expected.sentences()[-1]
    few = search(families[:5], synthetic_sources=3).calibration
    assert not few.recall
    assert "was not measured: run `audit recheck RUN --recall`" in few.sentences()[-1]


def test_progress_goes_from_none_to_all(known: tuple) -> None:
    shares: list[float] = []
    find_near_duplicates(*known, advance=shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1


def test_the_radius_shrinks_rather_than_flood(known: tuple) -> None:
    table, keys, _ = known
    n = len(table)
    # every hash is within 6 bits of every other
    options = SearchOptions(hash_pairs_per_image=2)
    found = find_near_duplicates(table, keys, np.arange(n, dtype=np.uint64), options=options)
    assert found.completeness.radius < 6
    assert found.completeness.hash_pairs <= 2 * n
    assert len(found.grouping.groups) == 10


@pytest.mark.parametrize("n", [0, 1, 2])
def test_hardly_any_pictures(n: int, scenes: list[np.ndarray]) -> None:
    found = search(scenes[:n])
    assert found.grouping.groups == ()
    assert found.neighbours.index.shape == (n, SearchOptions().nearest)


def test_the_nearest_of_few_pictures_in_a_large_library_are_those_of_all(
    scenes: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Library(*signed(scenes), 0.0)
    turned = [np.ascontiguousarray(np.rot90(scene[::-1], k)) for k, scene in enumerate(scenes[:6])]
    asked = describe(signed(turned)[0])
    near = held.nearest(asked, 5)
    monkeypatch.setattr("audit.neighbors.library.LARGE", 10)
    monkeypatch.setattr("audit.neighbors.library.LISTED", len(scenes) // 2)
    few = held.nearest(asked, 5, listed=True)
    assert (near.exact, few.exact) == (True, False)
    assert few.index[:, :2].tolist() == near.index[:, :2].tolist()
    assert few.index[:, 0].tolist() == list(range(6))
    np.testing.assert_allclose(few.similarity[:, 0], near.similarity[:, 0], atol=1e-5)


def test_new_images_are_found_in_a_library(scenes: list[np.ndarray]) -> None:
    library = scenes[:40]
    new = [make_duplicate(scenes[k], "crop_90", np.random.default_rng(k)) for k in range(10)]
    new += scenes[50:60]
    held = Library(*signed(library), -1.5)
    found, _ = search_against(*signed(new), held)
    assert found.pairs.tolist() == [[k, k] for k in range(10)]
    checked, checked_completeness = search_against(
        *signed(new), held, options=SearchOptions(uncertainty_band=50.0),
        open_new=new.__getitem__, open_library=library.__getitem__,
    )  # fmt: skip
    assert checked.pairs.tolist() == found.pairs.tolist()
    assert checked_completeness.rechecks > 0
