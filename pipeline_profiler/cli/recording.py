"""Each command that measures adds a row to the table of runs; where it cannot, it only says so.

A command leaves its outcome in `args.outcome`; the row is written once, at the end, also after
Ctrl-C and after a loader that raised, as far as there was an outcome. What goes wrong here is a
warning on stderr: it changes neither the result nor the exit code.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_profiler.cli.terminal import say
from pipeline_profiler.cli.user_code import spec_file
from pipeline_profiler.record.errors import ProfileError
from pipeline_profiler.record.session import Session
from pipeline_profiler.run_table.location import default_file
from pipeline_profiler.run_table.masking import mask_secrets
from pipeline_profiler.run_table.origin import Code, read_code, tracker_run, typed
from pipeline_profiler.run_table.row import RunOutcome, RunRow

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
        from pipeline_profiler.run_table.table_file import append_row  # some Pythons lack sqlite3

        number = append_row(path, make_row(args, recording, outcome, int(exit_code)))
    except ProfileError as error:
        say(f"This run is not in the table of runs: {error}")
        return
    except Exception as error:  # noqa: BLE001 - the measurement stands, whatever happens here
        said = " ".join(str(error).split())[:120]
        say(f"This run is not in the table of runs ({type(error).__name__}: {said}).")
        return
    say(f"run {number} in {path}   (`pipeline-profiler runs`; --no-record leaves it out)")


def make_row(
    args: argparse.Namespace, recording: Recording, outcome: RunOutcome, exit_code: int
) -> RunRow:
    """The row of a command that has ended."""
    code, folder = recording.code, _working_folder()
    file = str(getattr(args, "saved", None) or outcome.file)
    return RunRow(
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(recording.began)),
        command=str(recording.argv[0]) if recording.argv else "",
        study=args.study or Path(code.top or folder).name,
        verdict=outcome.verdict,
        metric=outcome.metric,
        value=outcome.value,
        trials=outcome.trials,
        note=mask_secrets(args.note),
        sentence=outcome.sentence,
        file=os.path.abspath(file) if file else "",
        config=mask_secrets(args.config),
        command_line=typed(recording.argv),
        folder=folder,
        git_commit=code.commit,
        git_branch=code.branch,
        git_diff=code.diff,
        tracker_run=tracker_run(os.environ),
        seconds=round(time.time() - recording.began, 2),
        exit_code=exit_code,
        version=_version(),
    )


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
    return Path(_working_folder() or "/")


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("dataset-preflight")
    except metadata.PackageNotFoundError:
        return ""


# ---- outcomes ----


def outcome_of_session(session: Session) -> RunOutcome:
    """What a session says in a row: its verdict, and the best of its figures."""
    results = session.results
    verdict = str(results.get("verdict") or ("partial" if session.partial else "no verdict"))
    metric, value, trials = _best(results)
    return RunOutcome(verdict, str(results.get("sentence") or ""), trials, metric, value)


def _best(results: Mapping[str, Any]) -> tuple[str, float | None, int | None]:
    """(name, best value, number of trials) of a sweep, tune, precision table or run."""
    if rows := (results.get("precision") or {}).get("rows"):
        rates = _numbers([row.get("loader_per_s") or {} for row in rows], "value")
        return "samples/s", max(rates, default=None), len(rows)
    if points := results.get("sweep"):
        return "step ms", min(_numbers(points, "measured_ms"), default=None), len(points)
    if trials := results.get("trials"):
        gains = _numbers([trial.get("speedup") or {} for trial in trials], "value")
        return "speed-up", max(gains, default=None), len(trials)
    stall = (results.get("stall") or {}).get("share")
    if isinstance(stall, int | float):
        return "stall share", float(stall), 1
    period = ((results.get("arms") or {}).get("D") or {}).get("period_ms")
    return ("step ms", float(period), 1) if isinstance(period, int | float) else ("", None, None)


def _numbers(rows: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [float(row[key]) for row in rows if isinstance(row.get(key), int | float)]
