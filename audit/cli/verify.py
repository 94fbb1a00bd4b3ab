"""`audit verify`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import JsonOption, RunArgument, print_answer
from preflight import terminal
from preflight.ending import ExitCode
from preflight.terminal import visible

if TYPE_CHECKING:
    from audit.scanning.verifying import Verification


def verify_command(
    run: RunArgument,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Restore what can be; move aside what the next scan makes again."
        ),
    ] = False,
    as_json: JsonOption = False,
    lock: Annotated[
        bool, typer.Option("--lock/--no-lock", help="Keep other writers out during a repair.")
    ] = True,
) -> None:
    """Read every part of a run and tell what is damaged, what is lost and what makes it again."""
    from audit.scanning.verifying import repair_run, verify_run

    try:
        verified = repair_run(run, lock=lock) if repair else verify_run(run)
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
        lines.append(f"{part.name}: lost: {part.lost or 'nothing'}; made again by {part.remade}.")
    if not verified.damaged:
        return [*lines, f"{verified.run} is sound."]
    count = len(verified.damaged)
    fix = "" if verified.repaired else "; `--repair` restores what can be"
    return [*lines, f"{count} part{'s are' if count > 1 else ' is'} damaged{fix}."]
