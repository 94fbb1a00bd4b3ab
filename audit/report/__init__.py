"""The findings of a run as plain data (`Report`), and as text, Markdown, HTML, JSON and SARIF."""

from __future__ import annotations

from audit.report.documents import to_json
from audit.report.output import FORMATS, render, write_card, write_report
from audit.report.text import to_text
from audit.results.report_data import Report, ReportedFinding
from audit.results.run_report import PICTURED, collect_report, stream_findings

__all__ = [
    "FORMATS", "PICTURED", "Report", "ReportedFinding", "collect_report", "render",
    "stream_findings", "to_json", "to_text", "write_card", "write_report",
]  # fmt: skip
