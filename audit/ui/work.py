"""The background worker: a scan, a re-check or a new folder, in a process of its own, reported as
lines of JSON.

    python -m audit.ui.work scan RUN SOURCE ...      python -m audit.ui.work recheck RUN
    python -m audit.ui.work apply RUN FOLDER copy|hardlink

Its own process, because a scan takes all cores and much memory and must be stoppable at any moment;
what it had measured is kept and the next scan goes on from there. When the app that started it is
gone, the pipe is closed and the work ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from audit import scanning
from audit.applying.application import HOWS, apply_plan
from audit.applying.planning import plan_dataset
from audit.checking.config import load_config
from audit.errors import AuditError
from audit.measuring import Progress
from audit.sources import open_source


def tell(**facts: Any) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def report_progress(step: Progress) -> None:
    """Tell where the work is."""
    tell(phase=step.phase, done=step.done, total=step.total, errors=step.errors)


def main(arguments: Sequence[str]) -> int:
    """Do the work; returns the exit code."""
    action, run, *source = arguments
    try:
        config = load_config(None)
        if action == "recheck":
            scanning.recheck(Path(run), config=config, progress=report_progress)
            tell(result="The checks ran again over what the scan had measured.")
            return 0
        if action == "apply":
            tell(result=make_folder(Path(run), Path(source[0]), source[1]))
            return 0
        opened = open_source(source, exclude=config.exclude, ignore=[Path(run)])
        done = scanning.scan(opened, Path(run), config=config, progress=report_progress)
        tell(result=said(done))
    except AuditError as error:
        tell(error=str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def make_folder(run: Path, folder: Path, how: str) -> str:
    """Make the decided dataset in a folder; its plan, and annotations, lie beside it."""
    path = folder.with_name(f"{folder.name}.plan.json")
    plan = plan_dataset(run, path, replace_file=True)
    chosen = next(h for h in HOWS if h == how)
    done = apply_plan(
        plan, folder, chosen, advance=lambda n, total: report_progress(Progress("apply", n, total))
    )
    there = f", {done.there:,} were there" if done.there else ""
    return f"{done.made:,} files made{there}; {path.name} beside the folder is their plan."


def said(done: scanning.ScanResult) -> str:
    """Return what a scan did, in words."""
    if done.unchanged:
        return f"Nothing changed since the last scan: {done.total:,} files, none read again."
    kept = f", {done.kept:,} unchanged" if done.kept else ""
    resumed = f", {done.resumed:,} resumed" if done.resumed else ""
    return f"{done.measured:,} files read{kept}{resumed}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
