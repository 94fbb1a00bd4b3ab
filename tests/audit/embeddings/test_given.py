"""The user's own vectors and probabilities: what does not fit is said in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from audit.embeddings.vectors import match_rows, read_probabilities, read_vectors
from audit.errors import UsageError

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
        ({"cat": [1.0, 1.0]}, "a column of probabilities a class"),
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
