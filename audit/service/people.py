"""People: who may look at runs and decide about them, by name and token, in one SQLite file.

A token is 256 random bits, stored as SHA-256 digest, which needs no salt. A link's token is
exchanged for one of the browser (`admit`), and withdrawing the link withdraws its browsers.
Personal links expire; links of a server (`serving`) end with it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from audit.errors import RunError, UsageError

FILE = "people.sqlite"
VIEWER, REVIEWER, ADMIN = ROLES = ("viewer", "reviewer", "admin")  # each may what those before may
DAYS = 90  # that a link for a person is open
LONGEST = 60  # characters of a name
BUSY_S = 10.0
VERSION = 2
SCHEMA = """
    CREATE TABLE people (
        digest TEXT PRIMARY KEY, name TEXT NOT NULL, link TEXT, server TEXT, at TEXT NOT NULL,
        expires TEXT, role TEXT NOT NULL CHECK (role IN ('viewer', 'reviewer', 'admin'))
    )
"""
IS_OPEN = "digest = ? AND (expires IS NULL OR expires > ?)"


@dataclass(frozen=True, slots=True)
class Person:
    """Who holds a token; `name` is empty until it is said."""

    name: str
    role: str

    @property
    def may_decide(self) -> bool:
        """Whether this is a reviewer or an admin, who has said a name."""
        return self.is_at_least(REVIEWER) and bool(self.name)

    def is_at_least(self, role: str) -> bool:
        """Say whether this person may do what a role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True)
class Invited:
    """Who was invited: `at` and `expires` are ISO 8601 in UTC, `browsers` how many came by it."""

    name: str
    role: str
    at: str
    expires: str
    browsers: int


def _now() -> datetime:
    return datetime.now(UTC)


