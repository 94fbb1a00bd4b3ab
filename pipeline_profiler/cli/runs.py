"""`pipeline-profiler runs`: what was measured, how it was called, on which state of the code."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline_profiler.cli.output import say, show
from pipeline_profiler.cli.user_code import spec_file
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.runs.entry import (
    Code,
    RunCall,
    RunWords,
    make_row,
    read_code,
    typed,
    working_folder,
)
from pipeline_profiler.runs.row import RunOutcome, RunRow, default_file

# ---- the row of a command ----
# Each command that measures adds a row; where it cannot, it only says so. A command leaves its
# outcome in `args.outcome`; the row is written once, at the end, also after Ctrl-C and after a
# loader that raised, as far as there was an outcome. What goes wrong here is a warning on stderr:
# it changes neither the result nor the exit code.

FROM_FILES = ("loader", "training", "model")  # arguments that name code of the user's


def add_recording_options(p: argparse.ArgumentParser) -> None:
    """The options of the row that the command adds to the table of runs."""
    p.add_argument("--study", default="", help="name of the study, for the table of runs")
    p.add_argument("--note", default="", help="a note, for the table of runs")
    p.add_argument("--config", default="", metavar="LINK", help="configuration, as file or link")
    p.add_argument("--runs", default="", metavar="FILE", help="the table of runs to add to")
    p.add_argument("--no-record", action="store_true", help="add no row to the table of runs")


@dataclass
class Recording:
    """What is known when a command begins: the clock, and the code that it will run."""

    argv: Sequence[str]
    began: float = field(default_factory=time.time)
    code: Code = field(default_factory=Code)
    done: bool = False


def begin_recording(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Look at the code before it runs: it may be edited while it is measured."""
    args.outcome = None
    if not hasattr(args, "no_record") or args.no_record or _file_of(args) is None:
        return
    args.recording = Recording(argv)
    args.recording.code = read_code(_folder_of(args))


def record_outcome(args: argparse.Namespace, exit_code: int) -> None:
    """Add the row, once."""
    recording: Recording | None = getattr(args, "recording", None)
    outcome: RunOutcome | None = getattr(args, "outcome", None)
    path = _file_of(args) if recording is not None else None
    if recording is None or outcome is None or recording.done or path is None:
        return
    recording.done = True
    try:
        from pipeline_profiler.runs.table_file import append_row  # some Pythons lack sqlite3

        number = append_row(path, _row(args, recording, outcome, int(exit_code)))
    except ProfileError as error:
        say(f"This run is not in the table of runs: {error}")
        return
    except Exception as error:  # noqa: BLE001 - the measurement stands, whatever happens here
        said = " ".join(str(error).split())[:120]
        say(f"This run is not in the table of runs ({type(error).__name__}: {said}).")
        return
    say(f"run {number} in {path}   (`pipeline-profiler runs`; --no-record leaves it out)")


def _row(
    args: argparse.Namespace, recording: Recording, outcome: RunOutcome, exit_code: int
) -> RunRow:
    """The row of a command that has ended."""
    argv, saved = recording.argv, getattr(args, "saved", None)
    call = RunCall(str(argv[0]) if argv else "", typed(argv), recording.began)
    words = RunWords(args.study, args.note, args.config)
    outcome = replace(outcome, file=str(saved or outcome.file))
    return make_row(call, recording.code, words, outcome, exit_code)


def table_of(args: argparse.Namespace) -> Path:
    """The table that `runs` shows; ProfileError where recording is switched off."""
    path = _file_of(args)
    if path is None:
        raise ProfileError("PIPELINE_PROFILER_RUNS is off: name the table of runs with --runs.")
    return path


def _file_of(args: argparse.Namespace) -> Path | None:
    return Path(args.runs) if args.runs else default_file(os.environ)


def _folder_of(args: argparse.Namespace) -> Path:
    """The folder of the user's file, else the working folder."""
    for name in FROM_FILES:
        text = getattr(args, name, None)
        for file in (spec_file(text), text) if isinstance(text, str) else ():
            if file and "\0" not in file and Path(file).is_file():
                return Path(os.path.realpath(file)).parent
    return Path(working_folder() or "/")


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
    from pipeline_profiler.runs.entry import mask_secrets
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
