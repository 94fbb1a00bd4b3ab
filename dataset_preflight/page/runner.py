"""Run the parts, and write the page after each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from audit.errors import UsageError
from dataset_preflight.foundation.ending import ExitCode
from dataset_preflight.foundation.steps import Outcome, read_outcomes, run_steps, write_outcomes
from dataset_preflight.foundation.terminal import write_message
from dataset_preflight.page.documents import Preflight, to_html, to_json
from dataset_preflight.page.parts import join_parts, last_line, make_steps
from dataset_preflight.page.rows import DATA, make_rows
from dataset_preflight.request import Request, check_request


def run_page(
    request: Request, progress: Callable[[str], None], command: str = "dataset-preflight"
) -> tuple[Preflight, bool]:
    """Run the parts; return the page, and whether it was interrupted. Written after each part."""
    request = check_request(request)
    began, folder = time.monotonic(), request.folder
    outcomes: dict[str, Outcome] = {}
    pages: list[Preflight] = []  # the newest is the last

    def write() -> None:
        if (scan := outcomes.get(DATA)) and scan.code == ExitCode.USAGE:
            raise UsageError(last_line(scan.output))
        rows = make_rows(join_parts(request, outcomes))
        subject = " · ".join(filter(None, (" ".join(request.data), request.name)))
        seconds, created = time.monotonic() - began, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        page = Preflight(rows, subject, request.run, command, seconds, created)
        if Path(request.run).is_dir():
            try:
                _save(page, folder, outcomes)
            except OSError as error:
                write_message(f"dataset-preflight: the page is not saved: {error.strerror}.")
        pages.append(page)

    before = read_outcomes(folder) if request.again else {}
    interrupted = run_steps(make_steps(request), before, outcomes, progress, after=write)
    if not pages:
        write()
    return pages[-1], interrupted


def _save(page: Preflight, folder: Path, outcomes: dict[str, Outcome]) -> None:
    folder.mkdir(exist_ok=True)
    write_outcomes(folder, outcomes)
    (folder.parent / "preflight.json").write_text(to_json(page))
    (folder.parent / "preflight.html").write_text(to_html(page))
