"""`audit serve`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from audit.cli.options import option, print_lines, quoted, write_note
from audit.errors import UsageError

HOST = "127.0.0.1"


def serve_command(
    folder: Annotated[
        Path, typer.Argument(help="Folder with datasets.toml and people.sqlite.")
    ] = Path(),
    init: Annotated[
        bool, option("--init", "Write datasets.toml from the runs below FOLDER.")
    ] = False,
    invite: Annotated[str | None, option("--invite", "Print a link for a person, once.")] = None,
    role: Annotated[
        str, option("--role", "Role of the invited person: viewer, reviewer or admin.")
    ] = "viewer",
    days: Annotated[
        int, option("--days", "Validity of the invitation, in days.", min=1, max=3650)
    ] = 90,
    withdraw: Annotated[
        str | None, option("--withdraw", "Revoke the link and sessions of a person.")
    ] = None,
    people: Annotated[
        bool, option("--people", "List the invited people and the expiry dates.")
    ] = False,
    forget: Annotated[
        str | None,
        option("--forget", "Delete the data of a dataset, or the links of a person."),
    ] = None,
    port: Annotated[int, option("--port", "Port, also of the links.", min=1, max=65535)] = 8501,
    address: Annotated[
        str, option("--address", "Addresses other than 127.0.0.1 need TLS or a proxy.")
    ] = HOST,
    url: Annotated[str, option("--url", "Public URL, such as https://audit.example.org.")] = "",
    tls_cert: Annotated[
        Path | None,
        option("--tls-cert", "File with the certificate chain, PEM.", exists=True),
    ] = None,
    tls_key: Annotated[
        Path | None, option("--tls-key", "File with its private key, PEM.", exists=True)
    ] = None,
    behind_proxy: Annotated[
        str, option("--behind-proxy", "Address of a proxy that authenticates people.")
    ] = "",
    proxy_header: Annotated[
        str,
        option("--proxy-header", "Header of the proxy with the name of an invited person."),
    ] = "X-Forwarded-User",
) -> None:
    """Serve the datasets of a folder to the people who are invited: the app, and an HTTP API.

    It answers on 127.0.0.1; from elsewhere: `ssh -L 8501:127.0.0.1:8501 HOST`, or TLS, or a proxy.
    """
    from audit.service.people import People
    from audit.ui.guard import PARAMETER
    from audit.ui.server import own_hosts, shown_host

    if sum(map(bool, (init, invite, withdraw, people, forget))) > 1:
        raise UsageError("Use only one of --init, --invite, --withdraw, --people and --forget.")
    scheme = "https" if tls_cert else "http"
    url = (url or f"{scheme}://{shown_host(address)}:{port}").rstrip("/")
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}: name the folder of the runs.")
    known = People(folder)
    if init:
        from audit.service.datasets import FILE, write_datasets

        added = write_datasets(folder)
        print_lines(f"{one.name}: {one.run}" for one in added)
        hint = f"No run below {folder} is new: `audit scan SOURCE --out {folder}/runs/NAME`."
        write_note(f"{folder / FILE} lists the datasets, and who may see them." if added else hint)
    elif invite is not None:
        print_lines([f"{url}/?{PARAMETER}={known.invite(invite, role, days)}"])
        write_note(
            f"Link for {invite} ({role}), valid for {days} days. It is shown only once. The text "
            "after `token=` is the API token."
        )
    elif withdraw is not None:
        if not known.withdraw(withdraw):
            raise UsageError(f"There is no person {withdraw}: --people lists the invited people.")
        write_note(f"{withdraw} has no access now.")
    elif forget is not None:
        from audit.service.datasets import forget as forget_name

        gone = forget_name(folder, forget)
        print_lines(gone)
        if not gone:
            raise UsageError(
                f"There are no data of {forget}: datasets.toml and --people list the names."
            )
    elif people:
        print_lines(
            f"{one.name:<20} {one.role:<9} {one.at[:10]} to {one.expires[:10]}  "
            f"{one.browsers:,} browser{'s' * (one.browsers != 1)}"
            for one in known.invited()
        )
    else:
        from audit.service.datasets import read_datasets
        from audit.ui.server import become, command

        if bool(tls_cert) != bool(tls_key):
            raise UsageError("--tls-cert and --tls-key need each other: give both.")
        if not (own_hosts(address, port) or tls_cert or behind_proxy):
            raise UsageError(
                f"On {address}, links and images would be sent unencrypted: give --tls-cert and "
                "--tls-key, or --behind-proxy ADDRESS, or leave --address out and connect by ssh."
            )
        if behind_proxy:
            try:
                ip_address(behind_proxy)
            except ValueError:
                raise UsageError(
                    f"{behind_proxy} is not an IP address: write an address such as 10.0.0.5."
                ) from None
        read_datasets(folder)
        if not known.invited():
            write_note(f"No person is invited yet: `audit serve {quoted(folder)} --invite NAME`.")
        more = {"cert": str(tls_cert or ""), "key": str(tls_key or "")}
        more |= {"folder": str(folder), "url": url, "proxy": behind_proxy, "header": proxy_header}
        become(command([], address, port, browser=False, service=more))
