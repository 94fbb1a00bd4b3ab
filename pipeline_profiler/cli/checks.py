"""`check` and `explain`: parse, one call, format.

The target decides: a function, a file of `make_*` functions, a script after `--`, or logs. Exit
codes: 1 if a check failed, 3 if a check broke, 130 after Ctrl-C, with the results so far.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_preflight.foundation.ending import ExitCode, strongest
from pipeline_profiler.cli.arguments import PYTHON_HELP, YES_HELP, check_amount, split_words
from pipeline_profiler.cli.output import check_output, say, show, write_report
from pipeline_profiler.cli.runs import record_command
from pipeline_profiler.cli.settings import CheckSettings
from pipeline_profiler.cli.user_code import (
    mentioned,
    offered,
    refuse_empty,
    refuse_training,
    returns_training,
    spec_file,
    target,
)
from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.runs.entry import RunOutcome

if TYPE_CHECKING:
    from pipeline_profiler.checks.runner import CheckReport

SECONDS, QUICK_SECONDS = 120.0, 20.0
PARTS = ("loader", "model", "loss", "optimizer", "schedule")
MAKERS = tuple(f"make_{name}" for name in (*PARTS, "eval_loader"))
OFFERED = ("make_training", *MAKERS, "train_step", "evaluate", "split_batch", "reference")
NEEDED = ("make_loader", "make_model", "make_loss", "make_optimizer")
TRAINING_PARTS = (
    "{'model', 'loader', 'loss', 'optimizer'}, as make_training() does, or give the file alone, "
    "with make_loader, make_model, make_loss and make_optimizer(model)"
)
SCRIPT_FORM = "pipeline-profiler check -- {} --its-options"
LOG_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".log", ".txt")
TARGET_HELP = (
    "FILE.py:FUNCTION (returns a loader or a training), FILE.py with make_* functions, or logs "
    "(CSV, JSON lines, TensorBoard files, folders). Put a script after `--`"
)
IMAGES_HELP = "write images of real batches as they enter the model, with labels"
OUTPUT_HELP = "write the results as JSON (checks/1), or as a page (X.html, X.md)"


def add_checks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the commands."""
    p = commands.add_parser("check", help="test a loader, a training loop, a script or a log")
    p.add_argument("target", nargs="*", metavar="TARGET", help=TARGET_HELP)
    p.add_argument("--python", metavar="PATH", help=PYTHON_HELP)
    group = p.add_argument_group("for a loader")
    group.add_argument("--eval", metavar="FILE.py:FUNCTION", help="makes the evaluation loader")
    group.add_argument(
        "--evaluation", action="store_true", help="the loader itself is for evaluation"
    )
    group.add_argument(
        "--split", metavar="FILE.py:FUNCTION", help="split_batch(batch): inputs, targets"
    )
    group = p.add_argument_group("for a script after --")
    group.add_argument("--yes", action="store_true", help=YES_HELP)
    group = p.add_argument_group("checks and output")
    group.add_argument("--only", metavar="LIST", help="codes, prefixes or names of checks to run")
    group.add_argument("--skip", metavar="LIST", help="codes, prefixes or names to leave out")
    group.add_argument("--quick", action="store_true", help="within 20 s of CPU time")
    group.add_argument(
        "--seconds",
        type=float,
        help="CPU time instead of 120 s (quick: 20 s); at most 3 times that in all",
    )
    group.add_argument("--full", action="store_true", help="print every check, not the failed only")
    group.add_argument("--images", metavar="X.png", help=IMAGES_HELP)
    group.add_argument("-o", "--output", metavar="X.json", help=OUTPUT_HELP)
    group.add_argument("--json", action="store_true", help="one JSON document on stdout")
    group.add_argument("--diff", action="store_true", help="print short fixes as a patch")
    record_command(p)
    p.set_defaults(command=check_command, takes_script=True)
    page = commands.add_parser("explain", help="what a check does, why it matters, what to do")
    page.add_argument("code", metavar="CODE", help="such as LOAD001; LOAD, TRAIN or LOG lists them")
    page.set_defaults(command=explain_command, json=False)


