"""Labels are judged out of fold, and the mathematics of wrong labels agrees with scipy's."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.optimize import minimize as scipy_minimize
from scipy.stats import binom, norm

from audit.checking.label_facts import LEAST_AGREED
from audit.embeddings.judged import (
    JudgedLabels,
    agreement,
    errors_less,
    judge_probabilities,
    judge_vectors,
    with_share_less,
)
from audit.embeddings.label_noise import (
    WEIGHT_LIMIT,
    _Likelihood,
    find_hump,
    find_strays,
    fit_noise_model,
    law_weights,
    minimise,
)
from audit.embeddings.nearest import Nearest, compare_axes, nearest_rows, vote_shares
from audit.embeddings.ridge import decompose, left_out_scores

MIN_GAIN, MIN_CHANCE = 4.0, 0.65  # the defaults of LABEL006


def clouds(seed: int, n: int, k: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """n points of k normal classes in 20 dimensions, centres `apart` deviations from the middle."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    centres = rng.normal(size=(k, 20)) * apart / np.sqrt(20)
    points = (centres[labels] + rng.normal(size=(n, 20))).astype(np.float32)
    return points - points.mean(0), labels


def judged(
    points: np.ndarray, labels: np.ndarray, groups: np.ndarray | None = None
) -> JudgedLabels:
    own = np.arange(len(labels)) if groups is None else groups
    near = nearest_rows(compare_axes(decompose(points)), own)
    return judge_vectors(points[None], near, labels, own, int(labels.max()) + 1)


def reported(found: JudgedLabels) -> int:
    return int((found.surely >= MIN_CHANCE).sum()) if found.gain >= MIN_GAIN else 0


@pytest.mark.parametrize("columns", [20, 90])  # fewer and more than rows
@pytest.mark.parametrize("size", [1, 3, 30])  # smaller and larger than the columns are many
def test_a_group_is_left_out_as_a_whole(size: int, columns: int) -> None:
    points, labels = clouds(1, 60, 3, 2.0)
    if columns > 20:
        wide = np.random.default_rng(3).normal(size=(20, columns)) / 5
        points = (points @ wide).astype(np.float32)
        points -= points.mean(0)
    groups = np.arange(60) // size
    every = left_out_scores(decompose(points), labels, groups, 3)
    # by hand: ridge regression on the other rows, for the penalty that was chosen; the intercept is
    # that of all rows, for a class is rarer among the others by the row itself
    one_hot = np.eye(3)[labels]
    errors = []
    for penalty in decompose(points).values.max() * 10.0 ** np.arange(-4.5, 0.01, 0.5):
        by_hand = np.empty((60, 3))
        for group in range(60 // size):
            out = groups == group
            x, y = points[~out].astype(float), one_hot[~out]
            middle = x.mean(0)
            gram = (x - middle).T @ (x - middle) + penalty * np.eye(columns)
            slopes = np.linalg.solve(gram, (x - middle).T @ (y - y.mean(0)))
            by_hand[out] = one_hot.mean(0) + (points[out] - middle) @ slopes
        errors.append(np.abs(by_hand - every).max())
    assert min(errors) < 1e-4


def test_a_copy_does_not_vouch_for_a_label() -> None:
    points, labels = clouds(2, 300, 3, 6.0)
    points, labels = np.vstack([points, points[:1]]), np.append(labels, 0)
    wrong = (labels[0] + 1) % 3
    labels[[0, 300]] = wrong  # a picture and its copy, both under another class
    groups = np.append(np.arange(300), 0)
    found = judged(points - points.mean(0), labels, groups)
    assert set(found.order()[:2].tolist()) == {0, 300}
    assert (found.suggested[[0, 300]] != wrong).all()


@pytest.mark.parametrize("apart", [1.0, 2.0, 3.0, 12.0])
def test_clean_labels_are_not_called_wrong(apart: float) -> None:
    found = [reported(judged(*clouds(seed, 400, 4, apart))) for seed in range(5)]
    assert found == [0] * 5


@pytest.mark.parametrize("kind", ["heavy tails", "unlike spreads"])
def test_unusual_pictures_with_right_labels_are_not_called_wrong(kind: str) -> None:
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        labels = rng.integers(5, size=400)
        noise = rng.normal(size=(400, 20))
        if kind == "heavy tails":
            noise /= np.sqrt(rng.chisquare(3, size=(400, 1)) / 3)
        else:
            noise *= np.exp(rng.normal(size=5))[labels][:, None]
        points = rng.normal(size=(5, 20))[labels] * 6 / np.sqrt(20) + noise
        found.append(reported(judged((points - points.mean(0)).astype(np.float32), labels)))
    assert found == [0] * 5


def test_a_few_errors_among_classes_that_lie_apart_are_found() -> None:
    points, labels = clouds(8, 500, 5, 12.0)
    wrong = np.arange(500) < 6
    given = np.where(wrong, (labels + 1) % 5, labels)
    found = judged(points, given)
    flagged = found.surely >= 0.5
    assert found.gain > MIN_GAIN
    assert flagged[wrong].sum() >= 5
    assert not flagged[~wrong].any()
    assert (found.suggested[flagged] == labels[flagged]).all()
    assert 3 < found.forecast(500).wrong < 10


@pytest.mark.parametrize("equal", [True, False])
def test_a_model_that_knows_nothing_accuses_nobody(equal: bool) -> None:
    agreed = []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        k, n = (2, 3, 5, 10)[seed % 4], (60, 120, 240)[seed % 3]
        points = rng.normal(size=(n, 40)) * np.linspace(2, 0.2, 40)
        labels = rng.permutation(np.arange(n) % k) if equal else rng.integers(k, size=n)
        found = judged((points - points.mean(0)).astype(np.float32), labels)
        assert reported(found) == 0
        agreed.append(found.agreed)
    # the larger of two standard normal values has the mean 0.56, and is rarely above 3
    assert abs(np.mean(agreed) - 0.56) < 0.6
    assert max(agreed) < LEAST_AGREED


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_rare_classes_beside_one_of_twenty_times_their_size_are_not_accused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(24), [480, *[24] * 23])
    vectors = (rng.normal(size=(24, 64)) * 0.5)[labels] + rng.normal(size=(len(labels), 64))
    assert reported(judged(vectors, labels)) == 0


