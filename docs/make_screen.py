"""Write the screen of README.md: what `audit scan sample_data` ends with, from a real scan.

python docs/make_screen.py
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from audit.report import collect_report
from audit.report.screen import to_screen
from audit.scanning import scanning
from audit.sources import open_source

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from make_checks import rewritten  # noqa: E402

README = ROOT / "README.md"
BEGIN, END = "<!-- screen: generated -->\n", "<!-- end of screen -->"


def screen(run: Path) -> str:
    """Return the block: the screen of a run of sample_data, as if its run lay in `runs`."""
    report = replace(collect_report(run), run="runs/sample_data")
    return f"```text\n{to_screen(report, 100).rstrip()}\n```\n"


def main() -> None:
    """Scan and write."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        scanning.scan(open_source([str(ROOT / "sample_data")]), run)
        README.write_text(rewritten(README.read_text(), BEGIN, screen(run), END))


if __name__ == "__main__":
    main()
