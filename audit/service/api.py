"""How `/api/v1` checks requests, enforces roles and answers; errors are one sentence of JSON.

`ApiRoute` rows drive the checks and the OpenAPI document. Only `Authorization: Bearer TOKEN`
authenticates, so that no other site can use a browser's cookie.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import polars as pl

from audit.errors import AuditError, UsageError, error_place
from audit.records import finite, json_value
from audit.service.bodies import SMALL_BODY, parse_apart, parse_object
from audit.service.datasets import Service
from audit.service.jobs import ServedDataset
from audit.service.people import Person

T = TypeVar("T")
ROOT, JSON = "/api/v1", "application/json"
MOST_BODY, BODY_S = SMALL_BODY, 20.0  # bytes; s that it may take
PARSERS = 2  # large bodies that are parsed at a time; others wait
TURN_S, TURN_POLL_S = 12.0, 0.05  # how long a request waits for its turn, and looks for it
AT_ONCE, THREADS = 4, 32  # requests of a person at work; threads for all of them
NONE = ServedDataset("", Path())  # of a route that names none
NO_TOKEN = (
    "This request needs a token: send `Authorization: Bearer TOKEN`, with the token of the "
    "link that `audit serve --invite` printed."
)
LOG = logging.getLogger("dataset-preflight.service")


class RefusedError(AuditError):
    """A request is refused, with a status of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Turns:
    """At most `at_once` persons at a time, each with one request; waiting takes no thread."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._people = list[str]()

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for a person's turn; raises RefusedError for the second of a person, or too late."""
        if name in self._people:
            raise RefusedError(429, "Your last request of this kind is still running: wait for it.")
        self._people.append(name)
        try:
            for _ in range(round(TURN_S / TURN_POLL_S)):
                if self._people.index(name) < self._at_once:
                    break
                await asyncio.sleep(TURN_POLL_S)
            else:
                problem = f"The server was busy for {TURN_S:g} s: send the request again."
                raise RefusedError(503, problem)
            yield
        finally:
            self._people.remove(name)


