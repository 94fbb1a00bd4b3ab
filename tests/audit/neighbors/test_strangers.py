"""What strangers share makes no copies: scores, thresholds that follow them, and the gate."""

import hashlib
import sys
from dataclasses import replace

import cv2
import numpy as np
import pytest

from audit.neighbors.calibration import (
    FALSE_IN_A_SET,
    HIGHEST_SLOPE,
    HIGHEST_THRESHOLD,
    LOOK_ALIKE,
    LOWEST_THRESHOLD,
    START,
    Calibration,
    calibrate,
    fit_tail,
    measure_recall,
)
from audit.neighbors.dense import find_nearest, similarity_table
from audit.neighbors.descriptor import describe
from audit.neighbors.gate import measure_contrast, pass_gate
from audit.neighbors.search import Relation, SearchOptions
from audit.neighbors.strangers import BIAS, BY_OWN, choose_pool, choose_strangers, weigh
from audit.neighbors.synthetic import TRANSFORMATIONS, make_duplicate
from audit.neighbors.verification import LINKED, MOST_STRETCHED, NO_MATCH, NOT_ALIGNED, verify
from audit.picture.signatures import SIGNATURE_DTYPE, Signatures, make_signature, stack_signatures
from tests.audit.scenes import draw_scene
from tests.conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from any_order import find_near_duplicates

STROKES = [
    [(50, 10), (20, 30), (20, 70), (50, 90), (80, 70), (80, 30), (50, 10)],
    [(20, 30), (40, 10), (75, 20), (70, 45), (20, 90), (80, 90)],
    [(20, 15), (70, 15), (50, 45), (80, 65), (60, 90), (20, 85)],
    [(75, 10), (30, 10), (25, 45), (70, 50), (70, 85), (20, 88)],
    [(70, 10), (30, 40), (25, 75), (50, 90), (75, 70), (50, 50), (28, 65)],
    [(75, 35), (50, 50), (30, 30), (50, 10), (75, 30), (65, 90)],
]


def digit(seed: int) -> np.ndarray:
    """One of six digits in a trembling hand, 56 px."""
    rng = np.random.default_rng(seed)
    points = np.array(STROKES[seed % 6]) + rng.normal(0, 5, (len(STROKES[seed % 6]), 2))
    points[:, 0] += rng.normal(0, 0.15) * (50 - points[:, 1])
    board = np.zeros((224, 224), np.uint8)
    path = (points * 1.6 + 32).astype(np.int32).reshape(-1, 1, 2)
    cv2.polylines(board, [path], False, 255, int(rng.integers(14, 26)), cv2.LINE_AA)
    small = cv2.resize(board, (56, 56), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(small, cv2.COLOR_GRAY2RGB), np.uint8)


def search(pictures: list[np.ndarray], **options: object) -> Relation:
    table = stack_signatures([make_signature(p) for p in pictures])
    keys = [hashlib.blake2b(p.tobytes(), digest_size=16).digest() for p in pictures]
    hashes = np.random.default_rng(0).integers(0, 2**63, len(table)).astype(np.uint64)
    chosen = SearchOptions(synthetic_sources=0, **options)
    return find_near_duplicates(
        table, keys, hashes, options=chosen, open_picture=pictures.__getitem__
    )


@pytest.fixture(scope="module")
def digits() -> list[np.ndarray]:
    return [digit(k) for k in range(200)]


@pytest.mark.slow
def test_digits_are_no_copies_of_each_other(digits: list[np.ndarray]) -> None:
    found = search(digits)
    assert found.calibration.strangers > 20
    assert len(found.pairs.pairs) == 0


@pytest.mark.slow
def test_copies_among_digits_are_found(digits: list[np.ndarray]) -> None:
    changes = ["jpeg_70", "png", "border", "less_contrast", "resize_50"]
    copies = [
        make_duplicate(digits[7 * k], changes[k % 5], np.random.default_rng(k)) for k in range(20)
    ]
    found = search(digits + copies)
    pairs = {tuple(sorted(pair)) for pair in found.pairs.pairs.tolist()}
    wanted = {(7 * k, 200 + k) for k in range(20)}
    assert pairs <= wanted
    assert len(pairs) >= 15


@pytest.mark.slow
def test_the_gate_does_not_move_the_threshold(digits: list[np.ndarray]) -> None:
    open_, gated = search(digits), search(digits, gate_from=0)
    assert gated.completeness.gated_pairs > 0
    apart = abs(open_.calibration.threshold - gated.calibration.threshold)
    assert apart <= open_.calibration.uncertainty


