"""The user's own vectors and probabilities: what does not fit, and images of several labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from audit.checking.check import all_checks, make_params
from audit.embeddings.label_tables import judge_several
from audit.embeddings.vectors import PictureVectors, match_rows, read_probabilities, read_vectors
from audit.errors import UsageError
from audit.testing import Case, case_store

SAMPLES = pl.DataFrame({"id": ["a.jpg", "b.jpg"], "uri": ["/d/a.jpg", "/d/b.jpg"]})


def vectors(path: Path, rows: list[list[float]], names: list[str] | None = None) -> Path:
    pl.DataFrame({"path": names or ["a.jpg", "b.jpg"], "vector": rows}).write_parquet(path)
    return path


def test_vectors_are_read_from_lists_columns_and_npy(tmp_path: Path) -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    listed = vectors(tmp_path / "a.parquet", rows)
    wide = tmp_path / "b.parquet"
    pl.DataFrame({"id": ["a.jpg", "b.jpg"], "x": [1.0, 3.0], "y": [2.0, 4.0]}).write_parquet(wide)
    saved = tmp_path / "c.npy"
    np.save(saved, np.array(rows))
    saved.with_suffix(".txt").write_text("a.jpg\nb.jpg\n")
    for path in (listed, wide, saved):
        names, found = read_vectors(path)
        assert names == ["a.jpg", "b.jpg"]
        np.testing.assert_array_equal(found, rows)


def test_rows_are_found_by_id_and_by_place() -> None:
    path = Path("f.parquet")
    assert match_rows(path, ["b.jpg", "a.jpg"], SAMPLES).tolist() == [1, 0]
    assert match_rows(path, ["/d/b.jpg"], SAMPLES).tolist() == [-1, 0]


BAD_VECTORS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "lengths": (lambda d: vectors(d / "f.parquet", [[1.0, 2.0], [3.0]]), "others have"),
    "nan": (lambda d: vectors(d / "f.parquet", [[1.0, float("nan")], [3.0, 1.0]]), "NaN"),
    "no paths": (lambda d: (np.save(d / "f.npy", np.zeros((2, 2))), d / "f.npy")[1], "f.txt"),
    "another kind": (lambda d: d / "f.pkl", "neither .npy nor .parquet"),
    "damaged": (
        lambda d: (d.joinpath("f.npy").write_bytes(b"x"), d / "f.npy")[1],
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", BAD_VECTORS)
def test_vectors_that_cannot_be_used(name: str, tmp_path: Path) -> None:
    make, said = BAD_VECTORS[name]
    with pytest.raises(UsageError, match=said):
        read_vectors(make(tmp_path))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"cat": [0.5, 2.0], "dog": [0.5, 1.0]}, "sum to 3"),
        ({"cat": [0.5, -0.5], "dog": [0.5, 1.5]}, "softmax"),
        ({"cat": [1.0, 1.0]}, "one column of probabilities per class"),
    ],
    ids=["sums", "negative", "one class"],
)
def test_probabilities_that_are_none(
    rows: dict[str, list[float]], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.csv"
    pl.DataFrame({"path": ["a.jpg", "b.jpg"], **rows}).write_csv(path)
    with pytest.raises(UsageError, match=said):
        read_probabilities(path)


def test_paths_that_match_nothing_or_twice() -> None:
    with pytest.raises(UsageError, match=r"No path of f\.parquet"):
        match_rows(Path("f.parquet"), ["z.jpg"], SAMPLES)
    with pytest.raises(UsageError, match="twice"):
        match_rows(Path("f.parquet"), ["a.jpg", "a.jpg"], SAMPLES)


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
