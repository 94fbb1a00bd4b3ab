"""`audit export | apply`: parse, one library call, format. `audit.cli.main` mounts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.cli.options import RunArgument, SeedOption, print_lines, quoted, write_note
from audit.errors import UsageError
from dataset_preflight.foundation import terminal
from dataset_preflight.foundation.terminal import visible

if TYPE_CHECKING:
    from audit.exports.application import How
    from audit.exports.planning import DatasetPlan

MAX_LISTED = 12  # files in a list
LINKS: Mapping[str | None, How] = {None: "copy", "hard": "hardlink", "symbolic": "symlink"}


# Of exported tables; or of annotations, or tasks of a labelling tool, instead of them.
ExportFormat = Literal["csv", "parquet", "coco", "yolo", "voc", "label-studio", "cvat"]


def export_command(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for all tables, or for annotations.")
    ] = None,
    format: Annotated[  # noqa: A002
        ExportFormat,
        typer.Option("--format", help="Format of --out: tables, annotations or review tasks."),
    ] = "csv",
    annotations: Annotated[
        list[str] | None,
        typer.Option("--annotations", help="Annotation file to write (coco, yolo, voc); globs."),
    ] = None,
    code: Annotated[
        list[str] | None,
        typer.Option("--code", help="Findings to review (label-studio, cvat): BOX, DUP003."),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", help="Samples to keep: x.csv, .parquet or .txt.")
    ] = None,
    quarantine: Annotated[
        Path | None,
        typer.Option("--quarantine", help="Dropped samples with reasons: x.csv, .parquet or .txt."),
    ] = None,
    changes: Annotated[
        Path | None,
        typer.Option("--changes", help="Relabelled and moved samples: x.csv or .parquet."),
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="Verified duplicate pairs: x.csv or .parquet.")
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option("--scores", help="All features of all samples: x.csv or .parquet."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Plan of the clean dataset, for `audit apply`.")
    ] = None,
    splits: Annotated[
        str | None, typer.Option("--splits", help="New splits in --plan: train=.8,val=.1,test=.1.")
    ] = None,
    seed: SeedOption = 0,
    resplit: Annotated[
        bool, typer.Option("--resplit", help="Assign new splits also to samples that have one.")
    ] = False,
    outside_links: Annotated[
        bool,
        typer.Option(
            "--outside-links/--no-outside-links",
            help="In --plan: images behind links that point outside the dataset.",
        ),
    ] = True,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files that exist.")] = False,
) -> None:
    """Write findings, decisions, annotations or the plan of a clean copy."""
    from audit.exports import export as exports
    from audit.exports.export import describe_tables

    named = {
        "manifest": manifest, "quarantine": quarantine, "changes": changes, "pairs": pairs,
        "scores": scores,
    }  # fmt: skip
    targets = {name: path for name, path in named.items() if path is not None}
    if plan is not None:
        if out or targets:
            raise UsageError("--plan cannot be combined with --out or tables: use two calls.")
        write_plan(run, plan, splits, seed, resplit, outside_links, replace)
        return
    if splits or resplit or not outside_links:
        raise UsageError("--splits, --resplit and --no-outside-links need --plan PLAN.json.")
    if bool(out) == bool(targets):
        raise UsageError(
            "Name the output: --out FOLDER for all tables, or --manifest FILE, --pairs FILE, ..."
        )
    if out is not None:
        _export_folder(run, out, format, annotations or (), code or (), replace)
        return
    if annotations:
        raise UsageError("--annotations needs --format coco, yolo or voc.")
    if code:
        raise UsageError("--code needs --format label-studio or cvat.")
    if format not in ("csv", "parquet"):
        raise UsageError(f"--format {format} writes a folder: name it with --out FOLDER.")
    result = exports.export_files(run, targets, replace=replace)
    print_lines([*_file_lines(result.files), *describe_tables(result)])


def _export_folder(
    run: Path, out: Path, form: ExportFormat, annotations: Sequence[str], codes: Sequence[str],
    replace: bool,
) -> None:  # fmt: skip
    from audit.exports.export import export_as
    from audit.exports.review_tasks import TOOLS

    named = [one.upper() for one in codes]
    made = export_as(run, out, form, annotations=annotations, codes=named, replace=replace)
    print_lines([*_file_lines(made.files), *made.said])
    if form in TOOLS:
        write_note(f"Then `audit decide {quoted(run)} --from FILE` reads the changes.")


def _file_lines(files: Mapping[Path, int]) -> list[str]:
    lines = [f"{n:>9,}  {path}" for path, n in list(files.items())[:MAX_LISTED]]
    return lines + [f"           and {len(files) - MAX_LISTED:,} more files"] * (
        len(files) > MAX_LISTED
    )


def apply_command(
    plan: Annotated[Path, typer.Argument(help="Plan, as written by `audit export RUN --plan`.")],
    to: Annotated[
        Path,
        typer.Option("--to", help="Folder to write: new, empty, or of an interrupted call."),
    ],
    link: Annotated[
        Literal["hard", "symbolic"] | None,
        typer.Option("--link", help="Link instead of copying; hard links need one disk."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print counts and bytes; write nothing.")
    ] = False,
) -> None:
    """Write the dataset of a plan to a new folder; resumes after a stop."""
    from audit.exports.planning import read_plan

    _apply(read_plan(plan), to, LINKS[link], dry_run)


def _apply(plan: DatasetPlan, folder: Path, how: How, dry_run: bool) -> None:
    from audit.exports.application import apply_plan
    from audit.scanning.measuring import PHASE_WORDS, Progress
    from dataset_preflight.foundation.progress import ProgressBar

    with ProgressBar(PHASE_WORDS) as bar:
        result = apply_plan(
            plan, folder, how, dry_run=dry_run, advance=lambda *n: bar(Progress("apply", *n))
        )
    verb = "would be written" if dry_run else "written"
    ends = f"{result.there:,} exist already" + ", so the folder is complete" * (not result.made)
    terminal.write_text(visible(
        f"{result.made:,} files {verb} to {folder} ({how}, {result.n_bytes:,} bytes); {ends}."
    ))  # fmt: skip
    if dry_run:
        write_plan_lines(plan)


def write_plan_lines(plan: DatasetPlan) -> None:
    """Print the files and bytes of a plan, and what it leaves out."""
    lines = [
        f"{len(plan.samples):,} samples, {plan.n_bytes:,} bytes, paths by {plan.layout}; "
        f"{len(plan.left_out):,} left out.",
    ]
    for split, n in sorted(Counter(s.split or "(no split)" for s in plan.samples).items()):
        lines.append(f"{n:>9,}  {split}")
    reasons = Counter(left.reason for left in plan.left_out)
    lines += [f"  left out, {n:,}: {reason}" for reason, n in reasons.most_common(10)]
    if torn := plan.splits.get("torn"):
        lines.append(f"{torn:,} groups are in several of the given splits: --resplit joins them.")
    from audit.exports.new_splits import evenness

    print_lines([*lines, *filter(None, [evenness(plan.splits)]), *plan.notes])


def write_plan(
    run: Path, path: Path, splits: str | None, seed: int, resplit: bool, outside_links: bool,
    replace: bool,
) -> None:  # fmt: skip
    """Write the plan of a run, and say what it holds."""
    from audit.exports.new_splits import SplitRequest, parse_shares
    from audit.exports.planning import plan_dataset

    request = SplitRequest(parse_shares(splits), seed, resplit) if splits else None
    write_plan_lines(
        plan_dataset(run, path, request, outside_links=outside_links, replace_file=replace)
    )
    write_note(f"Next: `audit apply {path} --to FOLDER`")
