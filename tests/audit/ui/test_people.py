"""People: a name is one person's, a link that is withdrawn takes its browsers with it."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import stat
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from audit.errors import RunError, UsageError
from audit.service.people import (
    ADMIN,
    FILE,
    LONGEST,
    REVIEWER,
    ROLES,
    VIEWER,
    Invited,
    People,
    Person,
)
from audit.ui import guard as guard_of_this_process
from audit.ui.guard import Guard, Receive, Scope, Send


def test_a_browser_gets_the_role_of_its_link_and_says_a_name_that_nobody_has(
    tmp_path: Path,
) -> None:
    people = People(tmp_path)
    assert people.identify("anything") is None
    assert not people.path.exists()  # to ask makes no file
    with people.serving(REVIEWER, VIEWER) as (deciding, looking):
        first, second, third = (people.admit(link) for link in (deciding, deciding, looking))
        assert first
        assert second
        assert third
        assert people.identify(first) == Person("", REVIEWER)
        people.rename(first, "  Ada   L ")
        assert people.identify(first) == Person("Ada L", REVIEWER)
        assert (people.free_name("ada l"), people.free_name("Bob")) == ("", "Bob")
        assert people.identify(third) == Person("", VIEWER)
        for name, why in (("ada l", "is taken"), (" ", "Give a name"), ("a\x07", "Give a name"),
                          ("x" * (LONGEST + 1), "Give a name")):  # fmt: skip
            with pytest.raises(UsageError, match=why):
                people.rename(second, name)
        # who comes again keeps the name, where nobody else has it by then
        assert people.admit(deciding, "Ada L", first) == first
        again = people.admit(looking, "Ada L", first)  # by another link
        assert again
        assert people.identify(again) == Person("Ada L", VIEWER)
        first, again = again, people.admit(deciding, "Ada L", again)
        assert again
        assert people.identify(again) == Person("Ada L", REVIEWER)
        assert people.identify(first) is None
        other = people.admit(deciding, "Ada L")
        assert other
        assert people.identify(other) == Person("", REVIEWER)
        assert people.admit(first) is people.admit("") is None  # no link
    assert people.identify(again) is people.identify(deciding) is None
    assert people.invited() == []


def test_an_invitation_is_one_persons_until_it_is_withdrawn(tmp_path: Path) -> None:
    people = People(tmp_path)
    link = people.invite("Eve", VIEWER)
    browser = People(tmp_path).admit(link, "Mallory")  # of another process
    assert browser
    assert people.identify(browser) == people.identify(link) == Person("Eve", VIEWER)
    assert not Person("Eve", VIEWER).may_decide
    with pytest.raises(UsageError, match="link is Eve's"):
        people.rename(browser, "Mallory")
    with pytest.raises(UsageError, match="is taken"):
        people.invite("EVE", REVIEWER)
    assert people.withdraw("eve") == 2
    assert people.identify(browser) is people.identify(link) is None
    assert people.withdraw("eve") == 0
    with pytest.raises(UsageError, match="no role"):
        people.invite("Eve", "owner")


def test_a_link_of_a_person_ends_after_its_days_and_its_browsers_with_it(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    people = People(tmp_path, lambda: now)
    link = people.invite("Eve", ADMIN, 30)
    browser = people.admit(link)
    assert browser
    assert people.invited() == [
        Invited("Eve", ADMIN, "2026-01-01T00:00:00+00:00", "2026-01-31T00:00:00+00:00", 1)
    ]
    now += timedelta(days=30) - timedelta(seconds=1)
    assert people.identify(browser) == people.identify(link) == Person("Eve", ADMIN)
    now += timedelta(seconds=1)
    assert people.identify(browser) is people.identify(link) is people.admit(link) is None
    people.invite("Eve", VIEWER)  # the name is free again
    assert [one.role for one in people.invited()] == [VIEWER]


def test_a_role_may_what_those_below_it_may() -> None:
    allowed = {r: [o for o in ROLES if Person("A", r).is_at_least(o)] for r in ROLES}
    assert allowed == {VIEWER: [VIEWER], REVIEWER: [VIEWER, REVIEWER], ADMIN: list(ROLES)}
    assert [Person("A", role).may_decide for role in ROLES] == [False, True, True]


def test_the_table_of_an_earlier_version_is_made_anew(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as con:
        con.execute("CREATE TABLE people (digest TEXT, role TEXT CHECK (role IN ('viewer')))")
    people = People(tmp_path)
    assert people.identify(people.invite("Ada", ADMIN)) == Person("Ada", ADMIN)


def test_no_token_is_stored_and_a_killed_server_leaves_no_open_link(tmp_path: Path) -> None:
    people = People(tmp_path)
    here = socket.gethostname()
    with people.serving(REVIEWER) as (link,):
        browser = people.admit(link, "Ada")
        assert browser
        stored = (tmp_path / FILE).read_bytes()
        assert link.encode() not in stored
        assert browser.encode() not in stored
        with sqlite3.connect(people.path) as con:  # as if this server had been another, killed
            con.execute("UPDATE people SET server = ? WHERE server <> ''", [f"999999999@{here}"])
        con.close()
        with People(tmp_path).serving(VIEWER) as (other,):
            assert people.identify(link) is people.identify(browser) is None
            assert people.identify(other) == Person("", VIEWER)


def test_a_file_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database " * 200)
    with pytest.raises(RunError, match=r"people\.sqlite cannot be used"):
        People(tmp_path).identify("x")
    assert stat.S_ISREG((tmp_path / FILE).stat().st_mode)


def test_who_is_withdrawn_is_put_out_at_the_next_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guard_of_this_process, "_served", [])
    people, sent = People(tmp_path), list[dict[str, object]]()
    browser = people.admit(people.invite("Eve", REVIEWER))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send"})
            people.withdraw("Eve")
        await send({"type": "websocket.send"})  # what it had still to say goes nowhere

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "websocket.receive"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    headers = [(b"cookie", f"audit-app-1={browser}".encode()), (b"host", b"a:1"),
               (b"origin", b"http://a:1")]  # fmt: skip
    scope = {"type": "websocket", "path": "/_stcore/stream", "headers": headers}
    guard = Guard(app, people, 1)
    with ThreadPoolExecutor(1) as thread:  # a browser of another test keeps this thread's loop
        thread.submit(asyncio.run, guard(scope, receive, send)).result()
    assert [message["type"] for message in sent] == ["websocket.send", "websocket.close"]
    assert Guard(app, people, 1, read_only=True).person({}, {}) is None
    other = people.admit(people.invite("Ada", REVIEWER))
    seen = Guard(app, people, 1, read_only=True).person({"audit-app-1": other or ""}, {})
    assert seen == Person("Ada", VIEWER)