def test_agreement_is_counted_in_deviations_of_labels_dealt_anew() -> None:
    points, labels = clouds(9, 200, 4, 1.5)
    own, decomposed = np.arange(200), decompose(points)

    def agreed(dealt: np.ndarray) -> float:
        return agreement(left_out_scores(decomposed, dealt, own, 4), dealt, own)

    rng = np.random.default_rng(0)
    dealt = np.array([agreed(rng.permutation(labels)) for _ in range(200)])
    assert abs(dealt.mean()) < 0.2
    assert 0.7 < dealt.std() < 1.15
    assert agreed(labels) > 5


def test_what_belongs_together_has_one_vote() -> None:
    index = np.array([[1, 2, 3, 4], [0, 3, -1, -1], [0, 1, 3, 4], [0, 1, 2, 4], [0, 1, 2, 3]])
    near = Nearest(index, np.zeros((5, 4), np.float32), 5)
    labels, groups = np.array([0, 1, 1, 1, 0]), np.array([0, 1, 1, 2, 3])
    votes, smooth = vote_shares(near, labels, groups, 2, np.arange(5))
    assert votes[0].tolist() == [1, 2]  # 1 and 2 are one scene
    assert votes[1].tolist() == [1, 1]  # a missing neighbour votes for nothing
    # of class 0 the row itself is one of two: its one vote counts as those of both
    assert smooth[0] == pytest.approx([(2 + 1) / 5, (2 + 1) / 5])


def test_labels_without_any_meaning_are_not_called_wrong() -> None:
    points, labels = clouds(3, 400, 4, 2.0)
    shuffled = np.random.default_rng(0).permutation(labels)
    assert reported(judged(points, shuffled)) == 0


