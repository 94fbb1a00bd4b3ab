"""A run that has ended as a row: its outcome, where its code comes from, and the user's words.

Commands and the recorder make their rows here, so that both look alike in the table.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.runs.origin import Code, mask_arguments, mask_secrets, read_code, tracker_run
from pipeline_profiler.runs.row import RunOutcome, RunRow, default_file


@dataclass(frozen=True)
class RunWords:
    """What the user says of a run: `config` is a file or a link."""

    study: str = ""
    note: str = ""
    config: str = ""


@dataclass(frozen=True)
class RunCall:
    """How a run was called: its name in the table, the line to type again, its start (s)."""

    command: str
    line: str
    began: float


def make_row(
    call: RunCall, code: Code, words: RunWords, outcome: RunOutcome, exit_code: int | None
) -> RunRow:
    """The row of a run that has ended."""
    folder = working_folder()
    return RunRow(
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(call.began)),
        command=call.command,
        study=words.study or Path(code.top or folder).name,
        verdict=outcome.verdict,
        metric=outcome.metric,
        value=outcome.value,
        trials=outcome.trials,
        note=mask_secrets(words.note),
        sentence=outcome.sentence,
        file=os.path.abspath(outcome.file) if outcome.file else "",
        config=mask_secrets(words.config),
        command_line=call.line,
        folder=folder,
        git_commit=code.commit,
        git_branch=code.branch,
        git_diff=code.diff,
        tracker_run=tracker_run(os.environ),
        seconds=round(time.time() - call.began, 2),
        exit_code=exit_code,
        version=_version(),
    )


def working_folder() -> str:
    """The folder of the process; empty where it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("dataset-preflight")
    except metadata.PackageNotFoundError:
        return ""


def enter_session(session: Session, file: Path, began: float, words: RunWords) -> int | None:
    """The row of a session that a loop of the user's recorded; its number, None where it has none.

    The code is looked at now, at the end of the loop. A table that takes no row is a warning: the
    session lies on disk by then.
    """
    from pipeline_profiler.profiling.watching.conclusion import judge_watched, long_enough
    from pipeline_profiler.profiling.watching.trackers import tell_trackers

    tell_trackers(session)
    path = default_file(os.environ)
    if path is None:
        return None
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    folder = script.resolve().parent if script.is_file() else Path(working_folder() or "/")
    call = RunCall("recorder", shlex.join(["python", *mask_arguments(sys.argv)]), began)
    try:
        from pipeline_profiler.runs.table_file import append_row  # some Pythons lack sqlite3

        if not session.results and long_enough(session):
            judge_watched(session)
        outcome = outcome_of_session(session, str(file))
        return append_row(path, make_row(call, read_code(folder), words, outcome, None))
    except (ProfileError, ImportError, OSError) as error:
        warnings.warn(f"This session is not in the table of runs: {error}", stacklevel=3)
        return None


def outcome_of_session(session: Session, file: str = "") -> RunOutcome:
    """What a session says in a row: its verdict, and the best of its figures."""
    results = session.results
    verdict = str(results.get("verdict") or ("partial" if session.partial else "no verdict"))
    metric, value, trials = _best(results)
    return RunOutcome(verdict, str(results.get("sentence") or ""), trials, metric, value, file)


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
