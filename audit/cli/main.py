"""The `audit` command: parse, one call into the library, format.

Imports happen inside the commands, so that `audit --help` answers at once; what the exit codes mean
is said in `exit_codes`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import terminal
from audit.cli.diff import diff_command, fails, write_diff
from audit.cli.drift import drift_command
from audit.cli.ending import exit_code_of
from audit.cli.exit_codes import ExitCode, FailOn, strongest
from audit.cli.expect import expect_command, unmet, write_outcomes
from audit.cli.labels import labels_command
from audit.cli.needs import needs_command
from audit.cli.review import decide_command, export_command, log_command, undo_command
from audit.cli.subset import app as subset_app
from audit.cli.verify import verify_command
from audit.printable import visible, visible_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from audit.expectations import JudgedExpectation
    from audit.pairs.overlap import OverlapReport
    from audit.report import Report
    from audit.run_diff import RunDiff
    from audit.scanning import ScanResult

app = typer.Typer(
    help="Find what is wrong with an image dataset before anyone trains on it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(subset_app, name="subset")


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


@app.command(name="scan")
def scan_command(
    source: Annotated[
        list[str],
        typer.Argument(help="A folder, a manifest (CSV, JSONL, Parquet), or name=DIR ..."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Run directory (default runs/<dataset name>).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes (default: cores).")
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
        checks=_words(checks), jobs=jobs, lock=lock,
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


@app.command(name="recheck")
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


@app.command(name="report")
def print_report(
    run: RunArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="x.txt, .md, .html, .json or .sarif.")
    ] = None,
    listed: Annotated[
        str | None, typer.Option("--list", help="Print every finding of this check, one a line.")
    ] = None,
    as_json: JsonOption = False,
    trace: TraceOption = False,
) -> None:
    """Print a run's findings again, or write them to a file."""
    from audit.report import collect_report, write_report

    collected = collect_report(run, worst=12)
    if listed is not None:
        _list_findings(collected, listed, alone=output is None and not as_json)
    elif output is None:
        _finish(collected, FailOn.NEVER, as_json, trace)
    else:
        write_report(collected, output)
        terminal.write_message(f"Wrote {output}.")
        _exit(collected, FailOn.NEVER, trace)


@app.command(name="show")
def show_command(
    run: RunArgument,
    path: Annotated[str, typer.Argument(help="Sample id, path, or the end of one.")],
    other: Annotated[
        str | None, typer.Argument(help="A second one: the evidence between the two.")
    ] = None,
) -> None:
    """Tell everything known of one file, or what two files share."""
    from audit.report.file_card import make_file_card as show_file
    from audit.report.file_card_text import card_text

    width, styled = terminal.width(), terminal.is_terminal()
    if other is None:
        card = card_text(show_file(run, path), width, styled)
    else:
        from audit.report.pair_card import pair_text, show_pair

        card = pair_text(show_pair(run, path, other), width, styled)
    terminal.write_text(card, styled=styled)


@app.command()
def overlap(
    new: Annotated[list[str], typer.Argument(help="NEW ... RUN: new images, then the run.")],
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes (default: cores).")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell which images of folder NEW show a picture that RUN holds; reads no image of RUN's."""
    from audit.checking.config import load_config
    from audit.errors import UsageError
    from audit.executors import Processes, usable_cores
    from audit.pairs.overlap import find_overlap
    from audit.sources import open_source

    if len(new) < 2:
        raise UsageError("overlap takes NEW and RUN: audit overlap new_images runs/images.")
    settings = load_config(config)
    executor = Processes(jobs or usable_cores(), settings.timeout_s, settings.limits.max_memory)
    source = open_source(new[:-1], exclude=settings.exclude)
    found = find_overlap(source, Path(new[-1]), executor, settings.limits)
    if as_json:
        terminal.write_parts([found.document(), "\n"])
    else:
        terminal.write_text(_overlap_text(found))


for name, command in (
    ("decide", decide_command), ("undo", undo_command), ("log", log_command),
    ("export", export_command), ("verify", verify_command),
    ("diff", diff_command), ("expect", expect_command), ("drift", drift_command),
    ("labels", labels_command), ("needs", needs_command),
):  # fmt: skip
    app.command(name)(command)


@app.command(name="app")
def serve_app(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run directories and saved profiler sessions (default: ./runs)."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="Port (default: free, from 8501 on)."),
    ] = None,
    address: Annotated[
        str, typer.Option("--address", help="Address to serve on; others can then decide too.")
    ] = "127.0.0.1",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser window.")
    ] = True,
) -> None:
    """Look at runs and profiles in the browser, and decide."""
    from audit.ui.launch import serve

    serve([str(path) for path in runs or ()], address, port, browser=browser)


