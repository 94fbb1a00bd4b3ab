"""`audit scan | recheck | report`: parse, one call into the library, print the report.

All three end with the report of a run; the exit code is what it says. `audit.cli.main` mounts them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.compare import FailOn, fails, unmet, write_diff, write_outcomes
from audit.cli.options import (
    ChecksOption,
    ConfigOption,
    JobsOption,
    JsonOption,
    LockOption,
    OwnOption,
    RunArgument,
    TraceOption,
    scan_option,
)
from audit.errors import UsageError
from audit.scanning.options import PROCESSES, RUNS, ScanOptions
from preflight import terminal
from preflight.ending import ExitCode, strongest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audit.compare.diff import RunDiff
    from audit.compare.expectations import JudgedExpectation
    from audit.report import Report
    from audit.scanning.measuring import Progress
    from audit.scanning.scanning import ScanResult

FailOption = Annotated[
    FailOn,
    typer.Option("--fail-on", help="Exit with 1 at this severity; new: beyond the --baseline."),
]
FullOption = Annotated[
    bool, typer.Option("--full", help="Print the whole report, as `audit report RUN` does.")
]


def scan_command(
    source: Annotated[
        list[str],
        typer.Argument(help="A folder, a manifest, packs, an address, or name=DIR ..."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Run directory (default runs/<dataset name>).")
    ] = None,
    jobs: JobsOption = None,
    executor: Annotated[str, scan_option("executor")] = PROCESSES,
    address: Annotated[str, scan_option("address")] = "auto",
    parts: Annotated[str | None, scan_option("parts")] = None,
    checks: ChecksOption = None,
    layout: Annotated[str | None, scan_option("layout")] = None,
    exclude: Annotated[list[str] | None, scan_option("exclude")] = None,
    root: Annotated[list[str] | None, scan_option("roots", "--root")] = None,
    label_separator: Annotated[
        str | None, scan_option("label_separator", "--label-separator")
    ] = None,
    one_hot: Annotated[str | None, scan_option("one_hot", "--one-hot")] = None,
    embeddings: Annotated[Path | None, scan_option("embeddings")] = None,
    embedder: Annotated[str | None, scan_option("embedder")] = None,
    predictions: Annotated[Path | None, scan_option("predictions")] = None,
    config: ConfigOption = None,
    own: OwnOption = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="Run of an earlier audit: tell what changed since."),
    ] = None,
    fail_on: FailOption = FailOn.ERROR,
    full: FullOption = False,
    as_json: JsonOption = False,
    verify: Annotated[bool, scan_option("verify")] = False,
    lock: LockOption = True,
    trace: TraceOption = False,
    timing: Annotated[
        bool, typer.Option("--timing", help="Print the wall and CPU seconds of each stage.")
    ] = False,
    push: Annotated[
        str, typer.Option("--push", help="Send the counts to https://HOST/DATASET of a service.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what --push would send, and send nothing.")
    ] = False,
    with_paths: Annotated[
        bool, typer.Option("--with-paths", help="Let --push send ids of samples too.")
    ] = False,
) -> None:
    """Index a dataset and report what is wrong with it; run it again after any change."""
    if executor == PROCESSES and all(map(os.path.isdir, source)):
        from audit.machine.workers import fork_ahead

        if not os.path.exists(out or RUNS / os.path.basename(source[0])):  # a first scan
            fork_ahead()
    from audit.compare.expectations import judge_expectations, parse_expectations
    from audit.kernels.library import missing_sentence
    from audit.report import collect_report
    from audit.scanning.estimate import Forecast
    from audit.scanning.measuring import PHASE_WORDS
    from preflight.cores import usable_cores
    from preflight.progress import ProgressBar

    _need_baseline(fail_on, baseline)
    if (dry_run or with_paths) and not push:
        raise UsageError("--dry-run and --with-paths are about --push URL: name where to.")
    if push:
        from preflight.push import find_push_problem

        if problem := find_push_problem(push, "dataset", dry_run=dry_run):
            raise UsageError(problem)
    earlier = None
    if baseline is not None:
        from audit.compare.diff import Snapshot

        earlier = Snapshot.of(baseline)  # before the scan, which may be of the same run
    options = ScanOptions(
        layout=layout, exclude=exclude or (), roots=_pairs(root or [], "--root"),
        checks=_words(checks), embeddings=embeddings, embedder=embedder, predictions=predictions,
        config=config, own=own or (), jobs=jobs, executor=executor, address=address, parts=parts,
        lock=lock, verify=verify, label_separator=label_separator, one_hot=one_hot,
    )  # fmt: skip
    request = options.prepare(source, out)
    expected = parse_expectations(request.config.expect)
    missing = [sentence] if (sentence := missing_sentence()) else []
    notes = [request.source.describe(), *request.config.notes, *missing]
    terminal.write_message("\n".join(notes))
    try:
        with ProgressBar(PHASE_WORDS) as bar:
            forecast = Forecast(bar.say, jobs or usable_cores())

            def show(state: Progress) -> None:
                bar(state)
                forecast(state)

            result = request.carry_out(show)
    except KeyboardInterrupt:
        again = " ".join(["audit", "scan", *source, "--out", str(request.run)])
        terminal.write_message(f"\nNothing is lost: `{again}` goes on from here.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    terminal.write_message(_what_happened(result))
    diff = None
    if earlier is not None:
        from audit.compare.diff import Snapshot, compare_snapshots

        diff = compare_snapshots(earlier, Snapshot.of(request.run))
    report = collect_report(request.run, laps=result.laps)
    if timing:
        terminal.write_message(_stage_table(report))
    outcomes = judge_expectations(request.run, expected) if expected else []
    if push:
        _push(request.run, push, with_paths, dry_run)
    _finish(report, fail_on, as_json, trace, diff, outcomes, full)


def _push(run: Path, url: str, with_paths: bool, dry_run: bool) -> None:
    """Send what was found; a service that does not take it leaves the result as it is."""
    from audit.service.client import push_scan

    try:
        lines = push_scan(run, url, with_paths=with_paths, dry_run=dry_run)
    except UsageError as error:
        kept = f"The result is kept in {run}: the same command sends it, and reads no file again."
        terminal.write_message(f"Not pushed: {error} {kept}")
        return
    said = "would leave" if dry_run else "left"
    terminal.write_message("\n".join([f"What {said} for {url}:", *lines]))


def recheck_command(
    run: RunArgument,
    checks: ChecksOption = None,
    config: ConfigOption = None,
    own: OwnOption = None,
    recall: Annotated[
        bool,
        typer.Option("--recall", help="Measure what share of changed copies is found (DUP003)."),
    ] = False,
    fail_on: FailOption = FailOn.ERROR,
    full: FullOption = False,
    as_json: JsonOption = False,
    lock: LockOption = True,
    trace: TraceOption = False,
) -> None:
    """Run the checks again over what a scan measured, with other thresholds; reads no image."""
    from audit.checking.config import load_config
    from audit.report import collect_report
    from audit.scanning import scanning
    from audit.scanning.measuring import PHASE_WORDS
    from preflight.progress import ProgressBar

    _need_baseline(fail_on, None)
    settings = load_config(config)
    settings = replace(settings, own=(*settings.own, *(own or ())))
    for note in settings.notes:
        terminal.write_message(note)
    with ProgressBar(PHASE_WORDS) as bar:
        scanning.recheck(
            run, checks=_words(checks), config=settings, progress=bar, lock=lock, recall=recall
        )
    _finish(collect_report(run), fail_on, as_json, trace, full=full)


def report_command(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="x.txt, .md, .html, .json, .sarif, .xml (JUnit)."),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", help="JUnit XML of checks and of [expect], for a CI server."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="File with [expect] (default ./audit.toml).")
    ] = None,
    listed: Annotated[
        str | None, typer.Option("--list", help="Print every finding of these checks, a line each.")
    ] = None,
    card: Annotated[
        bool,
        typer.Option("--card", help="A data card as Markdown; -o card.md adds Croissant JSON-LD."),
    ] = False,
    licence: Annotated[
        str, typer.Option("--licence", help="Licence of all files, for the card.")
    ] = "",
    reviewed: Annotated[
        Path | None,
        typer.Option("--reviewed", help="Labels drawn by `audit labels`, answered: their cost."),
    ] = None,
    pictures: Annotated[
        bool, typer.Option("--pictures/--no-pictures", help="Small pictures in an HTML report.")
    ] = True,
    as_json: JsonOption = False,
    trace: TraceOption = False,
) -> None:
    """Print a run's findings again, or write them to a file."""
    from audit.report import PICTURED, collect_report, write_card, write_report

    collected = collect_report(run, worst=PICTURED, reviewed=reviewed)
    files = [(path, kind) for path, kind in ((output, ""), (junit, "xml")) if path is not None]
    if listed is not None:
        _list_findings(collected, listed, alone=not files and not as_json)
        return
    card = card or (output is not None and output.name.lower() == "card.md")
    _check_card(card, licence, as_json)
    if card or any(kind == "xml" or path.suffix.lower() == ".xml" for path, kind in files):
        collected = _with_expectations(collected, run, config)
    if card and output is None:
        _print_card(collected, licence)
    elif not files:
        _finish(collected, FailOn.NEVER, as_json, trace, full=True)
        return
    for path, kind in files:
        if card and path is output:
            made = list(write_card(collected, path, licence))
        else:
            made = [write_report(collected, path, kind, pictures=pictures)]
        terminal.write_message(f"Wrote {' and '.join(map(str, made))}.")
    _exit(collected, trace)


