"""`audit diff`, and the printed forms of a diff, a history and expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import JsonOption, option, print_answer, print_lines, run_argument
from audit.errors import UsageError
from dataset_preflight.foundation.ending import ExitCode

if TYPE_CHECKING:
    import polars as pl

    from audit.compare.diff import RunDiff
    from audit.compare.expectations import JudgedExpectation
    from audit.records import Severity
    from audit.results.history import Moment

WORDS = {True: "met", False: "NOT MET", None: "INCONCLUSIVE"}
SHOWN = 10  # changes of each kind; --json has all


class FailOn(StrEnum):
    """The least severe finding that makes the exit code 1, of all or of those a baseline lacks."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEW_ERROR = "new:error"
    NEW_WARNING = "new:warning"
    NEVER = "never"

    @property
    def only_new(self) -> bool:
        """Whether only findings count that the baseline has not."""
        return self.value.startswith("new:")

    @property
    def severity(self) -> str | None:
        """The severity that it names; None for never."""
        return None if self is FailOn.NEVER else self.value.removeprefix("new:")

    @property
    def counted(self) -> list[Severity]:
        """The severities that count."""
        from audit.records import Severity

        severities = sorted(Severity, key=lambda one: one.rank)
        names = [one.value for one in severities]
        return [] if self.severity is None else severities[: names.index(self.severity) + 1]