@contextlib.contextmanager
def _prints_aside() -> Iterator[None]:
    """Send stdout to stderr, that of Python and that of the process."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
        except OSError:  # it is closed, which is said when there is a result
            yield
            return
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def check_command(args: argparse.Namespace) -> int:
    """Check the target by its kind; what the user's code prints goes to stderr."""
    with contextlib.ExitStack() as args.aside:
        args.aside.enter_context(_prints_aside())
        return _check_target(args)


def _check_target(args: argparse.Namespace) -> int:
    if args.script is not None:
        if args.target:
            raise ProfileError("Give a target, or a script after `--`, not both.")
        return _check_script(args)
    if not args.target:
        raise ProfileError(f"Name a target: {TARGET_HELP}.")
    if all(map(_is_log, args.target)):
        return _check_log(args)
    if len(args.target) > 1:
        raise ProfileError("Only logs are checked together: give one file or function.")
    spec = args.target[0]
    file, _, name = spec.rpartition(":")
    if not file.endswith(".py"):
        file, name = spec, ""
    try:
        is_loader = _is_loader(args, file, name)
        if not is_loader:
            _refuse_unfit(Path(file), name)
    except ProfileError as error:
        raise ProfileError(f"{error} A whole script: {SCRIPT_FORM.format(file)}.") from None
    if is_loader:
        return _check_loader(args, spec if name else f"{file}:make_loader")
    return _check_training(args, file, name)


def _is_log(target: str) -> bool:
    """Whether a target is a log of metrics: no Python file, and a log by its name or a folder."""
    path = Path(target)
    if path.suffix == ".py" or ".py:" in target:
        return False
    return path.is_dir() or path.suffix in LOG_SUFFIXES or "tfevents" in path.name


def _is_loader(args: argparse.Namespace, file: str, name: str) -> bool:
    """Return whether a function or file makes a loader, no training; ProfileError if unclear."""
    if args.eval or args.evaluation or args.split:
        return True
    if name:
        return name != "make_training" and not returns_training(file, name)
    there = mentioned(Path(file), OFFERED)
    return "make_loader" in there and not {"make_training", "make_model"} & set(there)


def _check_loader(args: argparse.Namespace, spec: str) -> int:
    from pipeline_profiler.checks.loader_subject import LoaderSubject, model_grid

    _check_shared(args, [spec, args.eval, args.split])
    mean, deviation, make_model = _declared(args, spec)
    seed, entered_at = args.settings.check.seed, dict[str, str]()
    subject = LoaderSubject(
        target(spec, "the loader"),
        _maybe_target(args.eval, "the loader"),
        evaluation=args.evaluation,
        classes=args.settings.check.classes,
        split=_maybe_target(args.split, "(inputs, targets)"),
        mean=mean,
        deviation=deviation,
        make_model=make_model,
        seed=seed,
        entered=_entered_by(_functions_of(str(spec_file(spec)), ""), seed, entered_at),
    )
    report = _run("LOAD", subject, args, "loader")
    makers = {"loader": subject.make_loader, "eval_loader": subject.make_eval}
    report.places = {name: _place_of(f) for name, f in makers.items()} | entered_at
    report.grid = model_grid(subject) if args.images or args.output else None
    return _finish(report, args, spec)


def _declared(
    args: argparse.Namespace, spec: str
) -> tuple[tuple[float, ...], tuple[float, ...], Callable[..., Any] | None]:
    """Return mean, deviation and model: of the settings, of `check.pretrained`, of the file."""
    from pipeline_profiler.checks.loader_subject import read_declaration

    check: CheckSettings = args.settings.check
    if not check.pretrained:
        return check.mean, check.std, offered(spec_file(spec), "make_model")
    if ".py:" in check.pretrained:
        return check.mean, check.std, target(check.pretrained, "the model")
    found = read_declaration(check.pretrained)
    return check.mean or found.mean, check.std or found.deviation, None


