"""The user's own vectors and probabilities, read from files and joined to pictures by path.

Vectors: Parquet with a column `path` (or `id`, `sample_id`) and either one list column or a number
column per dimension; or .npy, (n, d), with the paths beside it in a text file of the same name,
one a line. Probabilities: Parquet or CSV with a column `path` and a column per class, named
like it.
A path is a sample's id, or the place of its file. Whatever does not fit is said in a sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.errors import UsageError

Floats = npt.NDArray[np.float32]
KEYS = ("path", "id", "sample_id")
SUM_TOLERANCE = 0.02
"""How far the probabilities of one picture may be from one in all: they were rounded."""


def read_vectors(path: Path) -> tuple[list[str], Floats]:
    """Return paths and vectors (n, d) of a file; raises UsageError for what cannot be used."""
    if path.suffix.lower() == ".npy":
        names, vectors = _read_npy(path)
    elif path.suffix.lower() == ".parquet":
        names, vectors = _read_columns(path)
    else:
        raise UsageError(f"{path} is neither .npy nor .parquet: store the vectors as one of them.")
    _refuse_not_finite(path, names, vectors)
    return names, vectors


def read_probabilities(path: Path) -> tuple[list[str], tuple[str, ...], Floats]:
    """Return paths, class names and probabilities (n, K); raises UsageError."""
    frame = _read_frame(path)
    names = _take_key(path, frame)
    numbers = [c for c in frame.columns if c not in KEYS and frame[c].dtype.is_numeric()]
    if len(numbers) < 2:
        raise UsageError(
            f"{path} has {len(numbers)} columns of numbers: give a column of probabilities a "
            "class, named like the class, beside `path`."
        )
    values = frame.select(numbers).to_numpy().astype(np.float32)
    _refuse_not_finite(path, names, values)
    sums = values.sum(1)
    wrong = np.flatnonzero((values.min(1) < -1e-6) | (np.abs(sums - 1) > SUM_TOLERANCE))
    if len(wrong):
        row = int(wrong[0])
        raise UsageError(
            f"{path}: the probabilities of {names[row]} sum to {sums[row]:.3g}, the least is "
            f"{values[row].min():.3g} ({len(wrong):,} of {len(names):,} rows are no "
            "probabilities): apply a softmax to scores first."
        )
    return names, tuple(numbers), values


def match_rows(path: Path, names: list[str], samples: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Return for each sample (columns `id`, `uri`) its row in the file, -1 where it has none.

    Raises UsageError where no path matches, or one is there twice.
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{path} has {twice} twice: keep one row a path.")
    known = {name: row for row, name in enumerate(names)}
    places = [uri.removeprefix("file://") for uri in samples["uri"].to_list()]
    rows = [known.get(i, known.get(p, -1)) for i, p in zip(samples["id"], places, strict=True)]
    found = np.array(rows, np.int64)
    if len(found) and (found < 0).all():
        raise UsageError(
            f"No path of {path} is one of this dataset: it has {names[0] if names else 'none'!r}, "
            f"and the dataset has {samples['id'][0]!r}."
        )
    return found


def _read_npy(path: Path) -> tuple[list[str], Floats]:
    beside = path.with_suffix(".txt")
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as .npy: {error}.") from None
    try:
        names = beside.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"{path} says nothing of which picture a row is: write the paths into {beside}, one a "
            "line."
        ) from None
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or len(vectors) != len(names):
        raise UsageError(
            f"{path} holds {vectors.dtype} of shape {vectors.shape} and {beside} {len(names):,} "
            "paths: give one row of numbers a path."
        )
    return names, vectors.astype(np.float32)


def _read_columns(path: Path) -> tuple[list[str], Floats]:
    frame = _read_frame(path)
    names = _take_key(path, frame)
    lists = [c for c in frame.columns if frame[c].dtype in (pl.List, pl.Array)]
    if len(lists) == 1:
        column: Any = frame[lists[0]]
        if column.dtype == pl.Array:
            column = column.arr.to_list()
        lengths = column.list.len().fill_null(0)
        if lengths.n_unique() > 1:
            row = int((lengths != lengths.mode()[0]).arg_max() or 0)
            raise UsageError(
                f"{path}: the vector of {names[row]} has {lengths[row]} numbers, others have "
                f"{lengths.mode()[0]}: make them of one length."
            )
        width = int(lengths[0]) if len(lengths) else 0
        flat = column.explode().cast(pl.Float32, strict=False).to_numpy()
        return names, np.asarray(flat, np.float32).reshape(len(names), width).copy()
    numbers = [c for c in frame.columns if c not in KEYS and frame[c].dtype.is_numeric()]
    if not numbers or lists:
        raise UsageError(f"{path} has no vectors: give one column of lists, or columns of numbers.")
    return names, frame.select(numbers).to_numpy().astype(np.float32)


def _read_frame(path: Path) -> pl.DataFrame:
    kind = path.suffix.lower()
    if kind not in (".parquet", ".csv"):
        raise UsageError(f"{path} is neither .parquet nor .csv: store the table as one of them.")
    try:
        return pl.read_parquet(path) if kind == ".parquet" else pl.read_csv(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UsageError(f"{path} cannot be read: {str(error).splitlines()[0]}.") from None


def _take_key(path: Path, frame: pl.DataFrame) -> list[str]:
    key = next((name for name in KEYS if name in frame.columns), None)
    if key is None:
        raise UsageError(f"{path} has no column `path`: add the path or id of each picture.")
    return [str(name) for name in frame[key].to_list()]


def _refuse_not_finite(path: Path, names: list[str], values: Floats) -> None:
    bad = np.flatnonzero(~np.isfinite(values).all(1))
    if len(bad):
        raise UsageError(
            f"{path}: {len(bad):,} of {len(names):,} rows hold numbers that are none (NaN or "
            f"infinite), first that of {names[int(bad[0])]}: leave those rows out."
        )
