"""`audit verify`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import terminal
from audit.cli.exit_codes import ExitCode
from audit.printable import visible

if TYPE_CHECKING:
    from audit.verifying import Verification


def verify_command(
    run: Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Restore what can be; move aside what the next scan makes again."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
    lock: Annotated[
        bool, typer.Option("--lock/--no-lock", help="Keep other writers out during a repair.")
    ] = True,
) -> None:
    """Read every part of a run and tell what is damaged, what is lost and what makes it again."""
    from audit.verifying import repair_run, verify_run

    try:
        verified = repair_run(run, lock=lock) if repair else verify_run(run)
    except OSError as error:
        place = f"{visible(str(error.filename))} " if error.filename else ""
        terminal.write_message(
            f"audit: {place}could not be read or written ({error.strerror or error}): check its "
            "disk and permissions, then verify again."
        )
        raise typer.Exit(ExitCode.NO_RESULT) from None
    if as_json:
        terminal.write_parts([verified.document(), "\n"])
    else:
        terminal.write_text("\n".join(map(visible, _lines(verified))))
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
