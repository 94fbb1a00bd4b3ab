"""The command line: parse, one call, format.

argparse, so that `--help` costs a few milliseconds and the tool runs on a GPU machine that has
torch, numpy and the standard library alone. Loaders and steps come from the user's file as
`train.py:make_loader`. Exit codes: exit_codes.py. `--json` prints exactly one document on stdout;
progress goes to stderr. Every argument is looked at before anything is measured.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_profiler.cli import checks, ending, precision, runs, watch
from pipeline_profiler.cli.arguments import (
    PYTHON_HELP,
    bound,
    check_measuring,
    matching_files,
    read_axes,
)
from pipeline_profiler.cli.ending import finish, judge
from pipeline_profiler.cli.output import check_output, is_ours, say, show, write_report
from pipeline_profiler.cli.user_code import call_user, target
from pipeline_profiler.profiling.record.session import ProfileError, Session
from preflight.ending import ExitCode, strongest
from preflight.terminal import (
    escape_controls,
    grouped_help,
    nearest_name,
    prepare_streams,
    without_help_all,
)
from preflight.text import text_fault

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    from pipeline_profiler.profiling.diagnose.verdict import Conclusion
    from pipeline_profiler.profiling.measure.arms import Bench, Options
    from pipeline_profiler.profiling.measure.stopping import Guard

GROUPS = {
    "Start here": {
        "watch": "run a training as it is, and say what its steps wait for",
        "run": "measure a loader against a step, and name what slows it down",
        "report": "a saved measurement as text, page, Markdown, JSON or trace",
        "explain": "what a check proves, how it decides, what to do",
    },
    "Profile": {
        "tune": "apply what is recommended, measure again, keep or reject",
        "sweep": "settings of the loader, predicted beside measured",
        "precision": "training steps in FP32, FP16 and BF16, with the loader attached",
    },
    "Check": {
        "check-loader": "is the loader right: order, coverage, pixels",
        "check-training": "is the training loop right: before a run that costs a day",
        "check-log": "what logs of metrics show: periods, divergence, plateaus",
    },
    "Compare": {
        "compare": "is the second measurement faster, and how sure is that",
        "runs": "the table of all measurements and checks",
    },
}
RARE = {
    "--cold", "--files", "--epoch-steps", "--seed", "--limit", "--replace", "--study", "--note",
    "--config", "--runs", "--no-record", "--trace", "--ceiling", "--push", "--dry-run",
    "--with-code", "--with-paths",
}  # fmt: skip
# Options that are texts; the values of all others may name files, which hold any bytes.
TEXTS = frozenset((
    "note", "study", "of", "verdict", "word", "only", "skip", "fail_on", "std", "mean", "code",
    "optimizer", "batch_sizes",
))  # fmt: skip
PROGRAM = "pipeline-profiler"
TRACE_HELP = "print the traceback of what failed in this program"
NEWEST = 3
ESTIMATED_S = 60.0  # a longer measurement says first how long it will take
DEFAULT_EMULATED_MS = 10.0
REPLACE_HELP = "replace a file that pipeline-profiler did not write"
EPOCH_STEPS_HELP = "steps of an epoch in your training, where the loader does not tell"
LIMIT_HELP = "end a measurement without a step for so long (default: the budget, at least 30 s)"


def command_line(argv: Sequence[str] | None = None, *, lent: bool = False) -> int:
    """Entry point; returns the exit code. `lent`: this is the Python that --python has named."""
    prepare_streams()
    words, every = without_help_all(sys.argv[1:] if argv is None else argv)
    if not words:
        return show(next_here(Path.cwd()))
    args = parser(every).parse_args(words)
    if fault := text_fault({name: v for name, v in vars(args).items() if name in TEXTS}):
        say(fault)
        return ExitCode.USAGE
    args.began = time.monotonic()  # importing a framework counts to what --quick promises
    args.words = words
    code = _obey(args, words, lent)
    runs.record_outcome(args)
    return code


def _obey(args: argparse.Namespace, words: Sequence[str], lent: bool) -> int:
    try:
        if not lent and (code := _run_elsewhere(args, words)) is not None:
            return code
        runs.begin_recording(args, words)
        return int(args.command(args))
    except ProfileError as error:
        return ending.stopped(error, args)
    except KeyboardInterrupt:
        saved = getattr(args, "saved", None)
        held = f"The session is saved in {saved}." if saved else "Nothing was measured yet."
        say(f"Interrupted. {held}")
        return ExitCode.INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - a traceback in front of a user is a bug
        return ending.failed(error, args)


def _run_elsewhere(args: argparse.Namespace, words: Sequence[str]) -> int | None:
    """Run the command in the Python that --python names; None where that is this one."""
    named = getattr(args, "python", None)
    if named is None or os.path.abspath(named) == sys.executable:
        return None
    from pipeline_profiler.profiling.watching.interpreter import run_in, training_python

    python = training_python(named)
    if python.is_ours:
        return None
    say(f"runs in {python.path} (Python {python.version}, numpy {python.numpy})")
    return run_in(python, words)


class _Parser(argparse.ArgumentParser):
    """A parser that repeats what was typed without obeying it, and tells rare options last."""

    every = False  # whether help lists the rare options too

    def __init__(self, *args: Any, **more: Any) -> None:
        """Begin with --trace, which every command has."""
        super().__init__(*args, **more)
        if self.prog != PROGRAM:
            self.add_argument("--trace", action="store_true", help=TRACE_HELP)

    def format_help(self) -> str:
        """Return the help: of the program its commands in groups, of a command its options."""
        if self.prog == PROGRAM:
            return grouped_help(self.prog, str(self.description), GROUPS)
        rare = [] if self.every else [a for a in self._actions if RARE & set(a.option_strings)]
        helps = [action.help for action in rare]
        for action in rare:
            action.help = argparse.SUPPRESS
        text = super().format_help()
        for action, help_text in zip(rare, helps, strict=True):
            action.help = help_text
        names = ", ".join(sorted(max(action.option_strings, key=len) for action in rare))
        return f"{text}\n{textwrap.fill(f'--help-all tells of {names}.')}\n" if rare else text

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [name for group in GROUPS.values() for name in group]
            raise argparse.ArgumentError(
                action, f"there is no {value!r}.{nearest_name(str(value), known)}"
            )

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        (say if file is sys.stderr else show)(escape_controls(message).rstrip("\n"))


def next_here(folder: Path) -> str:
    """Return what the program alone says: the next commands in this folder. It starts nothing."""
    sessions = sorted(p.name for p in folder.glob("profile*.json*") if is_ours(p))[:NEWEST]
    lines = [f"  pipeline-profiler report {shlex.quote(name)}" for name in sessions]
    lines += [
        "  pipeline-profiler watch -- python train.py            what a training waits for",
        "  pipeline-profiler run FILE.py:make_loader --quick     what slows a loader down",
        "  pipeline-profiler --help                              every command",
    ]
    return "\n".join(["Next:", *lines])


def parser(every: bool = False) -> argparse.ArgumentParser:
    """All commands and their options; help lists the rare ones too with `every`."""
    _Parser.every = every
    top: argparse.ArgumentParser = _Parser(
        prog=PROGRAM,
        description="Find what keeps the accelerator waiting, how sure that is, and prove the fix.",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    run = _measuring(
        commands, "run", run_command, "measure the arms, name the causes, save the session"
    )
    run.add_argument("--ceiling", action="store_true", help="only the step, fed from memory")
    runs.add_push_options(run)
    sweep_parser = _measuring(
        commands, "sweep", sweep_command, "settings, predicted beside measured"
    )
    for name, values in (("workers", "0,1,2"), ("prefetch", "2"), ("batch-size", ""), ("pin", "")):
        sweep_parser.add_argument(
            f"--{name}",
            default=values,
            metavar="LIST",
            help=f"comma-separated (default {values or 'as the loader has it'})",
        )
    _measuring(commands, "tune", tune_command, "recommend, apply, re-run, keep or reject")
    watch.add_watch(commands, REPLACE_HELP)
    precision.add(commands)
    checks.add_checks(commands)
    runs.add_runs(commands)
    page = commands.add_parser("report", help="render a session: text, html, md, json, trace")
    page.add_argument(
        "session",
        help="a session that was saved, or a trace of torch's, JAX's or TensorFlow's profiler",
    )
    page.add_argument("ranks", nargs="*", help="sessions of the other ranks, joined with the first")
    page.add_argument("-o", "--output", help="x.html, x.md, x.txt, x.json or x.trace.json.gz")
    page.add_argument("--replace", action="store_true", help=REPLACE_HELP)
    page.add_argument("--fail-on", metavar="BOUND", help='e.g. "stall>20%%": exit code 1')
    page.add_argument("--audit", metavar="RUN", help="sizes of the slowest samples from this run")
    page.set_defaults(command=report_command, json=False)
    two = commands.add_parser("compare", help="is B faster than A, and how sure is that")
    two.add_argument("a", help="the session before the change")
    two.add_argument("b", help="the session after it")
    two.add_argument("--json", action="store_true", help="one JSON document on stdout")
    two.set_defaults(command=compare_command)
    return top


def _measuring(
    commands: Commands, name: str, command: Callable[[argparse.Namespace], int], text: str = ""
) -> argparse.ArgumentParser:
    """Add a command that measures; one without a text is not listed by --help."""
    p = commands.add_parser(name, help=text) if text else commands.add_parser(name)
    p.add_argument("loader", metavar="FILE.py:FUNCTION", help="makes the loader")
    p.add_argument("--step", metavar="FILE.py:FUNCTION", help="makes the step: step(batch)")
    p.add_argument("--python", metavar="PATH", help=PYTHON_HELP)
    p.add_argument("--emulate-step-ms", type=float, metavar="MS", help="a step that only sleeps")
    p.add_argument("--steps", type=int, default=300, help="timed steps an arm (default 300)")
    p.add_argument("--repeats", type=int, default=5, help="repeats of each arm (default 5)")
    p.add_argument("--quick", action="store_true", help="within 30 s, wider intervals")
    p.add_argument("--seconds", type=float, help="time budget instead of 105 s (quick: 25 s)")
    p.add_argument("--cold", action="store_true", help="add the cold-cache arm (opt-in)")
    p.add_argument("--files", default="", metavar="GLOB", help="files the cold arm evicts")
    p.add_argument("--epoch-steps", type=int, default=0, metavar="N", help=EPOCH_STEPS_HELP)
    p.add_argument("--seed", type=int, default=0, help="order of the arms (default 0)")
    p.add_argument("--limit", type=float, metavar="S", help=LIMIT_HELP)
    p.add_argument("-o", "--output", default="profile.json", help="session file")
    p.add_argument("--replace", action="store_true", help=REPLACE_HELP)
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    p.add_argument("--fail-on", metavar="BOUND", help='e.g. "stall>20%%": exit code 1')
    runs.add_recording_options(p)
    p.set_defaults(command=command)
    return p


# ------------------------------------------------------------------------------- commands


def run_command(args: argparse.Namespace) -> int:
    """Measure, save, diagnose, print; with --ceiling measure the step alone."""
    from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
    from pipeline_profiler.profiling.measure.schedule import measure_arms
    from pipeline_profiler.profiling.measure.tune import ceiling

    bench, options = _bench(args)
    if args.ceiling:
        return finish(ceiling(bench, options), args)

    def conclude(session: Session) -> None:
        conclusion = diagnose_session(session)
        session.results |= conclusion.as_results()
        if args.trace:
            _print_traces(conclusion)

    return finish(measure_arms(bench, options), args, conclude)


def sweep_command(args: argparse.Namespace) -> int:
    """Measure every combination of the given settings beside its prediction."""
    from pipeline_profiler.profiling.measure import tune as tuning

    axes = read_axes(args)
    bench, options = _bench(args)
    return finish(tuning.sweep(bench, options, axes), args)


def tune_command(args: argparse.Namespace) -> int:
    """Apply recommendations until none is worth more than the noise."""
    from pipeline_profiler.profiling.measure import tune as tuning

    bench, options = _bench(args)
    return finish(tuning.tune_loader(bench, options), args)


def report_command(args: argparse.Namespace) -> int:
    """Render a saved session, judged by the present rules."""
    from pipeline_profiler.profiling.watching.conclusion import judge_stored
    from pipeline_profiler.report import render as reports
    from pipeline_profiler.report.foreign_trace import is_foreign_trace
    from pipeline_profiler.report.sections import add_image_sizes

    if args.audit and (args.ranks or is_foreign_trace(args.session)):
        raise ProfileError("--audit RUN goes with one session of pipeline-profiler.")
    if args.ranks:
        return watch.report_ranks([args.session, *args.ranks], args.output, args.replace)
    if is_foreign_trace(args.session):
        return _report_trace(args)
    if args.fail_on:
        bound(args.fail_on)
    if args.output:
        reports.check_format(args.output)
        check_output(args.output, args.replace, [args.session])
    session = Session.load(args.session)
    conclusion = judge_stored(session)
    if args.trace and conclusion:
        _print_traces(conclusion)
    if args.audit:
        add_image_sizes(session, args.audit)
    code = judge(session, args.fail_on)
    if not args.output:
        return strongest(code, show(reports.to_text(session)))
    path = write_report(
        lambda: reports.make_report(session, args.output), args.output, args.replace
    )
    show(str(path))  # the file has the report: a reader who is gone does not matter
    return code


def _report_trace(args: argparse.Namespace) -> int:
    """What another profiler's trace says, as text."""
    from pipeline_profiler.report.foreign_trace import trace_lines

    if args.output or args.fail_on:
        raise ProfileError("Another profiler's trace is told as text: leave -o and --fail-on out.")
    return show(escape_controls("\n".join(trace_lines(args.session))))


