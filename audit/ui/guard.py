"""Who may use the app: whoever has its link, and no other page or program of this machine.

A server on 127.0.0.1 answers every user and every browser tab of the machine, and the app can
decide about a dataset and start a scan. So `audit app` makes a secret, prints it once in a link,
and this layer around the whole server lets nothing pass without it: pages, websocket, pictures,
uploads. The first visit trades the link's token for a cookie that scripts cannot read and other
sites cannot use, and the token leaves the address, where a screenshot or a log would keep it.

Also checked: the name the browser asked for (a foreign name that leads here is an attack called DNS
rebinding) and the origin of the page that asks. The answers forbid being framed, and loading
anything from elsewhere. What this cannot keep out: programs that run as the same user, which can
read the run itself; and cookies know no ports, so another server of this machine that you visit
under the same name is sent the cookie. Plain ASGI: nothing is imported but the standard library.
"""

from __future__ import annotations

import hmac
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from html import escape
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PARAMETER = "token"
OPEN = ("/_stcore/health",)  # says that the server is up, and nothing else
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'; "
    "object-src 'none'; base-uri 'self'; form-action 'self'"
)
NO_LINK = (
    "This app is open to whoever has its link: open the link that `audit app` printed in its "
    "terminal, or start it again.\n"
)
OTHERS = "This app does not answer other sites.\n"
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


class Guard:
    """An ASGI layer: passes on what carries the cookie, answers the rest itself.

    `hosts` are the names (with port) under which the app may be asked for; empty: any.
    """

    def __init__(self, app: App, token: str, port: int, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._token = token
        self._cookie = f"audit-app-{port}"
        self._secret = secrets.token_urlsafe(32)
        self._hosts = frozenset(host.lower() for host in hosts)
        _served.append(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request or connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_own(scope, headers):
            await _refuse(scope, send, OTHERS)
        elif scope["path"] in OPEN or self._has_cookie(headers):
            await self._app(scope, receive, _with_policy(send))
        elif scope["type"] == "http" and self._has_token(scope):
            await self._exchange(scope, headers, send)
        else:
            await _refuse(scope, send, NO_LINK)

    def _is_own(self, scope: Scope, headers: MutableMapping[bytes, str]) -> bool:
        """Say whether the app is asked for by its own name, and by a page of its own if by one."""
        host, origin = headers.get(b"host", "").lower(), headers.get(b"origin")
        if self._hosts and host not in self._hosts:
            return False
        if origin is None:  # a browser always names it for a websocket
            return bool(scope["type"] == "http")
        return origin.lower() in (f"http://{host}", f"https://{host}")

    def _has_cookie(self, headers: MutableMapping[bytes, str]) -> bool:
        cookies: dict[str, str] = dict(_COOKIE.findall(headers.get(b"cookie", "")))
        found = cookies.get(self._cookie, "")
        return hmac.compare_digest(found.encode("latin-1"), self._secret.encode())

    def _has_token(self, scope: Scope) -> bool:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        return hmac.compare_digest(query.get(PARAMETER, "").encode(), self._token.encode())

    async def _exchange(
        self, scope: Scope, headers: MutableMapping[bytes, str], send: Send
    ) -> None:
        """Give the cookie, and turn to the same address without the token.

        By a redirect where a person opened the link, which keeps the token out of the history; by a
        page where another page did, whose redirect a browser would follow without the new cookie.
        """
        words = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([(name, value) for name, value in words if name != PARAMETER])
        # One slash only: an address that begins with two names another server.
        path = "/" + quote(scope["path"].lstrip("/\\"), safe="/")
        place = path + (f"?{rest}" if rest else "")
        given = f"{self._cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict"
        cookie = (b"set-cookie", given.encode())
        if headers.get(b"sec-fetch-site") in ("cross-site", "same-site"):
            page = f'<meta http-equiv="refresh" content="0;url={escape(place)}">'
            await _answer(send, 200, page, cookie, kind="text/html")
        else:
            await _answer(send, 303, "", (b"location", place.encode()), cookie)


def _with_policy(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_SAFETY]
        await send(message)

    return sending


_SAFETY = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


async def _refuse(scope: Scope, send: Send, text: str) -> None:
    if scope["type"] == "websocket":
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
