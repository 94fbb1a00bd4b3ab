"""`audit select`: parse, one call into the library, format."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.subset_files import check_suffix, print_result, write_rows
from audit.printable import visible


class SelectionRule(StrEnum):
    """What makes a picture the next one."""

    COVERAGE = "coverage"
    UNCERTAINTY = "uncertainty"
    RARE = "rare"


class DoubtMeasure(StrEnum):
    """What doubt is measured by."""

    MARGIN = "margin"
    ENTROPY = "entropy"


def select_command(
    run: Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")],
    n: Annotated[int, typer.Option("--n", min=1, help="Pictures to choose.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="x.csv or .parquet to write.")],
    by: Annotated[
        SelectionRule,
        typer.Option("--by", help="Most different, most doubtful, or rarest class first."),
    ] = SelectionRule.COVERAGE,
    split: Annotated[
        str, typer.Option("--split", help="Split to choose from; `all` takes every file.")
    ] = "all",
    source: Annotated[
        Path | None, typer.Option("--from", help="Only files of this list (CSV, Parquet).")
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="Only files without a label; others are known.")
    ] = False,
    fresh_from: Annotated[
        Path | None, typer.Option("--fresh-from", help="Earlier choice: known, and left out.")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option("--predictions", help="CSV or Parquet of a model's answers.")
    ] = None,
    doubt: Annotated[
        DoubtMeasure, typer.Option("--doubt", help="Of --by uncertainty.")
    ] = DoubtMeasure.MARGIN,
    cell: Annotated[
        list[str] | None,
        typer.Option("--cell", help="Column that makes cells with the class, for rare; repeatable"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed chooses the same rows.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Choose the next pictures to label or to evaluate on, and say what they buy."""
    from audit.choosing.candidates import Wanted
    from audit.choosing.choice import select_pictures

    check_suffix(output)
    wanted = Wanted(None if split == "all" else split, source, unlabelled, fresh_from, predictions)
    found = select_pictures(
        run, n, by.value, wanted, seed=seed, doubt=doubt.value, cells=cell or ()
    )
    write_rows(found.rows, output)
    print_result(
        as_json,
        lambda: found.document() | {"output": str(output)},
        lambda: "\n".join(map(visible, [*found.lines(), f"Written: {output}."])),
    )
