"""Reports: a run as plain data, and that data as text, Markdown, HTML, JSON or SARIF.

    report = collect_report(run)     # contents.py: counts, worst examples, completeness; no pixels
    write(report, Path("x.html"))    # the format is guessed from the extension
    to_text(report, width, color)    # what a terminal shows

Renderers are functions of a `Report`, each in its own file: a new format is one more file and a
line in `output.FORMATS`. Only `html` opens images, for its thumbnails.
"""

from __future__ import annotations

from audit.report.collect import collect_report, stream_findings
from audit.report.contents import (
    SCHEMA,
    CheckSummary,
    Counts,
    Example,
    Member,
    Report,
    ReportedFinding,
)
from audit.report.document import to_json
from audit.report.output import FORMATS, render, write
from audit.report.text import to_text

__all__ = [
    "FORMATS", "SCHEMA", "CheckSummary", "Counts", "Example", "Member", "Report",
    "ReportedFinding",
    "collect_report", "render", "stream_findings", "to_json", "to_text", "write",
]  # fmt: skip
