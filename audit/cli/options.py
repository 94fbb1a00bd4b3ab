"""Options that several commands have, and the ways to print an answer.

The meanings of a scan's options are those of `audit.scanning.options`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from audit.scanning.options import ScanOptions
from preflight import terminal
from preflight.terminal import visible

RunArgument = Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")]


def scan_option(name: str, flag: str = "", **more: Any) -> Any:
    """Return the declaration of an option of a scan, with its meaning as help."""
    return typer.Option(flag or f"--{name}", help=ScanOptions.meaning(name), **more)


ChecksOption = Annotated[str | None, scan_option("checks")]
ConfigOption = Annotated[Path | None, scan_option("config")]
TraceOption = Annotated[
    bool, typer.Option("--trace", help="Print the traceback of what failed in this program.")
]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Any integer; the same seed draws the same rows.")
]
OwnOption = Annotated[list[Path] | None, scan_option("own")]
LockOption = Annotated[bool, scan_option("lock", "--lock/--no-lock")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
JobsOption = Annotated[int | None, scan_option("jobs", min=1)]


def quoted(run: Path) -> str:
    """Return a run as a word of a command line."""
    return shlex.quote(str(run))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to stdout; what is in a name can steer no terminal."""
    if shown := [visible(line) for line in lines]:
        terminal.write_text("\n".join(shown))


def write_note(text: str) -> None:
    """Print a line to stderr, likewise."""
    terminal.write_message(visible(text))


def print_answer(
    as_json: bool, document: Callable[[], str], lines: Callable[[], Iterable[str]]
) -> None:
    """Print one JSON document, or lines for a person."""
    if as_json:
        terminal.write_parts([document(), "\n"])
    else:
        print_lines(lines())
