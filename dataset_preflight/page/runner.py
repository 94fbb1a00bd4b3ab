"""Run the parts, and write the page after each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from audit.errors import UsageError
from dataset_preflight.foundation.steps import Outcome, read_outcomes, run_steps, write_outcomes
from dataset_preflight.page.documents import Preflight, to_html, to_json
from dataset_preflight.page.parts import Request, join_parts, make_steps, result_folder
from dataset_preflight.page.rows import make_rows
from pipeline_profiler.profiling.monitor.launch import command_of


def default_run(root: str) -> str:
    """Return the folder of the results of a dataset, as `audit scan` chooses it."""
    return f"runs/{Path(root.partition('=')[2] or root).resolve().stem}"


def check_request(request: Request) -> Request:
    """Return the request; raises UsageError for input that no part can use."""
    if request.script and request.loader:
        raise UsageError("Give a script after `--` or --loader, not both.")
    if (request.step or request.step_ms) and not request.loader:
        raise UsageError("--step belongs to --loader FILE.py:FUNCTION: give it, too.")
    if any(word.endswith(".ipynb") for word in request.script):
        name = next(word for word in request.script if word.endswith(".ipynb"))
        raise UsageError(f"{name} is a notebook: run `jupyter nbconvert --to script {name}` first.")
    if len(request.data) > 1 and not all("=" in word for word in request.data):
        raise UsageError("Two datasets: look at one at a time, or name the splits: train=A test=B.")
    if request.script:
        command_of(list(request.script))
    return request


def run_page(
    request: Request, progress: Callable[[str], None], command: str = "dataset-preflight"
) -> tuple[Preflight, bool]:
    """Run the parts; return the page, and whether it was interrupted. Written after each part."""
    began, folder = time.monotonic(), result_folder(check_request(request))
    outcomes: dict[str, Outcome] = {}

    def write() -> Preflight:
        rows = make_rows(join_parts(request, outcomes))
        subject = " · ".join(filter(None, (" ".join(request.data), request.name)))
        seconds, created = time.monotonic() - began, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        page = Preflight(rows, subject, request.run, command, seconds, created)
        if Path(request.run).is_dir():
            folder.mkdir(exist_ok=True)
            write_outcomes(folder, outcomes)
            Path(request.run, "preflight.json").write_text(to_json(page))
            Path(request.run, "preflight.html").write_text(to_html(page))
        return page

    before = read_outcomes(folder) if request.again else {}
    interrupted = run_steps(make_steps(request), before, outcomes, progress, after=write)
    return write(), interrupted