def compare_command(args: argparse.Namespace) -> int:
    """Compare two saved sessions."""
    import json

    from pipeline_profiler.profiling.measure.tune import compare as comparing
    from pipeline_profiler.profiling.watching.conclusion import judge_stored

    sessions = Session.load(args.a), Session.load(args.b)
    for session in sessions:
        judge_stored(session)
    result = comparing(*sessions)
    return show(json.dumps(result) if args.json else result["sentence"])


# ------------------------------------------------------------------------------- parsing


def _bench(args: argparse.Namespace) -> tuple[Bench, Options]:
    from pipeline_profiler.profiling.measure.arms import Bench, Options, emulated_step

    check_measuring(args)
    make_loader = target(args.loader, "the loader")
    emulated = None if args.step else args.emulate_step_ms
    if not args.step and emulated is None:
        emulated = DEFAULT_EMULATED_MS
        say(
            f"no --step: a step of {emulated:g} ms is emulated, and the verdict holds for that "
            "step only; choose another with --emulate-step-ms"
        )
    step = (
        call_user(target(args.step, "the step, a function step(batch)"), args.step)
        if args.step
        else emulated_step(float(emulated or 0.0))
    )
    if not callable(step):
        raise ProfileError(f"{args.step} returned {step!r}: it must return a function step(batch).")
    options = Options(
        steps=args.steps,
        repeats=args.repeats,
        quick=args.quick,
        cold=args.cold,
        files=tuple(matching_files(args.files)) if args.files else (),
        seed=args.seed,
        seconds=args.seconds,
        emulate_ms=emulated,
        spent=time.monotonic() - getattr(args, "began", time.monotonic()),
    )
    if options.budget > ESTIMATED_S:
        say(f"this takes about {options.budget:.0f} s; --quick about 25 s, with wider intervals")
    guard = _guard(args, options)
    bench = Bench(make_loader, step, progress=say, guard=guard)
    bench.epoch_steps, bench.seed = args.epoch_steps, args.seed
    return bench, options


def _guard(args: argparse.Namespace, options: Options) -> Guard:
    from pipeline_profiler.profiling.measure.stopping import LEAST_LIMIT_S, Guard

    return Guard(
        limit_s=args.limit or max(LEAST_LIMIT_S, options.budget),
        save=lambda session: ending.save_meanwhile(session, args),
        rescue=lambda session: ending.rescue(session, args),
    )


def _print_traces(conclusion: Conclusion) -> None:
    for failed in conclusion.failed_rules:
        say(f"rule {failed.rule}:\n{failed.trace}")


if __name__ == "__main__":
    sys.exit(command_line())
