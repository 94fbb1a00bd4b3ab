"""SQL that a user wrote reads the run and nothing else: no file, no network, no change."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from audit.errors import UsageError
from audit.machine import watched
from audit.run import run_version, user_query
from audit.run.run_version import open_for_users, open_run
from audit.run.user_query import query_frame, query_json

pytestmark = pytest.mark.slow


def contents(run: Path) -> dict[str, bytes]:
    generation = run_version.require(run)
    return {str(p): p.read_bytes() for p in (generation.measurements, generation.findings)}


def test_a_select_sees_both_databases(reviewed_run: Path) -> None:
    with open_run(reviewed_run) as plain:
        for query in (
            "SELECT count(*) AS n FROM images",
            "SELECT code, count(*) AS n FROM findings GROUP BY 1 ORDER BY 1",
            "FROM effective_sizes ORDER BY ALL",
            "WITH a AS (SELECT 1 AS n) SELECT * FROM a -- the end",
        ):
            assert query_frame(reviewed_run, query).equals(plain.query(query))
    assert query_frame(reviewed_run, "EXPLAIN SELECT 1").height == 1
    assert "images" in query_frame(reviewed_run, "SHOW TABLES")["name"].to_list()
    twice = query_frame(reviewed_run, "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a, 5 AS b, 6 AS b")
    assert dict(zip(twice.columns, twice.row(0), strict=True)) == {
        "a": 1, "a_2": 2, "a_1": 3, "a_3": 4, "b": 5, "b_1": 6
    }  # fmt: skip


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM measurements.samples",
        "DETACH judged; ATTACH '{findings}' AS x; DELETE FROM x.findings",
        "ATTACH '{measurements}' AS x",
        "USE memory; DETACH measurements; ATTACH '{measurements}' AS x; DELETE FROM x.samples",
        "COPY samples TO '{outside}'",
        "COPY (SELECT 1) TO '{outside}'",
        "EXPORT DATABASE '{outside}'",
        "SELECT * FROM read_csv('{secret}')",
        "SELECT content FROM read_text('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET threads = 1",
        "CREATE TEMP TABLE t AS SELECT 1",
        "CREATE TABLE t AS SELECT 1",
        "PRAGMA enable_logging",
        "CHECKPOINT",
        "SELECT 1; SELECT 2",
        "SELECT nothing FROM nowhere",
        "",
    ],
)
def test_everything_else_is_refused_and_changes_nothing(
    reviewed_run: Path, tmp_path: Path, query: str
) -> None:
    generation = run_version.require(reviewed_run)
    secret, outside = tmp_path / "secret.csv", tmp_path / "outside.csv"
    secret.write_text("password\n1234\n")
    before = contents(reviewed_run)
    text = query.format(
        measurements=generation.measurements, findings=generation.findings, secret=secret,
        outside=outside,
    )  # fmt: skip
    with (
        open_for_users(generation) as store,
        pytest.raises(UsageError, match="The SQL failed"),
        store.user_query(text) as reader,
    ):
        reader.read_all()
    assert contents(reviewed_run) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["secret.csv"]


def test_the_same_as_statements_of_one_connection(reviewed_run: Path) -> None:
    """Even past the check of the kind, the connection itself neither attaches nor changes."""
    generation = run_version.require(reviewed_run)
    before = contents(reviewed_run)
    with open_for_users(generation) as store:
        for query in (
            f"ATTACH '{generation.measurements}' AS again",
            f"ATTACH '{generation.findings}' AS again",
            "DELETE FROM measurements.samples",
            "DELETE FROM judged.findings",
            "SET enable_external_access = true",
        ):
            with contextlib.suppress(duckdb.Error):
                store.execute(query)
                store.execute("DELETE FROM again.samples")
    assert contents(reviewed_run) == before


def test_what_does_not_fit_the_memory_is_written_among_the_temporary_files(
    reviewed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with open_run(reviewed_run) as store:
        store.execute("SET memory_limit = '40MB'")
        store.execute(
            "CREATE TEMP TABLE large AS SELECT range AS i, hash(range) AS h FROM range(6_000_000)"
        )
        assert [len(list(f.iterdir())) for f in (here, temporary)] == [0, 1]
        assert not list(reviewed_run.rglob("*.tmp"))
    assert not list(temporary.iterdir())


def test_a_json_result_has_at_most_so_many_rows_and_bytes(
    reviewed_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_query, "LIMIT_S", 300.0)

    def ask(query: str, limit: int = 3) -> Any:
        return json.loads(query_json(reviewed_run, query, limit))

    found = ask("SELECT range AS a, 'x' AS a FROM range(5000)", 2500)
    assert (found["columns"], len(found["rows"]), found["cut"]) == (["a", "a_1"], 2500, True)
    assert ask("SELECT 1 AS a WHERE false") == {"columns": ["a"], "rows": [], "cut": False}
    mixed = ask("SELECT 1.5, 'nan'::FLOAT, [TRUE], {'a': 'x'::BLOB}, DATE '2026-01-02', 'ä'")
    assert mixed["rows"] == [[1.5, None, [True], {"a": "78"}, "2026-01-02", "ä"]]
    for query, why in (
        ("SELECT repeat('x', 9_000_000) AS a FROM range(2)", "fewer rows"),
        ("SELECT repeat(chr(1), 3_000_000)", "fewer rows"),
        ("SELECT error('now') FROM range(3)", "The SQL failed: .*now"),
    ):
        with pytest.raises(UsageError, match=why):
            ask(query)


LONG = "repeat(chr(97 + (range % 26)::INT), 30_000)"
JOIN = "SELECT max(a.range + b.range) FROM range(1_000_000_000) a, range(1_000_000_000) b"
COUNTED = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i % 9 FROM r) SELECT max(i) FROM r"
ENDLESS = "SELECT sum(x) FROM generate_series(1, 9e18::BIGINT) g(x)"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT range(1_000_000_000)", "0.25 GB of memory"),
        ("SELECT list(a) FROM (SELECT repeat('x', 1000) AS a FROM range(9_000_000))", "memory|Mem"),
        (f"SELECT levenshtein({LONG}, {LONG} || 'b') FROM range(999)", "longer than"),
        (JOIN, "took"),
        (COUNTED, "longer than"),
        (ENDLESS, "longer than"),
    ],
)
def test_a_query_that_takes_too_much_is_ended(
    reviewed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, why: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(watched, "MAX_RESIDENT_BYTES", 1 << 28)
    # A limit on time alone where the query needs no memory: a busy machine is slow to take it.
    monkeypatch.setattr(user_query, "LIMIT_S", 3.0 if why == "longer than" else 300.0)
    with pytest.raises(UsageError, match=why):
        query_json(reviewed_run, query, 10)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_process_of_a_query_ends_with_its_caller(
    reviewed_run: Path, tmp_path: Path, how: signal.Signals
) -> None:
    # what a shell runs in the background ignores Ctrl-C
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script += "from pathlib import Path; from audit.run.user_query import query_frame; "
    script += f"query_frame(Path({str(reviewed_run)!r}), sys.argv[1])"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    caller = subprocess.Popen([sys.executable, "-c", script, ENDLESS], env=environment)
    children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children")
    while not children.read_text():
        assert caller.poll() is None
    query = Path("/proc", children.read_text().split()[0])
    caller.send_signal(how)
    caller.wait()
    while query.exists():  # the time-out of the test is that of a process that stays
        time.sleep(0.01)


def test_an_interrupt_while_a_query_starts_ends_its_process(
    reviewed_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = list[subprocess.Popen[bytes]](), threading.Thread.start

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        query_frame(reviewed_run, ENDLESS)
    assert started[0].returncode == -signal.SIGKILL
