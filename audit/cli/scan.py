"""`audit scan | recheck | report`: parse, one call into the library, print the report."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.cli.compare import FailOn, diff_lines, fails, outcome_lines, print_history, unmet
from audit.cli.options import (
    ChecksOption,
    JsonOption,
    RunArgument,
    global_options,
    note_version,
    option,
    option_group,
    print_answer,
    print_lines,
    quoted,
    read_config,
    scan_option,
    write_note,
)
from audit.errors import UsageError
from audit.scanning.options import RUNS, ScanOptions
from dataset_preflight.foundation import terminal
from dataset_preflight.foundation.ending import ExitCode, strongest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audit.checking.config import Config
    from audit.compare.diff import RunDiff
    from audit.compare.expectations import JudgedExpectation
    from audit.machine.stopwatch import Stopwatch
    from audit.report import Report
    from audit.scanning.measuring import Progress
    from audit.scanning.scanning import ScanRequest, ScanResult

INPUT, CHECKS = "Input", "Checks"  # groups of the help of `scan`
output_option, ci_option = option_group("Output"), option_group("CI")
FailOption = Annotated[
    FailOn, ci_option("--fail-on", "Exit with 1 at this severity; new: not in --baseline.")
]


def scan_command(
    source: Annotated[
        list[str],
        typer.Argument(
            help="A folder, a manifest, packs, an address, or name=DIR ...", rich_help_panel=INPUT
        ),
    ],
    layout: Annotated[str | None, scan_option("layout", panel=INPUT)] = None,
    exclude: Annotated[list[str] | None, scan_option("exclude", panel=INPUT)] = None,
    root: Annotated[list[str] | None, scan_option("roots", "--root", panel=INPUT)] = None,
    embeddings: Annotated[Path | None, scan_option("embeddings", panel=INPUT)] = None,
    embedder: Annotated[str | None, scan_option("embedder", panel=INPUT)] = None,
    predictions: Annotated[Path | None, scan_option("predictions", panel=INPUT)] = None,
    hash_all: Annotated[bool, scan_option("verify", "--hash-all", panel=INPUT)] = False,
    jobs: Annotated[int | None, scan_option("jobs", min=1, panel=INPUT)] = None,
    checks: Annotated[str | None, scan_option("checks", panel=CHECKS)] = None,
    plugins: Annotated[list[Path] | None, scan_option("plugins", "--plugin", panel=CHECKS)] = None,
    out: Annotated[
        Path | None, output_option("--out", "Run directory (default runs/<dataset name>).")
    ] = None,
    decisions_from: Annotated[
        Path | None,
        output_option("--decisions-from", "Earlier run whose decisions also apply to this run."),
    ] = None,
    as_json: Annotated[bool, output_option("--json", "Print one JSON document on stdout.")] = False,
    fail_on: FailOption = FailOn.ERROR,
    baseline: Annotated[
        Path | None, ci_option("--baseline", "Earlier run: also print the changes.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        ci_option("--expect", 'Exit with 1 unless met, such as "leaked_share=< 0.01"; repeatable.'),
    ] = None,
    push: Annotated[str, ci_option("--push", "Send the counts to https://HOST/DATASET.")] = "",
    dry_run: Annotated[
        bool, ci_option("--dry-run", "List what --push would send; send nothing.")
    ] = False,
    with_paths: Annotated[bool, ci_option("--with-paths", "Let --push send sample ids.")] = False,
) -> None:
    """Index a dataset and report its problems; run it again after any change."""
    from audit.machine.stopwatch import Stopwatch

    clock = Stopwatch.of_process()
    if all(map(os.path.isdir, source)):  # before the settings, whose libraries start threads
        from audit.machine.workers import fork_ahead

        if not os.path.exists(out or RUNS / os.path.basename(source[0])):  # a first scan
            fork_ahead()
    from audit.compare.diff import compare_snapshots
    from audit.compare.expectations import parse_expectations
    from audit.kernels.library import missing_sentence
    from audit.report import collect_report
    from audit.results.run_findings import RunFindings

    config = read_config(expect or ())
    _need_baseline(fail_on, baseline)
    _check_push(push, dry_run=dry_run, with_paths=with_paths)
    expected = parse_expectations(config.expect)
    # before the scan, which may be of the same run
    earlier = None if baseline is None else RunFindings.of(baseline)
    options = ScanOptions(
        layout=layout, exclude=exclude or (), roots=_pairs(root or []),
        checks=_words(checks), embeddings=embeddings, embedder=embedder, predictions=predictions,
        config=config, plugins=plugins or (), jobs=jobs, verify=hash_all,
    )  # fmt: skip
    request = options.prepare(source, out)
    missing = [sentence] if (sentence := missing_sentence()) else []
    notes = [request.source.describe(), *request.config.notes, *missing]
    if decisions_from is not None:
        from audit.decisions.recovery import import_decisions

        notes.append(import_decisions(decisions_from, request.run))
    terminal.write_message("\n".join(notes))
    clock.lap("start")
    result = _carry_out(request, source, jobs, clock)
    if result.notice:
        write_note(result.notice)
    terminal.write_message(result.summary())
    diff = None
    if earlier is not None:
        diff = compare_snapshots(earlier, RunFindings.of(request.run))
    report = collect_report(request.run, clock=clock)
    if push:
        _push(request.run, push, with_paths, dry_run)
    outcomes = _judged(request.run, config) if expected else ()
    _finish(report, fail_on, as_json, diff, outcomes)


def _carry_out(
    request: ScanRequest, source: Sequence[str], jobs: int | None, clock: Stopwatch
) -> ScanResult:
    from audit.scanning.estimate import Forecast
    from audit.scanning.measuring import PHASE_WORDS
    from dataset_preflight.foundation.cores import usable_cores
    from dataset_preflight.foundation.progress import ProgressBar

    try:
        with ProgressBar(PHASE_WORDS) as bar:
            forecast = Forecast(bar.say, jobs or usable_cores())

            def show(state: Progress) -> None:
                bar(state)
                forecast(state)

            return request.carry_out(show, clock)
    except KeyboardInterrupt:
        again = " ".join(["audit", "scan", *source, "--out", str(request.run)])
        terminal.write_message(f"\nNothing is lost: `{again}` continues.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _judged(run: Path, config: Config) -> list[JudgedExpectation]:
    """Return the expectations of `[expect]` and `--expect`, judged; [] without any."""
    from audit.compare.expectations import judge_expectations, parse_expectations

    expected = parse_expectations(config.expect)
    return judge_expectations(run, expected) if expected else []


def _check_push(push: str, *, dry_run: bool, with_paths: bool) -> None:
    if (dry_run or with_paths) and not push:
        raise UsageError("--dry-run and --with-paths need --push URL.")
    if push:
        from dataset_preflight.foundation.push import find_push_problem

        if problem := find_push_problem(push, "dataset", dry_run=dry_run):
            raise UsageError(problem)


def _push(run: Path, url: str, with_paths: bool, dry_run: bool) -> None:
    from audit.service.client import push_scan

    try:
        lines = push_scan(run, url, with_paths=with_paths, dry_run=dry_run)
    except UsageError as error:
        kept = (
            f"The result is kept in {run}. Run the same command again to send it; it reads no "
            "file again."
        )
        terminal.write_message(f"Not pushed: {error} {kept}")
        return
    said = "Would send" if dry_run else "Sent"
    terminal.write_message("\n".join([f"{said} to {url}:", *lines]))


def recheck_command(
    run: RunArgument,
    checks: ChecksOption = None,
    recall: Annotated[
        bool, option("--recall", "Measure the recall of DUP003 on edited copies.")
    ] = False,
    write_expectations: Annotated[
        bool,
        option(
            "--write-expectations", "Only print an [expect] that this run meets, for audit.toml."
        ),
    ] = False,
    fail_on: FailOption = FailOn.ERROR,
    as_json: JsonOption = False,
) -> None:
    """Run the checks again with other thresholds; reads no image."""
    if write_expectations:
        from audit.compare.expectations import propose_expectations

        terminal.write_text(propose_expectations(run))
        return
    from audit.compare.expectations import parse_expectations
    from audit.report import collect_report
    from audit.scanning import scanning
    from audit.scanning.measuring import PHASE_WORDS
    from dataset_preflight.foundation.progress import ProgressBar

    _need_baseline(fail_on, None)
    settings = read_config()
    parse_expectations(settings.expect)  # a wrong one is refused before the checks run
    for note in settings.notes:
        terminal.write_message(note)
    with ProgressBar(PHASE_WORDS) as bar:
        notice = scanning.recheck(
            run, checks=_words(checks), config=settings, progress=bar, lock=settings.lock,
            recall=recall,
        )  # fmt: skip
    if notice:
        write_note(notice)
    _finish(collect_report(run), fail_on, as_json, outcomes=_judged(run, settings))


def report_command(
    run: RunArgument,
    output: Annotated[
        list[Path] | None,
        option(
            "-o",
            "--output",
            "x.txt, .md, .html, .json, .sarif, .xml (JUnit), or card.md; repeatable.",
        ),
    ] = None,
    section: Annotated[
        Literal["history", "decisions", "expectations", "card"] | None,
        option("--section", "Print only this part of the report."),
    ] = None,
    listed: Annotated[
        str | None,
        option("--list", "Print every finding of these checks; of a history, its start."),
    ] = None,
    reviewed: Annotated[
        Path | None,
        option("--reviewed", "Reviewed labels of `audit decide --draw-labels`."),
    ] = None,
    licence: Annotated[str, option("--licence", "Licence of all files, for the data card.")] = "",
    images: Annotated[bool, option("--images/--no-images", "Thumbnails in an HTML report.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Print or write the findings, decisions and history of a run."""
    from audit.report import PICTURED, collect_report, write_card, write_report

    if section is not None:
        note_version(run)
    if section == "history":
        print_history(run, listed, as_json)
        return
    if section == "decisions":
        from audit.cli.review import print_decisions

        print_decisions(run, as_json=as_json)
        return
    if section == "expectations":
        _print_expectations(run, as_json)
        return
    report = collect_report(run, worst=PICTURED, reviewed=reviewed)
    files = output or []
    if listed is not None:
        _list_findings(report, listed, alone=not files and not as_json)
        return
    cards = [path for path in files if path.name.lower() == "card.md"]
    card = section == "card"
    if licence and not (card or cards):
        raise UsageError("--licence is for a data card: add --section card, or -o card.md.")
    if card and as_json:
        raise UsageError("A data card is Markdown: leave out --json.")
    if card or cards or any(path.suffix.lower() == ".xml" for path in files):
        judged = _judged(run, read_config())
        report = replace(report, expected=tuple(one.outcome() for one in judged))
    if card:
        from audit.report.card import to_card
        from audit.results.run_report import collect_facts

        terminal.write_parts([to_card(report, collect_facts(report, licence))])
    elif not files:
        _finish(report, FailOn.NEVER, as_json, full=True)
        return
    for path in files:
        if path in cards:
            made = list(write_card(report, path, licence))
        else:
            made = [write_report(report, path, pictures=images)]
        terminal.write_message(f"Wrote {' and '.join(map(str, made))}.")
    _exit(report)


