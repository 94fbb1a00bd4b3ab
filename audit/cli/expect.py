"""`audit expect`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import terminal
from audit.cli.exit_codes import ExitCode
from audit.printable import visible

if TYPE_CHECKING:
    from audit.expectations import JudgedExpectation

WORDS = {True: "met", False: "NOT MET", None: "CANNOT TELL"}


def expect_command(
    run: Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="File with [expect] (default ./audit.toml).")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Print an [expect] that this run meets, for audit.toml.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Tell whether a run is what audit.toml expects of it; exit code 1 where it is not."""
    from audit.checking.config import load_config
    from audit.errors import UsageError
    from audit.expectations import (
        SCHEMA,
        judge_expectations,
        parse_expectations,
        propose_expectations,
    )

    if write:
        terminal.write_text(propose_expectations(run))
        return
    expected = parse_expectations(load_config(config).expect)
    if not expected:
        raise UsageError(
            f"{config or 'audit.toml'} has no [expect]: `audit expect {run} --write` prints one to "
            "begin with."
        )
    found = judge_expectations(run, expected)
    if as_json:
        document = {"schema": SCHEMA, "run": str(run), "met": not unmet(found),
                    "expectations": [one.document() for one in found]}  # fmt: skip
        terminal.write_parts([json.dumps(document, ensure_ascii=False, indent=1), "\n"])
    else:
        write_outcomes(found)
    if unmet(found):
        raise typer.Exit(ExitCode.FINDINGS)


def unmet(found: Sequence[JudgedExpectation]) -> int:
    """How many are not met, or cannot be told."""
    return sum(one.met is not True for one in found)


def write_outcomes(found: Sequence[JudgedExpectation]) -> None:
    """Print a table of expectations, the unmet ones first."""
    terminal.write_text("\n".join(map(visible, _lines(found))))


def _lines(found: Sequence[JudgedExpectation]) -> Iterator[str]:
    yield f"{len(found) - unmet(found)} of {len(found)} expectations are met."
    width = max(len(one.expectation.title) for one in found)
    for one in sorted(found, key=lambda one: one.met is True):
        yield f"  {WORDS[one.met]:<12} {one.expectation.title:<{width}}  {one.said}"
