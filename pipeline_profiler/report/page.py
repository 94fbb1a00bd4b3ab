"""The HTML report: one self-contained page, no script, nothing fetched.

The page and its style are plain files beside this one (page.html, page.css), so that they can be
edited and read as what they are; both are put into the page when it is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from pipeline_profiler.report.section import Section


def render_page(sections: Sequence[Section]) -> str:
    """The page over these sections."""
    here = files(__package__)
    template = Template((here / "page.html").read_text(encoding="utf-8"))
    style = (here / "page.css").read_text(encoding="utf-8")
    return template.substitute(style=style, body="\n".join(map(_section, sections)))


def _section(s: Section) -> str:
    # the first line of the verdict is what a reader came for
    lead = ' class="lead"' if s.title == "Verdict" else ""
    lines = [f"<p{'' if i else lead}>{escape(line)}</p>" for i, line in enumerate(s.lines)]
    return "".join([f"<h2>{escape(s.title)}</h2>", *lines, s.chart, _table(s)])


def _table(s: Section) -> str:
    if not s.rows:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in s.head)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_inline(cell)}</td>' for cell in row)}</tr>" for row in s.rows
    )
    kind = ' class="wide"' if s.wide else ""
    return f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _inline(text: str) -> str:
    """Escaped, with `commands` in code type."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
