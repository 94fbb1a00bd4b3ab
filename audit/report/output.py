"""From a report to a file: the format is guessed from the extension, the file appears whole or not.

A report replaces only a report, never a part of a run or the dataset's own `annotations.json`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import UsageError
from audit.results.formatting import TITLE
from audit.results.report_data import SCHEMA, Report
from dataset_preflight.foundation.files import real, regular

if TYPE_CHECKING:
    import polars as pl

FORMATS = ("txt", "md", "html", "json", "sarif", "xml")
MARKED = 4096  # bytes at the head of a report within which it says what it is


def render(
    report: Report,
    format: str,  # noqa: A002 - the word users know
    *,
    pictures: bool = True,
) -> Iterator[str]:
    """Return the report in pieces as `txt`, `md`, `html`, `json`, `sarif` or `xml` (JUnit).

    `pictures`: whether a page embeds thumbnails. Raises UsageError for another format.
    """
    if format not in FORMATS:
        raise UsageError(
            f"A report cannot be written as {format!r}: use one of {', '.join(FORMATS)}."
        )
    if format == "txt":
        from audit.report.text import to_text

        examples = max((len(c.worst) for c in report.checks), default=0)
        return iter([to_text(report, examples=examples)])
    if format == "md":
        from audit.report.markdown import to_markdown

        return iter([to_markdown(report)])
    if format == "html":
        from audit.report.html_page import to_html
        from audit.report.thumbnails import make_thumbnails

        return iter([to_html(report, make_thumbnails(report) if pictures else ({}, 0))])
    from audit.report import documents

    made = {"json": documents.to_json, "sarif": documents.to_sarif, "xml": documents.to_junit}
    return made[format](report)


def write_report(report: Report, path: Path, kind: str = "", *, pictures: bool = True) -> Path:
    """Write the report to `path` as `kind`, by default that of its extension; return the path.

    `pictures`: whether a page embeds thumbnails. Raises UsageError for an unknown extension, a path
    that cannot be written, and a file that exists and is not a report.
    """
    kind = kind or path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(
            f"{path}: the report format {f'.{kind}' if kind else 'without extension'} is unknown. "
            f"Use one of the extensions {', '.join('.' + name for name in FORMATS)}."
        )
    _refuse_other_files(report, path)
    return _write_pieces(path, lambda: render(report, kind, pictures=pictures))


def write_card(report: Report, path: Path, licence: str = "") -> tuple[Path, Path]:
    """Write the data card to x.md and Croissant to x.croissant.json beside it; return both paths.

    `licence` is that of all files. Raises UsageError as `write_report`.
    """
    from audit.report.card import to_card, to_croissant
    from audit.report.documents import dumped
    from audit.results.run_report import collect_facts

    if path.suffix.lower() != ".md":
        raise UsageError(f"{path}: a data card is Markdown: use -o card.md.")
    beside = path.with_suffix(".croissant.json")
    for place in (path, beside):
        _refuse_other_files(report, place)
    facts = collect_facts(report, licence)
    _write_pieces(beside, lambda: iter([dumped(to_croissant(report, facts)), "\n"]))
    return _write_pieces(path, lambda: iter([to_card(report, facts, beside.name)])), beside


def _write_pieces(path: Path, pieces: Callable[[], Iterator[str]]) -> Path:
    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.writelines(pieces())

    write_whole(path, write)
    return path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Make the file appear whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        os.replace(part, path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror or error}): choose another path."
        ) from None
    finally:
        with suppress(OSError):
            part.unlink()


def write_table(path: Path, frame: pl.DataFrame) -> None:
    """Write a frame whole or not at all, as Parquet or CSV by the suffix."""

    def write(part: Path) -> None:
        with part.open("wb") as file:  # polars itself opens no path that is not valid UTF-8
            if path.suffix.lower() == ".csv":
                frame.write_csv(file)
            else:
                frame.write_parquet(file)

    write_whole(path, write)


def _refuse_other_files(report: Report, path: Path) -> None:
    run, place = real(Path(report.run)), real(path)
    if not place.parent.is_dir():
        raise UsageError(
            f"{place.parent} is not a folder: create it, or choose another folder with -o."
        )
    if place.is_relative_to(run) and place.parent != run:
        raise UsageError(f"{path} is inside the run: choose another path with -o.")
    is_report = not place.exists()
    with suppress(OSError), open(place, "rb", opener=regular) as file:
        head = file.read(MARKED)
        is_report = not head or SCHEMA.encode() in head or head.startswith(TITLE.encode())
    if not is_report:
        raise UsageError(
            f"{path} exists and is not a report: choose another name with -o, or remove it."
        )