def test_what_strangers_share_is_taken_away(scenes: list[np.ndarray]) -> None:
    # one frame with a grid fills most of every picture; a small scene differs
    def framed(scene: np.ndarray) -> np.ndarray:
        board = np.full((128, 128, 3), 240, np.uint8)
        board[::16], board[:, ::16] = 20, 20
        board[40:88, 40:88] = cv2.resize(scene, (48, 48), interpolation=cv2.INTER_AREA)
        return board

    pictures = [framed(scene) for scene in scenes[:40]]
    pictures.append(make_duplicate(pictures[0], "jpeg_70", np.random.default_rng(0)))
    table = stack_signatures([make_signature(p) for p in pictures])
    descriptors, ranks = describe(table), np.arange(len(table))
    pairs = np.array([[0, 40], *([k, k + 1] for k in range(1, 30))])
    verified = verify(table, descriptors, pairs, ranks)
    found = weigh(
        verified,
        table,
        descriptors,
        choose_pool(np.arange(len(table)), np.arange(len(table), dtype=np.uint64)),
    )
    assert verified.score[1:].max() > 0
    assert found.score[0] > found.score[1:].max() + 4
    # those that cannot be called keep no score
    low = replace(verified, score=np.full(len(pairs), LINKED - 0.1))
    low = weigh(low, table, descriptors, np.arange(40))
    assert (low.score <= NO_MATCH).all()
    # nobody to compare with: agreement counts as it is
    alone = weigh(verified.take(np.array([0])), table, descriptors, np.array([0]))
    assert alone.score[0] > BIAS + 3 * BY_OWN


def test_a_picture_that_goes_changes_the_strangers_of_few() -> None:
    rng = np.random.default_rng(0)
    table = np.zeros(600, SIGNATURE_DTYPE)
    table["grey"] = rng.integers(0, 256, (600, 32, 32))
    table["colour"], table["size"] = rng.integers(0, 256, (600, 8, 8, 3)), 200
    descriptors = describe(table)
    codes, rows = rng.integers(0, 2**63, 600).astype(np.uint64), np.arange(600)
    pool = choose_pool(rows, codes)
    before, changed = choose_strangers(rows, table, descriptors, pool), []
    for gone in pool[::30]:
        others = choose_pool(rows[rows != gone], codes)
        after = choose_strangers(rows, table, descriptors, others)
        changed.append((np.sort(before) != np.sort(after)).any(axis=1).mean())
    assert not (before == rows[:, None]).any()
    assert all(len(set(row)) == len(row) for row in before.tolist())
    assert np.mean(changed) < 0.2
    near = similarity_table(descriptors, descriptors[pool])
    near[rows[:, None] == pool] = -2
    nearest = pool[np.argsort(-near, axis=1, kind="stable")[:, :4]]
    assert all(set(four) <= set(row) for four, row in zip(nearest, before, strict=True))


def test_more_than_three_to_one_is_no_copy(scenes: list[np.ndarray]) -> None:
    wide = [cv2.resize(scenes[0], (round(128 * r), 128)) for r in (1.0, 16 / 9, 2.0, 3.4)]
    table = stack_signatures([make_signature(p) for p in wide])
    pairs = np.array([[0, 1], [0, 2], [0, 3]])
    score = verify(table, describe(table), pairs, np.arange(4)).score
    assert np.log(3.4) > MOST_STRETCHED > np.log(2.0)
    assert score[0] > score[1] > 0
    assert score[2] == NO_MATCH


def tail(n: int, slope: float, seed: int = 0) -> np.ndarray:
    """Scores of strangers, exponential from the start of the tail."""
    return START + np.random.default_rng(seed).exponential(1 / slope, n)


def test_look_alikes_raise_the_threshold() -> None:
    few, many = calibrate(tail(5, 1.5)), calibrate(tail(2000, 0.7))
    assert LOWEST_THRESHOLD <= few.threshold < many.threshold <= HIGHEST_THRESHOLD
    assert many.threshold >= LOOK_ALIKE
    assert any("are very similar" in line for line in many.sentences())
    assert not any("are very similar" in line for line in few.sentences())
    # the tail says how many pairs of a set like this one lie above
    assert few.false_expected <= FALSE_IN_A_SET
    assert (tail(5, 1.5, 1) < few.threshold).all()


def test_what_lies_below_the_tail_moves_nothing() -> None:
    scores = tail(60, 1.0)
    low = np.concatenate([scores, np.full(50, NOT_ALIGNED), np.full(9, NO_MATCH), [-9.0, -3.01]])
    assert calibrate(scores) == calibrate(low)


