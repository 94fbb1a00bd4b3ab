"""Probability files as evaluation loops write them: `.npz` arrays, JSON lines, one column a class.

A model's output is an array with one row an example and one column a class. An `.npz` file holds it
as `probabilities` beside `ids` and `classes` (names, in the order of the columns); other arrays of
one number an example, such as `loss`, become columns of their own. In JSON lines `probabilities` is
an object from class to number. Where a table has probabilities and no predicted label, the label
is the class with the largest one, and the confidence is that probability.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import polars as pl

from audit.errors import UsageError

PROBABILITY = "prob_"
NESTED = "probabilities"
IDS, CLASSES = "ids", "classes"


def read_arrays(path: Path) -> pl.DataFrame:
    """Read an `.npz` file into a table; raises UsageError for a missing or misshaped array."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{path} cannot be read as arrays ({str(error).splitlines()[0]}): write it with "
            "numpy.savez, ids and classes as arrays of text."
        ) from error
    if IDS not in arrays or arrays[IDS].ndim != 1:
        raise UsageError(
            f"{path} has no array 'ids' with one id an example; it has {', '.join(arrays)}. Save "
            "it with numpy.savez(path, ids=..., probabilities=..., classes=...)."
        )
    count = arrays[IDS].size
    columns: dict[str, np.ndarray] = {"sample_id": arrays.pop(IDS).astype(str)}
    if NESTED in arrays:
        columns |= _by_class(arrays.pop(NESTED), arrays.pop(CLASSES, np.array([])), count, path)
    columns |= {k: v for k, v in arrays.items() if v.ndim == 1 and v.size == count}
    return pl.DataFrame(columns)


def _by_class(
    values: np.ndarray, classes: np.ndarray, count: int, path: Path
) -> dict[str, np.ndarray]:
    if values.ndim != 2 or values.shape != (count, classes.size):
        raise UsageError(
            f"{path}: 'probabilities' has the shape {values.shape} for {count} ids and "
            f"{classes.size} classes. Give one row an example, one column a class, and their names."
        )
    return {f"{PROBABILITY}{name}": values[:, k] for k, name in enumerate(classes.astype(str))}


def with_columns_by_class(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table with one `prob_` column a class where it has them nested in one column."""
    nested_type = table.schema.get(NESTED)
    if not isinstance(nested_type, pl.Struct):
        return table
    names = [field.name for field in nested_type.fields]
    nested = [pl.col(NESTED).struct.field(n).alias(f"{PROBABILITY}{n}") for n in names]
    return table.with_columns(nested).drop(NESTED)


def with_likeliest(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table of probabilities with its likeliest class, and its probability, as answers."""
    columns = [c for c in table.columns if c.startswith(PROBABILITY)]
    if not columns:
        return table
    values = np.nan_to_num(
        table.select(columns).cast(pl.Float64, strict=False).to_numpy(), nan=-1.0
    )
    names = np.array([c.removeprefix(PROBABILITY) for c in columns])
    answers = table.with_columns(prediction=pl.Series(names[values.argmax(axis=1)]))
    if "confidence" in table.columns or values.size == 0:
        return answers
    return answers.with_columns(confidence=pl.Series(np.maximum(values.max(axis=1), 0.0)))
