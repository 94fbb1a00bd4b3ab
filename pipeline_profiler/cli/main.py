"""The command line: parse, one call, format.

argparse, so that `--help` is fast and torch, numpy and the standard library are enough. Arguments
and settings are checked before a measurement. Exit codes: `dataset_preflight.foundation.ending`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_preflight.foundation.ending import ExitCode, strongest
from dataset_preflight.foundation.settings import (
    CONFIG_HELP,
    SET_HELP,
    TRACE_HELP,
    GlobalOptions,
    global_options_first,
)
from dataset_preflight.foundation.terminal import (
    escape_controls,
    grouped_help,
    nearest_name,
    prepare_streams,
)
from dataset_preflight.foundation.text import text_fault
from pipeline_profiler.cli import checks, ending, precision, runs, watch
from pipeline_profiler.cli.arguments import (
    FAIL_ON_HELP,
    PYTHON_HELP,
    TRY_HELP,
    bound,
    check_measuring,
    read_trials,
)
from pipeline_profiler.cli.ending import finish, judge
from pipeline_profiler.cli.output import check_output, is_ours, say, show, write_report
from pipeline_profiler.cli.settings import FILE_NAME, MeasureSettings, load_settings
from pipeline_profiler.cli.user_code import call_user, portable_name, target
from pipeline_profiler.profiling.record.session import ProfileError, Session

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    from pipeline_profiler.profiling.measure.arms import Bench, Options

GROUPS = {
    "": {
        "run": "find what slows a loader down, and try other settings",
        "watch": "profile a training script, no code changes",
        "check": "test a loader, a training, a script or a log for common bugs",
        "report": "print or write a saved profile; compare two",
    },
    "More": {
        "precision": "speed, memory and losses in FP32, FP16 and BF16",
        "runs": "list the recorded runs: measurements and checks",
        "explain": "what a check does, why it matters, what to do",
    },
}
# Options that are texts; the values of all others may name files, which hold any bytes.
TEXTS = frozenset((
    "note", "study", "of", "verdict", "word", "only", "skip", "fail_on", "code", "optimizer",
    "batch_sizes", "set",
))  # fmt: skip
PROGRAM = "pipeline-profiler"
NEWEST = 3
ESTIMATED_S = 60.0  # a longer measurement says first how long it will take
DEFAULT_EMULATED_MS = 10.0
RUN_STEPS = 300


def command_line(argv: Sequence[str] | None = None, *, lent: bool = False) -> int:
    """Entry point; returns the exit code. `lent`: this is the Python that --python has named."""
    prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        return show(next_here(Path.cwd()))
    args = parse(words)
    if fault := text_fault({name: v for name, v in vars(args).items() if name in TEXTS}):
        say(fault)
        return ExitCode.USAGE
    args.began = time.monotonic()  # importing a framework counts to what --quick promises
    code = _obey(args, words, lent)
    runs.record_outcome(args)
    return code


def _obey(args: argparse.Namespace, words: Sequence[str], lent: bool) -> int:
    try:
        _check_script(args)
        args.settings = load_settings(GlobalOptions(args.config, args.set, args.trace))
        if not lent and (code := _run_elsewhere(args, words)) is not None:
            return code
        runs.begin_recording(args)
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
    from pipeline_profiler.profiling.monitor.interpreter import run_in, training_python

    python = training_python(named)
    if python.is_ours:
        return None
    say(f"runs in {python.path} (Python {python.version}, numpy {python.numpy})")
    return run_in(python, words)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; `script` has the words after `--`, None without `--`."""
    end = list(words).index("--") if "--" in words else len(words)
    args = parser().parse_args(global_options_first(words[:end]))
    args.script = list(words[end + 1 :]) if end < len(words) else None
    return args


def _check_script(args: argparse.Namespace) -> None:
    """Raise ProfileError for a script without `--`, or for a command that runs no script."""
    if words := getattr(args, "words", None):
        command = f"{PROGRAM} {args.name} -- {shlex.join(words)}"
        raise ProfileError(f"Write `--` before the script: {command}")
    if args.script is not None and not getattr(args, "takes_script", False):
        raise ProfileError(f"{args.name} runs no script: leave `--` and the words after it out.")


class _Parser(argparse.ArgumentParser):
    """A parser that escapes what was typed, and prints the commands of the program in groups."""

    def format_help(self) -> str:
        """Return the help: of the program its commands in groups, of a command its options."""
        if self.prog == PROGRAM:
            return grouped_help(self.prog, str(self.description), GROUPS)
        return super().format_help()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [name for group in GROUPS.values() for name in group]
            text = f"there is no {value!r}.{nearest_name(str(value), known)}"
            raise argparse.ArgumentError(action, text)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        (say if file is sys.stderr else show)(escape_controls(message).rstrip("\n"))