@app.command()
def explain(code: Annotated[str, typer.Argument(help="Check code, such as DUP001.")]) -> None:
    """Print the page of a check: what it does, why it matters, what to do."""
    from audit.checking.check import page, select_checks

    for check in select_checks([code]):
        terminal.write_text(page(check))


@app.command(name="checks")
def list_checks(
    write_docs: Annotated[
        bool,
        typer.Option("--write-docs", help="Regenerate audit/checks/README.md and docs/schema.md."),
    ] = False,
) -> None:
    """List every check."""
    from audit.checking.check import all_checks

    if write_docs:
        from audit.checking.docs import write_all

        terminal.write_message("Wrote " + ", ".join(map(str, write_all())) + ".")
        return
    for check in all_checks().values():
        summary = (type(check).__doc__ or "").strip().splitlines()[0]
        terminal.write_text(f"{check.code}  {check.severity:<8} {check.name:<26} {summary}")


@app.command()
def sql(
    run: RunArgument,
    query: Annotated[str, typer.Argument(help="SELECT ...; tables in docs/schema.md.")],
    as_json: JsonOption = False,
) -> None:
    """Query a run: tables samples, features, findings, finding_samples, ...; view images."""
    from audit.run.generations import open_for_users

    with open_for_users(run) as store:
        frame = store.user_query(query)
    if as_json:
        terminal.write_parts([frame.write_json(), "\n"])
    else:
        terminal.write_text(_table(frame))


# ---- formatting ----


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


def _overlap_text(found: OverlapReport) -> str:
    lines = [
        f"{len(found.matches):,} of {found.new_images:,} new images show a picture that "
        f"{found.run} holds."
    ]
    for match in found.matches:
        place = ", ".join(visible(p) for p in (match.split, match.label) if p)
        said = f"{match.kind}: {match.transformation}" if match.kind == "near" else match.kind
        lines.append(
            f"  {visible(match.new)} = {visible(match.library)}"
            + (f" ({place})" if place else "")
            + f"  [{said}]"
        )
    if found.without_picture:
        lines.append(f"{found.without_picture:,} new files gave no picture.")
    return "\n".join([*lines, *found.completeness])


def _what_happened(result: ScanResult) -> str:
    if result.unchanged:
        return f"Nothing changed since the last scan: {result.total:,} files, none read again."
    parts = [f"{result.measured:,} files read"]
    if result.kept:
        parts.append(f"{result.kept:,} unchanged")
    if result.resumed:
        parts.append(f"{result.resumed:,} resumed from an unfinished scan")
    seconds = sum(result.seconds.values())
    return f"{', '.join(parts)}, in {seconds:.1f} s."


def _table(frame: pl.DataFrame) -> str:
    """Return the first rows as a table; a line break in a cell or a name is none of the table."""
    import polars as pl

    with pl.Config(
        tbl_rows=1000,
        tbl_cols=100,
        fmt_str_lengths=200,
        tbl_width_chars=200,
        tbl_hide_column_data_types=True,
        tbl_hide_dataframe_shape=True,
        tbl_formatting="ASCII_MARKDOWN",
    ):
        return str(visible_frame(frame))


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


def command_line() -> None:
    """Run the command line; what goes wrong becomes one sentence and an exit code."""
    terminal.prepare_streams()
    # Not standalone: its own messages would reach the terminal as they are.
    code = exit_code_of(lambda: app(standalone_mode=False))
    terminal.close_streams()
    sys.exit(code)


if __name__ == "__main__":
    command_line()
