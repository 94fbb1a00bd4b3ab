"""Prediction files: reading, naming, matching to the rows they are about.

A prediction file is any table (CSV, Parquet, JSON lines, `.npz`) with one row an example: an id
(`sample_id`, `id` or `path`), a predicted label (`prediction`, `predicted_label`, `predicted` or
`pred`; else the likeliest class), and optionally `confidence` and `prob_<class>` columns. An
example that was predicted twice alike counts once, and one without a prediction is refused, counted
wrong or dropped, as the caller says.

An `.npz` file holds `probabilities` (one row an example, one column a class) beside `ids` and
`classes`; other arrays of one number an example, such as `loss`, become columns. In JSON lines
`probabilities` is an object from class to number.
"""

from __future__ import annotations

import difflib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.sources.label_lists import read_lists
from dataset_preflight.foundation.files import refuse_special

IDS = ("sample_id", "id", "path", "file", "filename")
LABELS = ("prediction", "predicted_label", "predicted", "pred")
TEXT = ("label", "stratum", "unit_id", "plan_hash")
CONFIDENCES = ("confidence", "score", "probability")
MISSING_RULES = ("refuse", "wrong", "drop")
Missing = Literal["refuse", "wrong", "drop"]
Unknown = Literal["refuse", "wrong", "refuse-similar"]
"""What a predicted class is that the set does not have: refused, wrong, or refused if it is one of
the set's but for case and blanks (a plan's earlier model may know more classes than the set)."""
# The class of every example of a set whose classes are not known yet.
UNLABELLED = "(unlabelled)"
SET_CLASSES = "set_classes"
"""Column of drawn rows: where the rank is 1 the classes of the set, a JSON list; else null."""
SHOWN = 5


