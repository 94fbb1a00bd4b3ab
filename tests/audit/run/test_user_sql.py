"""SQL that a user wrote reads the run and nothing else: no file, no network, no change."""

from __future__ import annotations

import contextlib
from pathlib import Path

import duckdb
import pytest

from audit.errors import UsageError
from audit.run import generations
from audit.run.generations import open_for_users, open_run

pytestmark = pytest.mark.slow


def contents(run: Path) -> dict[str, bytes]:
    generation = generations.require(run)
    return {str(p): p.read_bytes() for p in (generation.measurements, generation.findings)}


def test_a_select_sees_both_databases(reviewed_run: Path) -> None:
    with open_for_users(reviewed_run) as store, open_run(reviewed_run) as plain:
        for query in (
            "SELECT count(*) AS n FROM images",
            "SELECT code, count(*) AS n FROM findings GROUP BY 1 ORDER BY 1",
            "FROM effective_sizes ORDER BY ALL",
            "WITH a AS (SELECT 1 AS n) SELECT * FROM a -- the end",
        ):
            assert store.user_query(query).equals(plain.query(query))
        assert store.user_query("EXPLAIN SELECT 1").height == 1
        assert "images" in store.user_query("SHOW TABLES")["name"].to_list()
        twice = store.user_query("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a, 5 AS b, 6 AS b")
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
        "",
    ],
)
def test_everything_else_is_refused_and_changes_nothing(
    reviewed_run: Path, tmp_path: Path, query: str
) -> None:
    generation = generations.require(reviewed_run)
    secret, outside = tmp_path / "secret.csv", tmp_path / "outside.csv"
    secret.write_text("password\n1234\n")
    before = contents(reviewed_run)
    text = query.format(
        measurements=generation.measurements, findings=generation.findings, secret=secret,
        outside=outside,
    )  # fmt: skip
    with open_for_users(reviewed_run) as store, pytest.raises(UsageError, match="The SQL failed"):
        store.user_query(text)
    assert contents(reviewed_run) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["secret.csv"]


def test_the_same_as_statements_of_one_connection(reviewed_run: Path) -> None:
    """Even past the check of the kind, the connection itself neither attaches nor changes."""
    generation = generations.require(reviewed_run)
    before = contents(reviewed_run)
    with open_for_users(reviewed_run) as store:
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


def test_an_answer_has_at_most_so_many_rows_and_bytes(
    reviewed_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_for_users(reviewed_run) as store:
        twice = store.user_query("SELECT range AS a, 'x' AS a FROM range(5000)", 2500)
        assert (twice.columns, twice.height) == (["a", "a_1"], 2501)
        assert store.user_query("SELECT 1 AS a WHERE false", 3).columns == ["a"]
        monkeypatch.setattr("audit.run.store.MOST_BYTES", 10_000)
        assert store.user_query("SELECT repeat('x', 5000) AS a", 3).height == 1
        with pytest.raises(UsageError, match="fewer rows"):
            store.user_query("SELECT repeat('x', 5000) AS a FROM range(3)", 3)
        with pytest.raises(UsageError, match="The SQL failed"):
            store.user_query("SELECT error('now') FROM range(3)", 3)
