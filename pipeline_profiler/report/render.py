"""Sections -> text, Markdown, HTML (charts as inline SVG), JSON or a Perfetto trace.

A report is a list of sections made once from the session's results (report_sections.py); each
format only renders them. The format follows the file's extension.
"""

from __future__ import annotations

import gzip
import json
import re
import textwrap
from collections.abc import Callable
from html import escape
from pathlib import Path

from pipeline_profiler.record.session import ProfileError, Session
from pipeline_profiler.report import trace
from pipeline_profiler.report.section import Section
from pipeline_profiler.report.sections import sections

TEXT_WIDTH = 96


def to_text(session: Session) -> str:
    """Plain text for a terminal."""
    return "\n".join(_text_section(s) for s in sections(session))


def _text_section(s: Section) -> str:
    out = [s.title, "-" * len(s.title), *s.lines]
    if s.rows and s.wide:
        out += [line for row in s.rows for line in _block(s.head, row)]
    elif s.rows:
        cells = [s.head, *s.rows]
        widths = [min(60, max(len(row[i]) for row in cells)) for i in range(len(s.head))]
        out += [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells
        ]
    return "\n".join(out) + "\n"


def _block(head: tuple[str, ...], row: tuple[str, ...]) -> list[str]:
    """`1. PIPE001 slow-read, 49.5 % of the step (...)`, then cause and next, folded."""
    number, code, name, share, *sentences = row
    lines = [f"{number}. {code} {name}: {share} {head[3]}"]
    for word, sentence in zip(head[4:], sentences, strict=True):
        text = sentence if word == "cause" else f"{word}: {sentence}"
        lines += textwrap.wrap(
            text,
            TEXT_WIDTH,
            initial_indent="   ",
            subsequent_indent="   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def to_markdown(session: Session) -> str:
    """GitHub-flavoured Markdown."""
    out = []
    for s in sections(session):
        out += [f"## {s.title}", "", *(f"{line}  " for line in s.lines), ""]
        if s.rows:
            out.append("| " + " | ".join(s.head) + " |")
            out.append("|" + " --- |" * len(s.head))
            out += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in s.rows]
            out.append("")
    return "\n".join(out)


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1a1a1a;background:#fff}table{border-collapse:collapse;width:100%;font-size:14px}"
    "th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #ddd;vertical-align:top}"
    "figure{margin:.8rem 0}figcaption{font-size:13px;opacity:.75;margin-bottom:.2rem}"
    "svg{width:100%;height:auto}p{margin:.3rem 0}.lead{font-size:1.15rem;font-weight:600}"
    ".wide td:nth-child(4){min-width:7.5rem}code{font-size:.92em}"
    "@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}"
    "th,td{border-color:#444}}"
)


def to_html(session: Session) -> str:
    """One self-contained page: no script, nothing fetched."""
    body = []
    for s in sections(session):
        body.append(f"<h2>{escape(s.title)}</h2>")
        lead = ' class="lead"'
        body += [
            f"<p{lead if s.title == 'Verdict' and not i else ''}>{escape(line)}</p>"
            for i, line in enumerate(s.lines)
        ]
        body.append(s.chart)
        if s.rows:
            head = "".join(f"<th>{escape(c)}</th>" for c in s.head)
            rows = "".join(
                "<tr>" + "".join(f"<td>{_inline(c)}</td>" for c in row) + "</tr>" for row in s.rows
            )
            kind = ' class="wide"' if s.wide else ""
            body.append(f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>pipeline-profiler</title><style>{_STYLE}</style></head>"
        f"<body><h1>Pipeline profile</h1>{''.join(body)}</body></html>\n"
    )


def _inline(text: str) -> str:
    """Escaped, with `commands` in code type."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def to_json(session: Session) -> str:
    """The profile/1 document without the raw spans: what `run --json` prints."""
    document = session.to_json()
    del document["runs"]
    return json.dumps(document, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Session], str]] = {
    ".txt": to_text,
    ".md": to_markdown,
    ".html": to_html,
    ".json": to_json,
}


def write(session: Session, path: str) -> Path:
    """Write the report in the format of the extension; returns the path."""
    target = Path(path)
    if path.endswith((".trace.json.gz", ".trace.json")):
        blob = json.dumps(trace.build(session), separators=(",", ":")).encode()
        target.write_bytes(gzip.compress(blob, 6) if path.endswith(".gz") else blob)
        return target
    render = FORMATS.get(target.suffix)
    if render is None:
        raise ProfileError(
            f"No report format for '{target.name}': use {known_formats()} as the extension."
        )
    target.write_text(render(session), encoding="utf-8")
    return target


def known_formats() -> str:
    """The extensions that `write` knows."""
    return ", ".join([*FORMATS, ".trace.json.gz"])