def test_copies_do_not_raise_it() -> None:
    scores = tail(60, 1.0)
    copies = np.random.default_rng(1).uniform(4, 14, 400)
    with_copies = calibrate(np.concatenate([scores, copies]))
    # where many pairs are reported, some more of them may be false
    assert with_copies.threshold <= calibrate(scores).threshold


def bulk(n: int, copies: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a set whose strangers are alike (most at 0, some at 5), and of copies in it."""
    rng = np.random.default_rng(seed)
    return rng.gumbel(-1, 0.8, n), rng.uniform(-1, 17, copies)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "copies"), [(2000, 0), (20_000, 0), (2000, 500), (20_000, 1500)])
def test_amid_many_strangers_the_tail_is_looked_for_beyond_most(
    n: int, copies: int, seed: int
) -> None:
    different, same = bulk(n, copies, seed)
    found = calibrate(np.concatenate([different, same]))
    called = int((same >= found.threshold).sum())
    assert (different >= found.threshold).sum() <= max(2, 0.02 * called)
    # no higher than what any stranger reaches asks for
    assert found.threshold < different.max() + 7


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("n", "copies", "highest"),
    # as many copies as in a set that was changed hard, a large set, and one of film stills
    [(1500, 1000, 9.0), (40_000, 5000, 10.0), (1500, 5000, 9.0)],
)
def test_many_copies_are_no_tail_of_strangers(
    n: int, copies: int, highest: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    different = rng.gumbel(-1, 0.8, n)
    same = rng.uniform(0, 12.5, copies) if n < copies * 2 else rng.triangular(4, 13, 13.5, copies)
    found = calibrate(np.concatenate([different, same]))
    assert found.threshold < highest
    assert (different >= found.threshold).sum() <= max(3, 0.02 * (same >= found.threshold).sum())


@pytest.mark.parametrize("top", [9.0, 11.0, 13.5])
def test_scores_that_rise_to_the_top_have_a_threshold(top: float) -> None:
    rising = np.random.default_rng(0).triangular(-3.5, top, 14, 20_000)
    assert LOWEST_THRESHOLD <= calibrate(rising).threshold <= HIGHEST_THRESHOLD


def test_the_tail_of_a_known_distribution_is_recovered() -> None:
    found = fit_tail(tail(3000, 1.5))
    # the last hundred of them, shrunk towards what is usual
    assert found.start > START
    assert 1.0 < found.slope <= HIGHEST_SLOPE
    threshold = float(found.threshold(np.array([0.3]))[0])
    assert abs(threshold - (START + np.log(3000 / 0.3) / 1.5)) < 2 * found.uncertainty(threshold)
    assert np.isclose(found.rate(threshold), 0.3)
    errors = [fit_tail(tail(200, 1.5, seed)) for seed in range(40)]
    asked = np.array([float(one.threshold(np.array([0.3]))[0]) for one in errors])
    assert 0.5 < asked.std() / np.mean([one.uncertainty(a) for one, a in zip(errors, asked)]) < 2  # noqa: B905


def test_hardly_any_pictures_get_a_threshold() -> None:
    for n in (0, 1, 2):
        found = calibrate(np.full(n, NO_MATCH))
        assert LOWEST_THRESHOLD <= found.threshold < 1.0
        assert len(found.sentences()) == 3


@pytest.mark.slow
def test_recall_is_counted_per_transformation(scenes: list[np.ndarray]) -> None:
    table = stack_signatures([make_signature(p) for p in scenes])
    lowest, pool = calibrate(np.zeros(0)), np.arange(len(table))
    found = measure_recall(lowest, table, describe(table), enumerate(scenes), pool=pool)
    # nearly all copies of three pictures are found: that says enough
    assert found.synthetic_copies == 3 * len(found.recall)
    assert found.recall["mirror"] == 1.0
    assert 0.85 <= np.mean(list(found.recall.values())) <= 1.0
    assert "Expected recall on synthetic copies" in found.sentences()[-1]
    strict = measure_recall(
        Calibration(1e9, 0.0, 0.0, 0, "no pair passes"),
        table,
        describe(table),
        [(0, scenes[0])],
        pool=pool,
    )
    assert np.mean(list(strict.recall.values())) == 0.0
    assert strict.synthetic_copies == len(strict.recall)


STRANGERS = 60


@pytest.fixture(scope="module")
def strangers() -> Signatures:
    """Signatures of pictures that have nothing to do with each other."""
    return stack_signatures([make_signature(draw_scene(k)) for k in range(STRANGERS)])


def passed(table: Signatures, pairs: list[tuple[int, int]], contrast: float) -> list[bool]:
    rows = np.array(pairs, np.int64)
    return pass_gate(
        np.ascontiguousarray(table["grey"]),
        rows,
        np.zeros(len(rows), np.int64),
        np.full(len(rows), contrast),
    ).tolist()


@pytest.mark.parametrize("kind", TRANSFORMATIONS)
def test_copies_pass_whatever_was_done_to_them(strangers: Signatures, kind: str) -> None:
    copies = [make_duplicate(draw_scene(k), kind, np.random.default_rng(k)) for k in range(12)]
    table = np.concatenate([strangers, stack_signatures([make_signature(c) for c in copies])])
    descriptors = describe(table)
    background = find_nearest(descriptors, 12).similarity[:, -1].astype(float)
    pairs = np.array([(k, STRANGERS + k) for k in range(12)])
    ranks = np.arange(len(table))
    alone = verify(table, descriptors, pairs, ranks).score
    gated = verify(table, descriptors, pairs, ranks, background=background).score
    assert (gated[alone > 0] == alone[alone > 0]).all()


def test_strangers_that_do_not_stand_out_are_refused(strangers: Signatures) -> None:
    pairs = [(a, b) for a in range(20) for b in range(a + 1, 20)]
    assert np.mean(passed(strangers, pairs, 0.05)) < 0.15


def test_a_burst_passes_without_standing_out() -> None:
    shots = [make_duplicate(draw_scene(1), "jpeg_50", np.random.default_rng(k)) for k in range(3)]
    table = stack_signatures([make_signature(p) for p in (draw_scene(1), *shots)])
    assert all(passed(table, [(0, 1), (0, 2), (2, 3)], 0.0))


def test_a_pair_that_stands_out_far_passes_without_a_look(strangers: Signatures) -> None:
    assert passed(strangers, [(0, 1), (2, 3)], 0.5) == [True, True]


def test_a_flat_template_is_refused() -> None:
    flat = np.full((40, 40, 3), 90, np.uint8)
    table = stack_signatures([make_signature(flat), make_signature(draw_scene(2))])
    assert passed(table, [(0, 1)], 0.1) == [False]


def test_contrast_is_taken_from_the_lonelier_side() -> None:
    background = np.array([0.5, 0.2, np.inf])
    pairs = np.array([[0, 1], [0, 2]])
    assert measure_contrast(np.array([0.6, 0.6]), background, pairs) == pytest.approx([0.4, 0.1])


def test_order_and_company_change_nothing(strangers: Signatures) -> None:
    pairs = [(a, b) for a in range(15) for b in range(a + 1, 15)]
    straight = passed(strangers, pairs, 0.18)
    order = np.random.default_rng(0).permutation(len(pairs))
    shuffled = passed(strangers, [pairs[k] for k in order], 0.18)
    assert [straight[k] for k in order] == shuffled
    assert set(straight) == {True, False}


def test_what_the_gate_refused_stands_while_its_surroundings_do(strangers: Signatures) -> None:
    keys = [row.tobytes() for row in strangers]
    hashes = np.arange(STRANGERS, dtype=np.uint64) * np.uint64(0x0123456789ABCDEF)
    options = SearchOptions(gate_from=0, synthetic_sources=0)
    gated = find_near_duplicates(strangers, keys, hashes, options=options)
    alone = find_near_duplicates(
        strangers, keys, hashes, options=SearchOptions(gate_from=10**6, synthetic_sources=0)
    )
    assert gated.completeness.gated_pairs > 0
    assert alone.completeness.gated_pairs == 0
    assert len(gated.cache.rejected_pairs) == gated.completeness.verified_pairs
    again = find_near_duplicates(strangers, keys, hashes, options=options, known=gated.cache)
    assert again.completeness.gated_pairs == gated.completeness.gated_pairs
    few = slice(
        0, STRANGERS // 2
    )  # with fewer around them, hardly any pair is surrounded as before
    fewer = find_near_duplicates(
        strangers[few], keys[few], hashes[few], options=options, known=gated.cache
    )
    fresh = find_near_duplicates(strangers[few], keys[few], hashes[few], options=options)
    assert fewer.completeness.gated_pairs == fresh.completeness.gated_pairs
    assert "the prefilter rejected" in " ".join(gated.completeness.sentences())
