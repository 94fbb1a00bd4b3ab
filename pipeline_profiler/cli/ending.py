"""From a measured session to what the user has of it: saved first, then judged, printed, bounded.

Nothing that happens after the measurement may cost it: the session lies on disk before a rule, a
renderer or a stream can fail, and where no disk takes it, it goes to stdout.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path

from dataset_preflight.foundation.ending import ExitCode, strongest
from pipeline_profiler.cli.arguments import bound
from pipeline_profiler.cli.output import (
    ENDING,
    UnsavedError,
    say,
    show,
    write_as_asked,
    write_session,
)
from pipeline_profiler.cli.runs import record_outcome
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.runs.entry import outcome_of_session


def finish(
    session: Session, args: argparse.Namespace, conclude: Callable[[Session], None] | None = None
) -> ExitCode:
    """Save, conclude (fill the results), save again, print; returns the exit code."""
    codes = [save_session(session, args)]
    if conclude is not None:
        try:
            conclude(session)
        except ProfileError as error:
            codes.append(ENDING.end(str(error), ExitCode.USAGE))
        else:  # with its results now; where the first try went elsewhere, there again
            codes.append(save_session(session, args))
    args.outcome = outcome_of_session(session)
    codes.append(judge(session, args.fail_on))
    if ExitCode.NO_RESULT not in codes:  # else stdout has the session itself
        codes.append(_print(session, args))
    return strongest(*codes)


def save_session(session: Session, args: argparse.Namespace) -> ExitCode:
    """Save where it was asked for, or where there is room; `args.saved` is the path then."""
    path = str(getattr(args, "saved", None) or args.output)
    try:
        saved, as_asked = write_session(session.packed(), path)
    except UnsavedError as error:
        say("The session could be saved nowhere, so it follows on stdout.")
        args.saved = None
        if show(error.packed.decode()) is not ExitCode.CLEAN:
            say(f"The session is lost ({error}): make room, and run it again.")
        return ExitCode.NO_RESULT
    if not as_asked:
        say(f"The session is saved in {saved.resolve()} instead.")
    moved = not as_asked or getattr(args, "moved", False)
    args.saved, args.moved = saved, moved
    return ExitCode.USAGE if moved else ExitCode.CLEAN


def _print(session: Session, args: argparse.Namespace) -> ExitCode:
    from pipeline_profiler.report import precision
    from pipeline_profiler.report.render import to_json, to_screen, to_text
    from pipeline_profiler.report.sections import COMPUTE_BOUND, split_causes

    done = f"saved: {args.saved}   next: pipeline-profiler report {args.saved} -o profile.html"
    shown, _ = split_causes(session.results.get("causes") or [])
    tried = session.results.keys() & {"sweep", "precision"}
    if shown and shown[0]["code"] != COMPUTE_BOUND and not tried:
        done += (
            "\nafter a change: the same command with -o after.json, then "
            f"pipeline-profiler report {args.saved} --against after.json"
        )
    if args.json:
        text = to_json(session)
    elif "precision" in session.results:
        text = to_text(session) if args.full else precision.precision_screen(session)
    else:
        text = to_screen(session)
    text = text.rstrip("\n")
    code = show(text if args.json else f"{text}\n{done}")
    if code is not ExitCode.CLEAN:
        say(done)
    return code


def judge(session: Session, fail_on: str | None) -> ExitCode:
    """BROKEN_PART with a failed rule; FINDINGS when the whole interval lies above the bound."""
    failed = ExitCode.BROKEN_PART if session.results.get("failed_rules") else ExitCode.CLEAN
    low = (session.results.get("stall") or {}).get("low")
    exceeded = fail_on and low is not None and low > bound(fail_on)
    return strongest(failed, ExitCode.FINDINGS if exceeded else ExitCode.CLEAN)


def stopped(error: ProfileError, args: argparse.Namespace) -> ExitCode:
    """One sentence, and the user's own frames; a partial session with steps in it is saved."""
    say(f"pipeline-profiler: {error}")
    if details := getattr(error, "details", ""):
        say(details)
    session = getattr(error, "session", None)
    if session is None:
        return ExitCode.USAGE
    code = ExitCode.INTERRUPTED if getattr(error, "interrupted", False) else ExitCode.USAGE
    return strongest(code, save_partial(session, args))


def save_partial(session: Session, args: argparse.Namespace) -> ExitCode:
    """Save what there is, and say where and what to do with it."""
    steps = (session.results.get("precision") or {}).get("windows")
    measured = steps or any(len(run.spans) for run in session.runs)
    if not measured and "cut_off" not in session.results:
        say("Nothing was measured, so nothing is saved.")
        return ExitCode.CLEAN
    code = save_session(session, args)
    args.outcome = outcome_of_session(session)
    if code is not ExitCode.NO_RESULT:
        say(f"The partial session is saved in {args.saved}.")
        say(f"Next: pipeline-profiler report {args.saved}")
    return code


def rescue(session: Session, args: argparse.Namespace) -> None:
    """Save from the watchdog's thread and end the process: the main thread hangs in C code."""
    say(f"pipeline-profiler: {session.results['cut_off']['sentence']}")
    code = strongest(ExitCode.USAGE, save_partial(session, args))
    record_outcome(args)
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(code)


def save_meanwhile(session: Session, args: argparse.Namespace) -> Path | None:
    """Save a partial state quietly where it was asked for; None where that fails now."""
    try:
        args.saved = write_as_asked(session.packed(), args.output)
    except (OSError, ProfileError):
        return None
    return Path(args.saved)


def failed(error: BaseException, args: argparse.Namespace) -> ExitCode:
    """The machine or this program failed: a sentence, and where the session lies if it does."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "pipeline_profiler" in f.filename] or frames
    at = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    said = " ".join(str(error).split())[:200] or "no message"
    if isinstance(error, (OSError, MemoryError)):
        ENDING.machine_failed(f"{said}{at}")
    else:
        ENDING.program_failed(f"{type(error).__name__}: {said}{at}")
    if getattr(args, "trace", False):
        say("".join(traceback.format_exception(error)))
    if getattr(args, "saved", None):
        say(f"The session is saved in {args.saved}.")
    return ExitCode.NO_RESULT
