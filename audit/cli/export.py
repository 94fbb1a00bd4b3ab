"""`audit export`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from audit.cli.apply import write_plan
from audit.cli.options import RunArgument, print_lines, quoted, write_note
from audit.errors import UsageError

MOST = 12  # files in a list


# Of exported tables; or of annotations, or tasks of a labelling tool, instead of them.
ExportFormat = Literal["csv", "parquet", "coco", "yolo", "voc", "label-studio", "cvat"]


def export_command(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for all of it.")] = None,
    format: Annotated[  # noqa: A002
        ExportFormat,
        typer.Option("--format", help="Of tables in --out; of annotations; tasks to review."),
    ] = "csv",
    annotations: Annotated[
        list[str] | None,
        typer.Option("--annotations", help="Annotation file to write (coco, yolo, voc); globs."),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", help="The kept set: x.csv, .parquet or .txt.")
    ] = None,
    quarantine: Annotated[
        Path | None, typer.Option("--quarantine", help="What was dropped, and why; .txt: paths.")
    ] = None,
    changes: Annotated[
        Path | None, typer.Option("--changes", help="Relabelled and moved: x.csv or .parquet.")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="Verified pairs of one picture: x.csv, .parquet.")
    ] = None,
    scores: Annotated[
        Path | None, typer.Option("--scores", help="Every feature of every sample: x.csv, .parquet")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="The decided dataset as a plan for `audit apply`.")
    ] = None,
    splits: Annotated[
        str | None, typer.Option("--splits", help="New splits in --plan: train=.8,val=.1,test=.1.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Draws the order of --splits.")] = 0,
    resplit: Annotated[
        bool, typer.Option("--resplit", help="New splits for samples that have one, too.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files that exist.")] = False,
) -> None:
    """Write what a run found and what was decided, as tables; touches no file of the dataset."""
    from audit.exports import export as exports
    from audit.exports.export import describe_tables

    named = {
        "manifest": manifest, "quarantine": quarantine, "changes": changes, "pairs": pairs,
        "scores": scores,
    }  # fmt: skip
    targets = {name: path for name, path in named.items() if path is not None}
    if plan is not None:
        if out or targets:
            raise UsageError("--plan is written alone: leave --out and the tables to another call.")
        write_plan(run, plan, splits, seed, resplit, replace)
        return
    if splits or resplit:
        raise UsageError("--splits and --resplit go with --plan PLAN.json.")
    if bool(out) == bool(targets):
        raise UsageError("Say what to write: --out FOLDER for all, or --manifest FILE, --pairs ...")
    if out is not None:
        _export_folder(run, out, format, annotations or (), replace)
        return
    if annotations:
        raise UsageError("--annotations goes with --format coco, yolo or voc.")
    if format not in ("csv", "parquet"):
        raise UsageError(f"--format {format} writes a folder: name it with --out FOLDER.")
    result = exports.export_files(run, targets, replace=replace)
    print_lines([*_file_lines(result.files), *describe_tables(result)])


def _export_folder(
    run: Path, out: Path, form: ExportFormat, annotations: Sequence[str], replace: bool
) -> None:
    from audit.exports.export import export_as
    from audit.exports.review_tasks import TOOLS

    made = export_as(run, out, form, annotations=annotations, replace=replace)
    print_lines([*_file_lines(made.files), *made.said])
    if form in TOOLS:
        write_note(f"`audit decide {quoted(run)} --from FILE` reads what people change there.")


def _file_lines(files: Mapping[Path, int]) -> list[str]:
    lines = [f"{n:>9,}  {path}" for path, n in list(files.items())[:MOST]]
    return lines + [f"           and {len(files) - MOST:,} more files"] * (len(files) > MOST)
