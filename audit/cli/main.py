"""The `audit` command: parse, one call into the library, format.

Imports happen inside the commands, so that `audit --help` answers at once.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.compare import diff_command
from audit.cli.ending import exit_code_of
from audit.cli.export import apply_command, export_command
from audit.cli.help import ABOUT, Commands, TextTyper, start
from audit.cli.options import (
    JobsOption,
    JsonOption,
    RunArgument,
    note_version,
    option,
    print_answer,
    read_config,
)
from audit.cli.review import decide_command
from audit.cli.scan import recheck_command, report_command, scan_command
from audit.cli.serve import serve_command
from audit.cli.subset import app as subset_app
from audit.errors import UsageError
from dataset_preflight.foundation import terminal
from dataset_preflight.foundation.ending import ExitCode
from dataset_preflight.foundation.terminal import visible

if TYPE_CHECKING:
    import polars as pl

    from audit.checking.check import Check
    from audit.compare.needs import PictureNeeds, Version
    from audit.results.image_search import OverlapReport
    from audit.scanning.verifying import Verification

app = TextTyper(
    cls=Commands,
    help=ABOUT,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.callback(invoke_without_command=True)(start)
app.add_typer(subset_app, name="subset")
for name, command in (
    ("scan", scan_command), ("report", report_command), ("diff", diff_command),
    ("export", export_command), ("apply", apply_command), ("decide", decide_command),
    ("serve", serve_command), ("recheck", recheck_command),
):  # fmt: skip
    app.command(name)(command)


@app.command(name="show")
def show_command(
    run: RunArgument,
    path: Annotated[str, typer.Argument(help="Sample id, path, or the end of one.")],
    other: Annotated[
        str | None, typer.Argument(help="Second image: the evidence for the pair.")
    ] = None,
) -> None:
    """Print the details of one image, or the evidence between two."""
    from audit.results.reader import open_reader

    width, styled = terminal.width(), terminal.is_terminal()
    if other is None:
        from audit.report.file_card import card_text
        from audit.results.file_details import make_file_card

        card = card_text(make_file_card(open_reader(run), path), width, styled)
    else:
        from audit.report.file_card import pair_text
        from audit.results.pair_details import show_pair

        card = pair_text(show_pair(open_reader(run), path, other), width, styled)
    terminal.write_text(card, styled=styled)


@app.command()
def find(
    new: Annotated[list[str], typer.Argument(help="NEW ... RUN: new images, then the run.")],
    jobs: JobsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find images of folder NEW that RUN already holds; reads no image of RUN."""
    from audit.machine.workers import fork_ahead

    fork_ahead()  # before the imports below, which start threads
    from audit.machine.executors import Processes
    from audit.results.image_search import find_overlap
    from audit.sources import open_source
    from dataset_preflight.foundation.cores import usable_cores

    if len(new) < 2:
        raise UsageError("find takes NEW and RUN: audit find new_images runs/images.")
    settings = read_config()
    note_version(Path(new[-1]))
    executor = Processes(jobs or usable_cores(), settings.timeout_s, settings.limits.max_memory)
    source = open_source(new[:-1], exclude=settings.exclude)
    found = find_overlap(source, Path(new[-1]), executor, settings.limits)
    print_answer(as_json, found.document, lambda: _overlap_lines(found))


def _overlap_lines(found: OverlapReport) -> Iterator[str]:
    yield f"{len(found.matches):,} of {found.new_images:,} new images are already in {found.run}."
    for match in found.matches:
        place = ", ".join(filter(None, (match.split, match.label)))
        kind = f"near: {match.transformation}" if match.kind == "near" else match.kind
        yield f"  {match.new} = {match.library}{f' ({place})' if place else ''}  [{kind}]"
    if found.without_picture:
        yield f"{found.without_picture:,} new files are not readable images."
    yield from found.completeness


@app.command(name="verify")
def verify_command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Read every file of a run to its end; exit code 1 for damage."""
    from audit.scanning.verifying import verify_run

    try:
        verified = verify_run(run)
    except OSError as error:
        place = f"{visible(str(error.filename))} " if error.filename else ""
        terminal.write_message(
            f"audit: {place}could not be read ({error.strerror or error}): check its disk and "
            "permissions, then verify again."
        )
        raise typer.Exit(ExitCode.NO_RESULT) from None
    print_answer(as_json, verified.document, lambda: _verified_lines(verified))
    if verified.damaged:
        raise typer.Exit(ExitCode.FINDINGS)


def _verified_lines(verified: Verification) -> list[str]:
    rows = [("part", "state", "")] + [(p.name, p.state, p.detail) for p in verified.parts]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{n:<{widths[0]}}  {s:<{widths[1]}}  {text}".rstrip() for n, s, text in rows]
    lines += [
        f"{part.name}: lost: {part.lost or 'nothing'}; made again by {part.remade}."
        for part in verified.damaged
    ]
    if not verified.damaged:
        return [*lines, f"{verified.run} has no damage."]
    count = len(verified.damaged)
    return [*lines, f"{count} part{'s are' if count > 1 else ' is'} damaged."]


@app.command(name="input-study")
def input_study_command(
    run: RunArgument,
    margin: Annotated[float, option("--margin", "Acceptable loss of accuracy, as a share.")] = 0.02,
    images: Annotated[int, option("--images", "Images to open, at most.", min=1)] = 2000,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the minimum input resolution, and whether colour, position and context matter."""
    from audit.compare.needs import find_needs
    from audit.machine.executors import Processes
    from audit.picture.preview import LIMITS, TIMEOUT_S
    from audit.scanning.measuring import PHASE_WORDS, Progress
    from dataset_preflight.foundation.cores import usable_cores
    from dataset_preflight.foundation.progress import ProgressBar

    workers = Processes(jobs or usable_cores(), TIMEOUT_S, LIMITS.max_memory)
    with ProgressBar(PHASE_WORDS) as bar:
        found = find_needs(
            run, workers, LIMITS, margin=margin, most=images,
            advance=lambda done, total: bar(Progress("open", done, total)),
        )  # fmt: skip
    with suppress(OSError):  # a run that may only be read has it on the screen alone
        found.keep()
    print_answer(as_json, found.document, lambda: _needs_lines(found))