def kept(found: JudgedLabels) -> float:
    """Share of the chances of doubtful labels that is kept where somebody is accused."""
    chance = found.weights @ found.chances
    return float((found.surely[chance > 0.3] / chance[chance > 0.3]).mean())


def test_of_many_labels_the_share_is_believed() -> None:
    few, some, many = (
        with_share_less(np.full((1, 1), 0.7), np.array([8.0]), errors_less(n)[1])[0, 0]
        for n in (500, 3000, 12000)
    )
    # z = 4: a factor of 1 - 2.33 / 4, and of four times as many labels of 1 - 2.33 / 16
    odds = 0.7 / 0.3
    assert few == some == pytest.approx(0.4175 * odds / (1 + 0.4175 * odds), abs=1e-9)
    assert many == pytest.approx(0.854375 * odds / (1 + 0.854375 * odds), abs=1e-9)


def test_of_few_labels_fewer_are_forecast() -> None:
    assert errors_less(3000)[0] == errors_less(9000)[0] == 0
    assert errors_less(1500)[0] == pytest.approx(2.33 / 2)
    points, labels = clouds(5, 600, 4, 3.0)
    rng = np.random.default_rng(2)
    given = np.where(rng.random(600) < 0.2, (labels + rng.integers(1, 4, 600)) % 4, labels)
    found = judged(points, given)
    assert found.error_chance.sum() < 0.95 * (found.weights @ found.chances).sum()
    known = found.forecast(600)
    assert known.low <= known.wrong <= known.high


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_planted_errors_are_found_and_counted(share: float) -> None:
    points, labels = clouds(4, 1000, 4, 4.0)
    rng = np.random.default_rng(1)
    wrong = rng.random(1000) < share
    given = np.where(wrong, (labels + rng.integers(1, 4, 1000)) % 4, labels)
    found = judged(points, given)
    flagged = found.surely >= MIN_CHANCE
    assert found.gain > MIN_GAIN
    assert flagged[wrong].mean() > 0.5
    # of fewer labels the share of wrong ones is less known, and fewer are accused
    fewer = judged(points[:250], given[:250])
    assert kept(fewer) < kept(found) - 0.02 < 1
    assert (found.surely <= found.error_chance + 1e-12).all()
    assert wrong[flagged].mean() > 0.8
    assert abs(found.forecast(1000).wrong - wrong.sum()) < 0.25 * wrong.sum()
    # what is promised of the list is what it holds
    first = found.review_list()
    held = wrong[found.order()[: first.n]].sum()
    assert held > 0.8 * wrong.sum()
    assert first.low <= held <= first.high
    assert abs(first.wrong - held) < 0.2 * held


def test_own_probabilities_are_judged_alike() -> None:
    rng = np.random.default_rng(5)
    true = rng.integers(3, size=500)
    logits = rng.normal(size=(500, 3)) + 5 * np.eye(3)[true]
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    wrong = np.arange(500) < 30
    given = np.where(wrong, (true + 1) % 3, true)
    found = judge_probabilities(p.astype(np.float32), given)
    assert wrong[found.order()[:30]].mean() > 0.8
    assert ((found.quality >= 0) & (found.quality <= 1)).all()


def test_a_decomposition_that_is_given_changes_nothing() -> None:
    points, labels = clouds(7, 200, 3, 3.0)
    own = np.arange(200)
    made = decompose(points)
    near = nearest_rows(compare_axes(made), own)
    for given in (labels, np.where(own < 5, -1, labels)):  # all judged, and some not
        once = judge_vectors(points[None], near, given, own, 3)
        again = judge_vectors(points[None], near, given, own, 3, made)
        np.testing.assert_allclose(once.quality, again.quality, atol=1e-4)


def test_the_order_of_rows_does_not_matter() -> None:
    points, labels = clouds(6, 200, 3, 3.0)
    turn = np.random.default_rng(2).permutation(200)
    once, again = judged(points, labels), judged(points[turn], labels[turn])
    np.testing.assert_allclose(once.quality[turn], again.quality, atol=1e-3)


K, N = 4, 120