def _print_expectations(run: Path, as_json: bool) -> None:
    """Print whether a run meets its expectations; exit code 1 where it does not."""
    from audit.compare.expectations import SCHEMA

    config = read_config()
    for note in config.notes:
        terminal.write_message(note)
    judged = _judged(run, config)
    if not judged:
        raise UsageError(
            f"audit.toml has no [expect]: `audit recheck {quoted(run)} --write-expectations` "
            "prints one to begin with."
        )
    document = {"schema": SCHEMA, "run": str(run), "met": not unmet(judged),
                "expectations": [one.document() for one in judged]}  # fmt: skip
    print_answer(as_json, lambda: document, lambda: outcome_lines(judged))
    if unmet(judged):
        raise typer.Exit(ExitCode.FINDINGS)


def _need_baseline(fail_on: FailOn, baseline: Path | None) -> None:
    if fail_on.only_new and baseline is None:
        raise UsageError(
            f"--fail-on {fail_on.value} counts findings that an earlier run does not have: name "
            "it with `audit scan ... --baseline RUN`."
        )


def _finish(
    report: Report, fail_on: FailOn, as_json: bool, diff: RunDiff | None = None,
    outcomes: Sequence[JudgedExpectation] = (), full: bool = False,
) -> None:  # fmt: skip
    """Print one screen or the `full` report, then the diff to a baseline and the expectations."""
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
            print_lines(diff_lines(diff))
        if outcomes:
            terminal.write_text("")
            print_lines(outcome_lines(outcomes))
    _exit(report, cause)


