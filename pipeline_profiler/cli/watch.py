"""`pipeline-profiler watch -- train.py ...`: profile an unmodified training script.

stdout belongs to the script; messages of this program go to stderr. The exit code is the script's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dataset_preflight.foundation.terminal import escape_controls
from pipeline_profiler.cli import runs
from pipeline_profiler.cli.arguments import PYTHON_HELP, YES_HELP, check_amount
from pipeline_profiler.cli.check_script import run_held, tell_held
from pipeline_profiler.cli.output import (
    check_output,
    check_session_output,
    is_ours,
    say,
    show,
    write_report,
)
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.runs.entry import outcome_of_session

TRACK_PREDICTIONS_HELP = (
    "record a torch model's predictions step by step: for N samples of its first batch, or for "
    "samples of the training dataset by index (4,17,230)"
)
MAX_TRACKED_SAMPLES = 32
SECONDS_HELP = "end the script so long after its first batch, and discard its file changes"

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_watch(commands: Commands) -> None:
    """The command and its options."""
    p = commands.add_parser(
        "watch",
        help="profile a training script, no code changes",
        usage="pipeline-profiler watch [options] -- train.py [options of the script]",
    )
    p.add_argument("-o", "--output", default="profile.json", help="session file")
    p.add_argument(
        "--track-predictions", type=sample_ids, default=0, metavar="N", help=TRACK_PREDICTIONS_HELP
    )
    p.add_argument("--seconds", type=float, default=0.0, metavar="S", help=SECONDS_HELP)
    p.add_argument("--files", metavar="FILE", help="write the names of the files that it reads")
    p.add_argument("--yes", action="store_true", help=YES_HELP)
    p.add_argument("--quiet", action="store_true", help="no live line, no summary at the end")
    p.add_argument("--python", dest="interpreter", metavar="PATH", help=PYTHON_HELP)
    runs.record_command(p)
    p.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="-- SCRIPT",
        help="`train.py`, `python train.py` or `-m module`, and its options",
    )
    p.set_defaults(command=watch_command, json=False, takes_script=True)


def sample_ids(text: str) -> int | list[int]:
    """Return a number of samples, or their indices."""
    return [int(part) for part in text.split(",") if part] if "," in text else int(text)


def watch_command(args: argparse.Namespace) -> int:
    """Run the script, judge what it left, return its exit code."""
    from pipeline_profiler.profiling.monitor.interpreter import lent_packages, training_python
    from pipeline_profiler.profiling.monitor.launch import command_of, run_watched, saved_files
    from pipeline_profiler.profiling.monitor.process import WatchOrder

    words, tracked = args.script or [], args.track_predictions
    if not 0 <= (tracked if isinstance(tracked, int) else len(tracked)) <= MAX_TRACKED_SAMPLES:
        raise ProfileError(f"--track-predictions takes 0 to {MAX_TRACKED_SAMPLES} samples.")
    named = args.interpreter
    python = training_python(named, with_numpy=False).path if named else ""
    command = command_of(words, python)
    check_amount("--seconds", args.seconds or None)
    _check_places(args.output)
    notes = tempfile.TemporaryDirectory(prefix="pipeline-profiler-", ignore_cleanup_errors=True)
    with lent_packages() as home, notes as folder:
        held, opened = args.seconds > 0, f"{folder}/opened" if args.files else ""
        order = WatchOrder(
            output=f"{folder}/session.json" if held else os.path.abspath(args.output),
            every_s=args.settings.measure.every,
            folder=folder,
            home=home,
            parent=os.getpid(),
            quiet=args.quiet,
            grid=tracked,
            seconds=args.seconds,
            opened=opened,
        )
        if held:
            code = run_held(command, order, args.yes, f"for {args.seconds:.0f} s of training")
            tell_held(Path(folder))
            files = _moved(saved_files(folder), Path(args.output))
        else:
            code = run_watched(command, order)
            files = saved_files(folder)
        if opened:
            shutil.copyfile(opened, args.files)
    _conclude(files, args)
    if code and not files and command[0] == sys.executable:
        say(f"It ran in {sys.executable}: --python PATH names the Python of your training.")
    return code


def _moved(files: list[Path], output: Path) -> list[Path]:
    """Move the sessions of a script whose changes are discarded beside the output."""
    ends = [path.name.removeprefix("session").removesuffix(".json") for path in files]
    ends = ["" if end.startswith("-process") and len(files) == 1 else end for end in ends]
    names = [output.with_name(f"{output.stem}{end}{output.suffix}") for end in ends]
    return [Path(shutil.move(path, name)) for path, name in zip(files, names, strict=True)]


def _check_places(output: str) -> None:
    """Raise ProfileError where a session of the script, a rank or a loop of it has no place."""
    check_session_output(output)
    path = Path(output)
    own = (f"{path.stem}-rank*{path.suffix}*", f"{path.stem}-loop*{path.suffix}*")
    for other in (found for pattern in own for found in path.parent.glob(pattern)):
        if not is_ours(other):
            raise ProfileError(f"{other} was not written by pipeline-profiler: choose another -o.")


def _conclude(files: list[Path], args: argparse.Namespace) -> None:
    """Judge the sessions, save them with their results, say what they say."""
    from pipeline_profiler.profiling.monitor.conclusion import judge_session
    from pipeline_profiler.profiling.monitor.ranks import join_lines
    from pipeline_profiler.report.render import to_screen

    if not files:
        say("pipeline-profiler: no DataLoader, tf.data iterator or fit was seen: nothing is saved.")
        say("A loader of your own (a prefetch thread, a generator) is recorded by two lines:")
        say("  from pipeline_profiler import Recorder; rec = Recorder(save_to='profile.json')")
        say("  for batch in rec.watch(loader):  # in place of: for batch in loader")
        return
    sessions = []
    for path in files:
        session = Session.load(path)
        judge_session(session)
        session.save(path)
        sessions.append(session)
    args.outcome, args.saved = outcome_of_session(sessions[0]), str(files[0])
    if args.quiet:
        return
    loops = [session for session in sessions if session.environment.get("loop_at")]
    ranks = any("rank" in run.totals for session in sessions for run in session.runs)
    if len(sessions) == 1 or ranks or len(loops) < len(sessions):
        one = len(sessions) == 1
        said = to_screen(sessions[0]).rstrip() if one else "\n".join(join_lines(sessions))
    else:
        said = "\n".join(
            f"loop {i} of {len(loops)}, at {session.environment['loop_at']}:\n"
            f"{to_screen(session).rstrip()}"
            for i, session in enumerate(loops, 1)
        )
    say(f"\npipeline-profiler:\n{said}")
    names = " ".join(_shortest(path) for path in files)
    say(f"saved: {names}   next: pipeline-profiler report {names}")


def _shortest(path: Path) -> str:
    """The path as a reader would type it here."""
    try:
        return str(path.relative_to(os.getcwd()))
    except (ValueError, OSError):
        return str(path)


def report_ranks(paths: list[str], output: str | None) -> int:
    """The sessions of several ranks in one table; with `output` as an HTML page."""
    from pipeline_profiler.profiling.monitor.ranks import join_lines
    from pipeline_profiler.report.render import render_ranks

    if output and Path(output).suffix != ".html":
        raise ProfileError("Several ranks are joined on a page: give -o a name that ends in .html.")
    if output:
        check_output(output, paths)
    sessions = [Session.load(path) for path in paths]
    if not output:
        return show("\n".join(join_lines(sessions)))
    path = write_report(escape_controls(render_ranks(sessions)).encode(), output)
    return show(str(path))