def problem(seed: int = 0) -> _Likelihood:
    """The likelihood of labels of which a tenth was set at random, with two witnesses."""
    rng = np.random.default_rng(seed)
    true = rng.integers(K, size=N)
    witnesses = [3 * np.eye(K)[true] + rng.normal(size=(N, K)) for _ in range(2)]
    labels = np.where(rng.random(N) < 0.1, rng.integers(K, size=N), true)
    return _Likelihood(witnesses, rng.normal(size=N), labels, K)


@pytest.mark.parametrize(("clean", "likeness"), [(True, 0.0), (False, 0.0), (False, 0.5)])
@pytest.mark.parametrize("capped", [False, True])
def test_the_gradient_is_that_of_finite_differences(
    clean: bool, likeness: float, capped: bool
) -> None:
    likelihood = problem()
    point = np.random.default_rng(1).normal(0, 0.5, 2 * (2 + K) + 1)
    if capped:
        point[0] = WEIGHT_LIMIT + 1  # beyond it a weight has no effect
    found = likelihood.loss(point, clean, likeness)[1]
    expected = approx_fprime(point, lambda p: likelihood.loss(p, clean, likeness)[0], 1e-7)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.abs(found).max() > 1e-3


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    low, high = x[:-1], x[1:]
    gradient = np.zeros_like(x)
    gradient[:-1] = -400 * low * (high - low**2) - 2 * (1 - low)
    gradient[1:] += 200 * (high - low**2)
    return float((100 * (high - low**2) ** 2 + (1 - low) ** 2).sum()), gradient


def test_the_descent_ends_where_that_of_scipy_does() -> None:
    start = np.linspace(-1.5, 1.5, 6)
    point, value = minimise(rosenbrock, start, 1000)
    np.testing.assert_allclose(point, 1.0, atol=1e-3)
    assert value < 1e-6
    likelihood, origin = problem(2), np.zeros(2 * (2 + K) + 1)
    for law in ((True, 0.0), (False, 0.0), (False, 0.5)):
        _, ours = minimise(lambda p, how=law: likelihood.loss(p, *how), origin)
        theirs = scipy_minimize(likelihood.loss, origin, law, "L-BFGS-B", jac=True)
        assert ours == pytest.approx(theirs.fun, abs=1e-5)


def test_a_share_of_labels_set_at_random_is_estimated() -> None:
    rng = np.random.default_rng(3)
    true = rng.integers(K, size=3000)
    witness = (4 * np.eye(K)[true] + rng.normal(size=(3000, K))).astype(np.float32)
    wrong = rng.random(3000) < 0.1
    labels = np.where(wrong, (true + rng.integers(1, K, 3000)) % K, true)
    _, laws = fit_noise_model([witness], np.zeros(3000), labels, K)
    weights = law_weights(laws)
    assert weights[0] > 0.99  # errors that fall on any class alike
    assert laws[0].gain > 50
    p = laws[0].probabilities([witness], np.zeros(3000))
    assert laws[0].error_chances(p, labels).mean() == pytest.approx(wrong.mean(), abs=0.02)


def test_errors_towards_what_looks_alike_are_told_from_blind_ones() -> None:
    rng = np.random.default_rng(4)
    true = rng.integers(K, size=6000)
    logits = 2.5 * np.eye(K)[true] + rng.normal(size=(6000, K))  # what the witness sees
    seen = np.exp(3 * logits)
    seen /= seen.sum(1, keepdims=True)
    labels = (seen.cumsum(1) < rng.random((6000, 1))).sum(1)  # labels follow it, but for a part
    law = seen**0.5
    law /= law.sum(1, keepdims=True)
    astray = rng.random(6000) < 0.3
    labels[astray] = (law.cumsum(1) < rng.random((6000, 1))).sum(1)[astray]
    _, laws = fit_noise_model([logits.astype(np.float32)], np.zeros(6000), labels, K)
    best = max(laws, key=lambda law: law.gain)
    assert best.likeness > 0
    assert best.gain > laws[0].gain


