"""Restrict access to the app: only browsers with a link to it, no other page or program.

The first visit exchanges the token of a link for a cookie (`audit.service.people`). The guard
checks the host name (DNS rebinding) and the origin of each request. It cannot stop programs of the
same user, and cookies are shared between ports of a host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from audit.errors import AuditError
from audit.service.people import LONGEST, VIEWER, People, Person

if TYPE_CHECKING:
    from audit.service.api import Api
    from audit.service.datasets import Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PARAMETER = "token"
API = "/api/"
OPEN = ("/_stcore/health",)  # says that the server is up, and nothing else
NAMING = "/who"  # the page that asks for a name
REMEMBERED = "audit-app-name"  # the cookie with the name, of all apps under this host
REMEMBERED_S = 365 * 24 * 3600
MOST_BYTES = 4096  # of a form
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'; "
    "object-src 'none'; base-uri 'self'; form-action 'self'"
)
NO_LINK = (
    "This app needs its link: open the link that `audit app` printed in its "
    "terminal, or start it again.\n"
)
NOT_INVITED = (
    "This service needs an invitation: open your link again, or ask an admin for a new link, "
    "which `audit serve --invite NAME` prints.\n"
)
OTHERS = "This app does not answer other sites.\n"
NO_NAME = "Enter your name first: open the app in a browser.\n"
_COOKIE = re.compile(r"(?:^|;)\s*([^=;\s]+)=([^;]*)")
# Of this process: Streamlit runs the script again and again, and a module only once.
_served: list[Guard] = []
_mentioned: list[bool] = []


def mention_the_link() -> None:
    """Say once a process, on stderr, what `audit app` adds; nothing where it serves."""
    if not _served and not _mentioned:
        _mentioned.append(True)
        sys.stderr.write(
            "This server answers every user of this machine; `audit app RUN ...` opens the same "
            "app to the holder of a secret link only.\n"
        )


def serving() -> Guard | None:
    """Return the guard of this process, None where the app is served without one."""
    return _served[-1] if _served else None


def served() -> Service | None:
    """Return what `audit serve` serves in this process, None in any other."""
    api = _served[-1].api if _served else None
    return api.service if api else None


class Guard:
    """An ASGI layer: passes on requests with a person's cookie, answers the rest itself.

    `hosts`: allowed names with port (empty: any). `suggested`: the proposed name. `read_only`:
    everybody looks on. `api`: that of `audit serve`. `proxy`: the only client address; `header`:
    its header with the invited person. `secure`: https.
    """

    def __init__(
        self, app: App, people: People, port: int, hosts: Collection[str] = (),
        suggested: str = "", *, read_only: bool = False, api: Api | None = None,
        proxy: str = "", header: str = "", secure: bool = False,
    ) -> None:  # fmt: skip
        self._app, self._people, self._suggested = app, people, suggested
        self._cookie = f"audit-app-{port}"
        self._hosts = frozenset(host.lower() for host in hosts)
        self._read_only, self.api = read_only, api
        self._proxy, self._header, self._secure = proxy, header.lower(), secure
        _served.append(self)

    def person(self, cookies: Mapping[str, str], headers: Mapping[str, str]) -> Person | None:
        """Return the person of these cookies and (lower-case) headers, None without access."""
        if self._proxy:
            return self._people.named(headers.get(self._header, ""))
        found = self._people.identify(cookies.get(self._cookie, ""))
        return replace(found, role=VIEWER) if found and self._read_only else found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request or connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        cookies: dict[str, str] = dict(_COOKIE.findall(headers.get("cookie", "")))
        who = partial(self.person, cookies, headers)
        asks = scope["type"] == "http" and scope.get("method") in ("GET", "HEAD")
        is_api = scope["type"] == "http" and scope["path"].startswith(API)
        if not self._is_own(scope, headers):
            await _refuse(scope, send, OTHERS, self.api if is_api else None)
        elif is_api and self.api:
            await self.api(scope, receive, send)
        elif scope["path"] in OPEN:
            await self._app(scope, receive, _with_policy(send))
        elif asks and (token := self._admitted(scope, cookies)):
            await self._exchange(scope, headers, send, token)
        elif (person := who()) is None:
            await _refuse(scope, send, NOT_INVITED if self.api else NO_LINK)
        elif scope["type"] == "http" and scope["path"] == NAMING and not self._proxy:
            await self._name(scope, receive, send, cookies, person)
        elif person.name and scope["type"] == "websocket":
            await self._app(scope, *_watched(receive, send, who))
        elif person.name:
            await self._app(scope, receive, _with_policy(send))
        elif asks and "text/html" in headers.get("accept", ""):
            await self._ask(send, _without_token(scope))
        else:
            await _refuse(scope, send, NO_NAME)

    def _is_own(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        """Say whether the app is asked for by its own name, and by a page of its own if by one."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if self._proxy and (scope.get("client") or ("",))[0] != self._proxy:
            return False
        if self._hosts and host not in self._hosts:
            return False
        if origin is None:  # a browser always names it for a websocket
            return bool(scope["type"] == "http")
        return origin.lower() in (f"http://{host}", f"https://{host}")

    def _admitted(self, scope: Scope, cookies: Mapping[str, str]) -> str | None:
        """Return a new token of a browser where the address has one of a link."""
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if PARAMETER not in query:
            return None
        own, before = cookies.get(self._cookie, ""), unquote(cookies.get(REMEMBERED, ""))
        known = self._people.identify(own)
        return self._people.admit(query[PARAMETER], known.name if known else before, own)

    async def _exchange(
        self, scope: Scope, headers: Mapping[str, str], send: Send, token: str
    ) -> None:
        """Set the cookie and drop the token from the address.

        By a redirect if a person opened the link; else by a page, because a redirect from another
        page would lack the new cookie.
        """
        place = _without_token(scope)
        given = f"{self._cookie}={token}; Path=/; HttpOnly; SameSite=Strict"
        if self.api:  # until the invitation ends, and not only until the browser does
            given += f"; Max-Age={REMEMBERED_S}"
        given += "; Secure" if self._secure else ""
        cookie = (b"set-cookie", given.encode())
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            page = f'<meta http-equiv="refresh" content="0;url={escape(place)}">'
            await _answer(send, 200, page, cookie, kind="text/html")
        else:
            await _answer(send, 303, "", (b"location", place.encode()), cookie)

    async def _name(
        self, scope: Scope, receive: Receive, send: Send, cookies: Mapping[str, str],
        person: Person,
    ) -> None:  # fmt: skip
        if scope["method"] != "POST":
            await self._ask(send, "/", name=person.name)
            return
        sent = dict(parse_qsl((await _body(receive)).decode("utf-8", "replace")))
        name, to = sent.get("name", ""), _local(sent.get("to", "/"))
        try:
            self._people.rename(cookies[self._cookie], name)
        except AuditError as error:
            await self._ask(send, to, name=name, said=str(error))
            return
        kept = quote(" ".join(name.split()))
        cookie = f"{REMEMBERED}={kept}; Path=/; HttpOnly; SameSite=Strict; Max-Age={REMEMBERED_S}"
        await _answer(send, 303, "", (b"location", to.encode()), (b"set-cookie", cookie.encode()))

    async def _ask(self, send: Send, to: str, *, name: str = "", said: str = "") -> None:
        name = name or self._people.free_name(self._suggested)
        shown = {"to": to, "name": name, "said": said, "longest": LONGEST}
        page = ASKED.format(**{key: escape(str(value)) for key, value in shown.items()})
        await _answer(send, 200, page, kind="text/html")


