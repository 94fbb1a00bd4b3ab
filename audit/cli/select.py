"""`audit select`: parse, one call into the library, format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.cli.options import JsonOption, RunArgument, SeedOption
from audit.cli.subset import check_suffix, print_result
from preflight.terminal import visible

if TYPE_CHECKING:
    pass


def select_command(
    run: RunArgument,
    n: Annotated[int, typer.Option("--n", min=1, help="Images to choose.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="x.csv or .parquet to write.")],
    by: Annotated[
        Literal["coverage", "uncertainty", "rare"],
        typer.Option("--by", help="Most different, most doubtful, or rarest class first."),
    ] = "coverage",
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
        Literal["margin", "entropy"], typer.Option("--doubt", help="Of --by uncertainty.")
    ] = "margin",
    cell: Annotated[
        list[str] | None,
        typer.Option("--cell", help="Column that makes cells with the class, for rare; repeatable"),
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Choose the next pictures to label or to evaluate on, and say what they buy."""
    from audit.choosing.choice import Wanted, select_pictures
    from audit.report.output import write_table

    check_suffix(output)
    wanted = Wanted(None if split == "all" else split, source, unlabelled, fresh_from, predictions)
    found = select_pictures(run, n, by, wanted, seed=seed, doubt=doubt, cells=cell or ())
    write_table(output, found.rows)
    print_result(
        as_json,
        lambda: found.document() | {"output": str(output)},
        lambda: "\n".join(map(visible, [*found.lines(), f"Written: {output}."])),
    )