def _cause(report: Report, fail_on: FailOn, diff: RunDiff | None, unmet: int) -> str:
    """Return what makes the command end with 1: the worst finding that counts; empty if nothing."""
    from audit.records import Severity
    from audit.results.formatting import counted

    said = [counted(unmet, "expectation") + " not met"] if unmet else []
    if fail_on is FailOn.NEVER:
        return "; ".join(said)
    if diff is not None and fail_on.only_new:
        return "; ".join([*said, *(["new findings"] if fails(diff, fail_on) else [])])
    counts = report.counts
    bad = sum(getattr(counts, severity.value) for severity in fail_on.counted)
    if bad:
        thing = next((one for one in report.first if one.severity is Severity.ERROR), None)
        thing = thing or next(iter(report.first))
        codes = f"{thing.codes[0]} {thing.example_text}".strip()
        more = f", and {bad - 1:,} more" if bad > 1 else ""
        said.insert(0, f"{codes}{more}; `--fail-on never` ends with 0")
    return "; ".join(said)


def _exit(report: Report, cause: str = "") -> None:
    """End with what the report says: a part that failed counts whatever `--fail-on` is."""
    if global_options().trace:
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
                f"--list {code}: this check did not run. `audit report RUN` lists the checks."
            )
    for code in wanted:
        terminal.write_parts(finding_lines(report, code))


def _words(text: str | None) -> list[str] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("--checks names no check: `audit explain` lists codes and names.")
    return words


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = dict(text.split("=", 1) for text in texts if "=" in text)
    if len(pairs) != len(texts):
        raise UsageError("--root takes OLD=NEW, such as --root /data=/mnt/data.")
    return pairs
