"""Runs and ledgers of decisions with damage: bytes, names, and rows that no program wrote."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from audit.run.writer_lock import MARKER
from tests.audit.hostile_files import NUMBERS, TEXTS, damaged

WRONG: tuple[Any, ...] = (
    *(None, "", "x", 0, -1, 1.5, 2**62, b"\xff\x00", "\x1b[2J", "\u202e", "{", "[]", "{}", "null"),
    *('{"members": 1}', '{"members": [["a"]]}', '{"members": [[1, 2]], "code": 3}', '{"a": NaN}'),
    *('[["a", "b"]]', '{"subject": null}', "drop", "relabel", "2020-01-01", "a\nb", "9" * 400),
)  # fmt: skip
COLUMNS = (
    "id", "batch", "at", "by", "kind", "subject", "content_hash", "verb", "value", "note",
    "evidence", "digest",
)  # fmt: skip
STATEMENTS = (
    "DELETE FROM decisions WHERE id = 1", "DELETE FROM decisions", "DROP TABLE decisions",
    "DROP TABLE undos", "DROP INDEX decisions_batch", "ALTER TABLE decisions RENAME TO d",
    "ALTER TABLE decisions ADD COLUMN x", "ALTER TABLE undos RENAME COLUMN batch TO b",
    "PRAGMA user_version = 0", "PRAGMA user_version = 1", "PRAGMA user_version = 9",
    "PRAGMA user_version = -1", "PRAGMA application_id = 7", "CREATE VIEW v AS SELECT 1",
    "INSERT INTO undos VALUES (99, 'x', 'y', 1, 'z')", "INSERT INTO undos SELECT 9,8,7,6,5",
    "UPDATE decisions SET batch = 1", "UPDATE decisions SET id = -id",
    "UPDATE undos SET batch = 'x'", "PRAGMA journal_mode = WAL",
)  # fmt: skip


def damage_ledger(rng: Random, run: Path) -> None:
    """Damage decisions.sqlite, decisions.chain or both, in bytes or in rows."""
    ledger, chain = run / "decisions.sqlite", run / "decisions.chain"
    for _ in range(rng.choice((1, 1, 2))):
        rng.choice((_damage_rows, _damage_rows, _damage_file))(rng, ledger)
        if rng.random() < 0.4:
            rng.choice((_damage_file, _damage_lines))(rng, chain)


def _damage_rows(rng: Random, ledger: Path) -> None:
    """Change rows as a program could that knows neither the triggers nor the digests."""
    try:
        with closing(sqlite3.connect(ledger)) as con:
            names = con.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for (name,) in names:
                con.execute(f"DROP TRIGGER {name}")
            con.execute("PRAGMA ignore_check_constraints = 1")
            for _ in range(rng.randint(1, 3)):
                if rng.random() < 0.4:
                    con.execute(rng.choice(STATEMENTS))
                else:
                    column = rng.choice(COLUMNS)
                    value = rng.choice((*WRONG, *(t for t in TEXTS if "\udc80" not in t)))
                    sql = f"UPDATE decisions SET {column} = ? WHERE id >= ?"
                    con.execute(sql, [value, rng.randint(1, 4)])
            con.commit()
    except (sqlite3.Error, OSError):
        _damage_file(rng, ledger)


def _damage_lines(rng: Random, path: Path) -> None:
    """Shuffle, repeat or leave out lines; empty where there is none."""
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    rng.choice((rng.shuffle, list.clear, list.pop if lines else list.clear))(lines)
    _replace(path, b"".join(lines + lines[:1]))


def _replace(path: Path, blob: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()
    path.write_bytes(blob)


def _damage_file(rng: Random, path: Path) -> None:
    kind = rng.randrange(12)
    sound = path.read_bytes() if path.is_file() else b""
    if kind < 8:
        _replace(path, damaged(rng, sound))
    elif kind == 8:
        _replace(path, rng.randbytes(rng.choice((0, 1, 5000))))
    else:
        _replace(path, b"")
        path.unlink()
        if kind == 9:
            path.mkdir()
        elif kind == 10:
            os.symlink(rng.choice((path.name, "absent", "/dev/null", "..")), path)


# ---- the rest of a run ----


def damage_run(rng: Random, run: Path) -> None:
    """Damage one to three files of a run, the ledger left out."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        left = ("decisions", MARKER)
        files = sorted(p for p in run.rglob("*") if p.is_file() and not p.name.startswith(left))
        if not files:
            return
        path = rng.choice(files)
        documents = [p for p in files if p.name in ("CURRENT", "generation.json")]
        if documents and rng.random() < 0.5:
            path = rng.choice(documents)
        rng.choice(DAMAGES if path in documents else (_damage_file,))(rng, path)


def _damage_document(rng: Random, path: Path) -> None:
    """Change a value somewhere in a JSON document."""
    text = path.read_text("utf-8", "replace")
    try:
        document = json.loads(text)
        _change(rng, document)
        path.write_text(json.dumps(document), "utf-8", "surrogatepass")
    except ValueError:
        path.write_text(rng.choice(("{}", "[]", "null", "gen-0001", "../..", "[" * 100_000)))


def _change(rng: Random, at: Any) -> None:
    while isinstance(at, dict | list) and at:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and rng.random() < 0.7:
            at = at[key]
            continue
        odd = (
            "gen-9999",
            "gen-0001",
            "../gen-0001",
            "/",
            "findings-0001.duckdb",
            "CURRENT",
            [],
            {},
        )
        at[key] = rng.choice((*odd, *TEXTS, *NUMBERS))
        return


DAMAGES: tuple[Callable[[Random, Path], None], ...] = (
    _damage_file, _damage_document, _damage_document,
)  # fmt: skip
