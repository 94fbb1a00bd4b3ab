"""The eligible set F: which files count in an evaluation, and why the others do not.

The library's input is one plain polars frame, one row a file:

| column | type | meaning |
|---|---|---|
| sample_id | str | unique name of the file (required) |
| path | str | where it is (default: the id) |
| label | str | class; a file without one is left out, with that reason (required) |
| content_hash | str | hash of the bytes, hexadecimal; null: the id stands in |
| excluded_reason | str | why the file is not eligible; null: it is |
| duplicate_group | str | name of its group of pixel-identical files; null: none |
| suspected_mislabel | bool | kept, but marked; scores come with and without them |
| any other | | usable for `by` and `group` |

Everything here is filters and group-bys over columns: 10 million rows take a few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from audit.errors import UsageError

REQUIRED = ("sample_id", "label")
DEFAULTS: dict[str, pl.Expr] = {
    "path": pl.col("sample_id"),
    "content_hash": pl.lit(None, pl.String),
    "excluded_reason": pl.lit(None, pl.String),
    "duplicate_group": pl.lit(None, pl.String),
    "suspected_mislabel": pl.lit(False),
}
NO_LABEL = "no label"
# The class of every example of a set whose classes are not known yet.
UNLABELLED = "(unlabelled)"
MISSING = "(missing)"


@dataclass(frozen=True)
class EligibleSet:
    """F (`files`, rows of the frame) and what was `excluded` (sample_id, path, reason)."""

    files: pl.DataFrame
    excluded: pl.DataFrame

    @property
    def n_all(self) -> int:
        """Files before exclusions."""
        return len(self.files) + len(self.excluded)


def select_eligible(
    frame: pl.DataFrame, deduplicated: bool = False, keep: Sequence[str] | None = None
) -> EligibleSet:
    """Return F: files with a label and no reason against them, optional columns filled in.

    `deduplicated` leaves one file of each duplicate group (the smallest hash) in F: the target is
    then the metric over distinct pictures. `keep` limits the columns beyond the named ones.
    """
    full = _checked(frame)
    if keep is not None:
        wanted = {*REQUIRED, *DEFAULTS, *keep}
        full = full.select(c for c in full.columns if c in wanted)
    reason = pl.coalesce(
        "excluded_reason", pl.when(pl.col("label").is_null()).then(pl.lit(NO_LABEL))
    )
    full = full.with_columns(reason=reason).drop("excluded_reason")
    if deduplicated:
        full = _without_copies(full)
    excluded = full.filter(pl.col("reason").is_not_null()).select("sample_id", "path", "reason")
    files = full if excluded.is_empty() else full.filter(pl.col("reason").is_null())
    if files.is_empty():
        raise UsageError(
            f"No file is eligible: all {len(full)} are excluded or have no label. Check the split "
            "name and the labels, or run `audit report` to see what was found."
        )
    return EligibleSet(files.drop("reason"), excluded)


def _checked(frame: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        raise UsageError(
            f"The frame has no column {missing[0]!r}; it has {', '.join(frame.columns[:12])}. "
            "Rename the column that holds it."
        )
    fill = [value.alias(name) for name, value in DEFAULTS.items() if name not in frame.columns]
    full = frame.with_columns(fill).with_columns(
        pl.col("label").cast(pl.String), pl.col("suspected_mislabel").fill_null(False)
    )
    if full["sample_id"].null_count():
        raise UsageError("Some rows have no sample_id: give every file a unique id.")
    _check_unique(full["sample_id"])
    return full


def _check_unique(ids: pl.Series) -> None:
    # Distinct hashes prove distinct ids at a third of the memory; equal ones prove nothing.
    if ids.hash().n_unique() == len(ids):
        return
    repeated = len(ids) - ids.n_unique()
    if repeated:
        example = ids.filter(ids.is_duplicated())[0]
        raise UsageError(
            f"{repeated} sample ids occur more than once, such as {example!r}: ids must be unique."
        )


def _without_copies(full: pl.DataFrame) -> pl.DataFrame:
    grouped = full.filter(pl.col("duplicate_group").is_not_null() & pl.col("reason").is_null())
    originals = representatives(grouped)["sample_id"]
    in_group = pl.col("duplicate_group").is_not_null()
    copy = in_group & ~pl.col("sample_id").is_in(originals.implode())
    return full.with_columns(
        pl.when(pl.col("reason").is_null() & copy)
        .then(pl.lit("copy of a kept file (deduplicated estimand)"))
        .otherwise(pl.col("reason"))
        .alias("reason")
    )


def representatives(grouped: pl.DataFrame, key: str = "content_hash") -> pl.DataFrame:
    """Return the one row of each duplicate group that names and represents it."""
    # The smallest hash does not depend on file names or on the order of the rows, and leaves the
    # chance to be drawn alone: the smallest of m random numbers would favour large groups.
    return grouped.sort("duplicate_group", key, "sample_id", nulls_last=True).unique(
        "duplicate_group", keep="first", maintain_order=True
    )


def checked_column(files: pl.DataFrame, name: str) -> pl.Series:
    """Return a column to stratify, group or compare by; raises UsageError if it is unusable."""
    if name not in files.columns:
        hidden = {"excluded_reason", "duplicate_group", "content_hash", "sample_id", "path"}
        raise UsageError(
            f"There is no column {name!r} to stratify or group by. There are: "
            f"{', '.join(c for c in files.columns if c not in hidden)}."
        )
    column = files[name]
    if column.dtype.is_float() and column.is_nan().any():
        raise UsageError(
            f"Column {name!r} is NaN for {int(column.is_nan().sum())} of {len(column)} files: fill "
            "the values in, set them to null, or choose another column."
        )
    return column