def _check_card(card: bool, licence: str, as_json: bool) -> None:
    if licence and not card:
        raise UsageError("--licence goes into a card: add --card, or -o card.md.")
    if card and as_json:
        raise UsageError("A card is Markdown: leave out --json, or --card.")


def _print_card(report: Report, licence: str) -> None:
    from audit.report.card import collect_facts, to_card

    terminal.write_parts([to_card(report, collect_facts(report, licence))])


def _with_expectations(report: Report, run: Path, config: Path | None) -> Report:
    from audit.checking.config import load_config
    from audit.compare.expectations import judge_expectations, parse_expectations

    expected = parse_expectations(load_config(config).expect)
    judged = judge_expectations(run, expected) if expected else []
    return replace(report, expected=tuple(one.outcome() for one in judged))


# ---- the end ----


def _need_baseline(fail_on: FailOn, baseline: Path | None) -> None:
    if fail_on.only_new and baseline is None:
        raise UsageError(
            f"--fail-on {fail_on.value} counts what an earlier audit did not have: name it with "
            "`audit scan ... --baseline RUN`."
        )


def _finish(
    report: Report, fail_on: FailOn, as_json: bool, trace: bool, diff: RunDiff | None = None,
    outcomes: Sequence[JudgedExpectation] = (), full: bool = False,
) -> None:  # fmt: skip
    """Print one screen or the `full` report, then what a baseline and what was expected say."""
    from audit.report import to_json, to_text
    from audit.report.screen import error_lines, to_screen

    cause = _cause(report, fail_on, diff, unmet(outcomes))
    if as_json:
        terminal.write_parts(to_json(report))
    else:
        styled, width = terminal.is_terminal(), terminal.width()
        if full:
            text = to_text(report, width, styled)
        else:
            text = to_screen(report, width, styled, cause)
        terminal.write_text(text, styled=styled)
        if not full and not styled and report.counts.error:
            terminal.write_text("Errors")
            terminal.write_parts(map(terminal.escape_controls, error_lines(report)))
        if diff is not None:
            terminal.write_text("")
            write_diff(diff)
        if outcomes:
            terminal.write_text("")
            write_outcomes(outcomes)
    _exit(report, trace, cause)