def next_here(folder: Path) -> str:
    """Return what the program alone says: the next commands in this folder. It starts nothing."""
    sessions = sorted(p.name for p in folder.glob("profile*.json*") if is_ours(p))[:NEWEST]
    lines = [f"  pipeline-profiler report {shlex.quote(name)}" for name in sessions]
    lines += [
        "  pipeline-profiler watch -- python train.py            profile a training script",
        "  pipeline-profiler run FILE.py:make_loader --quick     find what slows a loader down",
        "  pipeline-profiler --help                              every command",
    ]
    return "\n".join(["Next:", *lines])


def parser() -> argparse.ArgumentParser:
    """Return the parser of the program: its options, and every command with its options."""
    top: argparse.ArgumentParser = _Parser(
        prog=PROGRAM,
        description="Find the data-loading bottleneck that keeps the GPU idle, and verify the fix.",
    )
    top.add_argument("--config", type=Path, help=CONFIG_HELP.format(name=FILE_NAME))
    example = SET_HELP.format(example="measure.repeats=3")
    top.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", help=example)
    top.add_argument("--trace", action="store_true", help=TRACE_HELP)
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="name")
    _add_run(commands)
    watch.add_watch(commands)
    checks.add_checks(commands)
    _add_report(commands)
    precision.add(commands)
    runs.add_runs(commands)
    return top


def _add_run(commands: Commands) -> None:
    p = commands.add_parser("run", help="find what slows a loader down")
    p.add_argument("loader", metavar="FILE.py:FUNCTION", help="makes the loader")
    p.add_argument("--step", metavar="FILE.py:FUNCTION", help="makes the step: step(batch)")
    p.add_argument("--emulate-step-ms", type=float, metavar="MS", help="a step that only sleeps")
    p.add_argument("--python", metavar="PATH", help=PYTHON_HELP)
    p.add_argument("--quick", action="store_true", help="within 30 s, with wider intervals")
    p.add_argument("--seconds", type=float, help="time budget instead of 105 s (quick: 25 s)")
    modes = p.add_argument_group("What to measure instead of the loader as it is")
    modes.add_argument(
        "--try", dest="trials", action="append", default=[], metavar="KEY=LIST", help=TRY_HELP
    )
    output = p.add_argument_group("Output")
    output.add_argument("-o", "--output", default="profile.json", help="session file")
    output.add_argument("--json", action="store_true", help="one JSON document on stdout")
    output.add_argument("--fail-on", metavar="BOUND", help=FAIL_ON_HELP)
    runs.add_push_options(p)
    runs.record_command(p)
    p.set_defaults(command=run_command)


def _add_report(commands: Commands) -> None:
    p = commands.add_parser("report", help="print or write a saved profile, or compare two")
    p.add_argument("session", help="a saved session")
    p.add_argument("ranks", nargs="*", help="sessions of the other ranks, joined with the first")
    p.add_argument("--against", metavar="B", help="is session B, made after a change, faster?")
    p.add_argument("-o", "--output", help="x.html, x.md, x.txt or x.json")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    p.add_argument("--fail-on", metavar="BOUND", help=FAIL_ON_HELP)
    p.add_argument("--audit", metavar="RUN", help="image sizes of the slowest samples, by this run")
    p.set_defaults(command=report_command)


def run_command(args: argparse.Namespace) -> int:
    """Measure, save, diagnose, print; or measure trials of settings."""
    from pipeline_profiler.profiling.measure import trial_settings
    from pipeline_profiler.profiling.measure.schedule import measure_arms

    trials = read_trials(args.trials)
    bench, options = _bench(args)
    if trials:
        return finish(trial_settings.sweep(bench, options, trials), args)
    return finish(measure_arms(bench, options), args, partial(_conclude, args=args))


def _conclude(session: Session, args: argparse.Namespace) -> None:
    """Judge a session by the present rules; with --trace, print what a rule raised."""
    from pipeline_profiler.profiling.monitor.conclusion import judge_session

    conclusion = judge_session(session)
    for failed in conclusion.failed_rules if args.trace and conclusion else ():
        say(f"rule {failed.rule}:\n{failed.trace}")


