"""Units of many classes dealt out: each class within one unit of its share, fixed units left."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest

from audit.exports.new_splits import SplitRequest, assign_splits, evenness
from audit.exports.stratified import as_matrix, stratify
from tests.audit.exports.test_new_splits import SHARES, samples


def pictures(n: int, classes: int, seed: int) -> list[dict[tuple[str, str], int]]:
    rng = np.random.default_rng(seed)
    share = 0.6 / np.arange(1, classes + 1) ** 0.7
    return [
        {("", ""): 1}
        | {("objects", f"{k:02d}"): 1 + int(rng.poisson(2)) for k in np.flatnonzero(drawn < share)}
        for drawn in rng.random((n, classes))
    ]


@pytest.mark.parametrize(("n", "classes"), [(60, 3), (400, 12), (900, 30)])
def test_every_class_is_within_one_picture_of_its_share(n: int, classes: int) -> None:
    matrix, names = as_matrix(pictures(n, classes, n))
    shares = np.array([0.7, 0.2, 0.1])
    made = stratify(matrix, shares, np.full(n, -1), 0)
    assert names[0] == ("", "")
    for s, share in enumerate(shares):
        mine = np.asarray(matrix[np.flatnonzero(made.split == s)].sum(0)).ravel()
        lack = share * np.asarray(matrix.sum(0)).ravel() - mine
        most = np.asarray(matrix.max(0).todense()).ravel()
        assert made.off[s] == pytest.approx(lack / most)
        assert np.abs(made.off[s]).max() <= 1
        assert abs(made.off[s, 0]) <= 0.5
    assert (stratify(matrix, shares, np.full(n, -1), 0).split == made.split).all()
    assert (stratify(matrix, shares, np.full(n, -1), 1).split != made.split).any()


def test_units_that_have_a_split_keep_it_and_count() -> None:
    matrix, _ = as_matrix(pictures(200, 6, 5))
    fixed = np.full(200, -1)
    fixed[:40], fixed[40:50] = 1, -2
    made = stratify(matrix, np.array([0.5, 0.5]), fixed, 0)
    assert (made.split[:50] == fixed[:50]).all()
    assert set(made.split[50:].tolist()) == {0, 1}
    assert np.abs(made.off).max() <= 1


def test_samples_of_many_classes_stay_with_their_unit_and_the_facts_say_how_even() -> None:
    frame = samples()
    held = {
        name: row | {("pictures", label): 1}
        for name, label, row in zip(frame["id"], frame["label"], pictures(400, 8, 1), strict=True)
    }
    for row in held.values():
        row.pop(("", ""))
    made, facts = assign_splits(frame, SplitRequest(SHARES, seed=1), held=held)
    whole = made.group_by("group").agg(pl.col("split").n_unique()).drop_nulls("group")
    assert whole["split"].max() == 1
    assert facts["torn"] == 0
    assert {c["of"] for c in facts["classes"]} == {"pictures", "objects"}
    assert facts["classes"][0]["off_by_pictures"] <= 1
    assert evenness(facts).startswith("10 of 10 classes have their share")
    counts = Counter(made["split"])
    assert all(abs(counts[s] - 400 * share) <= 4 for s, share in SHARES.items())
    given = samples(splits=["holdout", "val", *[None] * 398])
    kept = assign_splits(given, SplitRequest(SHARES), held=held)[0]["split"].to_list()
    assert (kept[0], kept[1], kept[2]) == ("holdout", "val", kept[3])
    assert evenness({}) == ""
