"""The app behind secret links: `audit app` and `audit serve` start this process.

    python -m audit.ui.server SETTINGS -- RUN ...

SETTINGS is a JSON object: address, port (null: the first free from 8501 on), browser, read_only,
Streamlit options, folder (of `audit serve`, or null). Tokens are in no command line or environment.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import socket
import sys
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from audit.decisions.store import whoami
from audit.errors import MissingExtraError, RunError
from audit.service.people import REVIEWER, VIEWER, People
from audit.ui.guard import PARAMETER, Guard

if TYPE_CHECKING:
    from audit.service.api import Api


SCRIPT = Path(__file__).parents[2] / "dataset_preflight" / "app.py"
LIGHT = {
    "primaryColor": "#0b5c8a", "backgroundColor": "#fbfbfa", "secondaryBackgroundColor": "#ffffff",
    "textColor": "#1c1e21", "borderColor": "#dfe2e6",
}  # fmt: skip
DARK = {
    "primaryColor": "#7cc4f0", "backgroundColor": "#15171a", "secondaryBackgroundColor": "#1d2024",
    "textColor": "#e6e8eb", "borderColor": "#33383f",
}  # fmt: skip
CHARTS = '["#3b6fb6", "#c2762b", "#3f8f5f", "#8a5fb0", "#b3475e", "#7a7f87"]'


def options(address: str = "127.0.0.1", *, browser: bool = True) -> dict[str, str | bool | float]:
    """Return the options of Streamlit that the app runs with, each of its own type."""
    return {
        "server.address": address,
        "server.headless": not browser,
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        # Whole messages: Streamlit may refer to one that the browser has dropped.
        "global.minCachedMessageSize": 1e12,
        # No extra collection of garbage after each run of the script.
        "runner.postScriptGC": False,
        "theme.baseRadius": "small",
        "theme.chartCategoricalColors": CHARTS,
        **{f"theme.light.{name}": value for name, value in LIGHT.items()},
        **{f"theme.dark.{name}": value for name, value in DARK.items()},
    }


def command(
    words: Sequence[str],
    address: str = "127.0.0.1",
    port: int | None = None,
    *,
    browser: bool = True,
    read_only: bool = False,
    service: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command that serves runs or a folder; MissingExtraError without Streamlit."""
    _check(words)
    # Without a terminal's own browser window: the server opens one with the link.
    more = {"server.maxUploadSize": 1} if service else {}  # MB: no page of a service takes a file
    chosen = {
        "address": address, "port": port, "browser": browser, "read_only": read_only,
        "options": options(address, browser=False) | more, "service": service,
    }  # fmt: skip
    return [sys.executable, "-m", "audit.ui.server", json.dumps(chosen), "--", *words]


def _check(words: Sequence[str]) -> None:
    if importlib.util.find_spec("streamlit") is None:
        raise MissingExtraError("streamlit", "app")
    for word in words:
        if not Path(word).exists():
            raise RunError(
                f"There is nothing at {word}: give a run directory, as made by `audit scan`, or a "
                "saved profiler session."
            )


def become(line: list[str]) -> None:
    """Become what `command` returned: this process is replaced, so that Ctrl-C reaches it."""
    os.execv(line[0], line)


FIRST, TRIES = 8501, 100
ANY = ("0.0.0.0", "::", "")


def bound_socket(address: str, port: int | None) -> socket.socket:
    """Return a socket bound to the port, or to the first free one; raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    wanted = [port] if port is not None else range(FIRST, FIRST + TRIES)
    for number in wanted:
        one = socket.socket(family, socket.SOCK_STREAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((address, number))
        except OSError as error:
            one.close()
            if error.errno != errno.EADDRINUSE or number == wanted[-1]:
                raise
        else:
            return one
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def own_hosts(address: str, port: int) -> list[str]:
    """Return the names under which a browser may ask; none where other machines may come."""
    if address not in ("127.0.0.1", "localhost", "::1"):
        return []
    names = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
    return names + (["127.0.0.1", "localhost", "[::1]"] if port == 80 else [])


def shown_host(address: str) -> str:
    """Return the host of the link: this machine's name where the app answers on all addresses."""
    name = socket.gethostname() if address in ANY else address
    return f"[{name}]" if ":" in name else name


def in_clear(address: str, port: int) -> str:
    """Return what is said where other machines may come; "" where none may."""
    if own_hosts(address, port):
        return ""
    return (
        "Link, images and decisions travel in clear: whoever listens on the way can read them "
        f"and decide. Not so without --address: ssh -L {port}:127.0.0.1:{port} "
        f"{shown_host(address)}, and the link on 127.0.0.1.\n"
    )


