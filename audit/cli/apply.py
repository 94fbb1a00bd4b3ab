"""`audit apply` and the plan of `audit export`: parse, one call into the library, format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import print_lines, write_note
from audit.errors import UsageError
from preflight import terminal
from preflight.terminal import visible

if TYPE_CHECKING:
    from audit.exports.application import How
    from audit.exports.planning import DatasetPlan


def apply_command(
    plan: Annotated[
        Path | None, typer.Argument(help="Plan, as written by `audit export RUN --plan`.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder to make: new, empty, or begun before.")
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the files (the default).")] = False,
    hardlink: Annotated[
        bool, typer.Option("--hardlink", help="Link to the same bytes, on one disk only.")
    ] = False,
    symlink: Annotated[
        bool, typer.Option("--symlink", help="Make links that name the source's paths.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print counts and bytes; make nothing.")
    ] = False,
    rollback: Annotated[
        Path | None, typer.Option("--rollback", help="Take back what was made in this folder.")
    ] = None,
) -> None:
    """Make the dataset of a plan in a new folder; goes on after a stop; touches no source."""
    from audit.exports.planning import read_plan

    if rollback is not None:
        if plan or to:
            raise UsageError("--rollback takes back what its own folder's receipt says: no plan.")
        _roll_back(rollback)
        return
    if plan is None or to is None:
        raise UsageError("Say what to make and where: audit apply plan.json --to FOLDER.")
    if copy + hardlink + symlink > 1:
        raise UsageError("Choose one of --copy, --hardlink and --symlink.")
    _apply(read_plan(plan), to, "hardlink" if hardlink else "symlink" if symlink else "copy",
           dry_run)  # fmt: skip


def _apply(plan: DatasetPlan, folder: Path, how: How, dry_run: bool) -> None:
    from audit.exports.application import apply_plan
    from audit.scanning.measuring import PHASE_WORDS, Progress
    from preflight.progress import ProgressBar

    with ProgressBar(PHASE_WORDS) as bar:
        result = apply_plan(
            plan, folder, how, dry_run=dry_run, advance=lambda *n: bar(Progress("apply", *n))
        )
    verb = "would be made" if dry_run else "made"
    terminal.write_text(visible(
        f"{result.made:,} files {verb} in {folder} ({how}, {result.n_bytes:,} bytes); "
        f"{result.there:,} were there."
    ))  # fmt: skip
    if dry_run:
        write_plan_lines(plan)


def _roll_back(folder: Path) -> None:
    from audit.exports.application import roll_back

    result = roll_back(folder)
    lines = [f"{result.removed:,} files taken away from {folder}."]
    lines += [f"  kept, because it was edited since: {name}" for name in result.kept]
    print_lines(lines)


def write_plan_lines(plan: DatasetPlan) -> None:
    """Print what a plan holds: files, bytes, what stays out, and what cannot go along."""
    from collections import Counter

    lines = [
        f"{len(plan.samples):,} samples, {plan.n_bytes:,} bytes, paths by {plan.layout}; "
        f"{len(plan.left_out):,} left out.",
    ]
    for split, n in sorted(Counter(s.split or "(no split)" for s in plan.samples).items()):
        lines.append(f"{n:>9,}  {split}")
    reasons = Counter(left.reason for left in plan.left_out)
    lines += [f"  left out, {n:,}: {reason}" for reason, n in reasons.most_common(10)]
    if torn := plan.splits.get("torn"):
        lines.append(
            f"{torn:,} groups lie in several splits that were given: --resplit joins them."
        )
    print_lines([*lines, *plan.notes])


def write_plan(
    run: Path, path: Path, splits: str | None, seed: int, resplit: bool, replace: bool
) -> None:
    """Write the plan of a run, and say what it holds."""
    from audit.exports.new_splits import SplitRequest, parse_shares
    from audit.exports.planning import plan_dataset

    request = SplitRequest(parse_shares(splits), seed, resplit) if splits else None
    write_plan_lines(plan_dataset(run, path, request, replace_file=replace))
    write_note(f"`audit apply {path} --to FOLDER` makes it.")
