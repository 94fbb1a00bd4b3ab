"""The command line: parse, one call, format.

argparse, so that `--help` costs a few milliseconds and the tool runs on a GPU machine that has
torch, numpy and the standard library alone. Loaders and steps come from the user's file as
`train.py:make_loader`. Exit codes: 0 clean, 1 the --fail-on bound is exceeded, 2 usage error, 3 a
diagnosis rule failed and the others ran, 130 interrupted. `--json` prints exactly one document on
stdout; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pipeline_profiler.cli import precision
from pipeline_profiler.cli.user_code import target
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.session import ProfileError, Session

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    from pipeline_profiler.diagnose.verdict import Conclusion
    from pipeline_profiler.measure.arms import Bench, Options

DEFAULT_EMULATED_MS = 10.0
TRACE_HELP = "print the traceback of a diagnosis rule that failed"


def command_line(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = parser().parse_args(argv)
    try:
        return int(args.command(args))
    except ProfileError as error:
        return _stopped(error, args)
    except KeyboardInterrupt:
        print("Interrupted before anything was measured.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `report S | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _stopped(error: ProfileError, args: argparse.Namespace) -> int:
    """One sentence; a partial session with steps in it is saved and says so."""
    print(f"pipeline-profiler: {error}", file=sys.stderr)
    session = getattr(error, "session", None)
    if session is None:
        return 2
    if details := getattr(error, "details", ""):
        print(details, file=sys.stderr)
    code = 130 if getattr(error, "interrupted", False) else 2
    steps = (session.results.get("precision") or {}).get("visits")
    if not steps and not any(len(run.spans) for run in session.runs):
        print("Nothing was measured, so nothing is saved.", file=sys.stderr)
        return code
    path = session.save(getattr(args, "output", None) or "profile.json")
    print(f"The partial session is saved in {path}.", file=sys.stderr)
    print(f"Next: pipeline-profiler report {path}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(
        prog="pipeline-profiler",
        description="Find what keeps the accelerator waiting, how sure that is, and prove the fix.",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _measuring(commands, "run", run_command, "measure the arms, name the causes, save the session")
    _measuring(commands, "replay", replay_command, "the ceiling: the step fed with cached batches")
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
    precision.add(commands, _finish)
    show = commands.add_parser("report", help="render a session: text, html, md, json, trace")
    show.add_argument("session", help="a session file that `run` or another command saved")
    show.add_argument("-o", "--output", help="x.html, x.md, x.txt, x.json or x.trace.json.gz")
    show.add_argument("--fail-on", metavar="BOUND", help='e.g. "stall>20%%": exit code 1')
    show.add_argument("--trace", action="store_true", help=TRACE_HELP)
    show.set_defaults(command=report_command, json=False)
    two = commands.add_parser("compare", help="is B faster than A, and how sure is that")
    two.add_argument("a", help="the session before the change")
    two.add_argument("b", help="the session after it")
    two.add_argument("--json", action="store_true", help="one JSON document on stdout")
    two.set_defaults(command=compare_command)
    return top


def _measuring(
    commands: Commands, name: str, command: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    p = commands.add_parser(name, help=text)
    p.add_argument("loader", metavar="FILE.py:FUNCTION", help="makes the loader")
    p.add_argument("--step", metavar="FILE.py:FUNCTION", help="makes the step: step(batch)")
    p.add_argument("--emulate-step-ms", type=float, metavar="MS", help="a step that only sleeps")
    p.add_argument("--steps", type=int, default=300, help="timed steps an arm (default 300)")
    p.add_argument("--repeats", type=int, default=5, help="repeats of each arm (default 5)")
    p.add_argument("--quick", action="store_true", help="within 30 s, wider intervals")
    p.add_argument("--seconds", type=float, help="time budget instead of 105 s (quick: 25 s)")
    p.add_argument("--cold", action="store_true", help="add the cold-cache arm (opt-in)")
    p.add_argument("--files", default="", metavar="GLOB", help="files the cold arm evicts")
    p.add_argument("--seed", type=int, default=0, help="order of the arms (default 0)")
    p.add_argument("-o", "--output", default="profile.json", help="session file")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    p.add_argument("--fail-on", metavar="BOUND", help='e.g. "stall>20%%": exit code 1')
    p.add_argument("--trace", action="store_true", help=TRACE_HELP)
    p.set_defaults(command=command)
    return p


# ------------------------------------------------------------------------------- commands


def run_command(args: argparse.Namespace) -> int:
    """Measure, diagnose, save, print."""
    from pipeline_profiler.diagnose.verdict import diagnose_session
    from pipeline_profiler.measure.schedule import measure_arms

    bench, options = _bench(args)
    session = measure_arms(bench, options)
    conclusion = diagnose_session(session)
    session.results = conclusion.as_results()
    if args.trace:
        _print_traces(conclusion)
    return _finish(session, args)


def replay_command(args: argparse.Namespace) -> int:
    """Measure the ceiling: the step fed with cached batches."""
    from pipeline_profiler.measure.tune import ceiling

    bench, options = _bench(args)
    return _finish(ceiling(bench, options), args)


def sweep_command(args: argparse.Namespace) -> int:
    """Measure every combination of the given settings beside its prediction."""
    from pipeline_profiler.measure import tune as tuning

    bench, options = _bench(args)
    axes: dict[str, Sequence[int]] = {
        "workers": _numbers(args.workers, "--workers"),
        "prefetch": _numbers(args.prefetch, "--prefetch"),
        "batch_size": _numbers(args.batch_size, "--batch-size"),
        "pin_memory": [bool(v) for v in _numbers(args.pin, "--pin")],
    }
    return _finish(tuning.sweep(bench, options, {k: v for k, v in axes.items() if v}), args)


def tune_command(args: argparse.Namespace) -> int:
    """Apply recommendations until none is worth more than the noise."""
    from pipeline_profiler.measure import tune as tuning

    bench, options = _bench(args)
    return _finish(tuning.tune_loader(bench, options), args)


def report_command(args: argparse.Namespace) -> int:
    """Render a saved session; judged where it has no results."""
    from pipeline_profiler.diagnose.verdict import diagnose_session
    from pipeline_profiler.report import render as reports

    session = Session.load(args.session)
    failed = session.results.get("failed_rules")
    missing = "verdict" not in session.results and bool(session.arm(Arm.WARM))
    # a saved session has no traceback: its rules are asked again where one is wanted
    if missing or (failed and args.trace):
        conclusion = diagnose_session(session)
        session.results |= conclusion.as_results() if missing else {}
        if args.trace:
            _print_traces(conclusion)
    if args.output:
        print(reports.write(session, args.output))
    else:
        print(reports.to_text(session))
    return _judge(session, args.fail_on)


def compare_command(args: argparse.Namespace) -> int:
    """Compare two saved sessions."""
    import json

    from pipeline_profiler.measure.tune import compare as comparing

    result = comparing(Session.load(args.a), Session.load(args.b))
    print(json.dumps(result) if args.json else result["sentence"])
    return 0


# ------------------------------------------------------------------------------- parsing


def _bench(args: argparse.Namespace) -> tuple[Bench, Options]:
    from glob import glob

    from pipeline_profiler.measure.arms import Bench, Options, emulated_step

    if args.step and args.emulate_step_ms is not None:
        raise ProfileError("Give --step or --emulate-step-ms, not both.")
    emulated = None if args.step else args.emulate_step_ms
    if not args.step and emulated is None:
        emulated = DEFAULT_EMULATED_MS
        _say(
            f"no --step: a step of {emulated:g} ms is emulated, and the verdict holds for that "
            "step only; choose another with --emulate-step-ms"
        )
    step = target(args.step)() if args.step else emulated_step(float(emulated or 0.0))
    if not callable(step):
        raise ProfileError(f"{args.step} returned {step!r}: it must return a function step(batch).")
    if args.steps < 10 or args.repeats < 1:
        raise ProfileError("--steps must be at least 10 and --repeats at least 1.")
    options = Options(
        steps=args.steps,
        repeats=args.repeats,
        quick=args.quick,
        cold=args.cold,
        files=tuple(sorted(glob(args.files, recursive=True))) if args.files else (),
        seed=args.seed,
        seconds=args.seconds,
        emulate_ms=emulated,
    )
    return Bench(target(args.loader), step, progress=_say), options


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ProfileError(f"{option} takes whole numbers with commas, not '{text}'.") from None


def bound(text: str) -> tuple[str, float]:
    """'stall>20%' -> ('stall', 0.2)."""
    name, sign, value = text.replace(" ", "").partition(">")
    try:
        number = float(value.rstrip("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        number, sign = 0.0, ""
    if name != "stall" or not sign:
        raise ProfileError(f"--fail-on takes a bound like \"stall>20%\", not '{text}'.")
    return name, number


SEVERITY = (130, 4, 2, 3, 1, 0)  # which exit code wins where several apply


def most_severe(*codes: int) -> int:
    """The exit code that a caller must hear of first."""
    return min(codes, key=SEVERITY.index)


def _judge(session: Session, fail_on: str | None) -> int:
    """3 with a failed rule; 1 when the whole interval lies above the bound, not its noise alone."""
    failed = 3 if session.results.get("failed_rules") else 0
    if not fail_on:
        return failed
    _, limit = bound(fail_on)
    low = (session.results.get("stall") or {}).get("low")
    return most_severe(failed, 1 if low is not None and low > limit else 0)


def _print_traces(conclusion: Conclusion) -> None:
    for failed in conclusion.failed_rules:
        print(f"rule {failed.rule}:\n{failed.trace}", file=sys.stderr)


def _finish(session: Session, args: argparse.Namespace) -> int:
    from pipeline_profiler.report import render as reports

    code = _judge(session, args.fail_on)
    path = session.save(args.output)
    if args.json:
        print(reports.to_json(session), end="")
    else:
        print(reports.to_text(session))
        print(f"saved: {path}   next: pipeline-profiler report {path} -o profile.html")
    return code


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(command_line())
