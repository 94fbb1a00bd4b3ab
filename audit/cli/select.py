"""`audit select`: parse, one call into the library, format."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.cli.options import JobsOption, JsonOption, RunArgument, SeedOption, print_answer
from audit.cli.subset import check_suffix, print_result
from audit.errors import UsageError
from preflight import terminal
from preflight.terminal import visible

if TYPE_CHECKING:
    from audit.compare.needs import PictureNeeds, Version


def select_command(
    run: RunArgument,
    n: Annotated[int, typer.Option("--n", min=1, help="Pictures to choose.")],
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


# ---- audit labels ----


def labels_command(
    run: RunArgument,
    draw: Annotated[
        int | None, typer.Option("--draw", help="Draw so many labels at random, to review.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV to write what was drawn to.")
    ] = None,
    reviewed: Annotated[
        Path | None, typer.Option("--reviewed", help="That CSV, with yes or no under `wrong`.")
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure how many labels are wrong: draw some at random, review them, read the interval."""
    from audit.decisions.label_sample import draw_labels, estimate_wrong, write_drawn

    if (draw is None) == (reviewed is None) or (draw is None) != (out is None):
        raise UsageError(
            "Give --draw N --out F.csv to draw labels, or --reviewed F.csv once they are reviewed."
        )
    if reviewed is not None:
        found = estimate_wrong(run, reviewed)
        text = json.dumps(asdict(found)) if as_json else visible(found.sentence())
    else:
        assert draw is not None
        assert out is not None
        write_drawn(draw_labels(run, draw, seed), out)
        text = json.dumps({"drawn": draw, "path": str(out)}) if as_json else visible(
            f"{draw:,} labels drawn into {out}: write yes or no under `wrong`, then "
            f"`audit labels {run} --reviewed {out}`."
        )  # fmt: skip
    terminal.write_parts([text, "\n"])


# ---- audit needs ----


def input_study_command(
    run: RunArgument,
    margin: Annotated[
        float, typer.Option("--margin", help="Share of pictures that may be lost unnoticed.")
    ] = 0.02,
    pictures: Annotated[
        int, typer.Option("--pictures", min=1, help="Pictures to open, at most.")
    ] = 2000,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell how small the pictures may become, and whether colour, position and context matter."""
    from audit.compare.needs import find_needs
    from audit.machine.executors import Processes
    from audit.picture.preview import LIMITS, TIMEOUT_S
    from audit.scanning.measuring import PHASE_WORDS, Progress
    from preflight.cores import usable_cores
    from preflight.progress import ProgressBar

    workers = Processes(jobs or usable_cores(), TIMEOUT_S, LIMITS.max_memory)
    with ProgressBar(PHASE_WORDS) as bar:
        found = find_needs(
            run, workers, LIMITS, margin=margin, most=pictures,
            advance=lambda done, total: bar(Progress("open", done, total)),
        )  # fmt: skip
    with suppress(OSError):  # a run that may only be read has it on the screen alone
        found.keep()
    print_answer(as_json, found.document, lambda: needs_lines(found))


def needs_lines(found: PictureNeeds) -> list[str]:
    """Return what was found as lines for a terminal."""
    if found.reason:
        return [found.sentence]
    lines = [
        f"{found.pictures:,} pictures of {found.classes:,} classes, {found.independent:,} of them "
        f"independent; a cheap classifier on their vectors names {found.accuracy:.1%} rightly "
        f"(largest class: {found.largest_class:.1%}).",
        "",
        *filter(None, (found.sentence, found.spurious)),
        "",
    ]
    return [
        *lines, *map(_row, (*found.sizes, *found.versions)), "",
        f"Loss in points of accuracy against the whole picture at {found.base} px, 95 % interval, "
        f"paired; a loss below {found.margin:.1%} counts as nothing. Sizes above {found.base} px "
        "were not tried. A larger network may use detail that this classifier does not.",
        "", "What varies most in each class, how many times as much as among all pictures, and the "
        "pictures at its two ends:",
        *(f"  {one.label}: {one.what}, {one.ratio:.2f} times: {one.low} | {one.high}"
          for one in found.varying),
    ]  # fmt: skip


def _row(version: Version) -> str:
    return (
        f"  {version.name:<30} {version.accuracy:6.1%}   loss {100 * version.loss:5.1f} "
        f"({100 * version.loss_low:.1f} to {100 * version.loss_high:.1f})   {version.verdict}"
    )
