"""`audit diff`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import terminal
from audit.cli.exit_codes import ExitCode, FailOn
from audit.printable import visible

if TYPE_CHECKING:
    import polars as pl

    from audit.run_diff import RunDiff

SHOWN = 10  # of each kind, without --all


def diff_command(
    before: Annotated[Path, typer.Argument(help="Run directory of the earlier audit.")],
    after: Annotated[Path, typer.Argument(help="Run directory of the later one.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="List every change, not the first of each kind.")
    ] = False,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit with 1 at a new finding so severe.")
    ] = FailOn.NEVER,
) -> None:
    """Tell what changed from one audit to the next: files, findings, decisions; reads no image."""
    from audit.run_diff import compare_runs

    diff = compare_runs(before, after)
    if as_json:
        terminal.write_parts([diff.document(), "\n"])
    else:
        write_diff(diff, everything)
    if fails(diff, fail_on):
        raise typer.Exit(ExitCode.FINDINGS)


def fails(diff: RunDiff, fail_on: FailOn) -> bool:
    """Whether there is a new finding so severe."""
    from audit.records import Severity

    return fail_on.severity is not None and len(diff.new(Severity(fail_on.severity))) > 0


def write_diff(diff: RunDiff, everything: bool = False) -> None:
    """Print what changed, for a reader."""
    shown = len(diff.findings) + len(diff.files) if everything else SHOWN
    terminal.write_text("\n".join(map(visible, _lines(diff, shown))))


def _lines(diff: RunDiff, shown: int) -> Iterator[str]:
    counts = diff.counts()
    yield (
        f"Findings since {diff.before}: {counts['new']:,} new, {counts['fixed']:,} fixed, "
        f"{counts['persisting']:,} persisting"
        + (f", {counts['unchecked']:,} not comparable" if counts["unchecked"] else "")
        + "."
    )
    for change in ("new", "fixed", "unchecked"):
        yield from _findings(diff.findings, change, shown)
    yield from _settled(diff.settled(), shown)
    yield from _files(diff.files, shown)


def _findings(findings: pl.DataFrame, change: str, shown: int) -> Iterator[str]:
    import polars as pl

    rows = findings.filter(pl.col("change") == change)
    for row in rows.head(shown).iter_rows(named=True):
        why = f"  ({row['why']})" if row["why"] else ""
        settled = f" [{row['status']}]" if row["status"] not in (None, "open") else ""
        names = ", ".join(row["ids"][:2]) + (" ..." if len(row["ids"]) > 2 else "")
        about = f" {names}:" if names else ""
        what = f"{row['code']} {row['severity']}{settled}{about} {row['message']}"
        yield f"  {change:<9}  {what}{why}"
    yield from _more(len(rows) - shown, change)


def _settled(rows: pl.DataFrame, shown: int) -> Iterator[str]:
    for row in rows.head(shown).iter_rows(named=True):
        was, now = row["before"], row["status"]
        yield f"  decided    {row['code']} {row['fingerprint']}: {was}, now {now}"
    yield from _more(len(rows) - shown, "decided")


def _files(files: pl.DataFrame, shown: int) -> Iterator[str]:
    import polars as pl

    counts = dict(files.group_by("change").len().iter_rows())
    kinds = ("added", "removed", "edited", "moved", "reclassified")
    said = ", ".join(f"{counts.get(kind, 0):,} {kind}" for kind in kinds)
    yield f"Files: {said}."
    for kind in kinds:
        rows = files.filter(pl.col("change") == kind)
        for row in rows.head(shown).iter_rows(named=True):
            yield f"  {kind:<12}  {_file(row)}"
        yield from _more(len(rows) - shown, kind)


def _file(row: dict[str, str | None]) -> str:
    if row["change"] == "moved":
        return f"{row['before']} -> {row['after']}"
    if row["change"] != "reclassified":
        return str(row["after"] or row["before"])
    parts = [
        f"{part} {row[f'{part}_before']} -> {row[f'{part}_after']}"
        for part in ("class", "split")
        if row[f"{part}_before"] != row[f"{part}_after"]
    ]
    return f"{row['after']}: {', '.join(parts)}"


def _more(n: int, kind: str) -> Iterator[str]:
    if n > 0:
        yield f"  and {n:,} more {kind} (--all lists them)"
