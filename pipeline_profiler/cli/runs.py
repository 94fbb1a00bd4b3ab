"""`pipeline-profiler runs`: what was measured, how it was called, on which state of the code."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pipeline_profiler.cli.recording import table_of
from pipeline_profiler.cli.terminal import say, show
from pipeline_profiler.profiling.record.errors import ProfileError

MOST_SHOWN = 40


def add_runs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the command."""
    p = commands.add_parser("runs", help="the table of runs: every measurement and run of checks")
    p.add_argument("id", nargs="?", type=int, metavar="ID", help="all of one run, with its diff")
    p.add_argument("--note", default="", help="add a line to the note of the run ID")
    p.add_argument("--study", default="", help="runs of this study only")
    p.add_argument("--of", default="", metavar="COMMAND", help="runs of this command only")
    p.add_argument("--verdict", default="", metavar="WORD", help="runs whose verdict has this word")
    p.add_argument("--word", default="", help="runs that have this word anywhere, diff included")
    p.add_argument(
        "--sort",
        default="time",
        metavar="COLUMN",
        help="time, study, command, verdict, value, trials or seconds (default time)",
    )
    p.add_argument("--reverse", action="store_true", help="largest or latest first")
    p.add_argument("--last", type=int, metavar="N", help=f"the last N rows (default {MOST_SHOWN})")
    p.add_argument("--runs", default="", metavar="FILE", help="another table of runs")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    p.set_defaults(command=runs_command)


def runs_command(args: argparse.Namespace) -> int:
    """List runs, show one, or add a note to one."""
    path = table_of(args)
    if args.note and args.id is None:
        raise ProfileError("--note needs a run: `pipeline-profiler runs ID --note TEXT`.")
    return _one(args, path) if args.id is not None else _listed(args, path)


def _one(args: argparse.Namespace, path: Path) -> int:
    from pipeline_profiler.runs.origin import mask_secrets
    from pipeline_profiler.runs.table_file import append_note, read_row, row_text

    if args.note:
        row = append_note(path, args.id, mask_secrets(args.note))
    else:
        row = read_row(path, args.id)
    if args.json:
        document = {"schema": "run/1", "generator": "pipeline-profiler", **row.as_dict()}
        return show(json.dumps(document, indent=1, allow_nan=False))
    return show(row_text(row))


def _listed(args: argparse.Namespace, path: Path) -> int:
    from pipeline_profiler.runs.table_file import Filter, read_rows, rows_json, rows_text, sort_rows

    if args.last is not None and args.last < 1:
        raise ProfileError("--last takes a whole number from 1 on.")
    wanted = Filter(args.study, args.of, args.verdict)
    kept = [row for row in read_rows(path, args.word) if wanted.keeps(row)]
    most = args.last or (len(kept) if args.json else MOST_SHOWN)
    rows = sort_rows(kept[-most:], args.sort, args.reverse)
    if args.json:
        return show(rows_json(rows, str(path)))
    if len(kept) > len(rows):
        say(f"the last {len(rows)} of {len(kept)} runs; more with --last")
    return show(rows_text(rows))
