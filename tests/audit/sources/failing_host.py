"""A web server on this machine that fails as it is told, by the path of a picture."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body; a body that ends with `BROKEN` is cut off there, one that ends with
`DRIPPING` comes in `DROPS` pieces with a pause after each."""
BROKEN = b"<the connection breaks>"
DRIPPING, DROPS, PAUSE_S = b"<slowly>", 40, 0.05


class FailingHost(http.server.BaseHTTPRequestHandler):
    """Each request for a path takes one of the answers that wait for it, then its picture."""

    protocol_version = "HTTP/1.1"
    pictures: ClassVar[dict[str, bytes]] = {}
    answers: ClassVar[dict[str, list[Answer]]] = {}
    asked: ClassVar[Counter[str]] = Counter()
    headers_seen: ClassVar[dict[str, Mapping[str, str]]] = {}
    lasts_s: ClassVar[float] = 0.0
    at_once: ClassVar[list[int]] = [0, 0]  # now, and at most so far
    drops: ClassVar[list[int]] = [0]  # pieces that came slowly
    counting: ClassVar[threading.Lock] = threading.Lock()

    def do_GET(self) -> None:
        """Answer as told."""
        path = self.path.partition("?")[0]
        with self.counting:
            self.asked[self.path] += 1
            self.headers_seen[path] = dict(self.headers)
            self.at_once[0] += 1
            self.at_once[1] = max(self.at_once)
            waiting = self.answers.get(path)
            told = waiting.pop(0) if waiting else None
        if self.lasts_s:
            time.sleep(self.lasts_s)
        with self.counting:
            self.at_once[0] -= 1
        if told is None:
            found = path in self.pictures
            told = (200 if found else 404, {}, self.pictures.get(path, b"not here"))
        status, headers, body = told
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        drips, body = body.endswith(DRIPPING), body.removesuffix(DRIPPING)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        size = (len(body) // DROPS if drips else len(body)) or 1
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for start in range(0, len(body), size):
                self.wfile.write(body[start : start + size].removesuffix(BROKEN))
                self.drops[0] += drips
                time.sleep(PAUSE_S * drips)
        if body.endswith(BROKEN):
            self.close_connection = True

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(pictures: Mapping[str, bytes]) -> Iterator[str]:
    """Serve pictures by their path, each with a slash before it; give the address of the server."""
    FailingHost.pictures = {f"/{name}": data for name, data in pictures.items()}
    FailingHost.answers, FailingHost.asked = {}, Counter()
    FailingHost.headers_seen, FailingHost.at_once, FailingHost.lasts_s = {}, [0, 0], 0.0
    FailingHost.drops = [0]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FailingHost) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
