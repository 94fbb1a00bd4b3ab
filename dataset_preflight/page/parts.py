"""The parts: their commands, the hashes of their inputs, and their results.

A part that crashes, hangs or is killed costs its row. Results stay in `RUN/preflight/`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from audit.errors import AuditError, RunError
from audit.results.results import open_results
from dataset_preflight.foundation.steps import Outcome, Step
from dataset_preflight.page.rows import (
    CODE,
    DATA,
    EVALUATION,
    PIPELINE,
    PRECISION,
    Joined,
    Row,
    State,
)
from dataset_preflight.request import Request, hash_inputs
from pipeline_profiler.checks.document import parse_checks
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.profiling.record.opened_files import read_opened
from pipeline_profiler.profiling.record.session import Session

QUICK_S, FULL_S = 20.0, 60.0  # of training in each part that runs the script
QUICK_CHECK_S, FULL_CHECK_S = 40.0, 120.0  # CPU time of the checks of a script
START_S = 120.0  # to import, and to the first batch
WALL_TIMES = 8.0  # wall time of a part beside its time of training
FILES = {DATA: "scan", PIPELINE: "measure", PRECISION: "precision", CODE: "check"}
HINTS = {  # of the last line of a script that failed: what the user can do
    "NVIDIA": "it needs a GPU, so run this command where you train",
    "CUDA": "it needs a GPU, so run this command where you train",
    "arguments are required": "give its arguments after `-- python train.py`",
    "EOFError": "it reads from the terminal, so give its input by a file: < answers.txt",
    "No module named": "name the Python of your training: `-- venv/bin/python train.py`",
}
ERROR = re.compile(r"^\s*[\w.]*(Error|Exception)\b|\berror: ", re.MULTILINE)
PROGRAMS = ("pipeline-profiler: ", "audit: ")
PROGRESS = ("Held back", "Not held back", "Runs ", "Its file changes", "It ran in", "Write a file")


def make_steps(request: Request) -> Iterator[Step]:
    """Yield the parts: a scan, and what a script, or a loader and a step, allow."""
    r, folder, python = request, request.folder, [sys.executable, "-P", "-m"]
    data, code = hash_inputs(r)
    seconds = QUICK_S if r.quick else FULL_S
    budget, quick = ["--seconds", f"{seconds:g}"], ["--quick"] * r.quick
    limit = START_S + WALL_TIMES * seconds if r.script else 0.0

    def step(
        row: str, *words: str, inputs: str = data and data + code, needs: Step | None = None
    ) -> Step:
        result = folder / f"{FILES[row]}.json"
        command = [*python, "audit" if row == DATA else "pipeline_profiler", *words]
        if row != DATA:
            end = command.index("--") if "--" in command else len(command)
            command[end:end] = ["-o", str(result)]
        return Step(row, command, limit * (row != DATA), inputs, result, needs)

    predictions = ["--predictions", r.predictions] if r.predictions else []
    scan = ["scan", *r.data, "--out", r.run, "--fail-on", "never", *predictions]
    yield step(DATA, *scan, inputs=data)
    if r.script:
        ends, files = ["--yes"] * r.yes + ["--", *r.script], str(folder / "opened.txt")
        watch = step(PIPELINE, "watch", *budget, "--quiet", "--files", files, *ends)
        yield watch
        # a change of the script rarely changes what a precision gains, and that is advice only
        yield step(PRECISION, "precision", *budget, *ends, inputs=data, needs=watch)
        checking = ["--seconds", f"{QUICK_CHECK_S if r.quick else FULL_CHECK_S:g}"]
        yield step(CODE, "check", *checking, *ends, needs=watch)
    elif r.loader:
        steps = ["--step", r.step] if r.step else []
        emulated = ["--emulate-step-ms", f"{r.step_ms:g}"] if r.step_ms else []
        yield step(PIPELINE, "run", r.loader, *steps, *emulated, *quick)
        if r.step:
            yield step(PRECISION, "precision", *steps, "--loader", r.loader, *budget)
        yield step(CODE, "check", r.loader, *quick)


def join_parts(r: Request, outcomes: Mapping[str, Outcome]) -> Joined:
    """Return the results that the parts left, and the rows of those that left none."""
    missing, found, folder = dict[str, Row](), dict[str, Any](), r.folder
    readers = {PIPELINE: _read_session, PRECISION: _read_session, CODE: _read_checks}
    names = {PIPELINE: "profile", PRECISION: "precision", CODE: "checks"}
    try:
        if (scan := outcomes.get(DATA)) and scan.code:
            raise RunError(last_line(scan.output) or f"Exit code {scan.code}.")
        found["results"] = open_results(Path(r.run))
    except (AuditError, OSError) as error:
        rows = (DATA, EVALUATION)
        missing |= {n: Row(n, State.SKIPPED, (str(error),), failed=str(error)) for n in rows}
    for row, name in names.items():
        outcome, path = outcomes.get(row), folder / f"{FILES[row]}.json"
        try:
            if outcome is None:
                raise ProfileError("not run")
            found[name] = readers[row](path)
        except (ProfileError, OSError, ValueError, KeyError, TypeError):
            missing[row] = _without_result(row, outcome, r)
    if r.script and PIPELINE in outcomes:
        found["opened"] = read_opened(folder / "opened.txt")
    return Joined(r.run, r.name, min_difference=r.min_difference, missing=missing, **found)


def _read_session(path: Path) -> Session:
    session = Session.load(path)
    if "verdict" not in session.results:
        raise ProfileError("no result")
    return session


def _read_checks(path: Path) -> dict[str, Any]:
    blob = path.read_bytes()
    parse_checks(blob, str(path))  # raises where it is none
    document: dict[str, Any] = json.loads(blob)
    return document


def _without_result(row: str, outcome: Outcome | None, r: Request) -> Row:
    """Return the row of a part that left no result: why, and what the user can do."""
    if outcome is None and not (r.script or r.loader):
        return Row(row, State.SKIPPED, ("Give a training: `-- python train.py`.",))
    if outcome is None and row == PRECISION and r.loader and not r.step:
        return Row(row, State.SKIPPED, ("Give a step: `--step FILE.py:make_step`.",))
    if outcome is None:
        why = "Not run: give the same command with --again."
        return Row(row, State.SKIPPED, (why,), failed=why)
    last = last_line(outcome.output)
    if outcome.code < 0:
        why = f"Ended after {outcome.seconds:.0f} s without a result. Last line: {last}"
        return Row(row, State.SKIPPED, (why,), failed=why)
    fails = outcome.code > 0 and bool(ERROR.search(outcome.output))
    if fails and row != CODE:
        why = f"{r.name} fails: see {CODE}."
        return Row(row, State.SKIPPED, (why,), failed=why)
    if row != CODE:  # nothing of the kind was seen in the time given
        state = State.INCONCLUSIVE if "ended after" in last else State.SKIPPED
        return Row(row, state, (last,))
    hint = next((text for words, text in HINTS.items() if words in last), "")
    why = f"{r.name}: {last}" + f" ({hint})" * bool(hint)
    return Row(row, State.SKIPPED, (why,), failed=why)


def last_line(output: str) -> str:
    """Return the last line that says something, errors first."""
    lines = output.replace("\r", "\n").splitlines()
    texts = [line.strip() for line in lines if line.strip() and not line.startswith(PROGRESS)]
    errors = [line for line in texts if ERROR.search(line)]
    ours = [line for line in texts if line.startswith(PROGRAMS)]
    last = (errors or ours or texts or [""])[-1]
    return last.removeprefix(PROGRAMS[0]).removeprefix(PROGRAMS[1])[:300]