def _needs_lines(found: PictureNeeds) -> list[str]:
    if found.reason:
        return [found.sentence]
    lines = [
        f"{found.pictures:,} images of {found.classes:,} classes, {found.independent:,} of them "
        "independent. A simple classifier on their embeddings has an accuracy of "
        f"{found.accuracy:.1%} (largest class: {found.largest_class:.1%}).",
        "",
        *filter(None, (found.sentence, found.spurious)),
        "",
    ]
    return [
        *lines, *map(_version_line, (*found.sizes, *found.versions)), "",
        f"Loss: points of accuracy against the full image at {found.base} px (95% CI, paired). A "
        f"loss below {found.margin:.1%} counts as none. Sizes above {found.base} px were not "
        "tested. A larger network may use detail that this classifier does not use.",
        "",
        "Largest variation within each class, relative to all images, and the images at both ends:",
        *(f"  {one.label}: {one.what}, {one.ratio:.2f} times: {one.low} | {one.high}"
          for one in found.varying),
    ]  # fmt: skip


def _version_line(version: Version) -> str:
    return (
        f"  {version.name:<30} {version.accuracy:6.1%}   loss {100 * version.loss:5.1f} "
        f"({100 * version.loss_low:.1f} to {100 * version.loss_high:.1f})   {version.verdict}"
    )


@app.command(name="app")
def serve_app(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run directories and saved profiler sessions (default: ./runs)."),
    ] = None,
    port: Annotated[
        int | None,
        option("--port", "Port (default: free, from 8501 on).", min=1, max=65535),
    ] = None,
    address: Annotated[
        str,
        option("--address", "Address to serve on; other people can then decide too."),
    ] = "127.0.0.1",
    browser: Annotated[bool, option("--browser/--no-browser", "Open a browser window.")] = True,
    read_only: Annotated[bool, option("--read-only", "Allow no decisions.")] = False,
) -> None:
    """Review runs and profiles in the browser, and decide."""
    from audit.ui.server import become, command

    words = [str(path) for path in runs or ()]
    become(command(words, address, port, browser=browser, read_only=read_only))


@app.command()
def explain(
    code: Annotated[
        str | None, typer.Argument(help="Check code, such as DUP001; without it, all are listed.")
    ] = None,
) -> None:
    """Print the page of a check, or of the checks that match a word; without CODE, list all."""
    from audit.checking.check import matching_checks, page, select_checks
    from audit.checking.own import load_own
    from audit.checking.retired import retirement

    if code is None:
        list_checks()
        return
    if note := retirement(code):
        terminal.write_text(note)
        return
    try:
        checks = select_checks([code])
    except UsageError:  # none of ours: only then is code of the user's run
        own = load_own(read_config().plugins).checks
        checks = matching_checks(code) or select_checks([code], own)
        if len(checks) > 1:
            terminal.write_text("\n".join(map(_summary_line, checks)))
            return
    for check in checks:
        terminal.write_text(page(check))


def _summary_line(check: Check) -> str:
    summary = (type(check).__doc__ or "").strip().splitlines()[0]
    return f"{check.code}  {check.severity:<8} {check.name:<26} {summary}"


def list_checks() -> None:
    """List every check, the user's own too."""
    from audit.checking.check import select_checks
    from audit.checking.own import load_own

    loaded = load_own(read_config().plugins)
    for check in select_checks(None, loaded.checks):
        terminal.write_text(_summary_line(check))
    for part in loaded.broken:
        terminal.write_message(f"{part.name} could not be loaded: {part.error} ({part.place}).")
    if loaded.broken:
        raise typer.Exit(ExitCode.BROKEN_PART)


@app.command()
def sql(
    run: RunArgument,
    query: Annotated[str, typer.Argument(help="SELECT ...; tables in docs/schema.md.")],
    as_json: JsonOption = False,
) -> None:
    """Query a run: tables samples, features, findings, finding_samples, ...; view images."""
    from audit.run.user_query import query_frame

    frame = query_frame(run, query)
    print_answer(as_json, frame.write_json, lambda: _table(frame).split("\n"))


def _table(frame: pl.DataFrame) -> str:
    """Return the first rows as a table; a line break in a cell or a name is none of the table."""
    import polars as pl

    from audit.sources.tables import visible_frame

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


def only_named(words: Sequence[str]) -> TextTyper:
    """Return the program with the command alone that comes first; to make them all takes 50 ms."""
    chosen = copy(app)
    chosen.registered_commands = [
        command for command in app.registered_commands
        if words[:1] == [command.name or getattr(command.callback, "__name__", "")]
    ]  # fmt: skip
    chosen.registered_groups = [g for g in app.registered_groups if words[:1] == [g.name]]
    return chosen if chosen.registered_commands or chosen.registered_groups else app


def command_line() -> None:
    """Run the command line; what goes wrong becomes one sentence and an exit code."""
    # Steps that gain from more threads of BLAS ask for them; elsewhere they wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(200_000, 20, 50)  # imports alone begin 400 collections, for nothing
    terminal.prepare_streams()
    # Not standalone: its own messages would reach the terminal as they are.
    words = sys.argv[1:]
    code = exit_code_of(lambda: only_named(words)(words, standalone_mode=False))
    terminal.close_streams()
    sys.exit(code)


if __name__ == "__main__":
    command_line()
