"""`audit export`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.apply import write_plan
from audit.cli.review import SHOWN, RunArgument, print_lines, quoted, write_note

if TYPE_CHECKING:
    from audit.review.export import ExportResult


class ExportFormat(StrEnum):
    """Of exported tables; or of annotations, or tasks of a labelling tool, instead of them."""

    CSV = "csv"
    PARQUET = "parquet"
    COCO = "coco"
    YOLO = "yolo"
    VOC = "voc"
    LABEL_STUDIO = "label-studio"
    CVAT = "cvat"


def export_command(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for all of it.")] = None,
    format: Annotated[  # noqa: A002
        ExportFormat,
        typer.Option("--format", help="Of tables in --out; of annotations; tasks to review."),
    ] = ExportFormat.CSV,
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
    from audit.errors import UsageError
    from audit.review import export as exports

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
    if format.value not in (ExportFormat.CSV, ExportFormat.PARQUET):
        if out is None:
            raise UsageError(f"--format {format.value} writes a folder: name it with --out FOLDER.")
        if format in (ExportFormat.LABEL_STUDIO, ExportFormat.CVAT):
            if annotations:
                raise UsageError("--annotations goes with --format coco, yolo or voc.")
            _export_review(run, out, format.value, replace)
            return
        _export_annotations(run, out, format.value, annotations or (), replace)
        return
    if annotations:
        raise UsageError("--annotations goes with --format coco, yolo or voc.")
    if out is not None:
        result = exports.export_tables(run, out, format.value, replace=replace)
    else:
        result = exports.export_files(run, targets, replace=replace)
    print_lines(_export_lines(run, result))


def _export_review(run: Path, out: Path, tool: str, replace: bool) -> None:
    from audit.review.review_files import export_review

    made = export_review(run, out, tool, replace=replace)
    print_lines([f"{n:>9,}  {path}" for path, n in made.items()])
    write_note(f"`audit decide {quoted(run)} --from FILE` reads what people change there.")


def _export_annotations(
    run: Path, out: Path, form: str, chosen: Sequence[str], replace: bool
) -> None:
    from audit.report.wording import counted
    from audit.review.annotation_export import export_annotations

    result = export_annotations(run, out, form, chosen, replace=replace)
    shown = list(result.files.items())[:SHOWN]
    lines = [f"{n:>9,}  {out / name}" for name, n in shown]
    if len(result.files) > SHOWN:
        lines.append(f"           and {len(result.files) - SHOWN:,} more files")
    lines.append(
        f"{counted(sum(result.files.values()), 'annotation')} of "
        f"{counted(result.pictures, 'picture')} written; {result.fixed:,} changed by decisions."
    )
    if result.removed:
        lines.append(f"{counted(result.removed, 'file')} of an earlier export taken away.")
    print_lines([*lines, *result.lost, *result.stale])


def _export_lines(run: Path, result: ExportResult) -> list[str]:
    from audit.report.wording import counted

    lines = [f"{rows:>9,}  {path}" for path, rows in result.files.items()]
    lines.append(
        f"{result.kept:,} samples kept ({result.changed:,} relabelled or moved), "
        f"{result.dropped:,} dropped."
    )
    if result.stale.height:
        lines.append(
            f"{counted(result.stale.height, 'decision')} stale and not applied: "
            f"`audit log {quoted(run)} --stale` says why."
        )
    if result.neutralised:
        lines.append(
            f"{counted(result.neutralised, 'cell')} got a leading apostrophe, so that no "
            "spreadsheet runs or changes them: `audit scan` takes it off again, and Parquet holds "
            "the text as it is."
        )
    return lines
