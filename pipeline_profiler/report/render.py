"""Sections -> text, Markdown, HTML (charts as inline SVG) or JSON.

A report is a list of sections made once from the session's results (sections.py); each format only
renders them. The format follows the file's extension. The joined ranks of one job are a page too.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dataset_preflight.foundation.pages import render_page
from dataset_preflight.foundation.terminal import escape_controls
from pipeline_profiler.profiling.diagnose.window import Windows
from pipeline_profiler.profiling.monitor import ranks
from pipeline_profiler.profiling.monitor.conclusion import parts_line
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.report import sections
from pipeline_profiler.report.section import Section, name_files_once, share_text

TEXT_WIDTH, MIN_FOLD = 96, 32  # columns: a page, and its last column where the text is folded


def to_text(session: Session) -> str:
    """Plain text for a terminal."""
    return "\n".join(section_text(s) for s in sections.report_sections(session))


def section_text(s: Section) -> str:
    """A section as plain text."""
    # a line end inside a text must not begin what looks like a line of the report
    out = [s.title, "-" * len(s.title), *(line.replace("\n", "\n    ") for line in s.lines)]
    if s.rows and s.wide:
        out += [line for row in s.rows for line in _block(s.head, row)]
    elif s.rows:
        cells = [s.head, *s.rows]
        widths = [min(60, max(len(row[i]) for row in cells)) for i in range(len(s.head) - 1)]
        left = sum(widths) + 2 * len(widths)
        for *row, last in cells:
            head = "".join(f"{c.ljust(w)}  " for c, w in zip(row, widths, strict=True))
            if TEXT_WIDTH - left < MIN_FOLD:
                out += [head.rstrip(), *_folded(last, "    ", TEXT_WIDTH, hanging="")]
            else:
                out += _folded(f"{head}{last}", "", TEXT_WIDTH, hanging=" " * left) or [""]
    return "\n".join(out) + "\n"


def _block(head: tuple[str, ...], row: tuple[str, ...]) -> list[str]:
    """`1. PIPE001 slow-read, 49.5 % of the step (...)`, then cause and next, folded."""
    number, code, name, share, *sentences = row
    lines = [f"{number}. {code} {name}: {share} {head[3]}"]
    for word, sentence in zip(head[4:], sentences, strict=True):
        text = sentence if word == "cause" else f"{word}: {sentence}"
        lines += _folded(text, "   ", TEXT_WIDTH, hanging="")
    return lines


def to_markdown(session: Session) -> str:
    """GitHub-flavoured Markdown."""
    out = []
    for number, s in enumerate(sections.report_sections(session)):
        out += [f"{'##' if number else '#'} {s.title}", "", *(f"{line}  " for line in s.lines), ""]
        if s.rows:
            out.append("| " + " | ".join(s.head) + " |")
            out.append("|" + " --- |" * len(s.head))
            out += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in s.rows]
            out.append("")
    return "\n".join(out)


def to_html(session: Session) -> str:
    """One self-contained page: no script, nothing fetched."""
    return _page(sections.report_sections(session))


def _page(parts: Sequence[Section]) -> str:
    from markupsafe import Markup, escape

    def with_commands(cell: str) -> Markup:
        # a plain text: `re` would join pieces of markup, and that escapes them once more
        text = str(escape(escape_controls(cell)))
        text = re.sub(r"(?<=\d) (?=ms\b)", "\N{NO-BREAK SPACE}", text)
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", text))

    lines = [[with_commands(line) for line in s.lines] for s in parts]
    rows = [[[with_commands(cell) for cell in row] for row in s.rows] for s in parts]
    return render_page(
        "pipeline_profiler/report/page.html",
        escape_controls,
        title=parts[0].title,
        generator="pipeline-profiler",
        sections=list(zip(parts, lines, rows, strict=True)),
    )


def render_ranks(sessions: Sequence[Session]) -> str:
    """The joined ranks as one HTML page: the sentence, a bar a rank on one scale, the table."""
    from dataset_preflight.foundation.charts import stacked_bars

    joined, drawn = ranks.join_ranks(sessions), []
    for row in joined.rows:
        # milliseconds by part of a rank's mean step; they add up to it
        parts = {"loader wait": row.wait_ms, "own work": row.own_ms}
        parts["collective"] = row.collective_ms
        parts["together"] = max(0.0, row.period_ms - sum(parts.values()))
        drawn.append((str(row.rank), parts))
    chart = partial(stacked_bars, "Mean step of each rank", drawn, "ms")
    rows = tuple(map(ranks.rank_cells, joined.rows))
    sentence = ranks.ranks_sentence(joined)
    section = Section("Verdict", (sentence,), ranks.RANK_HEAD, rows, chart)
    return _page([Section("Pipeline profile"), section])


def to_json(session: Session) -> str:
    """The profile/1 document without the raw spans: what `run --json` prints."""
    document = session.to_json()
    del document["runs"]
    return json.dumps(document, allow_nan=False) + "\n"


TEXT_MARK = "pipeline-profiler report"  # tells our files from others, which are not replaced
MARKDOWN_MARK = f"<!-- {TEXT_MARK} -->"
FORMATS: dict[str, Callable[[Session], str]] = {
    ".txt": lambda session: f"{TEXT_MARK}\n\n{to_text(session)}",
    ".md": lambda session: f"{MARKDOWN_MARK}\n\n{to_markdown(session)}",
    ".html": to_html,
    ".json": to_json,
}


def check_format(path: str) -> None:
    """Raise ProfileError unless the extension is that of a format."""
    if Path(path).suffix not in FORMATS or path.endswith(".trace.json"):
        raise ProfileError(
            f"No report format for '{Path(path).name}': use {', '.join(FORMATS)} as the extension."
        )


def make_report(session: Session, path: str) -> bytes:
    """The report in the format of the extension, as bytes."""
    check_format(path)
    return escape_controls(FORMATS[Path(path).suffix](session)).encode()


# The end of a measurement: verdict, throughput, slowest line, two causes with what to do. `run` and
# `watch` end with it; everything else is `pipeline-profiler report`.

SHOWN = 2
SCREEN_LINES = 12  # two more name the file and the next command
SENTENCE_LINES, CAUSE_LINES, NEXT_LINES = 2, 2, 1
SOURCE = re.compile(r"^(\S+:\d+ \S+?): .*$", re.DOTALL)  # `loader.py:61 resize: the line`
CLAUSE_END = re.compile(r"[;,:] | \(")


def to_screen(session: Session, width: int = 96) -> str:
    """Return the verdict, the slowest line, the first causes and their fix, in SCREEN_LINES lines.

    Failed rules, the place of a hang and the table of `--try` may add lines.
    """

    def folded(*texts: str, indent: str = "") -> list[str]:
        return [line for text in texts for line in _folded(text, indent, width)]

    results = session.results
    if script := sections.script_sections(session):
        table = section_text(script[0]).splitlines()[2:]
        lines = [*folded(str(results["sentence"])), *table, *folded(*script[1].lines)]
        return "\n".join(lines) + "\n"
    shown, unsure = sections.split_causes(results.get("causes") or [])
    first, *others = [*sections.headline(session, Windows(session)), *sections.warnings(session)]
    loading, together = (
        name_files_once((results.get(name) or {}).get("sentence") or "")
        for name in ("loading", "together")
    )
    lines, last = folded(sections.deciding_condition(session), *others, loading), folded(together)
    shortest = len(fit_text(first, "", width, SENTENCE_LINES))
    room = SCREEN_LINES - shortest - len(lines) - len(last)
    causes = shown[: min(SHOWN, max(1, room // (1 + NEXT_LINES)))]
    for number, cause in enumerate(causes, 1):
        lines += _cause_lines(number, cause, width, room // len(causes) - NEXT_LINES)
    lines += last
    lines = [*fit_text(first, "", width, max(shortest, SCREEN_LINES - len(lines))), *lines]
    names = ", ".join(str(cause["name"]) for cause in unsure)
    extra = [
        folded(*sections.speed_up(session)),
        folded(sections.unexplained(session), indent="  "),
        folded(f"not shown to cost time: {names}" if unsure else "", indent="  "),
        parts_line(results.get("phases") or {}, session),
    ]
    for more in extra:
        lines += more if len(lines) + len(more) <= SCREEN_LINES else []
    sweep = sections.sweep_points(session)
    lines += [f"\n{section_text(sweep)}"] if sweep else []
    return "\n".join(lines).rstrip() + "\n"


def _cause_lines(number: int, cause: Mapping[str, Any], width: int, limit: int) -> list[str]:
    """Return a cause with its share in about `limit` lines, and what to do about it."""
    share = f", {share_text(cause)} of the step" if cause.get("share") is not None else ""
    text = f"{number}. {cause['code']} {cause['name']}{share}: {_without_source(cause)}"
    fix = fit_text(f"-> {name_files_once(cause['next'])}", "    ", width, NEXT_LINES)
    return [*fit_text(name_files_once(text), "  ", width, max(1, min(limit, CAUSE_LINES))), *fix]


def fit_text(text: str, indent: str, width: int, limit: int) -> list[str]:
    """Return a text folded into at most `limit` lines; clauses at its end are left out for that."""
    ends = [len(text), *(found.start() for found in reversed([*CLAUSE_END.finditer(text)]))]
    for end in ends:
        head = text[:end]
        if head.count("(") != head.count(")"):
            continue
        lines = _folded(head, indent, width)
        if lines and len(lines) <= limit:
            return lines
    return _folded(text, indent, width)


def _without_source(cause: Mapping[str, Any]) -> str:
    """Return the text of a cause, with the file, line and function of its place alone."""
    text, place = str(cause["cause"]), str((cause.get("evidence") or {}).get("at") or "")
    innermost = place.partition(" < ")[0]
    for whole in filter(None, (place, innermost)):
        text = text.replace(whole, SOURCE.sub(r"\1", innermost))
    return text


def _folded(text: str, indent: str, width: int, hanging: str = "  ") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + hanging,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