def serve_guarded(settings: dict[str, Any], words: Sequence[str]) -> None:
    """Serve until a signal comes."""
    import streamlit as st
    import uvicorn
    from starlette.middleware import Middleware
    from streamlit.web import bootstrap

    # The app reads what it was started for where `streamlit run` leaves it.
    sys.argv = [str(SCRIPT), *words]
    address, read_only = settings["address"], settings["read_only"]
    listening = bound_socket(address, settings["port"])
    port = listening.getsockname()[1]
    bootstrap.load_config_options({**settings["options"], "server.port": port})
    service = settings["service"] or {}
    url = service.get("url") or f"http://{shown_host(address)}:{port}"
    api = _api(service.get("folder"))
    if api is not None:
        api.service.begin(f"{url}/")
    roles = () if api else (VIEWER,) if read_only else (REVIEWER, VIEWER)
    with _people_of(words, api) as people, people.serving(*roles) as tokens:
        links = [f"{url}/?{PARAMETER}={token}" for token in tokens]

        @contextlib.asynccontextmanager
        async def announcing(_: Any) -> AsyncIterator[None]:
            clear = "" if api else in_clear(address, port)
            sys.stdout.write(
                (_announced(links) if links else _announced_service(people, url)) + clear
            )
            sys.stdout.flush()
            with _opened(links[0]) if settings["browser"] else contextlib.nullcontext():
                yield

        own = own_hosts(address, port)
        named = [urlsplit(url).netloc] if service.get("url") else []
        guard = Middleware(
            Guard, people=people, port=port, hosts=own + named, read_only=read_only,
            suggested=whoami() if own else "", api=api, proxy=service.get("proxy", ""),
            header=service.get("header", ""), secure=url.startswith("https://"),
        )  # fmt: skip
        app = st.App(SCRIPT, middleware=[guard], lifespan=announcing)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=2,
            ws_max_size=200_000_000, server_header=False, ssl_certfile=service.get("cert") or None,
            ssl_keyfile=service.get("key") or None,
            proxy_headers=False,  # who a proxy says it is would hide that it is the proxy
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[listening])


def _api(folder: str | None) -> Api | None:
    if folder is None:
        return None
    from audit.service.api import Api
    from audit.service.datasets import Service
    from audit.service.routes import ROUTES

    return Api(Service(Path(folder)), ROUTES)


def _announced(links: Sequence[str]) -> str:
    """Return what is printed: the link to decide, where there is one, and the link to look on."""
    *deciding, looking = links
    first = [f"The app is at {link}\nWhoever has this link can decide.\n" for link in deciding]
    to_look = f"To look on, without deciding: {looking}\nCtrl-C ends it.\n"
    return "".join(first) + to_look


def _announced_service(people: People, url: str) -> str:
    names = ", ".join(f"{one.name} ({one.role})" for one in people.invited()) or "nobody yet"
    return (
        f"The service is at {url}/ for {names}.\n"
        "`audit serve --invite NAME` prints a link for another person. Ctrl-C ends it.\n"
    )


@contextlib.contextmanager
def _people_of(words: Sequence[str], api: Api | None) -> Iterator[People]:
    """Yield the people of a service, of the first run, or of this server alone."""
    if api is not None:
        yield api.service.people
        return
    for word in words:
        if (Path(word) / "CURRENT").is_file() and os.access(word, os.W_OK):
            yield People(Path(word))
            return
    with tempfile.TemporaryDirectory(prefix="audit-app-") as folder:
        yield People(Path(folder))


@contextlib.contextmanager
def _opened(link: str) -> Any:
    """Open the link through a file that only this user can read: `ps` shows what it opens."""
    number, name = tempfile.mkstemp(suffix=".html", prefix="audit-app-")
    with open(number, "w", encoding="utf-8") as file:
        file.write(f'<meta http-equiv="refresh" content="0;url={escape(link)}">')
    webbrowser.open(Path(name).as_uri())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def run_server(arguments: Sequence[str]) -> int:
    """Serve; returns the exit code."""
    settings, _, *words = arguments
    try:
        serve_guarded(json.loads(settings), words)
    except OSError as error:
        sys.stderr.write(f"audit: the app cannot be served there: {error.strerror or error}. ")
        sys.stderr.write("Choose another --port or --address.\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run_server(sys.argv[1:]))