def _cause(report: Report, fail_on: FailOn, diff: RunDiff | None, unmet: int) -> str:
    """Return what makes the command end with 1: the worst finding that counts; empty if nothing."""
    from audit.records import Severity
    from audit.report.wording import counted

    if fail_on is FailOn.NEVER:
        return ""
    said = [counted(unmet, "expectation") + " not met"] if unmet else []
    if diff is not None and fail_on.only_new:
        return "; ".join([*said, *(["new findings"] if fails(diff, fail_on) else [])])
    counts = report.counts
    bad = counts.error + (counts.warning if fail_on is FailOn.WARNING else 0)
    if bad:
        thing = next((one for one in report.first if one.severity is Severity.ERROR), None)
        thing = thing or next(iter(report.first))
        codes = f"{thing.codes[0]} {thing.example_text}".strip()
        more = f", and {bad - 1:,} more" if bad > 1 else ""
        said.insert(0, f"{codes}{more}; `--fail-on never` ends with 0")
    return "; ".join(said)


def _exit(report: Report, trace: bool, cause: str = "") -> None:
    """End with what the report says: a part that failed counts whatever `--fail-on` is."""
    if trace:
        for part in report.failed:
            terminal.write_message(f"{part.sentence()}\n{part.trace}")
    code = strongest(
        ExitCode.FINDINGS if cause else ExitCode.CLEAN,
        ExitCode.BROKEN_PART if report.failed else ExitCode.CLEAN,
    )
    if code:
        raise typer.Exit(code)


