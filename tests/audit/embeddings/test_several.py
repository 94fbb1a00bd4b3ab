"""Pictures with several labels, judged class by class by the probabilities that a user gives."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from audit.checking.check import all_checks, make_params
from audit.embeddings.label_tables import judge_several
from audit.embeddings.vectors import PictureVectors, read_probabilities
from audit.errors import UsageError
from audit.testing import Case, case_store

NAMES = ("boat", "cat", "dog")


def judged(damaged):
    """Suspects of 600 pictures with two labels or more; of each tenth picture one is turned."""
    rng = np.random.default_rng(2)
    truth = rng.random((600, 3)) < 0.5
    truth[truth.sum(1) < 2] = True
    p = np.clip(np.where(truth, 0.93, 0.07) + rng.normal(0, 0.05, truth.shape), 0.001, 0.999)
    given, ids = truth.copy(), [f"{i:04d}.jpg" for i in range(600)]
    wrong = range(0, 600, 10) if damaged else ()
    for i in wrong:
        given[i, i // 10 % 3] ^= True
    held = [
        {"sample_id": ids[i], "label": NAMES[k].title()}
        for i, k in zip(*given.nonzero(), strict=True)
    ]
    case = Case("several", [{"id": i, "label": None} for i in ids], tables={"several_labels": held})
    found = PictureVectors(
        pl.DataFrame({"id": ids}),
        np.zeros((1, 600, 1), np.float32),
        "",
        p.astype(np.float32),
        NAMES,
    )
    check = all_checks()["LABEL008"]
    with case_store(case) as store:
        rows = judge_several(store, found)
        assert (rows["error_chance"] >= 0.05).all()
        store.append("several_scores", rows)
        findings = list(check.find(store, make_params(check, {})))
    return {s for f in findings for s in f.sample_ids}, {ids[i] for i in wrong}


def test_turned_labels_are_named_and_nothing_else():
    found, wrong = judged(True)
    assert found <= wrong
    assert len(found) >= 0.75 * len(wrong)


def test_right_labels_are_left_alone():
    assert judged(False)[0] == set()


def test_probabilities_of_several_labels_need_not_sum_to_one(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("path,a,b\n1.jpg,.9,.8\n")
    with pytest.raises(UsageError, match=r"sum to 1\.7"):
        read_probabilities(path)
    assert read_probabilities(path, several=True)[2].tolist() == [
        [np.float32(0.9), np.float32(0.8)]
    ]
    path.write_text("path,a,b\n1.jpg,1.9,.8\n")
    with pytest.raises(UsageError, match="no probabilities"):
        read_probabilities(path, several=True)
