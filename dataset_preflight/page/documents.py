"""The page as a screen, as HTML, as JSON (`dataset-preflight/1`), as SARIF and as JUnit."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from audit.records import finite
from dataset_preflight.foundation.ci_documents import Level, NamedOutcome, junit_xml, sarif_log
from dataset_preflight.foundation.ending import ExitCode
from dataset_preflight.foundation.pages import render_page
from dataset_preflight.foundation.terminal import escape_controls
from dataset_preflight.page.rows import Row, State

SCHEMA = "dataset-preflight/1"
WIDTH, INDENT = 100, 22
ROW_LINES, BRIEF = 16, 2  # lines of all rows on the screen, and of a row without a thing to do
MARKS = {State.FIX: "FIX", State.GO: "go", State.INCONCLUSIVE: "?", State.SKIPPED: "-"}
LEVELS: dict[State, Level] = {
    State.FIX: "error", State.INCONCLUSIVE: "warning", State.SKIPPED: "skipped", State.GO: "",
}  # fmt: skip


@dataclass(frozen=True)
class Preflight:
    """The answer: may this training start? `subject`: data and script; `run`: the folder."""

    rows: tuple[Row, ...]
    subject: str
    run: str
    command: str
    seconds: float
    created: str

    @property
    def first(self) -> list[Row]:
        """The rows to fix first."""
        return [row for row in self.rows if row.state is State.FIX]

    @property
    def answer(self) -> str:
        """The answer in one line."""
        if self.first:
            return f"fix first: {len(self.first)} of {len(self.rows)} rows"
        rest = [f"{n} {s}" for s in State if (n := sum(r.state is s for r in self.rows))]
        return ", ".join(rest)

    def exit_code(self, strict: bool = False) -> ExitCode:
        """Return 3 where a part could not run, 1 with a row to fix first, else 0."""
        if any(row.failed for row in self.rows):
            return ExitCode.BROKEN_PART
        open_rows = any(row.state is not State.GO for row in self.rows)
        return ExitCode.FINDINGS if self.first or (strict and open_rows) else ExitCode.CLEAN

    def document(self) -> dict[str, Any]:
        """Return the content of the JSON document."""
        head = {"schema": SCHEMA, "answer": self.answer, "exit_code": int(self.exit_code())}
        return head | asdict(self)

    def _repr_html_(self) -> str:
        return to_html(self)

    def __str__(self) -> str:
        return to_screen(self)


def to_screen(page: Preflight) -> str:
    """Return the answer, the rows and the next command: at most 20 lines of 100 columns."""
    head = f"{page.answer}    {page.subject} · {_duration(page.seconds)}"
    brief = [row for row in page.rows if row.state not in (State.FIX, State.INCONCLUSIVE)]
    each = (ROW_LINES - BRIEF * len(brief)) // max(1, len(page.rows) - len(brief))
    lines = [textwrap.shorten(head, WIDTH, placeholder=" ..."), ""]
    for row in page.rows:
        lines += _row_lines(row, BRIEF if row in brief else each)
    again = f"report: {page.run}/preflight.html    again after a fix: {page.command}"
    return escape_controls("\n".join([*lines, "", again]))


def _row_lines(row: Row, most: int) -> Iterator[str]:
    """Yield at most so many lines; the last is the next command, where there is something to do."""
    todo = row.state in (State.FIX, State.INCONCLUSIVE) and bool(row.commands)
    texts = [line for s in row.sentences for line in textwrap.wrap(s, WIDTH - INDENT)]
    if len(texts) > most - todo:
        texts = texts[: most - todo]
        texts[-1] = textwrap.shorten(
            f"{texts[-1]} {'x' * WIDTH}", WIDTH - INDENT, placeholder=" ..."
        )
    if todo:
        texts.append(textwrap.shorten(f"-> {row.commands[0]}", WIDTH - INDENT, placeholder=" ..."))
    head = f"{MARKS[row.state]:<4}  {row.name:<14}  "
    yield from (f"{' ' * INDENT if n else head}{text}" for n, text in enumerate(texts))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def to_html(page: Preflight) -> str:
    """Return one HTML page without scripts."""
    return render_page(
        "dataset_preflight/page/page.html", escape_controls, title=page.answer, page=page,
        generator="dataset-preflight", duration=_duration(page.seconds),
    )  # fmt: skip


def to_json(page: Preflight) -> str:
    """Return the document `dataset-preflight/1`."""
    return json.dumps(finite(page.document()), indent=1, allow_nan=False) + "\n"


def to_sarif(page: Preflight) -> str:
    """Return a SARIF log: a result for each row that is not *go*."""
    return sarif_log("dataset-preflight", page.run, _outcomes(page))


def to_junit(page: Preflight) -> str:
    """Return JUnit XML: a test case for each row."""
    return junit_xml("dataset-preflight", _outcomes(page))


def _outcomes(page: Preflight) -> list[NamedOutcome]:
    return [NamedOutcome(r.name, LEVELS[r.state], "\n".join(r.sentences)) for r in page.rows]


FORMATS: dict[str, Callable[[Preflight], str]] = {
    ".html": to_html, ".json": to_json, ".sarif": to_sarif, ".xml": to_junit, ".txt": to_screen,
}  # fmt: skip
