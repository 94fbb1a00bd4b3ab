"""`audit needs`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import terminal
from audit.printable import visible

if TYPE_CHECKING:
    from audit.picture_needs import PictureNeeds, Version


def needs_command(
    run: Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")],
    margin: Annotated[
        float, typer.Option("--margin", help="Share of pictures that may be lost unnoticed.")
    ] = 0.02,
    pictures: Annotated[
        int, typer.Option("--pictures", min=1, help="Pictures to open, at most.")
    ] = 2000,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes (default: cores).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Tell how small the pictures may become, and whether colour, position and context matter."""
    from audit.executors import Processes, usable_cores
    from audit.measuring import Progress
    from audit.picture.preview import LIMITS, TIMEOUT_S
    from audit.picture_needs import find_needs
    from audit.progress import ProgressBar

    workers = Processes(jobs or usable_cores(), TIMEOUT_S, LIMITS.max_memory)
    with ProgressBar() as bar:
        found = find_needs(
            run, workers, LIMITS, margin=margin, most=pictures,
            advance=lambda done, total: bar(Progress("open", done, total)),
        )  # fmt: skip
    if as_json:
        terminal.write_parts([found.document(), "\n"])
    else:
        terminal.write_text("\n".join(map(visible, needs_lines(found))))


def needs_lines(found: PictureNeeds) -> list[str]:
    """Return what was found as lines for a terminal."""
    if found.reason:
        return [f"What the pictures need cannot be told: {found.reason}."]
    lines = [
        f"{found.pictures:,} pictures of {found.classes:,} classes, {found.independent:,} of them "
        f"independent; a cheap classifier on their vectors names {found.accuracy:.1%} rightly "
        f"(largest class: {found.largest_class:.1%}).",
        "",
        _verdict(found),
        "",
    ]
    return [
        *lines, *map(_row, (*found.sizes, *found.versions)), "",
        f"Loss in points of accuracy against the whole picture at {found.base} px, 95 % interval, "
        f"paired; a loss below {found.margin:.1%} counts as nothing. Sizes above {found.base} px "
        "were not tried. A larger network may use detail that this classifier does not.",
    ]  # fmt: skip


def _row(version: Version) -> str:
    return (
        f"  {version.name:<30} {version.accuracy:6.1%}   loss {100 * version.loss:5.1f} "
        f"({100 * version.loss_low:.1f} to {100 * version.loss_high:.1f})   {version.verdict}"
    )


def _verdict(found: PictureNeeds) -> str:
    if found.smallest == found.base:
        return f"Nothing smaller than {found.base} px is shown to lose nothing."
    saved = found.pixels / found.smallest**2
    sentence = (
        f"Pictures may be reduced to {found.smallest} px: {saved:,.0f} times fewer pixels than the "
        f"{found.pixels:,} of the median picture."
    )
    if found.decoded > 1:
        sentence += (
            f" A loader that decodes JPEGs scaled (Pillow's draft) makes {found.decoded} times "
            "fewer pixels before it resizes."
        )
    return sentence
