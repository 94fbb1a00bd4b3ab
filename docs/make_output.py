"""Write the outputs of commands that README.md and the pages of docs show.

    python docs/make_output.py

A block between `<!-- output: COMMAND -->` and `<!-- end of output -->` is replaced by what the
command prints for a fresh scan of sample_data, 100 columns wide. `COMMAND | 12` keeps 12 lines.
A test fails when a block is stale.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from audit.report import collect_report
from audit.report.screen import to_screen
from audit.scanning import scanning
from audit.sources import open_source

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- output: (.+?) -->\n).*?(<!-- end of output -->\n)", re.DOTALL)
SCAN = "audit scan sample_data"
COLUMNS = 100


def output(command: str, run: Path) -> str:
    """Return what a command prints, with `run` in the place of runs/sample_data."""
    if command == SCAN:  # the run exists: its screen, without a second scan
        return to_screen(replace(collect_report(run), run="runs/sample_data"), COLUMNS)
    program, *words = shlex.split(command)
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "runs").mkdir()
        (Path(folder) / "runs/sample_data").symlink_to(run)
        (Path(folder) / "sample_data").symlink_to(ROOT / "sample_data")
        line = [sys.executable, "-m", program.replace("-", "_"), *words]
        ended = subprocess.run(
            line, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    if ended.returncode > 1:
        raise RuntimeError(f"{command} ended with exit code {ended.returncode}: {ended.stderr}")
    return ended.stdout


def rewritten(text: str, run: Path) -> str:
    """Return a page with all its outputs written again."""

    def block(found: re.Match[str]) -> str:
        command, _, lines = found[2].partition(" | ")
        shown = output(command, run).rstrip().splitlines()
        if lines and len(shown) > int(lines):
            shown = [*shown[: int(lines)], "..."]
        return f"{found[1]}```text\n" + "\n".join(shown) + f"\n```\n{found[3]}"

    return BLOCK.sub(block, text)


def main() -> None:
    """Scan and write."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        scanning.scan(open_source([str(ROOT / "sample_data")]), run)
        for page in PAGES:
            page.write_text(rewritten(page.read_text(), run))


if __name__ == "__main__":
    main()
