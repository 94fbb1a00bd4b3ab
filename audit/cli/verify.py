"""`audit verify`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from audit.cli.options import JsonOption, RunArgument, print_answer
from dataset_preflight.foundation import terminal
from dataset_preflight.foundation.ending import ExitCode
from dataset_preflight.foundation.terminal import visible

if TYPE_CHECKING:
    from audit.scanning.verifying import Verification


def verify_command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Read every file of a run to its end; exit code 1 for damage."""
    from audit.scanning.verifying import verify_run

    try:
        verified = verify_run(run)
    except OSError as error:
        place = f"{visible(str(error.filename))} " if error.filename else ""
        terminal.write_message(
            f"audit: {place}could not be read ({error.strerror or error}): check its disk and "
            "permissions, then verify again."
        )
        raise typer.Exit(ExitCode.NO_RESULT) from None
    print_answer(as_json, verified.document, lambda: _lines(verified))
    if verified.damaged:
        raise typer.Exit(ExitCode.FINDINGS)


def _lines(verified: Verification) -> list[str]:
    rows = [("part", "state", "")] + [(p.name, p.state, p.detail) for p in verified.parts]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{n:<{widths[0]}}  {s:<{widths[1]}}  {text}".rstrip() for n, s, text in rows]
    lines += [
        f"{part.name}: lost: {part.lost or 'nothing'}; made again by {part.remade}."
        for part in verified.damaged
    ]
    if not verified.damaged:
        return [*lines, f"{verified.run} has no damage."]
    count = len(verified.damaged)
    return [*lines, f"{count} part{'s are' if count > 1 else ' is'} damaged."]