def read_table(path: Path, what: str) -> pl.DataFrame:
    """Read CSV, Parquet, JSON lines or `.npz`, by the extension; `what` names it in the error."""
    refuse_special(path)
    if not path.is_file():
        raise UsageError(f"{path} does not exist: give the {what} as a CSV or Parquet file.")
    if path.suffix.lower() == ".npz":
        return read_arrays(path)
    try:
        if path.suffix.lower() in {".jsonl", ".ndjson"}:
            table = pl.read_ndjson(path, infer_schema_length=None)
            if not isinstance(table.schema.get(NESTED), pl.Struct):
                return table
            return table.with_columns(pl.col(NESTED).name.prefix_fields(PROBABILITY)).unnest(NESTED)
        if path.suffix.lower() in {".parquet", ".pq"}:
            return pl.read_parquet(path)
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        # Names stay text: a class or an id such as 007 is not a number.
        names = dict.fromkeys((*IDS, *LABELS, *TEXT), pl.String)
        return pl.read_csv(
            path, infer_schema_length=None, separator=separator, schema_overrides=names
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UsageError(
            f"{path} cannot be read as a table ({str(error).splitlines()[0]}): give the {what} as "
            "CSV with a header line, or as Parquet."
        ) from error


def read_predictions(path: Path) -> pl.DataFrame:
    """Read one prediction file into the columns `key`, `prediction`, `confidence`?, `prob_*`?."""
    return standard_columns(read_table(path, "predictions"), path.name)


def standard_columns(table: pl.DataFrame, name: str = "the predictions") -> pl.DataFrame:
    """Return a prediction table under its standard column names, checked; itself if it has them."""
    if "key" in table.columns:
        return table
    if not any(c in table.columns for c in LABELS):
        table = with_likeliest(table)
    key = find_column(table, IDS, name, "id")
    label = find_column(table, LABELS, name, "predicted label")
    columns = [
        pl.col(key).cast(pl.String).alias("key"),
        _class_names(table[label], name).alias("prediction"),
    ]
    confidence = next((c for c in CONFIDENCES if c in table.columns), None)
    if confidence:
        columns.append(pl.col(confidence).cast(pl.Float64, strict=False).alias("confidence"))
    probabilities = [c for c in table.columns if c.startswith(PROBABILITY)]
    columns += [pl.col(c).cast(pl.Float64, strict=False) for c in probabilities]
    result = table.select(columns)
    for column in [*(["confidence"] if confidence else []), *probabilities]:
        _check_probability(result, column, name)
    clash = result.select("key", "prediction").unique().filter(pl.col("key").is_duplicated())
    if len(clash):
        raise UsageError(
            f"{name}: {clash['key'].n_unique()} examples are predicted twice with different "
            f"labels, such as {clash.sort('key')['key'][0]!r}. Keep one row for each example."
        )
    return result.unique("key", keep="first", maintain_order=True)


def _class_names(column: pl.Series, name: str) -> pl.Series:
    # Numbers that passed through a data frame with gaps come back as 3.0 and NaN.
    if column.dtype.is_float():
        column = column.fill_nan(None)
        if not (column.drop_nulls() % 1 == 0).all():
            between = column.filter(column % 1 != 0)[0]
            raise UsageError(
                f"{name}: {column.name!r} holds numbers such as {between:g}, which name no class. "
                "Give the predicted class of each example, not a score or a measured value."
            )
        column = column.cast(pl.Int64)
    return column.cast(pl.String)


def find_column(table: pl.DataFrame, choices: tuple[str, ...], name: str, what: str) -> str:
    """Return the first of `choices` that the table has; raises UsageError without one."""
    for choice in choices:
        if choice in table.columns:
            return choice
    raise UsageError(
        f"{name} has no {what} column: it has {', '.join(table.columns[:12])}. Name one of them "
        f"{choices[0]!r}."
    )


def value_of_each(
    rows: pl.DataFrame, table: pl.DataFrame, value: pl.Expr, name: str, what: str
) -> pl.Series:
    """Return the value that a table has for each row, by id or else by path; null without one.

    Raises UsageError for an example that has two of `what`.
    """
    key = find_column(table, IDS, name, "id")
    given = table.select(key=pl.col(key).cast(pl.String), value=value).drop_nulls("value")
    given = given.unique(maintain_order=True)
    twice = given.filter(pl.col("key").is_duplicated())["key"]
    if len(twice):
        raise UsageError(f"{name}: {twice[0]!r} has two {what}. Keep one row for each example.")
    ids = rows["sample_id"].cast(pl.String)
    found = ids.is_in(given["key"].implode()).any()
    wanted = pl.DataFrame({"key": ids if found or "path" not in rows else rows["path"]})
    return wanted.join(given, on="key", how="left", maintain_order="left")["value"]


def _check_probability(table: pl.DataFrame, column: str, name: str) -> None:
    values = table[column]
    bad = table.filter(values.is_null() | values.is_nan() | (values < 0) | (values > 1))
    if len(bad):
        raise UsageError(
            f"{name}: {column!r} is missing, NaN or outside [0, 1] in {len(bad)} rows, such as "
            f"{bad['key'][0]!r} ({bad[column][0]}). Give probabilities between 0 and 1 (apply the "
            "softmax), or leave the column out."
        )


@dataclass(frozen=True)
class Matched:
    """Predictions aligned with the rows that are scored; `table` has one row for each of them.

    `hit` is 1.0 for a right prediction, 0.0 for a wrong one, NaN for a dropped example; `missing`
    rows have no prediction (null); `unknown` keys match no row. `other_classes` names predicted
    classes that the set does not have, counted as wrong; empty if there are none.
    """

    table: pl.DataFrame
    hit: np.ndarray
    missing: int
    unknown: pl.Series
    other_classes: str

    @property
    def prediction(self) -> pl.Series:
        """Predicted label of each row, null where missing."""
        return self.table["prediction"]

    def notes(self, name: str, rule: Missing) -> list[str]:
        """Say what was ignored or filled in."""
        notes = []
        if count := len(self.unknown):
            listed = ", ".join(self.unknown[:SHOWN])
            more = ", ..." if count > SHOWN else ""
            notes.append(
                f"{name}: {count} predictions are for examples that are not in the "
                f"subset and were ignored ({listed}{more})."
            )
        if self.other_classes:
            notes.append(f"{self.other_classes}. They were counted as wrong.")
        if self.missing:
            what = "counted as wrong" if rule == "wrong" else "dropped: the target is now the rest"
            notes.append(f"{name}: {self.missing} examples have no prediction and were {what}.")
        return notes


def match(
    rows: pl.DataFrame,
    predictions: pl.DataFrame,
    name: str,
    missing: Missing = "refuse",
    unknown_class: Unknown = "refuse",
) -> Matched:
    """Return predictions for each row of `rows` (sample_id, path, label), by id or else by path."""
    predictions = standard_columns(predictions, name)
    if missing not in MISSING_RULES:
        raise UsageError(f"--missing is {missing!r}: choose {', '.join(MISSING_RULES)}.")
    keys = predictions["key"].implode()
    by = "sample_id"
    if not rows["sample_id"].is_in(keys).any() and rows["path"].is_in(keys).any():
        by = "path"
    if predictions.is_empty():
        raise UsageError(f"{name} has a header and no rows: write one row for each example.")
    table = rows.select(key=pl.col(by)).join(
        predictions, on="key", how="left", maintain_order="left"
    )
    unknown = predictions.filter(~pl.col("key").is_in(rows[by].implode()))["key"].sort()
    absent = table["prediction"].null_count()
    if absent == len(rows):
        raise UsageError(
            f"{name}: none of its {len(predictions)} predictions is for one of the {len(rows)} "
            f"examples (it has {', '.join(map(repr, unknown[:3]))}; the subset has "
            f"{', '.join(map(repr, rows[by][:3]))}). Use the sample ids or paths of the subset."
        )
    if absent and missing == "refuse":
        example = table.filter(pl.col("prediction").is_null())["key"][0]
        raise UsageError(
            f"{name}: {absent} of {len(rows)} examples have no prediction, such as {example!r}. "
            "Predict them, or choose --missing wrong or --missing drop."
        )
    other = check_classes(classes_of(rows), table["prediction"], name, unknown_class)
    hit = (rows["label"] == table["prediction"]).cast(pl.Float64)
    hit = hit.fill_null(0.0 if missing == "wrong" else float("nan"))
    return Matched(table, hit.to_numpy(), absent, unknown, other)


def classes_of(rows: pl.DataFrame) -> list[str]:
    """Return the classes of the set that rows were drawn from; of the rows where none are told."""
    labels = rows["label"].unique().drop_nulls().cast(pl.String)
    told = rows[SET_CLASSES].drop_nulls().to_list() if SET_CLASSES in rows.columns else []
    try:
        return sorted({*labels, *(str(one) for text in told for one in json.loads(text))})
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            f"The subset is damaged: {SET_CLASSES} is not a list of classes. Use the file that "
            "`draw` wrote."
        ) from error


