"""One address of the web asked for a picture: in bounded time and size, and not wherever it leads.

A host that throttles (429, 503) is waited for, by everything that this process asks of it; what
resets, answers short or breaks is asked again with growing pauses; what is gone is said at once. An
address that a table lists may come from anyone: only http and https are read, a redirect to another
host that lies in a private network is refused, and no error text holds more of it than the host.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import cache
from typing import IO, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from audit.sources.readings import ReadingError

SILENCE_S = 15.0
"""How long a host may say nothing."""
LONGEST_S = 45.0
"""What one picture may take with all tries: less than a worker's time limit for a file."""
TRIES = 4
FIRST_PAUSE_S = 0.3
REDIRECTS = 5
HOSTS = 1000
_PIECE = 1 << 16
_GONE, _REFUSED, _BUSY = (404, 410), (401, 402, 403, 407, 451), (429, 503)
_FOR_A_WHILE = (408, 425, 500, 502, 504)
_SAFE = "%/:=&?~#+!$,;'@()*[]"

_busy_until: dict[str, float] = {}
_hosts = threading.Lock()


class _FailedForNowError(Exception):
    """A failure that another try may not have.

    `wait_s` is what a host that throttles asks for, `kind` what it is where every try fails.
    """

    def __init__(self, said: str, wait_s: float | None = None, kind: str = "io") -> None:
        super().__init__(said)
        self.wait_s, self.kind = wait_s, kind


def fetch_picture(url: str, limit: int) -> bytes:
    """Return what an http(s) address answers; raises ReadingError, bomb above `limit` bytes."""
    request, host = _request(url)
    end = time.monotonic() + LONGEST_S
    pause, failures = FIRST_PAUSE_S, 0
    while True:
        _wait_for(host, end)
        try:
            return _answer(request, host, limit, end)
        except _FailedForNowError as failure:
            busy = failure.wait_s is not None
            failures += not busy
            wait = pause if failure.wait_s is None else max(failure.wait_s, pause)
            if failures == TRIES or time.monotonic() + wait > end:
                raise ReadingError(failure.kind, f"{host} {failure}") from None
        pause *= 2
        if busy:
            _hold(host, wait)
        else:
            time.sleep(wait)


