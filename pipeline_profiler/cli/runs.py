"""`pipeline-profiler runs`: measurements and checks, each with the state of the code."""

from __future__ import annotations

import argparse
import json
import os
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

from dataset_preflight.foundation.push import find_push_problem, refusal_of
from pipeline_profiler.cli.output import say, show
from pipeline_profiler.cli.user_code import spec_file
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.runs.entry import (
    RunOutcome,
    begin_row,
    default_file,
    end_row,
    mask_secrets,
    working_folder,
)
from pipeline_profiler.runs.row import RunRow

# A command leaves its outcome in `args.outcome`; the row is written once, at the end, also after
# Ctrl-C. An error here is a warning on stderr, and changes neither result nor exit code.

PATIENCE_S = 30.0
PUSHED = {
    "time", "command", "study", "verdict", "metric", "value", "trials", "note", "git_commit",
}  # fmt: skip
FROM_FILES = ("loader", "training", "model")  # arguments that name code of the user's


def record_command(p: argparse.ArgumentParser) -> None:
    """Let a command add a row to the table of runs."""
    p.set_defaults(recorded=True, push="")


def add_push_options(p: argparse.ArgumentParser) -> None:
    """Add the options that send the row to a service."""
    group = p.add_argument_group("Send the result to a service")
    group.add_argument(
        "--push", default="", metavar="URL", help="dataset of the service: https://HOST/NAME"
    )
    group.add_argument("--dry-run", action="store_true", help="list what --push would send")
    group.add_argument("--with-code", action="store_true", help="let --push send the diff")
    group.add_argument("--with-paths", action="store_true", help="let --push send paths")


def begin_recording(args: argparse.Namespace) -> None:
    """Look at the code before it runs: it may be edited while it is measured."""
    args.outcome = args.row = None
    record = args.settings.record
    if not getattr(args, "recorded", False) or not (
        args.push or (record.enabled and _file_of(args))
    ):
        return
    if args.push and (why := find_push_problem(args.push, "profile", dry_run=args.dry_run)):
        raise ProfileError(why)
    args.row = begin_row(
        args.name, time.time(), _folder_of(args), record.study, config=record.configuration
    )


def record_outcome(args: argparse.Namespace) -> None:
    """Add the row, once."""
    row: RunRow | None = getattr(args, "row", None)
    outcome: RunOutcome | None = getattr(args, "outcome", None)
    if row is None or outcome is None:
        return
    args.row = None
    saved = getattr(args, "saved", None)
    row = end_row(row, replace(outcome, file=str(saved or outcome.file)))
    if args.push:
        push_row(row, args)
    path = _file_of(args)
    if path is None or not args.settings.record.enabled:
        return
    try:
        from pipeline_profiler.runs.table_file import append_row  # some Pythons lack sqlite3

        number = append_row(path, row)
    except ProfileError as error:
        say(f"This run is not in the table of runs: {error}")
        return
    except Exception as error:  # noqa: BLE001 - the measurement stands, whatever happens here
        said = " ".join(str(error).split())[:120]
        say(f"This run is not in the table of runs ({type(error).__name__}: {said}).")
        return
    say(f"run {number} in {path}: `pipeline-profiler runs {number}`")


def push_row(row: RunRow, args: argparse.Namespace) -> None:
    """Send a row to a service and list its fields: code by --with-code, paths by --with-paths."""
    kept = {"file", "config"} if args.with_paths else set[str]()
    kept |= {"git_diff"} if args.with_code else set()
    sent = {k: v for k, v in row.as_dict().items() if k in PUSHED | kept and v not in ("", None)}
    root, _, name = args.push.rstrip("/").rpartition("/")
    token = os.environ.get("PREFLIGHT_TOKEN", "")
    request = urllib.request.Request(
        f"{root}/api/v1/profiles", json.dumps({"name": name, "profile": sent}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )  # fmt: skip
    try:
        if not args.dry_run:
            urllib.request.urlopen(request, timeout=PATIENCE_S).close()
    except (OSError, ValueError) as error:
        where = f" The session is kept in {row.file}; --push with the next run sends that."
        why = refusal_of(error).removesuffix(".")
        say(f"Not pushed to {args.push}: {why}.{where if row.file else ''}")
        return
    say(f"What {'would leave' if args.dry_run else 'left'} for {args.push}:")
    for key, value in sent.items():
        say(f"  {key}: {json.dumps(value, ensure_ascii=False)}")


def _file_of(args: argparse.Namespace) -> Path | None:
    named = args.settings.record.file
    return Path(named) if named else default_file(os.environ)


def _folder_of(args: argparse.Namespace) -> Path:
    """The folder of the user's file, else the working folder."""
    words = [getattr(args, name, None) or "" for name in FROM_FILES]
    for text in (*words, *(args.script or ())):
        for file in (spec_file(text), text):
            if file and "\0" not in file and Path(file).is_file():
                return Path(os.path.realpath(file)).parent
    return Path(working_folder() or "/")


MOST_SHOWN = 40


def add_runs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the command."""
    p = commands.add_parser("runs", help="the table of runs: every measurement and run of checks")
    p.add_argument("id", nargs="?", type=int, metavar="ID", help="all of one run, with its diff")
    p.add_argument("--note", default="", help="add a line to the note of the run ID")
    p.add_argument("--word", default="", help="runs with this word in a study, verdict, diff, ...")
    p.add_argument(
        "--sort",
        default="time",
        metavar="COLUMN",
        help="time, study, command, verdict, value or trials (default time)",
    )
    p.add_argument("--reverse", action="store_true", help="largest or latest first")
    p.add_argument("--last", type=int, metavar="N", help=f"the last N rows (default {MOST_SHOWN})")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    p.set_defaults(command=runs_command)


def runs_command(args: argparse.Namespace) -> int:
    """List runs, show one, or add a note to one."""
    path = _file_of(args)
    if path is None:
        raise ProfileError(
            "PIPELINE_PROFILER_RUNS is off: name the table with --set record.file=FILE."
        )
    if args.note and args.id is None:
        raise ProfileError("--note needs a run: `pipeline-profiler runs ID --note TEXT`.")
    return _show_run(args, path) if args.id is not None else _list_runs(args, path)


def _show_run(args: argparse.Namespace, path: Path) -> int:
    from pipeline_profiler.runs.table_file import append_note, read_row, row_text

    if args.note:
        append_note(path, args.id, mask_secrets(args.note))
    row = read_row(path, args.id)
    if args.json:
        document = {"schema": "run/1", "generator": "pipeline-profiler", **row.as_dict()}
        return show(json.dumps(document, indent=1, allow_nan=False))
    return show(row_text(row))


def _list_runs(args: argparse.Namespace, path: Path) -> int:
    from pipeline_profiler.runs.table_file import read_rows, rows_json, rows_text, sort_rows

    if args.last is not None and args.last < 1:
        raise ProfileError("--last takes a whole number from 1 on.")
    found = read_rows(path, args.word)
    most = args.last or (len(found) if args.json else MOST_SHOWN)
    rows = sort_rows(found[-most:], args.sort, args.reverse)
    if args.json:
        return show(rows_json(rows, str(path)))
    if len(found) > len(rows):
        say(f"the last {len(rows)} of {len(found)} runs; more with --last")
    return show(rows_text(rows))
