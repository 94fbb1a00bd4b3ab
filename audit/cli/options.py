"""Options that several commands have, and the ways to print an answer."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.scanning.options import ScanOptions
from dataset_preflight.foundation import terminal
from dataset_preflight.foundation.settings import GlobalOptions
from dataset_preflight.foundation.terminal import visible

if TYPE_CHECKING:
    from audit.checking.config import Config


_given: ContextVar[GlobalOptions] = ContextVar("global_options")


def keep_global_options(options: GlobalOptions) -> None:
    """Keep the options of the program for the command that follows."""
    _given.set(options)


def global_options() -> GlobalOptions:
    """Return the options of the program that this call has."""
    return _given.get(GlobalOptions())


def read_config(expectations: Iterable[str] = ()) -> Config:
    """Return the settings of this call: `audit.toml`, then `--set`, then `--expect`."""
    from audit.checking.config import load_config

    given = global_options()
    return load_config(given.config, given.assignments, expectations)


SAY_THEMSELVES = ("report", "recheck", "verify")
"""Commands whose own output says where a run is not read as CURRENT names it."""


def note_version(run: Path) -> None:
    """Print why a run is read at another version than CURRENT names; nothing where it is not."""
    from audit.errors import AuditError
    from audit.run.run_version import current

    with contextlib.suppress(AuditError, OSError):  # the command itself says what is wrong
        version = current(run)
        if version is not None and version.notice:
            write_note(version.notice)


def _noted(context: typer.Context, run: Path | None) -> Path | None:
    if run is not None and context.info_name not in SAY_THEMSELVES:
        note_version(run)
    return run


def run_argument(meaning: str) -> Any:
    """Return the declaration of an argument that is a run."""
    return typer.Argument(help=meaning, callback=_noted)


RunArgument = Annotated[Path, run_argument("Run directory, as made by `audit scan`.")]


def scan_option(name: str, flag: str = "", panel: str | None = None, **more: Any) -> Any:
    """Return the declaration of an option of a scan, with its meaning as help."""
    meaning = ScanOptions.meaning(name)
    return typer.Option(flag or f"--{name}", help=meaning, rich_help_panel=panel, **more)


def option_group(title: str | None = None) -> Callable[..., Any]:
    """Return a function that declares options of a group of the help: flags, then the text."""

    def declare(*words: str, **more: Any) -> Any:
        *flags, text = words
        return typer.Option(*flags, help=text, rich_help_panel=title, **more)

    return declare


option = option_group()


ChecksOption = Annotated[str | None, scan_option("checks")]
SeedOption = Annotated[int, option("--seed", "Any integer; the same seed draws the same rows.")]
JsonOption = Annotated[bool, option("--json", "Print one JSON document on stdout.")]
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
    as_json: bool, document: Callable[[], Any], lines: Callable[[], Iterable[str]]
) -> None:
    """Print one JSON document (its text, or plain data), or lines for a person."""
    if as_json:
        made = document()
        text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, indent=1)
        terminal.write_parts([text, "\n"])
    else:
        print_lines(lines())