class People:
    """The people of `folder`/people.sqlite, opened at each call, for many processes.

    Raises RunError if the file cannot be read or written.
    """

    def __init__(self, folder: Path, clock: Callable[[], datetime] = _now) -> None:
        self.path, self._clock = folder / FILE, clock

    def invite(self, name: str, role: str, days: int = DAYS) -> str:
        """Return the token of a new link for some days; UsageError for a bad or taken name."""
        name = check_name(name)
        if role not in ROLES:
            raise UsageError(f"{role!r} is no role: choose {', '.join(ROLES)}.")
        with self._open() as con:
            con.execute("DELETE FROM people WHERE expires <= ?", [self._at()])
            _refuse_taken(con, name, "")
            return _add(con, name, role, self._at(), expires=self._at(days))

    def _at(self, days: int = 0) -> str:
        return (self._clock() + timedelta(days)).isoformat(timespec="seconds")

    def admit(self, token: str, name: str = "", instead: str = "") -> str | None:
        """Return a token for the browser of a link, None without such a link.

        `name`: the browser's former name, reused if free. `instead`: its former token, which ends
        unless it belongs to this link.
        """
        with self._open() as con:
            row = con.execute(
                f"SELECT digest, name, role, expires FROM people WHERE link IS NULL AND {IS_OPEN}",
                [_digest(token), self._at()],
            ).fetchone()
            if row is None:
                return None
            link, own, role, expires = row
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
            return _add(con, kept, role, self._at(), link, expires=expires)

    def identify(self, token: str) -> Person | None:
        """Return who holds the token of a link or of a browser, None where nobody does."""
        return self._one(IS_OPEN, _digest(token)) if token else None

    def named(self, name: str) -> Person | None:
        """Return the person who was invited under a name, None where nobody was or no more is."""
        is_link = "name = ? COLLATE NOCASE AND link IS NULL AND expires > ?"
        return self._one(is_link, name) if name else None

    def _one(self, condition: str, value: str) -> Person | None:
        if not self.path.exists():
            return None
        with self._open(writes=False) as con:
            sql = f"SELECT name, role FROM people WHERE {condition}"
            row = con.execute(sql, [value, self._at()]).fetchone()
        return Person(*row) if row else None

    def rename(self, token: str, name: str) -> None:
        """Name the holder of a browser's token; UsageError for a bad, taken or fixed name."""
        name, digest = check_name(name), _digest(token)
        with self._open() as con:
            sql = (
                "SELECT l.name FROM people b JOIN people l ON l.digest = b.link WHERE b.digest = ?"
            )
            row = con.execute(sql, [digest]).fetchone()
            if row is None:
                raise UsageError("This link is no longer valid: ask for a new link.")
            if row[0]:
                raise UsageError(f"This link is {row[0]}'s: ask for a link of your own.")
            _refuse_taken(con, name, digest)
            con.execute("UPDATE people SET name = ? WHERE digest = ?", [name, digest])

    def free_name(self, name: str) -> str:
        """Return a name that nobody here has, else nothing."""
        with self._open(writes=False) as con:
            return "" if _is_taken(con, name) else name

    def withdraw(self, name: str) -> int:
        """Withdraw every link and browser of a person; returns how many."""
        with self._open() as con:
            return con.execute("DELETE FROM people WHERE name = ? COLLATE NOCASE", [name]).rowcount

    def invited(self) -> list[Invited]:
        """Return who was invited, by name; those whose link has ended too."""
        if not self.path.exists():
            return []
        sql = (
            "SELECT name, role, at, expires, (SELECT count(*) FROM people b WHERE b.link = "
            "p.digest) FROM people p WHERE link IS NULL AND name <> '' ORDER BY name"
        )
        with self._open(writes=False) as con:
            return [Invited(*row) for row in con.execute(sql)]

    @contextmanager
    def serving(self, *roles: str) -> Iterator[list[str]]:
        """Yield the tokens of links without a name, one for each role, open while this lasts."""
        me = f"{os.getpid()}@{socket.gethostname()}"
        with self._open() as con:
            _withdraw_servers(con, [s for s in _servers(con) if not _is_alive(s)])
            tokens = [_add(con, "", role, self._at(), server=me) for role in roles]
        try:
            yield tokens
        finally:
            with self._open() as con:
                _withdraw_servers(con, [me])

    @contextmanager
    def _open(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)) as con:
                _prepare(con)
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


def _prepare(con: sqlite3.Connection) -> None:
    """Make the table; that of an earlier version held links that ended with its server."""
    version = "PRAGMA user_version"
    if con.execute(version).fetchone()[0] >= VERSION:
        return
    with con:
        con.execute("BEGIN IMMEDIATE")
        if con.execute(version).fetchone()[0] < VERSION:  # another may have been faster
            con.execute("DROP TABLE IF EXISTS people")
            con.execute(SCHEMA)
            con.execute(f"{version} = {VERSION}")


def _add(
    con: sqlite3.Connection, name: str, role: str, at: str, link: str | None = None,
    server: str | None = None, expires: str | None = None,
) -> str:  # fmt: skip
    token = secrets.token_urlsafe(32)
    con.execute(
        "INSERT INTO people (digest, name, role, link, server, at, expires) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [_digest(token), name, role, link, server, at, expires],
    )
    return token


def _is_taken(con: sqlite3.Connection, name: str, digest: str = "") -> bool:
    sql = "SELECT 1 FROM people WHERE name = ? COLLATE NOCASE AND digest <> ?"
    return con.execute(sql, [name, digest]).fetchone() is not None


def _refuse_taken(con: sqlite3.Connection, name: str, digest: str) -> None:
    """Raise UsageError where another has the name: an undo goes by it."""
    if _is_taken(con, name, digest):
        raise UsageError(f"The name {name} is taken: choose another name.")


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
    for server in servers:
        con.execute(
            "DELETE FROM people WHERE link IN (SELECT digest FROM people WHERE server = ?)",
            [server],
        )
        con.execute("DELETE FROM people WHERE server = ?", [server])
