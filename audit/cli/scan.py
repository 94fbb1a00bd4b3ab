"""`audit scan | recheck | report`: parse, one call into the library, print the report.

All three end with the report of a run; the exit code is what it says. `audit.cli.main` mounts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import terminal
from audit.cli.diff import fails, write_diff
from audit.cli.exit_codes import ExitCode, FailOn, strongest
from audit.cli.expect import unmet, write_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audit.expectations import JudgedExpectation
    from audit.report import Report
    from audit.run_diff import RunDiff
    from audit.scanning import ScanResult

RunArgument = Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")]
FailOption = Annotated[
    FailOn,
    typer.Option("--fail-on", help="Exit with 1 at this severity; new: beyond the --baseline."),
]
ChecksOption = Annotated[
    str | None,
    typer.Option("--checks", help="Codes, prefixes or names, comma-separated: DUP,IMG003."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings (default ./audit.toml).")
]
TraceOption = Annotated[
    bool, typer.Option("--trace", help="Print the traceback of a check or reader that failed.")
]
LockOption = Annotated[
    bool, typer.Option("--lock/--no-lock", help="Keep other writers out of the run meanwhile.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def scan_command(
    source: Annotated[
        list[str],
        typer.Argument(help="A folder, a manifest, packs, an address, or name=DIR ..."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Run directory (default runs/<dataset name>).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes (default: cores).")
    ] = None,
    executor: Annotated[
        str, typer.Option("--executor", help="processes of this machine, or ray (extra).")
    ] = "processes",
    address: Annotated[
        str, typer.Option("--address", help="Ray cluster (default: the one of this machine).")
    ] = "auto",
    parts: Annotated[
        str | None,
        typer.Option(
            "--parts", help="Folder or address that all nodes share: rows go by way of it."
        ),
    ] = None,
    checks: ChecksOption = None,
    layout: Annotated[
        str | None,
        typer.Option("--layout", help="split/class/file, class/file, split/file or flat."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="Glob of files to leave out; repeatable.")
    ] = None,
    root: Annotated[
        list[str] | None, typer.Option("--root", help="OLD=NEW: read a manifest's paths elsewhere.")
    ] = None,
    embeddings: Annotated[
        Path | None,
        typer.Option("--embeddings", help="Own vectors by path (.npy, .parquet), to judge labels."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option("--embedder", help="Own model: file.py:make, model.onnx, or lite0 (extra)."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions", help="Class probabilities by path, or boxes as COCO results."
        ),
    ] = None,
    config: ConfigOption = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="Run of an earlier audit: tell what changed since."),
    ] = None,
    fail_on: FailOption = FailOn.ERROR,
    as_json: JsonOption = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Hash every file: find edits that size and times hide."),
    ] = False,
    lock: LockOption = True,
    trace: TraceOption = False,
) -> None:
    """Index a dataset and report what is wrong with it; run it again after any change."""
    from audit.expectations import judge_expectations, parse_expectations
    from audit.progress import ProgressBar
    from audit.report import collect_report
    from audit.scan_request import prepare_request

    _need_baseline(fail_on, baseline)
    earlier = None
    if baseline is not None:
        from audit.run_diff import Snapshot

        earlier = Snapshot.of(baseline)  # before the scan, which may be of the same run
    request = prepare_request(
        source, out, layout=layout, exclude=exclude or (), roots=_pairs(root or [], "--root"),
        embeddings=embeddings, embedder=embedder, predictions=predictions, config=config,
        checks=_words(checks), jobs=jobs, executor=executor, address=address, parts=parts,
        lock=lock, verify=verify,
    )  # fmt: skip
    expected = parse_expectations(request.config.expect)
    terminal.write_message(request.source.describe())
    try:
        with ProgressBar() as bar:
            result = request.carry_out(bar)
    except KeyboardInterrupt:
        again = " ".join(["audit", "scan", *source, "--out", str(request.run)])
        terminal.write_message(f"\nStopped. Nothing is lost: `{again}` goes on from here.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    terminal.write_message(_what_happened(result))
    diff = None
    if earlier is not None:
        from audit.run_diff import Snapshot, compare_snapshots

        diff = compare_snapshots(earlier, Snapshot.of(request.run))
    report = collect_report(request.run, scan_seconds=result.seconds)
    outcomes = judge_expectations(request.run, expected) if expected else []
    _finish(report, fail_on, as_json, trace, diff, outcomes)


def recheck_command(
    run: RunArgument,
    checks: ChecksOption = None,
    config: ConfigOption = None,
    fail_on: FailOption = FailOn.ERROR,
    as_json: JsonOption = False,
    lock: LockOption = True,
    trace: TraceOption = False,
) -> None:
    """Run the checks again over what a scan measured, with other thresholds; reads no image."""
    from audit import scanning
    from audit.checking.config import load_config
    from audit.progress import ProgressBar
    from audit.report import collect_report

    _need_baseline(fail_on, None)
    with ProgressBar() as bar:
        scanning.recheck(
            run, checks=_words(checks), config=load_config(config), progress=bar, lock=lock
        )
    _finish(collect_report(run), fail_on, as_json, trace)


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
        str | None, typer.Option("--list", help="Print every finding of this check, one a line.")
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
        _finish(collected, FailOn.NEVER, as_json, trace)
        return
    for path, kind in files:
        if card and path is output:
            made = list(write_card(collected, path, licence))
        else:
            made = [write_report(collected, path, kind)]
        terminal.write_message(f"Wrote {' and '.join(map(str, made))}.")
    _exit(collected, FailOn.NEVER, trace)


def _check_card(card: bool, licence: str, as_json: bool) -> None:
    from audit.errors import UsageError

    if licence and not card:
        raise UsageError("--licence goes into a card: add --card, or -o card.md.")
    if card and as_json:
        raise UsageError("A card is Markdown: leave out --json, or --card.")


def _print_card(report: Report, licence: str) -> None:
    from audit.report.card import collect_facts, to_card

    terminal.write_parts([to_card(report, collect_facts(report, licence))])


def _with_expectations(report: Report, run: Path, config: Path | None) -> Report:
    """Return the report with what `[expect]` says of the run."""
    from dataclasses import replace

    from audit.checking.config import load_config
    from audit.expectations import judge_expectations, parse_expectations

    expected = parse_expectations(load_config(config).expect)
    judged = judge_expectations(run, expected) if expected else []
    return replace(report, expected=tuple(one.outcome() for one in judged))


# ---- the end ----


def _need_baseline(fail_on: FailOn, baseline: Path | None) -> None:
    from audit.errors import UsageError

    if fail_on.only_new and baseline is None:
        raise UsageError(
            f"--fail-on {fail_on.value} counts what an earlier audit did not have: name it with "
            "`audit scan ... --baseline RUN`."
        )


def _finish(
    report: Report, fail_on: FailOn, as_json: bool, trace: bool, diff: RunDiff | None = None,
    outcomes: Sequence[JudgedExpectation] = (),
) -> None:  # fmt: skip
    """Print the report, what changed since a baseline and what was expected; end with a code."""
    from audit.report import to_json, to_text

    if as_json:
        terminal.write_parts(to_json(report))
    else:
        styled = terminal.is_terminal()
        terminal.write_text(to_text(report, terminal.width(), styled), styled=styled)
        if diff is not None:
            terminal.write_text("")
            write_diff(diff)
        if outcomes:
            terminal.write_text("")
            write_outcomes(outcomes)
    _exit(report, fail_on, trace, diff, unmet(outcomes))


def _exit(
    report: Report, fail_on: FailOn, trace: bool, diff: RunDiff | None = None, unmet: int = 0
) -> None:
    """End with what the report says: a part that failed counts whatever `--fail-on` is."""
    if trace:
        for part in report.failed:
            terminal.write_message(f"{part.sentence()}\n{part.trace}")
    if diff is not None and fail_on.only_new:
        bad = fails(diff, fail_on)
    else:
        counts = report.summary
        bad = bool(counts["error"] or (fail_on is FailOn.WARNING and counts["warning"]))
    code = strongest(
        ExitCode.FINDINGS if fail_on is not FailOn.NEVER and (bad or unmet) else ExitCode.CLEAN,
        ExitCode.BROKEN_PART if report.failed else ExitCode.CLEAN,
    )
    if code:
        raise typer.Exit(code)


def _list_findings(report: Report, code: str, *, alone: bool) -> None:
    """Print every finding of a check; raises UsageError for a check that did not run."""
    from audit.errors import UsageError
    from audit.report.text import finding_lines

    if not alone:
        raise UsageError("--list prints lines of text: leave out -o and --json.")
    ran = [check.code for check in report.checks]
    if code.upper() not in ran:
        raise UsageError(
            f"--list {code}: no check of this code ran here: `audit report` names those that did."
        )
    terminal.write_parts(finding_lines(report, code.upper()))


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
    seconds = sum(result.seconds.values())
    said = f"{', '.join(parts)}, in {seconds:.1f} s."
    if unseen := result.edited_unseen:
        named = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
        said += f"\n{len(unseen):,} changed although size and times did not: {named}."
    return said


def _words(text: str | None) -> list[str] | None:
    from audit.errors import UsageError

    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("--checks names no check: `audit checks` lists codes and names.")
    return words


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    from audit.errors import UsageError

    pairs = dict(text.split("=", 1) for text in texts if "=" in text)
    if len(pairs) != len(texts):
        raise UsageError(f"{option} takes OLD=NEW, such as {option} /data=/mnt/data.")
    return pairs
