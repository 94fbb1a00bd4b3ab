"""`audit export | apply`: parse, one library call, format. `audit.cli.main` mounts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.cli.options import RunArgument, SeedOption, option, print_lines, quoted, write_note
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
        Path | None, option("--out", "Folder for all tables, or for annotations.")
    ] = None,
    format: Annotated[  # noqa: A002
        ExportFormat,
        option("--format", "Format of --out: tables, annotations or review tasks."),
    ] = "csv",
    annotations: Annotated[
        list[str] | None,
        option("--annotations", "Annotation file to write (coco, yolo, voc); globs."),
    ] = None,
    code: Annotated[
        list[str] | None,
        option("--code", "Findings to review (label-studio, cvat): BOX, DUP003."),
    ] = None,
    plan: Annotated[
        Path | None, option("--plan", "Plan of the clean dataset, for `audit apply`.")
    ] = None,
    splits: Annotated[
        str | None, option("--splits", "New splits in --plan: train=.8,val=.1,test=.1.")
    ] = None,
    seed: SeedOption = 0,
    resplit: Annotated[
        bool, option("--resplit", "Assign new splits also to samples that have one.")
    ] = False,
    outside_links: Annotated[
        bool,
        option(
            "--outside-links/--no-outside-links",
            "In --plan: images behind links that point outside the dataset.",
        ),
    ] = True,
    replace: Annotated[bool, option("--replace", "Replace files that exist.")] = False,
) -> None:
    """Write findings, decisions, annotations or the plan of a clean copy."""
    if (out is None) == (plan is None):
        raise UsageError("Name one output: --out FOLDER, or --plan PLAN.json.")
    if plan is not None:
        from audit.exports.new_splits import SplitRequest, parse_shares
        from audit.exports.planning import plan_dataset

        request = SplitRequest(parse_shares(splits), seed, resplit) if splits else None
        _print_plan(
            plan_dataset(run, plan, request, outside_links=outside_links, replace_file=replace)
        )
        write_note(f"Next: `audit apply {plan} --to FOLDER`")
        return
    if splits or resplit or not outside_links:
        raise UsageError("--splits, --resplit and --no-outside-links need --plan PLAN.json.")
    from audit.exports.export import export_as
    from audit.exports.review_tasks import TOOLS

    assert out is not None
    codes = [name.upper() for name in code or ()]
    made = export_as(run, out, format, annotations=annotations or (), codes=codes, replace=replace)
    print_lines([*_file_lines(made.files), *made.said])
    if format in TOOLS:
        write_note(f"Then `audit decide {quoted(run)} --from FILE` reads the changes.")


def _file_lines(files: Mapping[Path, int]) -> list[str]:
    lines = [f"{n:>9,}  {path}" for path, n in list(files.items())[:MAX_LISTED]]
    return lines + [f"           and {len(files) - MAX_LISTED:,} more files"] * (
        len(files) > MAX_LISTED
    )


def apply_command(
    plan: Annotated[Path, typer.Argument(help="Plan, as written by `audit export RUN --plan`.")],
    to: Annotated[Path, option("--to", "Folder to write: new, empty, or of an interrupted call.")],
    link: Annotated[
        Literal["hard", "symbolic"] | None,
        option("--link", "Link instead of copying; hard links need one disk."),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", "Print counts and bytes; write nothing.")] = False,
) -> None:
    """Write the dataset of a plan to a new folder; resumes after a stop."""
    from audit.exports.application import apply_plan
    from audit.exports.planning import read_plan
    from audit.scanning.measuring import PHASE_WORDS, Progress
    from dataset_preflight.foundation.progress import ProgressBar

    dataset, how = read_plan(plan), LINKS[link]
    with ProgressBar(PHASE_WORDS) as bar:
        result = apply_plan(
            dataset, to, how, dry_run=dry_run, advance=lambda *n: bar(Progress("apply", *n))
        )
    verb = "would be written" if dry_run else "written"
    ends = f"{result.there:,} exist already" + ", so the folder is complete" * (not result.made)
    terminal.write_text(visible(
        f"{result.made:,} files {verb} to {to} ({how}, {result.n_bytes:,} bytes); {ends}."
    ))  # fmt: skip
    if dry_run:
        _print_plan(dataset)


def _print_plan(plan: DatasetPlan) -> None:
    from audit.exports.new_splits import evenness

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
    print_lines([*lines, *filter(None, [evenness(plan.splits)]), *plan.notes])
