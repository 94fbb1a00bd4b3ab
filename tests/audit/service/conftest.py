"""A service of two datasets with a person of each role, and how a test asks its API."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from audit.service.api import ROOT, Api
from audit.service.datasets import Service, read_datasets, write_datasets
from audit.service.jobs import JobQueue
from audit.service.people import ADMIN, REVIEWER, VIEWER, People
from audit.service.routes import ROUTES

NAMES = {VIEWER: "Vic", REVIEWER: "Ada", ADMIN: "Ann"}


@dataclass(frozen=True)
class Served:
    """A service, the token of each role, and its API."""

    service: Service
    tokens: Mapping[str, str]
    api: Api

    @property
    def run(self) -> Path:
        """The run of the dataset `pets`."""
        return self.service.folder / "runs/pets"

    def call(
        self, method: str, path: str, role: str = VIEWER, body: Any = None,
        headers: Mapping[str, str] | None = None, raw: bytes | None = None, **query: Any,
    ) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
        """Ask once, in an event loop of its own; returns status, headers and body."""
        asked = self.answer(method, path, role, body, headers, raw, **query)
        with ThreadPoolExecutor(1) as thread:  # a browser of another test keeps this thread's loop
            return thread.submit(asyncio.run, asked).result()

    async def answer(
        self, method: str, path: str, role: str = VIEWER, body: Any = None,
        headers: Mapping[str, str] | None = None, raw: bytes | None = None, **query: Any,
    ) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
        """Ask once; returns status, headers and body."""
        given = {"content-type": "application/json"} if body is not None or raw else {}
        if token := self.tokens.get(role, role):
            given["authorization"] = f"Bearer {token}"
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http", "method": method, "path": f"{ROOT}{path}",
            "query_string": urlencode(query, quote_via=quote).encode(),
            "headers": [
                (k.encode(), v.encode()) for k, v in {**given, **(headers or {})}.items()
            ],
        }  # fmt: skip
        got: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: Any) -> None:
            got.append(message)

        await self.api(scope, receive, send)
        answered = {k.decode(): v.decode() for k, v in got[0]["headers"]}
        return got[0]["status"], answered, b"".join(m.get("body", b"") for m in got[1:])

    def get(self, path: str, role: str = VIEWER, **query: Any) -> Any:
        """Return the JSON of an answer that must be good."""
        status, _, body = self.call("GET", path, role, **query)
        assert status == 200, body
        return json.loads(body)


@pytest.fixture
def served(reviewed_run: Path, tmp_path: Path) -> Served:
    """Two datasets, `pets` and `secret`, which Ada and admins may see."""
    return make(reviewed_run, tmp_path)


@pytest.fixture(scope="module")
def shared(reviewed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The same, one for all tests of a file that only ask."""
    return make(reviewed_run, tmp_path_factory.mktemp("shared"))


def make(run: Path, folder: Path) -> Served:
    for name in ("pets", "secret"):
        shutil.copytree(run, folder / "runs" / name)
    write_datasets(folder)
    file = folder / "datasets.toml"
    # the last of the file is `secret`; `far` is scanned elsewhere
    far = '\n[[dataset]]\nname = "far"\npushed = true\npeople = ["ada"]\n'
    file.write_text(file.read_text() + f'people = ["ada"]\n{far}')
    people = People(folder)
    tokens = {role: people.invite(name, role) for role, name in NAMES.items()} | {"": ""}
    service = Service(folder)
    service.jobs = JobQueue(folder, partial(read_datasets, folder))  # nobody moves it on
    return Served(service, tokens, Api(service, ROUTES))
