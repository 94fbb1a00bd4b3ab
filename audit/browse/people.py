"""People: who may look at runs and decide about them, by name and token, in one SQLite file.

A token is 256 random bits. It is told once and stored as its SHA-256 digest, which needs no salt:
nobody can guess the bits. There are tokens of links and tokens of browsers: who opens a link gets
one for the browser (`admit`), so that a link which is withdrawn takes its browsers with it. A link
for a person has the name of that person. A link without a name is for several people: each browser
that came by it says a name once, and no two people have the same.

A server that ends withdraws the links that it made for itself (`serving`). Those of a server that
was killed are withdrawn by the next one on the same machine.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from audit.errors import RunError, UsageError

FILE = "people.sqlite"
VIEWER, REVIEWER = "viewer", "reviewer"
LONGEST = 60  # characters of a name
BUSY_S = 10.0
SCHEMA = """
    CREATE TABLE IF NOT EXISTS people (
        digest TEXT PRIMARY KEY, name TEXT NOT NULL, link TEXT, server TEXT, at TEXT NOT NULL,
        role TEXT NOT NULL CHECK (role IN ('viewer', 'reviewer'))
    )
"""


@dataclass(frozen=True, slots=True)
class Person:
    """Who holds a token; `name` is empty until it is said."""

    name: str
    role: str

    @property
    def may_decide(self) -> bool:
        """Whether this is a reviewer, who has said a name."""
        return self.role == REVIEWER and bool(self.name)


class People:
    """The people of one file, `folder`/people.sqlite, which is made when somebody is invited.

    Every call opens the file again (0.3 ms), as many processes may use it; raises RunError where it
    cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        """Name the file."""
        self.path = folder / FILE

    def invite(self, name: str, role: str) -> str:
        """Return the token of a new link for a person; raises UsageError for what is no name."""
        name = check_name(name)
        with self._open() as con:
            _refuse_taken(con, name, "")
            return _add(con, name, role)

    def admit(self, token: str, name: str = "", instead: str = "") -> str | None:
        """Return a token for a browser that came by a link, None where there is no such link.

        `name` is what the browser was called before: it keeps it where nobody else has it now.
        `instead` is the token that it had by then, which ends; it stays where it is of this link.
        """
        with self._open() as con:
            row = con.execute(
                "SELECT digest, name, role FROM people WHERE digest = ? AND link IS NULL",
                [_digest(token)],
            ).fetchone()
            if row is None:
                return None
            link, own, role = row
            sql = "SELECT 1 FROM people WHERE digest = ? AND link = ?"
            if con.execute(sql, [_digest(instead), link]).fetchone():
                return instead
            con.execute(
                "DELETE FROM people WHERE digest = ? AND link IS NOT NULL", [_digest(instead)]
            )
            try:
                kept = own or check_name(name)
                if not own:
                    _refuse_taken(con, kept, "")
            except UsageError:
                kept = ""
            return _add(con, kept, role, link)

    def identify(self, token: str) -> Person | None:
        """Return who holds the token of a link or of a browser, None where nobody does."""
        if not token or not self.path.exists():
            return None
        with self._open(writes=False) as con:
            sql = "SELECT name, role FROM people WHERE digest = ?"
            row = con.execute(sql, [_digest(token)]).fetchone()
        return Person(*row) if row else None

    def rename(self, token: str, name: str) -> None:
        """Give the holder of a browser's token a name; raises UsageError where it is taken, is no
        name, or where the link says who it is for.
        """
        name, digest = check_name(name), _digest(token)
        with self._open() as con:
            sql = (
                "SELECT l.name FROM people b JOIN people l ON l.digest = b.link WHERE b.digest = ?"
            )
            row = con.execute(sql, [digest]).fetchone()
            if row is None:
                raise UsageError("This link is no longer open: ask for another one.")
            if row[0]:
                raise UsageError(f"This link is {row[0]}'s: others need links of their own.")
            _refuse_taken(con, name, digest)
            con.execute("UPDATE people SET name = ? WHERE digest = ?", [name, digest])

    def withdraw(self, name: str) -> int:
        """Withdraw every link and browser of a person; returns how many."""
        with self._open() as con:
            return con.execute("DELETE FROM people WHERE name = ? COLLATE NOCASE", [name]).rowcount

    def names(self) -> list[Person]:
        """Return the people by name, those without a name left out."""
        if not self.path.exists():
            return []
        with self._open(writes=False) as con:
            sql = "SELECT DISTINCT name, role FROM people WHERE name <> '' ORDER BY name, role"
            return [Person(*row) for row in con.execute(sql)]

    @contextmanager
    def serving(self, *roles: str) -> Iterator[list[str]]:
        """Yield the tokens of links without a name, one for each role, open while this lasts."""
        me = f"{os.getpid()}@{socket.gethostname()}"
        with self._open() as con:
            _withdraw_servers(con, [s for s in _servers(con) if not _is_alive(s)])
            tokens = [_add(con, "", role, server=me) for role in roles]
        try:
            yield tokens
        finally:
            with self._open() as con:
                _withdraw_servers(con, [me])

    @contextmanager
    def _open(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)) as con:
                con.execute(SCHEMA)
                with con:  # whole or not at all
                    con.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                    yield con
        except sqlite3.Error as error:
            raise RunError(
                f"{self.path} cannot be used ({error}): get write access to it and its folder."
            ) from None


def check_name(name: str) -> str:
    """Return a name without spaces around it; raises UsageError for what is no name."""
    name = " ".join(name.split())
    if not name or len(name) > LONGEST or not name.isprintable():
        raise UsageError(f"Give a name of 1 to {LONGEST} printable characters.")
    return name


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _add(
    con: sqlite3.Connection, name: str, role: str, link: str | None = None,
    server: str | None = None,
) -> str:  # fmt: skip
    token, at = secrets.token_urlsafe(32), datetime.now(UTC).isoformat(timespec="seconds")
    con.execute(
        "INSERT INTO people (digest, name, role, link, server, at) VALUES (?, ?, ?, ?, ?, ?)",
        [_digest(token), name, role, link, server, at],
    )
    return token


def _refuse_taken(con: sqlite3.Connection, name: str, digest: str) -> None:
    """Raise UsageError where another has the name: an undo goes by it."""
    sql = "SELECT 1 FROM people WHERE name = ? COLLATE NOCASE AND digest <> ?"
    if con.execute(sql, [name, digest]).fetchone():
        raise UsageError(f"Somebody here is called {name} already: choose another name.")


def _servers(con: sqlite3.Connection) -> list[str]:
    sql = "SELECT DISTINCT server FROM people WHERE server IS NOT NULL"
    return [server for (server,) in con.execute(sql)]


def _is_alive(server: str) -> bool:
    """Say whether a server runs; that of another machine is taken to."""
    pid, _, host = server.partition("@")
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return int(pid) != os.getpid()


def _withdraw_servers(con: sqlite3.Connection, servers: list[str]) -> None:
    """Withdraw the links of servers, and the browsers that came by them."""
    for server in servers:
        con.execute(
            "DELETE FROM people WHERE link IN (SELECT digest FROM people WHERE server = ?)",
            [server],
        )
        con.execute("DELETE FROM people WHERE server = ?", [server])