@dataclass(frozen=True, slots=True)
class ApiField:
    """A parameter: `place` is path, query, header or body; `kind` string, integer, object (of
    strings, which becomes a frame of `id` and `value`) or array (of strings). `least` and `most`
    bound an integer, or the number of items.
    """

    name: str
    meaning: str
    place: str = "query"
    kind: str = "string"
    needed: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 2**53

    def read(self, given: Mapping[str, Mapping[str, Any]]) -> Any:
        """Return the value from its place in a request; raises RefusedError for what is none."""
        value = given[self.place].get(self.name.lower() if self.place == "header" else self.name)
        if value is None and not self.needed:
            return self.default
        good = isinstance(value, str)
        if self.kind == "integer":
            digits = str(value).isascii() and str(value).isdigit() and len(str(value)) < 17
            value = int(str(value)) if type(value) in (int, str) and digits else None
            good = value is not None and self.least <= value <= self.most
        elif self.kind == "array":
            good = isinstance(value, list) and all(isinstance(one, str) for one in value)
            good = good and self.least <= len(value or ()) <= self.most
        elif self.kind == "object":
            good = isinstance(value, dict)
        elif self.kind == "texts":
            if isinstance(value, dict) and all(isinstance(one, str) for one in value.values()):
                value = pl.DataFrame({"id": list(value), "value": list(value.values())})
            good = isinstance(value, pl.DataFrame)
        if not good or (self.choices and value not in self.choices):
            choices = f" ({', '.join(self.choices)})" if self.choices else ""
            said = f"{self.name}, in the {self.place}, is {self.meaning}{choices}."
            raise RefusedError(404 if self.place == "path" else 400, said)
        return value

    def schema(self) -> dict[str, Any]:
        """Return its schema for OpenAPI."""
        more: dict[str, Any] = {"enum": list(self.choices)} if self.choices else {}
        if self.kind == "integer":
            more = {"minimum": self.least, "maximum": self.most}
        if self.kind == "array":
            more = {"items": {"type": "string"}, "minItems": self.least, "maxItems": self.most}
        if self.kind == "texts":
            more = {"additionalProperties": {"type": "string"}}
        given = {} if self.default is None else {"default": self.default}
        kind = "object" if self.kind == "texts" else self.kind
        return {"type": kind, "description": self.meaning, **more, **given}


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request that was let in: who asks, about which dataset, with which words."""

    service: Service
    person: Person
    words: Mapping[str, Any]
    dataset: ServedDataset


@dataclass(frozen=True, slots=True)
class Reply:
    """What is not JSON: bytes, or a text in pieces."""

    body: bytes | Iterator[str]
    kind: str


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A row of the table; `answer` returns JSON or a `Reply`; `turns` bounds heavy requests."""

    method: str
    path: str
    role: str
    answer: Callable[[ApiCall], Any]
    gives: str
    own: tuple[ApiField, ...] = ()
    kind: str = JSON
    most_body: int = MOST_BODY
    turns: Turns | None = None

    def match(self, path: str) -> dict[str, str] | None:
        """Return the words that stand in a path, None for the path of another route."""
        own, asked = self.path.split("/"), path.split("/")
        pairs = list(zip(own, asked, strict=False))
        if len(own) != len(asked) or any(a != b for a, b in pairs if a[:1] != "{"):
            return None
        return {a[1:-1]: b for a, b in pairs if a[:1] == "{"}

    def fields(self) -> list[ApiField]:
        """Return its fields, those of the path first."""
        named = [part[1:-1] for part in self.path.split("/") if part[:1] == "{"]
        kinds = {"batch": "integer", "job": "integer"}
        path = (ApiField(n, f"the {n}", "path", kinds.get(n, "string"), True) for n in named)
        return [*path, *self.own]

    def read(self, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the words of a request by name; raises UsageError for one that is not known."""
        for place in ("query", "body"):
            known = [one.name for one in self.own if one.place == place]
            if unknown := [word for word in given[place] if word not in known]:
                has = ", ".join(known) or "none"
                raise UsageError(f"The {place} has no {unknown[0]!r} here; it may have: {has}.")
        return {one.name: one.read(given) for one in self.fields()}

    def describe(self) -> dict[str, Any]:
        """Return its operation of OpenAPI."""
        body = [one for one in self.own if one.place == "body"]
        refusal = {
            "type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}
        }  # fmt: skip
        schema = {
            "type": "object", "required": [one.name for one in body if one.needed],
            "properties": {one.name: one.schema() for one in body},
        }  # fmt: skip
        return {
            "operationId": self.answer.__name__,
            "summary": (self.answer.__doc__ or "").split("\n")[0],
            "description": f"Least role: {self.role}.",
            "parameters": [
                {"name": one.name, "in": one.place, "required": one.needed, "schema": one.schema()}
                for one in self.fields() if one.place != "body"
            ],
            **({"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}
               if body else {}),
            "responses": {
                "200": {"description": self.gives, "content": {self.kind: {}}},
                "default": {"description": "One sentence.", "content": {JSON: {"schema": refusal}}},
            },
        }  # fmt: skip


def describe_api(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of a table of routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = route.describe()
    return {
        "openapi": "3.1.0", "info": {"title": "dataset-preflight", "version": "1"},
        "servers": [{"url": ROOT}], "security": [{"token": []}], "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }  # fmt: skip


Message = MutableMapping[str, Any]
Receiver = Callable[[], Awaitable[Message]]
Sender = Callable[[Message], Awaitable[None]]
SAFE = (
    (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
)  # fmt: skip


class Api:
    """The API as an ASGI application; the layer around it has looked at host and origin."""

    def __init__(self, service: Service, routes: Sequence[ApiRoute]) -> None:
        """Answer for a service by a table of routes."""
        self.service, self._routes = service, routes
        self._working = Counter[str]()
        # Those of asyncio are few, and most of these wait for a lock or a disk.
        self._threads = ThreadPoolExecutor(THREADS, "api")
        self._parsers = ThreadPoolExecutor(PARSERS, "parsers")  # each waits for a process

    async def __call__(self, scope: Message, receive: Receiver, send: Sender) -> None:
        """Answer one request; what goes wrong before the answer begins is a sentence."""
        name, status = "", 200
        try:
            try:
                headers = {k.decode("latin-1").lower(): v.decode("latin-1")
                           for k, v in scope["headers"]}  # fmt: skip
                person = await self._apart(self._identify, headers.get("authorization", ""))
                if self._working[person.name] >= AT_ONCE:
                    said = f"You have {AT_ONCE} running requests: wait until one has finished."
                    raise RefusedError(429, said)
                name = person.name
                self._working[name] += 1
                route, words = self._route(scope["method"], scope["path"], person)
                query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
                sent = {"path": words, "query": dict(query), "header": headers, "body": {}}
                if any(one.place == "body" for one in route.own):
                    body = await _body(headers, receive, route.most_body)
                    sent["body"] = await self._parse(body)
                async with route.turns.turn(person.name) if route.turns else nullcontext():
                    reply = await self._apart(self._answer, route, person, sent)
            except Exception as error:  # noqa: BLE001 - a sentence, and in the log where it is ours
                status, sentence = _refusal(error)
                reply = _encode({"error": sentence})
            await self._send(send, reply, status)
        finally:
            self._working[name] -= bool(name)

    async def _parse(self, body: bytes) -> dict[str, Any]:
        """Return the JSON object of a body; a large one is parsed by another process."""
        if len(body) <= SMALL_BODY:
            return parse_object(body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._parsers, parse_apart, body)

    async def refuse(self, send: Sender, status: int, sentence: str) -> None:
        """Answer with a status and a sentence."""
        await self._send(send, _encode({"error": sentence}), status)

    async def _apart(self, act: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *args)

    async def _send(self, send: Sender, reply: Reply, status: int) -> None:
        more = {401: [(b"www-authenticate", b"Bearer")], 429: [(b"retry-after", b"1")]}
        headers = [(b"content-type", reply.kind.encode()), *more.get(status, []), *SAFE]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if not isinstance(reply.body, bytes):
            pieces = _pieces(reply.body)
            while piece := await self._apart(next, pieces, b""):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        last = reply.body if isinstance(reply.body, bytes) else b""
        await send({"type": "http.response.body", "body": last})

    def _identify(self, authorization: str) -> Person:
        scheme, _, token = authorization.partition(" ")
        person = self.service.people.identify(token.strip()) if scheme == "Bearer" else None
        if person is None or not person.name:
            raise RefusedError(401, NO_TOKEN)
        return person

    def _answer(
        self, route: ApiRoute, person: Person, sent: Mapping[str, Mapping[str, Any]]
    ) -> Reply:
        dataset = self._dataset(sent["path"], person)
        return _encode(route.answer(ApiCall(self.service, person, route.read(sent), dataset)))

    def _route(self, method: str, path: str, person: Person) -> tuple[ApiRoute, dict[str, str]]:
        place = path.removeprefix(ROOT)
        fit = {one.method: (one, w) for one in self._routes if (w := one.match(place)) is not None}
        if not fit:
            raise RefusedError(
                404, f"There is nothing at this path: {ROOT}/openapi.json lists all."
            )
        if method not in fit:
            raise RefusedError(405, f"This path has no {method}: it has {', '.join(fit)}.")
        if not person.is_at_least(role := fit[method][0].role):
            raise RefusedError(403, f"This needs the role {role}, and yours is {person.role}.")
        return fit[method]

    def _dataset(self, words: Mapping[str, str], person: Person) -> ServedDataset:
        if "dataset" not in words:
            return NONE
        found = self.service.datasets(person).get(words["dataset"])
        if found is None:
            raise RefusedError(404, f"There is no such dataset: {ROOT}/datasets lists yours.")
        return found


def _refusal(error: Exception) -> tuple[int, str]:
    match error:
        case RefusedError():
            return error.status, str(error)
        case UsageError():
            return 400, str(error)
        case _ if type(error).__name__ in ("ConversionException", "BinderException"):  # DuckDB's
            return 400, "A value of the request is of another kind than its column."
        case TimeoutError():
            return 400, f"The body took longer than {BODY_S:g} s: send it at once."
        case AuditError():
            return 503, str(error)
    LOG.error("a request failed", exc_info=error)
    where = f"{type(error).__name__} at {error_place(error)}"
    return 500, f"The server failed with {where}: its log has the rest."


async def _body(headers: Mapping[str, str], receive: Receiver, most: int) -> bytes:
    """Return what was sent as JSON; raises RefusedError as soon as it is known to be too large."""
    if headers.get("content-type", "").split(";")[0].strip().lower() != JSON:
        raise UsageError(f"The body is JSON: send `Content-Type: {JSON}`.")
    declared = headers.get("content-length", "")
    too_large = RefusedError(413, f"A body has at most {most:,} bytes: send less.")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise too_large
    body, more = bytearray(), True
    async with asyncio.timeout(BODY_S):
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > most:
                raise too_large
    return bytes(body)


def _encode(given: Any) -> Reply:
    if isinstance(given, Reply):
        return given
    text = json.dumps(finite(given), ensure_ascii=False, allow_nan=False, default=json_value)
    return Reply(text.encode("utf-8", "backslashreplace"), JSON)


def _pieces(texts: Iterator[str], at_once: int = 500) -> Iterator[bytes]:
    while text := "".join(islice(texts, at_once)):
        yield text.encode("utf-8", "backslashreplace")
