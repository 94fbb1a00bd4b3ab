"""What the commands of `audit subset` read and write: sets, subsets, predictions, results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.cli import terminal
from audit.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from audit.subset import Baseline, NoiseRate, Recipe


def print_result(as_json: bool, document: Callable[[], Any], text: Callable[[], str]) -> None:
    """Print one JSON document, or text."""
    if as_json:
        terminal.write_parts([json.dumps(document(), indent=1, ensure_ascii=False), "\n"])
    else:
        terminal.write_text(text())


def named_set(run: Path | None, source: Path | None) -> Path:
    """Return where the set is; raises UsageError unless it is named once."""
    if (run is None) == (source is None):
        raise UsageError("Name the set once: a run directory, or --from a list of examples.")
    return run or source or Path()


def read_set(
    source: Path,
    split: str,
    by: Sequence[str] | None,
    group: str | None,
    unlabelled: bool = False,
) -> pl.DataFrame:
    """Return the frame of a run or of a list."""
    from audit.subset.listing import frame_from_list
    from audit.subset.source import frame_from_run

    wanted = [c for c in by or () if c != "confidence"] + ([group] if group else [])
    part = None if split == "all" else split
    if source.is_file():
        return frame_from_list(source, part, wanted, unlabelled=unlabelled)
    return frame_from_run(source, part, wanted)


def read_baseline(
    table: Path, source: Path | None, plan: Path | None, split: str, unlabelled: bool
) -> Baseline:
    """Return a baseline on the set that a subset was drawn from."""
    from audit.subset import Baseline, read_predictions

    frame, recipe = read_drawn_from(source, plan, split, unlabelled)
    return Baseline.of(frame, read_predictions(table), recipe, table.stem)


def read_drawn_from(
    source: Path | None, plan: Path | None, split: str, unlabelled: bool = False
) -> tuple[pl.DataFrame, Recipe]:
    """Return the set that a subset was drawn from, and the recipe."""
    from audit.subset import load_recipe
    from audit.subset.baseline import PLAIN

    if source is None:
        raise UsageError(
            "--baseline needs the classes of the whole set: name the run or list that the subset "
            "was drawn from with --from."
        )
    recipe = PLAIN if plan is None else load_recipe(plan)
    return read_set(source, split, recipe.strata.by, recipe.group, unlabelled), recipe


def read_models(paths: Sequence[Path] | None) -> list[pl.DataFrame]:
    """Return prediction files as tables."""
    from audit.subset import read_predictions

    return [read_predictions(path) for path in paths or ()]


def read_rows(subset: Path, split: str, group: str | None) -> pl.DataFrame:
    """Return the rows of a drawn subset, or of a whole run."""
    from audit.subset import census
    from audit.subset.predictions import read_table

    if subset.is_dir():
        return census(read_set(subset, split, None, group), group=group).rows
    return read_table(subset, "subset")


def write_rows(rows: pl.DataFrame, output: Path) -> None:
    """Write CSV or Parquet, by the suffix."""
    try:
        if output.suffix.lower() == ".csv":
            rows.write_csv(output)
        else:
            rows.write_parquet(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written ({error.strerror or error}).") from error


def check_suffix(output: Path) -> None:
    """Raise UsageError for a file that is neither CSV nor Parquet."""
    if output.suffix.lower() not in {".csv", ".parquet", ".pq"}:
        raise UsageError(f"{output}: name a .parquet or .csv file to write.")


def stated_noise(text: str | None, frame: pl.DataFrame) -> float | NoiseRate | None:
    """Return the rate of wrong labels that was stated, or the audit's."""
    from audit.subset.frame import select_eligible
    from audit.subset.prior import marked_noise

    if text is None:
        return None
    if text == "auto":
        return marked_noise(select_eligible(frame).files)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--label-noise is {text!r}: give a rate such as 0.03, or auto.") from None