def _list_findings(report: Report, codes: str, *, alone: bool) -> None:
    """Print every finding of these checks; raises UsageError for one that did not run."""
    from audit.report.text import finding_lines

    if not alone:
        raise UsageError("--list prints lines of text: leave out -o and --json.")
    ran = [check.code for check in report.checks]
    wanted = [code.strip().upper() for code in codes.split(",")]
    for code in wanted:
        if code not in ran:
            raise UsageError(
                f"--list {code}: no check of this code ran here: `audit report` names those that "
                "did."
            )
    for code in wanted:
        terminal.write_parts(finding_lines(report, code))


def _stage_table(report: Report) -> str:
    """Return the stages of a scan with their seconds; `report` is as far as it was collected."""
    stages = report.timing["stages"]
    columns = ("wall_s", "cpu_s", "workers_cpu_s")
    total = {"stage": "total"} | {name: sum(s[name] for s in stages) for name in columns}
    head = f"{'stage':<10}{'wall s':>10}{'CPU s':>10}{'of workers':>12}"
    rows = (
        f"{s['stage']:<10}{s['wall_s']:>10.2f}{s['cpu_s']:>10.2f}{s['workers_cpu_s']:>12.2f}"
        for s in (*stages, total)
    )
    return "\n".join([head, *rows])


def _what_happened(result: ScanResult) -> str:
    if result.unchanged:
        read = "all hashed" if result.edited_unseen is not None else "none read again"
        return f"Nothing changed since the last scan: {result.total:,} files, {read}."
    parts = [f"{result.measured:,} files read"]
    if result.kept > result.moved:
        parts.append(f"{result.kept - result.moved:,} unchanged")
    if result.moved:
        parts.append(f"{result.moved:,} moved or renamed")
    if result.resumed:
        parts.append(f"{result.resumed:,} resumed from an unfinished scan")
    seconds = sum(lap.wall_s for lap in result.laps.values())
    said = f"{', '.join(parts)}, in {seconds:.1f} s."
    if unseen := result.edited_unseen:
        named = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
        said += f"\n{len(unseen):,} changed although size and times did not: {named}."
    return said


def _words(text: str | None) -> list[str] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("--checks names no check: `audit explain` lists codes and names.")
    return words


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    pairs = dict(text.split("=", 1) for text in texts if "=" in text)
    if len(pairs) != len(texts):
        raise UsageError(f"{option} takes OLD=NEW, such as {option} /data=/mnt/data.")
    return pairs