def _entered_by(
    functions: Mapping[str, Callable[..., Any]], seed: int, places: dict[str, str]
) -> Callable[[], tuple[list[Any], list[Any]]] | None:
    """Return a function for the augmented inputs of train_step; note the model call in `places`."""
    if "train_step" not in functions or any(name not in functions for name in NEEDED):
        return None
    make_loader = functions["make_loader"]

    def entered() -> tuple[list[Any], list[Any]]:
        from pipeline_profiler.checks.training_subject import TrainingSubject
        from pipeline_profiler.checks.user_code import call_with
        from pipeline_profiler.checks.user_training import made_from

        made = {"make_loader": lambda: call_with(make_loader, {}, "make_loader()")}
        factories = {**functions, **made}
        subject = TrainingSubject(made_from(factories), seed, functions=factories)
        places["model"] = subject.recorded.facts.places.get("model", "")
        return subject.recorded.entered()

    return entered


def _check_script(args: argparse.Namespace) -> int:
    from pipeline_profiler.cli.check_script import report_of_script
    from pipeline_profiler.profiling.monitor.launch import script_of

    _check_shared(args, [f"{word}:" for word in args.script])
    report = report_of_script(args, args.script, _seconds(args))
    report.kind = "script"
    return _finish(report, args, script_of(args.script))


def _check_training(args: argparse.Namespace, file: str, name: str) -> int:
    from pipeline_profiler.checks.keras_subject import choose_subject
    from pipeline_profiler.checks.loader_subject import LoaderSubject, model_grid
    from pipeline_profiler.cli.check_script import SHORTENED

    _check_shared(args, [f"{file}:{name}"])
    functions = _functions_of(file, name)
    _refuse_incomplete(functions, file)
    subject = choose_subject(functions, args.settings.check.seed)
    _choose_threads()
    if {"train_step", "evaluate", "make_training"} & functions.keys():
        say(SHORTENED)
    report = _run("TRAIN", subject, args, "training")
    report.places = {name.removeprefix("make_"): _place_of(f) for name, f in functions.items()}
    for note in subject.notes:
        say(note)
    if args.images or args.output:
        make_loader = functions.get("make_loader", lambda: subject.settings.loader)
        entered = _entered_by(functions, args.settings.check.seed, {})
        split = functions.get("split_batch")
        report.grid = model_grid(LoaderSubject(make_loader, split=split, entered=entered))
    return _finish(report, args, args.target[0])


def _refuse_unfit(path: Path, name: str) -> None:
    """Refuse a script or a training by its text before it runs."""
    there = [name] if name else mentioned(path, OFFERED)
    if not name:
        _refuse_incomplete(there, str(path))
    if name or "make_training" in there:
        refuse_training(path, name or "make_training", TRAINING_PARTS)
        return
    for maker in MAKERS:
        refuse_empty(path, maker, f"the {maker.removeprefix('make_')}")


def _refuse_incomplete(names: Collection[str], file: str) -> None:
    missing = [name for name in NEEDED if name not in names]
    # a compiled model of Keras brings its loss and its optimizer
    if set(missing) & {"make_loader", "make_model"} and "make_training" not in names:
        raise ProfileError(
            f"{file} has no {', '.join(missing)}: write them, or one make_training() that "
            "returns {'model', 'loader', 'loss', 'optimizer'}."
        )


def _check_log(args: argparse.Namespace) -> int:
    from pipeline_profiler.checks.log_subject import LogSubject, checkpoints_beside, read_logs

    _check_shared(args, [f"{path}:" for path in args.target])
    subject = LogSubject(read_logs(args.target), checkpoints=checkpoints_beside(args.target))
    report = _run("LOG", subject, args, "log")
    return _finish(report, args, " ".join(args.target))