def shown_address(url: str) -> str:
    """Return an address without what may be a key: name, password, query."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, host + port, parts.path, "", ""))


# ---- asking ----


def _request(url: str) -> tuple[urllib.request.Request, str]:
    """Return a request without a password in its address, and the host; raises ReadingError."""
    try:
        parts = urlsplit(quote(url.strip(), safe=_SAFE))
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme.lower() not in ("http", "https"):
        raise ReadingError("unsupported", "the table gives no address of http or https here")
    if _is_link_local(host):
        raise ReadingError("unsupported", f"{host} is no address of a picture: it is not asked")
    place = f"[{host}]" if ":" in host else host
    plain = urlunsplit(parts._replace(netloc=place if port is None else f"{place}:{port}"))
    request = urllib.request.Request(plain, headers={"User-Agent": "dataset-preflight"})
    if parts.username:
        said = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        # not sent along where the host redirects to another
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(said).decode()}")
    return request, host


def _answer(request: urllib.request.Request, host: str, limit: int, end: float) -> bytes:
    """Return one answer; raises ReadingError for good, _FailedForNowError for now."""
    try:
        with _opener().open(request, timeout=SILENCE_S) as answer:
            return _body(answer, limit, end)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(error, host) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise ReadingError("io", f"the certificate of {host} is not accepted") from None
        raise _FailedForNowError(f"cannot be reached: {_reason(error.reason)}") from None
    except (OSError, http.client.IncompleteRead, http.client.BadStatusLine) as error:
        raise _FailedForNowError(f"broke the connection: {_reason(error)}") from None
    except (http.client.HTTPException, ValueError) as error:
        name = type(error).__name__
        raise ReadingError(
            "unsupported", f"{host}: the address or answer is none ({name})"
        ) from None


def _body(answer: http.client.HTTPResponse, limit: int, end: float) -> bytes:
    said = answer.headers.get("Content-Length", "")
    length = int(said) if said.isdecimal() else None
    if length is not None and length > limit:
        text = f"says {length:,} bytes; max_bytes is {limit:,}"
        raise _FailedForNowError(text, kind="bomb")
    parts, n = list[bytes](), 0
    # what has come, not a whole piece: of a host that drips, that would outlast every limit
    while n <= limit and (piece := answer.read1(_PIECE)):
        parts.append(piece)
        n += len(piece)
        if time.monotonic() > end:
            raise _FailedForNowError(f"took longer than {LONGEST_S:g} s for its answer")
    if n > limit:
        raise ReadingError("bomb", f"the picture has more than max_bytes, {limit:,} bytes")
    if length is not None and n < length:
        raise _FailedForNowError(f"answered {n:,} of {length:,} bytes")
    return b"".join(parts)


def _refusal(error: urllib.error.HTTPError, host: str) -> Exception:
    """Return what an answer other than a picture means."""
    code = error.code
    phrase = http.client.responses.get(code, "")
    said = f"answered {code} {phrase}".rstrip()
    if code in _GONE:
        return ReadingError("missing", f"{host} {said}: the picture is gone")
    if code in _REFUSED:
        return ReadingError("permission", f"{host} {said}")
    if 300 <= code < 400:
        return ReadingError(
            "permission", f"{host} redirects too often, or to what is not http or https ({code})"
        )
    if code in _BUSY:
        return _FailedForNowError(said, _asked_wait(error.headers))
    return (
        _FailedForNowError(said) if code in _FOR_A_WHILE else ReadingError("io", f"{host} {said}")
    )


def _asked_wait(headers: Message) -> float:
    """Return how long `Retry-After` asks to wait, s: a number or a date; 1 without it."""
    said = headers.get("Retry-After", "").strip()
    if said.isdecimal():
        return float(said)
    try:
        return max(parsedate_to_datetime(said).timestamp() - time.time(), 0.0)
    except ValueError:
        return 1.0


def _reason(error: object) -> str:
    """Return an error without the address in it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it took too long" if isinstance(error, TimeoutError) else type(error).__name__


# ---- hosts that throttle ----


def _hold(host: str, wait: float) -> None:
    """Let every request to a host wait."""
    with _hosts:
        if len(_busy_until) > HOSTS:
            _busy_until.clear()
        _busy_until[host] = max(_busy_until.get(host, 0.0), time.monotonic() + wait)


def _wait_for(host: str, end: float) -> None:
    with _hosts:
        until = _busy_until.get(host, 0.0)
    if until > end:
        raise ReadingError(
            "io", f"{host} asks to wait longer than {LONGEST_S:g} s: scan again later"
        )
    if (wait := until - time.monotonic()) > 0:
        time.sleep(wait)


# ---- where a redirect may lead ----


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
        headers: Any, newurl: str,
    ) -> urllib.request.Request | None:  # fmt: skip
        goal, asked = urlsplit(newurl), urlsplit(req.full_url)
        host, before = goal.hostname or "", asked.hostname
        if host != before and not _is_public(host):
            raise ReadingError(
                "permission", f"{before} redirects into a private network, which is not followed"
            )
        # another port of one host is another program, which the table does not name
        if (
            host == before
            and _port(goal) != _port(asked)
            and (_port(asked), _port(goal)) != (80, 443)
        ):
            raise ReadingError(
                "permission", f"{before} redirects to another port, which is not followed"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _port(address: SplitResult) -> int | None:
    """Return the port that an address means; raises ReadingError for one that is none."""
    try:
        return address.port or {"http": 80, "https": 443}.get(address.scheme)
    except ValueError:
        raise ReadingError("unsupported", "a redirect leads to no address") from None


@cache
def _opener() -> urllib.request.OpenerDirector:
    """Return what opens http and https, and nothing else."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(),
        _Redirects(), urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    opener.addheaders = []
    return opener


def _is_public(host: str) -> bool:
    """Return whether every address of a host is one of the internet; where none is known, it is."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return True
    return all(ipaddress.ip_address(str(one).partition("%")[0]).is_global for one in found)


def _is_link_local(host: str) -> bool:
    """Return whether a host is written as an address of the machine's own link."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_link_local
    except ValueError:
        return False
