"""`audit verify`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import JsonOption, RunArgument, print_answer, read_config
from preflight import terminal
from preflight.ending import ExitCode
from preflight.terminal import visible

if TYPE_CHECKING:
    from audit.scanning.verifying import Verification


def verify_command(
    run: RunArgument,
    repair: Annotated[
        bool, typer.Option("--repair", help="Restore files, or set aside what a scan rebuilds.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every file of a run for damage; exit code 1 for damage."""
    from audit.scanning.verifying import repair_run, verify_run

    try:
        verified = repair_run(run, lock=read_config().lock) if repair else verify_run(run)
    except OSError as error:
        place = f"{visible(str(error.filename))} " if error.filename else ""
        terminal.write_message(
            f"audit: {place}could not be read or written ({error.strerror or error}): check its "
            "disk and permissions, then verify again."
        )
        raise typer.Exit(ExitCode.NO_RESULT) from None
    print_answer(as_json, verified.document, lambda: _lines(verified))
    if verified.damaged:
        raise typer.Exit(ExitCode.FINDINGS)


def _lines(verified: Verification) -> list[str]:
    rows = [("part", "state", "")] + [(p.name, p.state, p.detail) for p in verified.parts]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"repaired: {text}" for text in verified.repaired]
    lines += [f"{n:<{widths[0]}}  {s:<{widths[1]}}  {text}".rstrip() for n, s, text in rows]
    for part in verified.damaged:
        lines.append(f"{part.name}: lost: {part.lost or 'nothing'}; rebuilt by {part.remade}.")
    if not verified.damaged:
        return [*lines, f"{verified.run} has no damage."]
    count = len(verified.damaged)
    fix = "" if verified.repaired else "; `--repair` restores what it can"
    return [*lines, f"{count} part{'s are' if count > 1 else ' is'} damaged{fix}."]
