"""`pipeline-profiler check -- train.py ...`: an unmodified script is run, caught, checked.

The script runs in a process of its own, as under `watch`, until each training reached an evaluation
and its second epoch; the checks run there, on what was caught. Its stdout goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pipeline_profiler.checks import caught_run, held_back, held_by_copy
from pipeline_profiler.checks.caught_run import CheckOrder, chosen_checks, read_report
from pipeline_profiler.checks.runner import PATIENT, CheckReport
from pipeline_profiler.cli.arguments import split_words
from pipeline_profiler.cli.output import say
from pipeline_profiler.profiling.monitor.hook.sitecustomize import WANTED
from pipeline_profiler.profiling.monitor.interpreter import lent_packages
from pipeline_profiler.profiling.monitor.launch import HOOK, command_of, script_of, wait_for
from pipeline_profiler.profiling.monitor.process import WatchOrder
from pipeline_profiler.profiling.record.session import ProfileError

START_S = 120.0  # to import, and to read what it reads before its first batch
OFFLINE = {  # what keeps trackers from the network
    "WANDB_MODE": "offline", "WANDB_SILENT": "true", "NEPTUNE_MODE": "offline",
    "COMET_OFFLINE_DIRECTORY": ".", "COMET_START_ONLINE": "0", "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "offline", "MLFLOW_TRACKING_URI": "file:./mlruns",
    "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip
UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1"}  # for checks and precisions, which follow the graph
NAMED = 6  # of the files that are named
SHORTENED = "Figures that your code prints come from shortened runs: they are no results."


def report_of_script(args: argparse.Namespace, words: Sequence[str], seconds: float) -> CheckReport:
    """Run the script of a command line, return its results; ProfileError if none was captured."""
    only, skip = tuple(split_words(args.only)), tuple(split_words(args.skip))
    order = CheckOrder("", "", seconds, only, skip, args.settings.check.seed)
    chosen_checks(order)  # an unknown word is said before anything is started
    until = f"for at most {seconds:.0f} s of CPU with the checks"
    until = f"until its trainings reached a second epoch, {until}"
    code, told = run_script(words, order, args.yes, until)
    if told is None:
        raise ProfileError(
            f"{script_of(words)} ended with exit code {code}, and no step of an optimizer (torch), "
            "fit or tape.gradient (Keras) was seen. Write a file with make_loader, make_model, "
            "make_loss and make_optimizer(model), then run `pipeline-profiler check FILE.py`."
        )
    for note in (*told["notes"], *(f"Not caught: {text}." for text in told["missing"])):
        say(note)
    if told["error"]:
        say(told["error"])
    report = read_report(told)
    report.places, report.unreached = told["places"], tuple(told["unreached"])
    return report


def run_script(
    words: Sequence[str], order: CheckOrder, agreed: bool, until: str
) -> tuple[int, dict[str, Any] | None]:
    """Run a script with its changes held back; return its exit code and what its process left."""
    with tempfile.TemporaryDirectory(prefix="pipeline-profiler-", ignore_cleanup_errors=True) as at:
        with lent_packages() as home:
            order = replace(order, folder=os.path.realpath(at), home=home)
            code = run_held(command_of(words), order, agreed, until)
        told = _answers(Path(at))
        tell_held(Path(at))
    return code, told


def run_held(
    command: Sequence[str], order: CheckOrder | WatchOrder, agreed: bool, until: str
) -> int:
    """Run it below overlays that take its changes; in a copy of its folder without them."""
    say(
        f"Runs {shlex.join(command)} in {os.getcwd()} {until}. Trackers (wandb, mlflow, "
        "...) are offline; other network access is not blocked."
    )
    say(SHORTENED)
    if sys.platform == "linux":
        say("Its file changes go to a temporary layer and are discarded.")
        around = [sys.executable, "-I", str(Path(held_back.__file__)), order.folder]
        code = _run([*around, *command], order)
        if code != held_back.REFUSED:
            return code
    here, copy = os.getcwd(), f"{order.folder}/copy"
    linked = held_by_copy.copy_folder(here, copy)
    say("It runs in a copy of its folder. Changes of files elsewhere by Python are discarded, too.")
    risks = held_by_copy.uncovered(Path(here), script_of(command))
    for text in (*(f"{folder} (large, linked)" for folder in linked), *risks)[:NAMED]:
        say(f"Changes there may be real: {text}.")
    if risks and not agreed and not _agreed():
        raise ProfileError("It was not run: --yes runs it although some changes may be real.")
    hold = (f"{order.folder}/scratch", copy)
    inside = [copy + w.removeprefix(here) if _is_below(w, here) else w for w in command[1:]]
    hooks = {**(order.hooks or WANTED), **held_by_copy.HOOKS}
    return _run([command[0], *inside], replace(order, hold=hold, hooks=hooks), copy)


def _is_below(word: str, folder: str) -> bool:
    return word.startswith(folder + os.sep) and os.path.isfile(word)


def _agreed() -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        return False
    sys.stderr.write("Run it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _run(command: Sequence[str], order: CheckOrder | WatchOrder, folder: str | None = None) -> int:
    paths = os.pathsep.join([str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
    told = {"PYTHONPATH": paths, caught_run.VARIABLE: json.dumps(asdict(order))}
    told |= OFFLINE | ({} if isinstance(order, WatchOrder) else UNCOMPILED)
    child = subprocess.Popen(command, env={**os.environ, **told}, stdout=2, cwd=folder)
    ending = threading.Timer(START_S + PATIENT * order.seconds, child.terminate)
    ending.daemon = True
    ending.start()
    try:
        return wait_for(child)
    finally:
        ending.cancel()


def _answers(folder: Path) -> dict[str, Any] | None:
    """What the process that trained has left; of several the one with most answers."""
    found: list[dict[str, Any]] = [json.loads(p.read_text()) for p in folder.glob("*.json")]
    return max(found, key=lambda told: len(told["results"]), default=None)


def tell_held(folder: Path) -> None:
    """Say what was held back, and what was not."""
    held, log, copy = folder / "held.back", folder / "scratch.log", folder / "copy"
    if held.is_file():
        told = json.loads(held.read_text())
        changes, count, left = told["changes"], told["count"], told["not_held"]
    elif log.is_file():
        lines = dict.fromkeys(log.read_text(errors="replace").splitlines())
        changes = [line for line in lines if not line.startswith("!")]
        changes += held_by_copy.changes_of(os.getcwd(), str(copy))
        count, left = len(changes), [line[2:] for line in lines if line.startswith("!")]
    else:
        return
    changes.sort(key=lambda change: (change[:1] != "-", "/__pycache__/" in change))
    if count:
        named = ", ".join(_shortest(change) for change in changes[:NAMED])
        more = f" and {count - NAMED} more" if count > NAMED else ""
        say(f"Held back and thrown away: {named}{more} (+ written, - deleted).")
    if left:
        say(f"Not held back: {', '.join(left[:NAMED])}.")


def _shortest(change: str) -> str:
    sign, _, path = change.partition(" ")
    return f"{sign} {path.removeprefix(os.getcwd() + '/')}"