ASKED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Your name</title>
<meta name="viewport" content="width=device-width">
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 30rem; margin: 15vh auto;
  padding: 0 1rem; color-scheme: light dark }}
  input, button {{ font: inherit; padding: .4rem .6rem }}
  h1 {{ font-size: 1.4rem }} [role=alert]:empty {{ display: none }}</style>
<main><h1>Who are you?</h1>
<p>Each decision is recorded with its reviewer. You can undo only your own decisions.</p>
<p role="alert">{said}</p>
<form method="post" action="/who"><input type="hidden" name="to" value="{to}">
<label>Your name <input name="name" value="{name}" maxlength="{longest}" required autofocus
  autocomplete="nickname"></label> <button>Continue</button></form></main></html>
"""


def _watched(
    receive: Receive, send: Send, who: Callable[[], Person | None]
) -> tuple[Receive, Send]:
    """Return what receives and sends messages of a person until the person is withdrawn."""
    ended: list[bool] = []

    async def receiving() -> MutableMapping[str, Any]:
        message = await receive()
        if message["type"] == "websocket.receive" and who() is None:
            ended.append(True)
            await send({"type": "websocket.close", "code": 1008})
            return {"type": "websocket.disconnect", "code": 1008}
        return message

    async def sending(message: MutableMapping[str, Any]) -> None:
        if not ended:  # what the app had still to say goes nowhere
            await send(message)

    return receiving, sending


def _without_token(scope: Scope) -> str:
    """Return the path and query that were asked for, without a link's token."""
    words = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    rest = urlencode([(name, value) for name, value in words if name != PARAMETER])
    return _local(quote(scope["path"], safe="/\\")) + (f"?{rest}" if rest else "")


def _local(place: str) -> str:
    """Return a local address: one that begins with two slashes names another server."""
    return "/" + "".join(place.splitlines()).lstrip("/\\")


async def _body(receive: Receive) -> bytes:
    """Return what a form sent, cut where no form of ours is as long."""
    body, more = b"", True
    while more and len(body) < MOST_BYTES:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body[:MOST_BYTES]


def _with_policy(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_SAFETY]
        await send(message)

    return sending


_SAFETY = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # without one a browser posts the name as of nowhere
    (b"x-content-type-options", b"nosniff"),
)


async def _refuse(scope: Scope, send: Send, text: str, api: Api | None = None) -> None:
    if api:
        await api.refuse(send, 403, text.strip())
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})  # before it is open: 403
    else:
        await _answer(send, 403, text)


async def _answer(
    send: Send, status: int, text: str, *headers: tuple[bytes, bytes], kind: str = "text/plain"
) -> None:
    body = text.encode()
    own = [
        (b"content-type", f"{kind}; charset=utf-8".encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send(
        {"type": "http.response.start", "status": status, "headers": [*own, *headers, *_SAFETY]}
    )
    await send({"type": "http.response.body", "body": body})
