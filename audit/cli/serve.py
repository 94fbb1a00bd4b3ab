"""`audit serve`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import print_lines, quoted, write_note
from audit.errors import UsageError

HOST = "127.0.0.1"


def serve_command(
    folder: Annotated[
        Path, typer.Argument(help="Folder with datasets.toml and people.sqlite.")
    ] = Path(),
    init: Annotated[
        bool, typer.Option("--init", help="Write datasets.toml from the runs below FOLDER.")
    ] = False,
    invite: Annotated[
        str | None, typer.Option("--invite", help="Print a link for a person, once.")
    ] = None,
    role: Annotated[
        str, typer.Option("--role", help="Of the invited: viewer, reviewer or admin.")
    ] = "viewer",
    days: Annotated[
        int, typer.Option("--days", min=1, max=3650, help="How long the invitation holds.")
    ] = 90,
    withdraw: Annotated[
        str | None, typer.Option("--withdraw", help="End a person's link and browsers, at once.")
    ] = None,
    people: Annotated[
        bool, typer.Option("--people", help="List who was invited, and until when.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Port, also of the links.")
    ] = 8501,
) -> None:
    """Serve the datasets of a folder to the people who are invited: the app, and an HTTP API.

    It answers on 127.0.0.1; from elsewhere: `ssh -L 8501:127.0.0.1:8501 HOST`.
    """
    from audit.browse.people import People

    if sum(map(bool, (init, invite, withdraw, people))) > 1:
        raise UsageError("Give one of --init, --invite, --withdraw and --people at a time.")
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}: name the one that holds the runs.")
    known = People(folder)
    if init:
        _init(folder)
    elif invite is not None:
        from audit.ui.server import link_with

        print_lines([link_with(HOST, port, known.invite(invite, role, days))])
        write_note(
            f"This link is {invite}'s, as {role}, for {days} days, and is not shown again. What "
            "follows `token=` is the token for the API."
        )
    elif withdraw is not None:
        if not known.withdraw(withdraw):
            raise UsageError(f"Nobody here is called {withdraw}: --people lists who is invited.")
        write_note(f"{withdraw} is out.")
    elif people:
        print_lines(
            f"{one.name:<20} {one.role:<9} {one.at[:10]} to {one.expires[:10]}  "
            f"{one.browsers:,} browser{'s' * (one.browsers != 1)}"
            for one in known.invited()
        )
    else:
        from audit.service.datasets import read_datasets
        from audit.ui.server import serve

        read_datasets(folder)
        if not known.invited():
            write_note(f"Nobody can come in yet: `audit serve {quoted(folder)} --invite NAME`.")
        serve([], HOST, port, browser=False, folder=folder)


def _init(folder: Path) -> None:
    from audit.service.datasets import FILE, write_datasets

    added = write_datasets(folder)
    print_lines(f"{one.name}: {one.run}" for one in added)
    if not added:
        write_note(f"No run below {folder} is new: `audit scan SOURCE --out {folder}/runs/NAME`.")
    else:
        write_note(f"{folder / FILE} lists them; who may see which is said there.")
