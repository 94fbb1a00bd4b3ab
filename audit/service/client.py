"""Read the runs of a service from Python: `audit.connect(url, token).open("pets").findings`.

Frames and names are those of `Run`. Errors of the service are UsageErrors.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import polars as pl

from audit.errors import UsageError
from audit.results.history import read_history
from dataset_preflight.foundation.push import refusal_of

PATIENCE_S = 60.0


class Connection:
    """A service, asked as the person whose token this is."""

    def __init__(self, url: str, token: str) -> None:
        self._root, self._token = f"{url.split('?')[0].rstrip('/')}/api/v1", token

    @property
    def datasets(self) -> pl.DataFrame:
        """The datasets that one may see, as the home page lists them."""
        return _frame(json.loads(self.ask("/datasets"))["datasets"])

    def open(self, name: str) -> RemoteRun:
        """Return a dataset's run."""
        return RemoteRun(self, name)

    def ask(self, path: str, body: Any = None, key: str = "", **query: Any) -> bytes:
        """Return an answer; raises UsageError with the sentence of a refusal."""
        words = urlencode({name: value for name, value in query.items() if value is not None})
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self._root}{path}?{words}", None if body is None else json.dumps(body).encode(),
            headers | ({"Idempotency-Key": key} if key else {}),
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise UsageError(refusal_of(error)) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._root} cannot be reached ({error}): is it served?") from None


class RemoteRun:
    """The run of a dataset of a service: frames as those of `Run`, where the API has them."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._place = connection, f"/datasets/{quote(name, '')}"

    @property
    def findings(self) -> pl.DataFrame:
        """The findings, the worst first: fingerprint, code, name, severity, message, status, ..."""
        return self.found()

    def found(self, code: str | None = None, **filters: str) -> pl.DataFrame:
        """Return findings of codes; `filters`: severity, split, label, status, text."""
        return _frame(self._listed("findings", code=code, **filters))

    @property
    def images(self) -> pl.DataFrame:
        """One row a sample, in order of id."""
        return _frame(self._listed("pictures"))

    @property
    def groups(self) -> pl.DataFrame:
        """The members of every group of near-duplicates: group, id."""
        found = self._listed("groups")
        return _frame([{"group": one["group"], "id": i} for one in found for i in one["ids"]])

    @property
    def decisions(self) -> pl.DataFrame:
        """Every decision, newest first; undone ones are marked."""
        return _frame(self._listed("decisions", "before"))

    @property
    def history(self) -> pl.DataFrame:
        """What each scan and re-check found, oldest first."""
        return _frame(json.loads(self._ask("history"))["moments"])

    def sql(self, query: str, limit: int = 10_000) -> pl.DataFrame:
        """Return the first rows of a SELECT over the tables of docs/schema.md."""
        found = json.loads(self._ask("sql", {"query": query, "limit": limit}))
        return pl.DataFrame(found["rows"], found["columns"], orient="row", infer_schema_length=None)

    def report(self, path: str | Path | None = None) -> str | Path:
        """Write x.html, .md, .txt, .json, .sarif or .xml and return its path; or the text."""
        if path is None:
            return self._ask("report", format="txt").decode()
        Path(path).write_bytes(self._ask("report", format=Path(path).suffix[1:]))
        return Path(path)

    def decide(
        self, things: str | Sequence[str], verdict: str, *, note: str = "", key: str = ""
    ) -> pl.DataFrame:
        """Decide as `Run.decide`; what is sent again with the same key is recorded once."""
        named = [things] if isinstance(things, str) else list(things)
        body = {"things": named, "verdict": verdict, "note": note}
        return _frame(json.loads(self._ask("decisions", body, key or uuid4().hex))["decisions"])

    def _listed(self, name: str, turn: str = "after", **filters: Any) -> list[dict[str, Any]]:
        page = json.loads(self._ask(name, limit=500, **filters))
        rows: list[dict[str, Any]] = page[name]
        while (following := page["next"]) is not None:
            page = json.loads(self._ask(name, limit=500, **filters, **{turn: following}))
            rows += page[name]
        return rows

    def _ask(self, path: str, body: Any = None, key: str = "", **query: Any) -> bytes:
        return self._connection.ask(f"{self._place}/{path}", body, key, **query)


def connect_service(url: str, token: str) -> Connection:
    """Return a connection to a service, as the owner of the token; sends no request yet."""
    return Connection(url, token)


def push_scan(run: Path, url: str, *, with_paths: bool = False, dry_run: bool = False) -> list[str]:
    """Send the last scan of a run to `url` (service and dataset); return the lines that leave.

    Sends ids of samples only `with_paths`; with `dry_run` sends nothing.
    """
    sent = asdict(read_history(run)[-1])
    if not with_paths:
        sent["named"] = [[*row[:3], None] for row in sent["named"]]
    if not dry_run:
        root, _, name = url.rstrip("/").rpartition("/")
        connection = Connection(root, os.environ.get("PREFLIGHT_TOKEN", ""))
        connection.ask(f"/datasets/{quote(name, '')}/history", {"moment": sent})
    return [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in sent.items()]


def _frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None)