def report_command(args: argparse.Namespace) -> int:
    """Render a saved session, judged by the present rules; or compare it with another."""
    from pipeline_profiler.report import render as reports
    from pipeline_profiler.report.sections import add_image_sizes

    _check_report(args)
    if args.against:
        return _compare(args)
    if args.ranks:
        return watch.report_ranks([args.session, *args.ranks], args.output)
    session = Session.load(args.session)
    _conclude(session, args)
    if args.audit:
        add_image_sizes(session, args.audit)
    code = judge(session, args.fail_on)
    if args.json:
        return strongest(code, show(reports.to_json(session).rstrip("\n")))
    if not args.output:
        return strongest(code, show(reports.to_text(session)))
    path = write_report(reports.make_report(session, args.output), args.output)
    show(str(path))  # the file has the report: a closed stdout does not matter
    return code


def _check_report(args: argparse.Namespace) -> None:
    """Raise ProfileError for options that exclude each other."""
    from pipeline_profiler.report.render import check_format

    given = {"-o": args.output, "--json": args.json, "--fail-on": args.fail_on}
    given |= {"--audit": args.audit, "--against": args.against}
    given |= {"several sessions": args.ranks}
    kinds = {"--against": "--json", "several sessions": "-o"}
    for kind, allowed in kinds.items():
        wrong = [n for n, v in given.items() if v and n not in (kind, allowed)]
        if given[kind] and wrong:
            name = kind.replace("several", "A report of several")
            raise ProfileError(f"{name} does not go with {', '.join(wrong)}.")
    if args.output and args.json:
        raise ProfileError("Give -o or --json, not both.")
    if args.fail_on:
        bound(args.fail_on)
    if args.output and not args.ranks:
        check_format(args.output)
        check_output(args.output, [args.session])


def _compare(args: argparse.Namespace) -> int:
    """Print how much faster the second session is."""
    from pipeline_profiler.profiling.diagnose.comparison import compare

    sessions = Session.load(args.session), Session.load(args.against)
    for session in sessions:
        _conclude(session, args)
    result = compare(*sessions)
    return show(json.dumps(result) if args.json else result["sentence"])


def _bench(args: argparse.Namespace) -> tuple[Bench, Options]:
    from pipeline_profiler.profiling.measure.arms import Bench, Options, emulated_step
    from pipeline_profiler.profiling.measure.watchdog import LEAST_LIMIT_S, Guard

    check_measuring(args)
    make_loader = target(args.loader, "the loader")
    emulated = args.emulate_step_ms
    if args.step:
        step = call_user(target(args.step, "the step, a function step(batch)"), args.step)
    elif emulated is None:
        emulated = DEFAULT_EMULATED_MS
        say(
            f"no --step: a step of {emulated:g} ms is emulated, and the verdict holds for that "
            "step only; choose another with --emulate-step-ms"
        )
    if not args.step:
        step = emulated_step(emulated)
    if not callable(step):
        raise ProfileError(f"{args.step} returned {step!r}: it must return a function step(batch).")
    measure: MeasureSettings = args.settings.measure
    options = Options(
        steps=measure.steps or RUN_STEPS,
        repeats=measure.repeats or Options.repeats,
        quick=args.quick,
        seed=measure.seed,
        seconds=args.seconds,
        emulate_ms=emulated,
        spent=time.monotonic() - getattr(args, "began", time.monotonic()),
    )
    if options.budget > ESTIMATED_S:
        say(f"this takes about {options.budget:.0f} s; --quick 10 to 25 s, with wider intervals")
    guard = Guard(
        limit_s=measure.limit or max(LEAST_LIMIT_S, options.budget),
        save=partial(ending.save_meanwhile, args=args),
        rescue=partial(ending.rescue, args=args),
    )
    bench = Bench(make_loader, step, progress=say, guard=guard)
    bench.epoch_steps, bench.seed = measure.epoch_steps, measure.seed
    bench.command = _command(args)
    return bench, options


def _command(args: argparse.Namespace) -> dict[str, str]:
    """Return loader, step and options of `run` for a session, without paths of this machine."""
    options = ["--quick"] if args.quick else []
    options += [f"--seconds {args.seconds:g}"] if args.seconds else []
    options += [f"--try {text}" for text in args.trials]
    milliseconds = args.emulate_step_ms
    options += [f"--emulate-step-ms {milliseconds:g}"] if milliseconds is not None else []
    steps, loader = portable_name(args.step or ""), portable_name(args.loader)
    return {"loader": loader, "step": steps, "options": " ".join(options)}


if __name__ == "__main__":
    sys.exit(command_line())