def margins(*values: tuple[float, int]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of two classes: so many pictures of class 0 at each margin."""
    own = np.concatenate([np.full(n, m) for m, n in values])
    labels = np.append(np.zeros(len(own), np.int64), np.ones(50, np.int64))
    logits = np.zeros((len(labels), 2))
    logits[: len(own), 0] = own
    logits[len(own) :, 1] = np.linspace(3, 5, 50)
    return logits, labels


def test_a_hump_is_counted_against_a_ninth() -> None:
    # the middle of the class is 4, so its tail begins 2 below it and ends 6 below it
    logits, labels = margins((4.1, 45), (3.9, 45), (0.0, 6), (-4.0, 5))
    hump = find_hump(logits, labels)
    assert np.flatnonzero(hump.beyond).tolist() == list(range(96, 101))
    chance_of_tail = binom.sf(4, 11, 1 / 9)
    assert hump.gain == pytest.approx(norm.isf(chance_of_tail) ** 2 / 2)
    assert hump.chance == pytest.approx(1 - 6 / 8 / 5)  # an eighth of those on the way is the tail


@pytest.mark.parametrize("index", [2.0, 3.0])
def test_a_tail_of_finite_variance_is_no_hump(index: float) -> None:
    gains = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        below = 4 - 0.5 * rng.pareto(index, 2000)
        labels = np.zeros(2000, np.int64)
        gains.append(find_hump(np.stack([below, np.zeros(2000)], axis=1), labels).gain)
    assert np.mean(np.array(gains) >= 4.0) <= 0.1


def test_without_anything_beyond_there_is_no_hump() -> None:
    hump = find_hump(*margins((4.1, 45), (3.9, 45), (0.0, 6)))
    assert (hump.gain, hump.chance, hump.beyond.any()) == (0.0, 0.0, False)


def filed(seed: int, wrong: int, *, deep: bool = True) -> tuple[list[np.ndarray], np.ndarray]:
    """Two witnesses and labels of 8 classes of 33, of which a tenth lies half way to another.

    The first `wrong` pictures are filed under another class; those that are not `deep` only as far
    over the border as classes overlap.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(264) % 8
    seen = np.where(np.arange(264) < wrong, (labels + 3) % 8, labels)
    way = np.where(rng.random(264) < 0.1, rng.uniform(0.4, 0.8, 264), 1)
    way[:wrong] = 1 if deep else 0.3
    found = [
        (way[:, None] * np.eye(8)[seen] + 0.12 * rng.normal(size=(264, 8))).astype(np.float32)
        for _ in range(2)
    ]
    return found, labels


@pytest.mark.parametrize("seed", range(3))
def test_a_few_pictures_that_are_typical_of_another_class_are_strays(seed: int) -> None:
    witnesses, labels = filed(seed, 6)
    strays = find_strays(witnesses, labels)
    assert strays.gain > 4
    assert strays.chance > 0.8
    assert strays.beyond[:6].sum() >= 3
    assert not strays.beyond[6:].any()


@pytest.mark.parametrize(("wrong", "deep"), [(0, True), (6, False)])
def test_who_only_lies_over_the_border_is_no_stray(wrong: int, deep: bool) -> None:
    for seed in range(10):
        assert find_strays(*filed(seed, wrong, deep=deep)).gain < 4


def test_a_witness_that_does_not_agree_clears_a_stray() -> None:
    (one, other), labels = filed(1, 6)
    other[:6, :] = other[:6].mean(1, keepdims=True)  # its neighbours are of all classes
    assert find_strays([one], labels).gain > 4
    assert not find_strays([one, other], labels).beyond.any()


def test_strays_of_a_tail_that_thins_out_steadily_are_expected() -> None:
    reported = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        labels = np.arange(600) % 2
        margin = 1 - rng.laplace(0, 0.35, 600)  # exponential to both sides
        score = np.stack([np.where(labels, -margin, margin), np.zeros(600)], 1).astype(np.float32)
        reported += find_strays([score], labels).gain >= 4
    assert reported <= 2  # p = 0.002 each