def check_classes(
    known: Sequence[str], predicted: pl.Series, name: str, rule: Unknown = "refuse"
) -> str:
    """Refuse classes that the set does not have: misspelt, they would all count as wrong.

    Returns the sentence on those that the rule admits, without its full stop; empty if none.
    """
    if list(known) == [UNLABELLED]:
        return ""
    counts = predicted.drop_nulls().alias("prediction").value_counts()
    other = counts.filter(~pl.col("prediction").is_in(known))
    other = other.sort("count", "prediction", descending=[True, False])
    if len(other) == len(counts):
        names = ", ".join(map(repr, sorted(other["prediction"])[:3]))
        raise UsageError(
            f"{name}: no predicted label ({names}) is a class of the set "
            f"({', '.join(map(repr, known[:3]))}). Write class names, not indices."
        )
    lists = read_lists({*known, *other["prediction"]}).lists
    if rule == "refuse" and (several := sorted({*lists} - {*known})):
        raise UsageError(
            f"{name}: {several[0]!r} holds several labels, and a subset takes one label an image. "
            "Give the class of the highest probability for each image."
        )
    plain = {_plain(one): one for one in known}
    listed = [
        answer
        for answer in other["prediction"].to_list()
        if rule != "refuse-similar" or _plain(answer) in plain
    ]
    if not listed:
        return ""
    shown = ", ".join(f"{answer!r}{_meant(answer, plain)}" for answer in listed[:SHOWN])
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    examples = other.filter(pl.col("prediction").is_in(listed))["count"].sum()
    sentence = (
        f"{name}: {examples} of {counts['count'].sum()} labels name a class that the set does not "
        f"have: {shown}{more}"
    )
    if rule == "wrong":
        return sentence
    raise UsageError(
        f"{sentence}. Use the set's names, or --unknown wrong where these are wrong answers."
    )


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def _meant(answer: str, plain: Mapping[str, str]) -> str:
    found = difflib.get_close_matches(_plain(answer), plain, 1, 0.7)
    return f" (did you mean {plain[found[0]]!r}?)" if found else ""


PROBABILITY = "prob_"
NESTED = "probabilities"


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
    if "ids" not in arrays or arrays["ids"].ndim != 1:
        raise UsageError(
            f"{path} has no array 'ids' with one id an example; it has {', '.join(arrays)}. Save "
            "it with numpy.savez(path, ids=..., probabilities=..., classes=...)."
        )
    count = arrays["ids"].size
    columns: dict[str, np.ndarray] = {"sample_id": arrays.pop("ids").astype(str)}
    if NESTED in arrays:
        values, classes = arrays.pop(NESTED), arrays.pop("classes", np.array([]))
        if values.ndim != 2 or values.shape != (count, classes.size):
            raise UsageError(
                f"{path}: 'probabilities' has the shape {values.shape} for {count} ids and "
                f"{classes.size} classes. Give one row an example, one column a class, and their "
                "names."
            )
        names = classes.astype(str)
        columns |= {f"{PROBABILITY}{name}": values[:, k] for k, name in enumerate(names)}
    columns |= {k: v for k, v in arrays.items() if v.ndim == 1 and v.size == count}
    return pl.DataFrame(columns)


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