def _choose_threads() -> None:
    """On a busy machine several threads of torch wait for each other: one is faster there."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    from dataset_preflight.foundation.cores import usable_cores

    cores = usable_cores()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    threads = min(torch.get_num_threads(), max(1, cores - round(load)))
    if threads < torch.get_num_threads():
        say(f"torch uses {threads} thread: the load of this machine is {load:.1f} on {cores} cores")
        torch.set_num_threads(threads)


def _functions_of(file: str, name: str) -> dict[str, Callable[..., Any]]:
    """The functions of a file by the names that are known; one named is make_training."""
    found = {known: function for known in OFFERED if (function := offered(file, known))}
    if name:
        found["make_training"] = target(f"{file}:{name}", TRAINING_PARTS)
    return found


def explain_command(args: argparse.Namespace) -> int:
    """Print the page of a check, or the list of a family."""
    from dataset_preflight.foundation.check_contract import page_of
    from pipeline_profiler.checks.check import FAMILIES, all_checks

    word = args.code.upper()
    if word in FAMILIES:
        rows = [f"{code}  {check.name}" for code, check in all_checks(word).items()]
        return show("\n".join(rows))
    check = {c.code: c for family in FAMILIES for c in all_checks(family).values()}.get(word)
    if check is None:
        raise ProfileError(
            f"No check has the code '{args.code}': LOAD, TRAIN or LOG lists the codes."
        )
    return show(page_of(check).rstrip())


def _check_shared(args: argparse.Namespace, specs: Sequence[str | None]) -> None:
    check_amount("--seconds", args.seconds)
    if args.images:
        check_output(args.images)
    if args.output:
        check_output(args.output, [f for s in specs if (f := spec_file(s))])


def _maybe_target(text: str | None, makes: str) -> Callable[..., Any] | None:
    return target(text, makes) if text else None


def _run(family: str, subject: Any, args: argparse.Namespace, kind: str) -> CheckReport:
    from pipeline_profiler.checks.check import select_checks
    from pipeline_profiler.checks.runner import ProgressLine, run_checks

    checks = select_checks(family, split_words(args.only), split_words(args.skip))
    progress = ProgressLine()
    report = run_checks(
        checks, subject, _seconds(args), args.settings.check.seed, progress=progress
    )
    progress.clear()
    report.kind = kind
    return report


def _place_of(function: Any) -> str:
    """Where a function of the user's stands, `/src/train.py:12`; '' where that is not known."""
    code = getattr(function, "__code__", None)
    return "" if code is None else f"{Path(code.co_filename).absolute()}:{code.co_firstlineno}"


def _seconds(args: argparse.Namespace) -> float:
    return float(args.seconds or (QUICK_SECONDS if args.quick else SECONDS))


def _finish(report: CheckReport, args: argparse.Namespace, name: str) -> ExitCode:
    from pipeline_profiler.checks import document

    if args.trace:
        for result in report.broken:
            say(f"{result.check.code}:\n{result.broken}")
    if args.output:
        blob = document.checks_file(report, name, args.output).encode()
        say(f"saved: {write_report(blob, args.output)}")
    if args.images:
        if report.grid is None:
            say("No images are written: the inputs are not images, or Pillow is not installed.")
        else:
            say(f"images: {write_report(report.grid, args.images)}")
    # of a log, the row has what its best checkpoint came to
    evidence = (result.answer.evidence for result in report.results)
    failed: Mapping[str, Any] = {"metric": "failed checks", "best": len(report.failed)}
    best = next((row for row in evidence if {"metric", "best"} <= row.keys()), failed)
    state, value = document.overall_state(document.counts_of(report)), float(best["best"])
    args.outcome = RunOutcome(state, len(report.results), best["metric"], value, args.output or "")
    args.aside.close()
    text = document.checks_text(report, name, args.full)
    if args.diff and not args.json:
        say(text)
        text = document.checks_diff(report)
    shown = show(document.checks_json(report, name) if args.json else text)
    # a script that made its steps went through: the errors are of calls by the checks
    through = report.kind == "script" and "a step of an optimizer" not in report.unreached
    users = [] if through else report.results
    return strongest(
        shown,
        ExitCode.FINDINGS if report.failed else ExitCode.CLEAN,
        ExitCode.USAGE if any(r.users for r in users) else ExitCode.CLEAN,
        ExitCode.BROKEN_PART if report.broken else ExitCode.CLEAN,
        ExitCode.INTERRUPTED if report.interrupted else ExitCode.CLEAN,
    )
