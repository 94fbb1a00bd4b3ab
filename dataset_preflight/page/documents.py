"""The page as a screen, as HTML, as JSON (`dataset-preflight/1`), as SARIF and as JUnit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from textwrap import shorten, wrap
from typing import Any

from audit.records import finite
from dataset_preflight.foundation.ci_documents import Level, NamedOutcome, junit_xml, sarif_log
from dataset_preflight.foundation.ending import ExitCode
from dataset_preflight.foundation.pages import render_page
from dataset_preflight.foundation.terminal import escape_controls
from dataset_preflight.page.rows import Row, State

SCHEMA = "dataset-preflight/1"
WIDTH, INDENT = 100, 22
ROW_LINES, BRIEF = 16, 2  # lines of all rows on the screen, and of a row at least
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
    lines = [_cut(head, WIDTH), ""]
    for row, texts in zip(page.rows, _row_lines(page.rows), strict=True):
        name = f"{MARKS[row.state]:<4}  {row.name:<14}  "
        lines += [f"{' ' * INDENT if n else name}{text}" for n, text in enumerate(texts)]
    again = f"report: {page.run}/preflight.html    again after a fix: {page.command}"
    return escape_controls("\n".join([*lines, "", again]))


def _row_lines(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the lines of each row; those that are left over go to the rows to fix first."""
    texts = [[line for s in row.sentences for line in wrap(s, WIDTH - INDENT)] for row in rows]
    todo = [row.state in (State.FIX, State.INCONCLUSIVE) and bool(row.commands) for row in rows]
    shown = [min(len(text), BRIEF) for text in texts]
    left = ROW_LINES - sum(shown) - sum(todo)
    for n in sorted(range(len(rows)), key=lambda n: rows[n].state is not State.FIX) * ROW_LINES:
        if left > 0 and shown[n] < len(texts[n]):
            shown[n], left = shown[n] + 1, left - 1
    for row, text, most, command in zip(rows, texts, shown, todo, strict=True):
        cut = [_cut(f"{text[most - 1]} {'x' * WIDTH}")] if len(text) > most else text[most - 1 :]
        yield [*text[: most - 1], *cut, *([_cut(f"-> {row.commands[0]}")] if command else [])]


def _cut(text: str, width: int = WIDTH - INDENT) -> str:
    return shorten(text, width, placeholder=" ...")


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