def diff_command(
    old: Annotated[Path, run_argument("Earlier run, or a version of a run: RUN/gen-0003.")],
    new: Annotated[Path, run_argument("Later run, or a version of a run.")],
    distributions: Annotated[
        bool,
        option(
            "--distributions",
            "Compare classes and image properties (automatic for two datasets).",
        ),
    ] = False,
    fail_on: Annotated[
        FailOn, option("--fail-on", "Exit with 1 at a new finding of this severity.")
    ] = FailOn.NEVER,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs: new and fixed findings and files, or distributions; reads no image."""
    from audit.compare.diff import SAME_DATASET, compare_snapshots, shared_share
    from audit.results.run_findings import RunFindings

    before, after = RunFindings.of(old), RunFindings.of(new)
    share = shared_share(before.samples, after.samples)
    if distributions or share < SAME_DATASET:
        _diff_distributions(old, new, share, fail_on, as_json)
        return
    diff = compare_snapshots(before, after)
    print_answer(as_json, diff.document, lambda: diff_lines(diff))
    if fails(diff, fail_on):
        raise typer.Exit(ExitCode.FINDINGS)


def _diff_distributions(old: Path, new: Path, share: float, fail_on: FailOn, as_json: bool) -> None:
    from audit.compare.diff import find_drift

    compared = f"{share:.1%} of the samples of the smaller run are in the other"
    if fail_on.only_new:
        raise UsageError(
            f"--fail-on {fail_on.value} compares two scans of one dataset, but {compared}. Use "
            "--fail-on error, warning or info to compare distributions."
        )
    drift = find_drift(new, old)
    lines = [f"Comparing distributions: {compared}."]
    lines += [f"{f.severity.value:<8} {f.code}  {f.message}" for f in drift.findings]
    lines += [f"  {sample}" for finding in drift.findings for sample in finding.sample_ids]
    if not drift.findings:
        lines.append(f"No difference found between {old} and {new}.")
    print_answer(as_json, drift.document, lambda: [*lines, *drift.completeness])
    if any(finding.severity in fail_on.counted for finding in drift.findings):
        raise typer.Exit(ExitCode.FINDINGS)


def print_history(run: Path, since: str | None, as_json: bool) -> None:
    """Print what each scan and re-check of a run found; `since`: a code or a fingerprint."""
    from audit.results.history import SCHEMA, arrival
    from audit.results.results import open_results
    from audit.run import run_version

    history = open_results(run).history()
    if since is not None and not as_json:
        found = arrival(history, since)
        if found is None:
            print_lines([f"No scan in the history introduced {since}."])
            return
        moment, samples = found
        n = moment.came.get(since, 1)
        shown = [f"  {sample}" for sample in samples]
        shown[-1:] = [f"{line} and more" if n > len(samples) else line for line in shown[-1:]]
        print_lines([f"{n:,} {since} first appeared in the scan of {moment.at}:", *shown])
        return
    document = {"schema": SCHEMA, "run": str(run), "moments": [asdict(one) for one in history]}
    kept = {one.name for one in run_version.list_published(run)}
    print_answer(as_json, lambda: document, lambda: _history_lines(history, kept))


def _history_lines(history: Sequence[Moment], kept: set[str]) -> Iterator[str]:
    from audit.results.history import last_change

    if not history:
        yield "This run has no history yet. The next scan that changes it starts the history."
        return
    yield (
        f"{'published, UTC':<20}{'files':>11}{'errors':>9}{'warnings':>10}{'info':>8}{'new':>8}"
        f"{'fixed':>8}  kept, for audit diff"
    )
    for moment in history:
        row = moment.row()
        first = moment is history[0]
        yield (
            f"{row['at'][:19].replace('T', ' '):<20}{row['files']:>11,}{row['error']:>9,}"
            f"{row['warning']:>10,}{row['info']:>8,}"
            + (f"{'':>16}" if first else f"{row['came']:>8,}{row['went']:>8,}")
            + (f"  {moment.generation}" if moment.generation in kept else "")
        )
    if said := last_change(history):
        yield said


def fails(diff: RunDiff, fail_on: FailOn) -> bool:
    """Whether there is a new finding so severe."""
    from audit.records import Severity

    return fail_on.severity is not None and len(diff.new(Severity(fail_on.severity))) > 0


def diff_lines(diff: RunDiff) -> Iterator[str]:
    """Yield what changed, for a reader."""
    from audit.results.formatting import severity_counts

    counts = diff.counts()
    yield (
        f"Findings since {diff.before}: {counts['new']:,} new, {counts['fixed']:,} fixed, "
        f"{counts['persisting']:,} persisting"
        + (f", {counts['unchecked']:,} not comparable" if counts["unchecked"] else "")
        + "."
    )
    before, after = (severity_counts(counts) for counts in diff.open)
    yield f"Open findings: {before} then, {after} now."
    for change in ("new", "fixed", "unchecked"):
        yield from _findings(diff.findings, change)
    yield from _settled(diff.settled())
    yield from _files(diff.files)
    if len(diff.objects):
        said = (f"{c} {a:,} -> {b:,}" for c, a, b in diff.objects.head(SHOWN).iter_rows())
        yield f"Objects: {', '.join(said)}."
        yield from _more(len(diff.objects), "classes of objects")


def _findings(findings: pl.DataFrame, change: str) -> Iterator[str]:
    import polars as pl

    rows = findings.filter(pl.col("change") == change)
    for row in rows.head(SHOWN).iter_rows(named=True):
        why = f"  ({row['why']})" if row["why"] else ""
        settled = f" [{row['status']}]" if row["status"] not in (None, "open") else ""
        names = ", ".join(row["ids"][:2]) + (" ..." if len(row["ids"]) > 2 else "")
        about = f" {names}:" if names else ""
        what = f"{row['code']} {row['severity']}{settled}{about} {row['message']}"
        yield f"  {change:<9}  {what}{why}"
    yield from _more(len(rows), change)


def _settled(rows: pl.DataFrame) -> Iterator[str]:
    for row in rows.head(SHOWN).iter_rows(named=True):
        was, now = row["before"], row["status"]
        yield f"  decided    {row['code']} {row['fingerprint']}: {was}, now {now}"
    yield from _more(len(rows), "decided")


def _files(files: pl.DataFrame) -> Iterator[str]:
    import polars as pl

    counts = dict(files.group_by("change").len().iter_rows())
    kinds = ("added", "removed", "edited", "moved", "reclassified")
    said = ", ".join(f"{counts.get(kind, 0):,} {kind}" for kind in kinds)
    yield f"Files: {said}."
    for kind in kinds:
        rows = files.filter(pl.col("change") == kind)
        for row in rows.head(SHOWN).iter_rows(named=True):
            yield f"  {kind:<12}  {_file(row)}"
        yield from _more(len(rows), kind)


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
    if n > SHOWN:
        yield f"  and {n - SHOWN:,} more {kind} (--json lists them)"


def unmet(found: Sequence[JudgedExpectation]) -> int:
    """Return how many are not met or inconclusive."""
    return sum(one.met is not True for one in found)


def outcome_lines(found: Sequence[JudgedExpectation]) -> Iterator[str]:
    """Yield a table of expectations, the unmet ones first."""
    yield f"{len(found) - unmet(found)} of {len(found)} expectations are met."
    width = max(len(one.expectation.title) for one in found)
    for one in sorted(found, key=lambda one: one.met is True):
        yield f"  {WORDS[one.met]:<12} {one.expectation.title:<{width}}  {one.said}"
