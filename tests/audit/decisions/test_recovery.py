"""Recovery of decisions: damage is found, the copy restores them, an older run passes them on."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from audit.decisions.recovery import (
    REQUESTS,
    check_decisions,
    import_decisions,
    restore_decisions,
)
from audit.decisions.store import COPY, DATABASE, Decision, DecisionStore, Entry
from audit.decisions.waivers import apply_decisions
from audit.errors import DamagedError, RunError, UsageError
from audit.exports.export import export_tables
from audit.records import Action
from audit.report import collect_report
from audit.run.checked_parts import ABSENT, DAMAGED, SOUND, UNFINISHED
from audit.run.run_version import open_run
from tests.audit.conftest import Command
from tests.audit.reviewed import made_run

pytestmark = pytest.mark.slow

VERSION_2 = Path(__file__).parent / "data" / "decisions-2.sql"


def entry(subject: str, verb: Action = Action.DROP, value: str | None = None) -> Entry:
    return Entry("sample", subject, "h", verb, value, "a nöte", "anna")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with five decisions in three batches, the second of them undone."""
    run = tmp_path / "run"
    run.mkdir()
    store = DecisionStore(run)
    store.record([entry("a"), entry("b"), entry("c")])
    store.record([entry("d", Action.RELABEL, "cät")])
    store.undo(1, "anna")
    store.record([entry("e", Action.MOVE, "test")])
    return run


def states(run: Path) -> tuple[str, ...]:
    return tuple(part.state for part in check_decisions(run))


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Return a hash of the content of each file, and its modification time."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (hash(path.read_bytes()), path.stat().st_mtime_ns) for path in files}


def change(run: Path, *statements: str) -> None:
    """Change rows as somebody would who has SQLite and a reason."""
    with closing(sqlite3.connect(run / DATABASE)) as con:
        for (trigger,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            sql = con.execute("SELECT sql FROM sqlite_master WHERE name = ?", [trigger]).fetchone()
            con.execute(f"DROP TRIGGER {trigger}")
            statements = (*statements, sql[0])
        for statement in statements:
            con.execute(statement)
        con.commit()


# ---- the copy ----


def test_the_copy_has_each_batch_and_undo_in_the_order_of_the_commits(run: Path) -> None:
    assert [part.detail for part in check_decisions(run)] == [
        "5 decisions in 3 batches and 1 undo", "4 lines",
    ]  # fmt: skip
    lines = (run / COPY).read_text().splitlines()
    assert [line.split('"')[1] for line in lines] == ["batches", "batches", "undos", "batches"]
    assert [line.count('"a nöte"') for line in lines] == [3, 1, 0, 1]
    assert lines[-1].endswith('"move", "test", "a nöte", null]], [3, 1]]')


def test_a_copy_that_a_crash_left_behind_is_completed(run: Path) -> None:
    whole = (run / COPY).read_bytes()
    lines = whole.splitlines(keepends=True)
    for rest in (b"", b"".join(lines[:-2]), b"".join(lines[:-1]) + lines[-1][:50], whole[:-1]):
        (run / COPY).write_bytes(rest)
        assert states(run) == (SOUND, UNFINISHED)
        assert len(DecisionStore(run).log()) == 5, "readers go on"
    (run / COPY).unlink()
    assert states(run) == (SOUND, UNFINISHED)
    DecisionStore(run).record([entry("f")])
    assert states(run) == (SOUND, SOUND)
    bodies = [line.rpartition(b", [")[0] for line in (run / COPY).read_bytes().splitlines()]
    assert {line.rpartition(b", [")[0] for line in lines} < set(bodies)
    assert len(bodies) == len(lines) + 1


def test_reading_changes_nothing(run: Path) -> None:
    before = contents(run)
    store = DecisionStore(run)
    for read in (store.log, store.current, store.revision, store.tags, store.answers):
        read()
    check_decisions(run)
    assert contents(run) == before


def test_no_more_rows_are_objects_than_a_part(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, part = DecisionStore(run).current(), DecisionStore(run).log(2, [1, 2, 5])
    assert [d.id for d in part] == [5, 2]
    sizes: list[int] = []
    read = DecisionStore._read_parts

    def counted(*arguments: Any) -> Iterator[list[tuple[Any, ...]]]:
        for rows in read(*arguments):
            sizes.append(len(rows))
            yield rows

    monkeypatch.setattr("audit.decisions.store.MAX_ROWS", 2)
    monkeypatch.setattr(DecisionStore, "_read_parts", counted)
    assert DecisionStore(run).current().equals(whole)
    assert whole["subject"].to_list() == ["a", "b", "c", "e"]
    assert max(sizes) == 2


# ---- a database that is gone, empty, older or unreadable ----


DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "gone": lambda path, _: path.unlink(),
    "empty": lambda path, _: path.write_bytes(b""),
    "older": lambda path, older: path.write_bytes(older),
    "unreadable": lambda path, _: path.write_bytes(b"no database at all " * 500),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_lost_decisions_are_refused_and_restored(damage: str, run: Path, command: Command) -> None:
    store = DecisionStore(run)
    older = store.path.read_bytes()
    store.record([entry("f")])
    store.undo(1, "anna")
    log = store.log()
    DAMAGES[damage](store.path, older)
    before = contents(run)
    for use in (
        store.log, store.current, store.revision, store.undo, lambda: store.record([entry("g")]),
    ):  # fmt: skip
        with pytest.raises(DamagedError, match=f"`audit decide {run} --from {run}/{COPY}` restore"):
            use()
    assert states(run) == (DAMAGED,)
    assert contents(run) == before
    code, _, text = command("decide", run, "--from", run / COPY)
    assert (code, text.startswith("Restored 6 decisions in 4 batches and 2 undos.")) == (0, True)
    assert store.log() == log
    assert states(run) == (SOUND, SOUND)
    assert len(store.record([entry("g")])) == 1
    aside = run / f"{DATABASE}.damaged-1"
    assert (str(aside) in text) == aside.exists() == (damage != "gone")


def test_what_is_not_damaged_is_not_restored(run: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "new").mkdir()
    assert states(tmp_path / "new") == (ABSENT, ABSENT)
    before = contents(tmp_path)
    for folder, copy, text in (
        (run, run / COPY, "is not damaged. Nothing was changed."),
        (tmp_path / "new", tmp_path / "new" / COPY, "cannot be read (No such file"),
        (tmp_path / "none", run / COPY, "There is no run at"),
    ):
        code, _, sentence = command("decide", folder, "--from", copy)
        assert (code, text in sentence, sentence.count("\n")) == (2, True, 1), sentence
    assert contents(tmp_path) == before


def test_a_backup_of_the_copy_restores_a_run_that_lost_both_files(
    run: Path, tmp_path: Path
) -> None:
    log, backup = DecisionStore(run).log(), Path(shutil.copy(run / COPY, tmp_path / "b.jsonl"))
    for path in run.iterdir():
        path.unlink()
    restore_decisions(run, backup)
    assert DecisionStore(run).log() == log
    assert states(run) == (SOUND, SOUND)


def test_a_damaged_line_is_left_out_with_its_batch(run: Path) -> None:
    lines = (run / COPY).read_bytes().splitlines(keepends=True)
    (run / COPY).write_bytes(b"".join([b"x\n", *lines[1:], lines[-1]]))
    assert states(run) == (SOUND, DAMAGED)
    (run / DATABASE).unlink()
    text = restore_decisions(run, run / COPY)
    assert "Restored 2 decisions in 2 batches and 1 undo. Left out 2 damaged lines of" in text
    assert [(d.id, d.undone) for d in DecisionStore(run).log()] == [(5, False), (4, True)]
    assert states(run) == (SOUND, SOUND)
    assert (run / f"{COPY}.damaged-1").exists()


@pytest.mark.parametrize(
    "line",
    [
        '["undos", [2, 3, "anna", "\\ud800"], [], [3, 1]]', '["undos", [2, 3, "anna"], [], [3, 1]]',
        '["undos", [2, 3, [], "x"], [], [3, 1]]', '["other", [2], [], [3, 1]]', "[" * 100_000,
        '["undos", [1e999, 3, "anna", "x"], [], [3, 1]]', '{"undos": 1}', "7",
        f'["undos", [{9**400}, 3, "anna", "x"], [], [3, 1]]',
        '["undos", [2, 9, "anna", "x"], [], [3, 1]]',
    ],
    ids=range(10),
)  # fmt: skip
def test_a_line_that_no_writer_writes_is_damaged(line: str, run: Path) -> None:
    log = DecisionStore(run).log()
    with (run / COPY).open("a") as file:
        file.write(f"{line}\n")
    assert states(run) == (SOUND, DAMAGED)
    assert DecisionStore(run).log() == log
    (run / DATABASE).unlink()
    assert "Left out 1 damaged line of" in restore_decisions(run, run / COPY)
    assert DecisionStore(run).log() == log


def test_a_database_without_a_copy_names_its_remedy(run: Path) -> None:
    (run / COPY).unlink()
    (run / DATABASE).write_bytes(b"no database at all " * 500)
    with pytest.raises(DamagedError, match="from a backup, or move it away to begin anew"):
        DecisionStore(run).log()
    (part,) = check_decisions(run)
    assert "an unknown number" in part.lost


# ---- bytes that flip ----


def restored(run: Path, offsets: Iterable[int]) -> Iterator[int]:
    """Yield the offsets, with the run as it was at each."""
    spare = Path(shutil.copytree(run, run.with_name("spare")))
    for offset in offsets:
        shutil.rmtree(run)
        shutil.copytree(spare, run)
        yield offset


def flip(path: Path, offset: int, mask: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)


def outcome(run: Path, name: str, log: list[Decision], offset: object) -> None:
    """Either damage is reported and the other file has every decision, or nothing changed."""
    found: tuple[str, ...] = (DAMAGED,)
    with suppress(RunError):  # a header that claims a newer version
        found = states(run)
    if DAMAGED in found:
        (run / name).unlink()
        if name == DATABASE:
            restore_decisions(run, run / COPY)
        assert DecisionStore(run).log() == log, offset
    made = DecisionStore(run).record([entry("z")])
    undone = DecisionStore(run).undo(1, "anna")
    assert DecisionStore(run).log() == [*undone, *log], offset
    assert [d.subject for d in made] == ["z"]
    assert states(run) == (SOUND, SOUND), offset


@pytest.mark.parametrize(
    ("name", "mask"), [(DATABASE, 1), (DATABASE, 128), (DATABASE, 255), (COPY, 1)]
)
def test_no_flipped_byte_loses_a_decision(name: str, mask: int, run: Path) -> None:
    log, content = DecisionStore(run).log(), (run / name).read_bytes()
    rows = [n for n, byte in enumerate(content) if byte]
    # each byte of the database's header is flipped by one of the masks
    offsets = {*range(mask % 3, 100, 3), *rows[mask % 7 :: 31], *range(mask, len(content), 1321)}
    for offset in restored(run, offsets if name == DATABASE else range(0, len(content), 13)):
        flip(run / name, offset, mask)
        outcome(run, name, log, (offset, mask))


@pytest.mark.parametrize("name", [DATABASE, COPY])
def test_a_file_cut_off_anywhere_loses_no_decision(name: str, run: Path) -> None:
    log, size = DecisionStore(run).log(), (run / name).stat().st_size
    for length in restored(run, range(0, size, size // 20)):
        os.truncate(run / name, length)
        outcome(run, name, log, (name, length))


def test_a_changed_row_differs_from_the_copy(run: Path) -> None:
    change(run, "UPDATE decisions SET verb = 'keep' WHERE id = 2")
    _, copy = check_decisions(run)
    assert (copy.state, copy.detail) == (DAMAGED, f"line 1 is damaged or differs from {DATABASE}")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_header_that_claims_another_version_is_damage(version: int, run: Path) -> None:
    log = DecisionStore(run).log()
    with closing(sqlite3.connect(run / DATABASE)) as con:
        con.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(DamagedError):
        DecisionStore(run).record([entry("f")])
    restore_decisions(run, run / COPY)
    assert DecisionStore(run).log() == log


# ---- values that no decision has ----


def test_an_unknown_verb_is_one_sentence_in_every_reader(tmp_path: Path, command: Command) -> None:
    run = made_run(tmp_path / "run", [{"id": "a.jpg"}, {"id": "b.jpg"}])
    DecisionStore(run).record([entry("a.jpg")])
    change(run, "UPDATE decisions SET verb = 'burn'", "DELETE FROM undos")
    (run / COPY).unlink()
    out, store = tmp_path / "out", DecisionStore(run)
    readers: list[Callable[[], object]] = [
        store.log, store.current, lambda: store.undo(1, "anna"), lambda: collect_report(run),
        lambda: export_tables(run, out),
    ]  # fmt: skip
    for read in readers:
        with pytest.raises(RunError, match="unknown verb 'burn'"):
            read()
    for words in (("decide", run, "--log"), ("report", run), ("export", run, "--out", out)):
        code, _, text = command(*words)
        assert (code, text.count("\n")) == (2, 1)
        assert "unknown verb 'burn'" in text
    assert states(run) == (SOUND, UNFINISHED), "its copy tells what was recorded"


def test_values_of_another_kind_are_one_sentence(run: Path) -> None:
    change(run, "UPDATE batches SET at = x'00ff' WHERE id = 1")
    with pytest.raises(RunError, match="is damaged"):
        DecisionStore(run).current()
    assert states(run) == (DAMAGED,)
    change(run, "DELETE FROM batches WHERE id = 1")
    with pytest.raises(RunError, match="is damaged"):
        DecisionStore(run).log()


# ---- decisions of an older run ----


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A run folder whose decisions were written by version 2, in two databases."""
    old = tmp_path / "old"
    old.mkdir()
    parts = VERSION_2.read_text().split("-- requests.sqlite\n")
    for name, sql in zip((DATABASE, REQUESTS), parts, strict=True):
        with closing(sqlite3.connect(old / name)) as con:
            con.executescript(sql)
    return old


def old_rows(old: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(old / DATABASE)) as con:
        return con.execute(
            "SELECT d.id, d.at, d.by, verb, value, subject, kind, content_hash, note, "
            "u.id IS NOT NULL, CAST(batch AS TEXT), evidence FROM decisions d "
            "LEFT JOIN undos u USING (batch) ORDER BY d.id DESC"
        ).fetchall()


def test_an_older_run_is_refused_in_one_sentence(old: Path) -> None:
    before = contents(old)
    for use in (DecisionStore(old).log, lambda: DecisionStore(old).record([entry("a")])):
        with pytest.raises(RunError, match=f"NEW --decisions-from {old}` carries its decisions"):
            use()
    assert contents(old) == before


def test_nothing_of_an_older_run_is_lost(old: Path, tmp_path: Path) -> None:
    before, new = contents(old), tmp_path / "new"
    text = import_decisions(old, new)
    assert text == f"Carried over from {old}: 8 decisions in 7 batches and 2 undos."
    store = DecisionStore(new)
    slots = Decision.__slots__
    assert [tuple(getattr(d, slot) for slot in slots) for d in store.log()] == old_rows(old)
    with closing(sqlite3.connect(new / DATABASE)) as con:
        assert con.execute("SELECT id, batch, by, at FROM undos").fetchall() == [
            (1, 4, "Björn", "2026-03-01T12:05:00+00:00"),
            (2, 8, "Ada", "2026-03-01T12:08:00+00:00"),
        ]  # fmt: skip
        keys = con.execute("SELECT id, by, key FROM batches WHERE key <> '' ORDER BY id").fetchall()
    assert keys == [(3, "Ada", "key-1"), (4, "Björn", "key-1"), (9, "Ada", "nothing")]
    for by, key, request, ids in (
        ("Ada", "key-1", '[["a"], "false-positive", ""]', [3]),
        ("Björn", "key-1", '[["ä"], "keep", "é"]', [4]),
        ("Ada", "nothing", '[["IMG001"], "keep", ""]', []),
    ):
        again = store.record_once(by, key, request, lambda: [entry("x")])
        assert [d.id for d in again] == ids
        with pytest.raises(UsageError, match="used for another decision"):
            store.record_once(by, key, "other", lambda: [entry("x")])
    assert contents(old) == before
    assert states(new) == (SOUND, SOUND)
    assert store.record([entry("x")])[0].id == 9


def test_decisions_are_carried_over_once_and_again_between_new_runs(
    old: Path, tmp_path: Path
) -> None:
    new, next_run, other = (tmp_path / name for name in ("new", "next", "other"))
    import_decisions(old, new)
    before = contents(new)
    assert import_decisions(old, new) == import_decisions(old, new)
    import_decisions(new, next_run)
    assert contents(new) == before
    assert (next_run / COPY).read_bytes() == (new / COPY).read_bytes()
    DecisionStore(next_run).record([entry("x")])
    import_decisions(new, next_run)  # all of them are there, and more
    import_decisions(new, other)
    DecisionStore(new).record([entry("y")])
    log = DecisionStore(next_run).log()
    with pytest.raises(UsageError, match="has other decisions than"):
        import_decisions(new, next_run)
    assert DecisionStore(next_run).log() == log


def test_an_older_run_that_cannot_be_read_is_one_sentence(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    for damage in (
        lambda: os.truncate(old / DATABASE, 9000),
        lambda: (old / DATABASE).write_bytes(b"x" * 5000),
        lambda: (old / DATABASE).unlink(), lambda: shutil.rmtree(old),
    ):  # fmt: skip
        damage()
        with pytest.raises(RunError, match=f"The decisions of {old} cannot be carried over"):
            import_decisions(old, new)
    lost = tmp_path / "lost"
    lost.mkdir()
    DecisionStore(lost).record([entry("a")])
    (lost / DATABASE).unlink()
    with pytest.raises(RunError, match=f"{lost}/{DATABASE} is damaged"):
        import_decisions(lost, new)
    assert not new.exists()


def test_a_transaction_that_a_crash_left_open_is_finished_in_a_copy(
    old: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(old / DATABASE, isolation_level=None)) as con:
        con.execute("PRAGMA cache_size = 1")  # rows reach the file before the commit
        con.execute("BEGIN")
        con.executemany(
            "INSERT INTO undos VALUES (?, 'x', 'y', ?, ?)",
            [(n, n, "z" * 900) for n in range(9, 99)],
        )
        con.execute("SELECT sum(length(digest)) FROM undos").fetchall()  # the first page too
        crashed = Path(shutil.copytree(old, tmp_path / "crashed"))
        con.execute("ROLLBACK")
    assert (crashed / f"{DATABASE}-journal").exists()
    before = contents(crashed)
    assert import_decisions(crashed, tmp_path / "new").endswith("and 2 undos.")
    assert contents(crashed) == before


def test_a_scan_applies_the_decisions_of_an_older_run(
    old: Path, reviewed_run: Path, command: Command, tmp_path: Path
) -> None:
    with open_run(reviewed_run) as store:
        hashes = dict(store.query("SELECT sample_id, content_hash FROM features").iter_rows())
    sql = VERSION_2.read_text().split("-- requests.sqlite\n")[0]
    for sample in ("train/cat/0.jpg", "train/cat/1.jpg"):
        sql = sql.replace(f"'{sample}','{'0' * 64}'", f"'{sample}','{hashes[sample]}'")
    (old / DATABASE).unlink()
    with closing(sqlite3.connect(old / DATABASE)) as con:
        con.executescript(sql)
    new = tmp_path / "new"
    words = ("scan", reviewed_run.parent / "pets", "--out", new, "--decisions-from", old)
    for _ in range(2):
        _, _, text = command(*words, "--checks", "FILE", "--fail-on", "never")
        assert f"Carried over from {old}: 8 decisions in 7 batches and 2 undos." in text
    applied = apply_decisions(new)
    assert applied.effective.select("id", "label", "dropped").rows() == [
        ("train/cat/0.jpg", None, True), ("train/cat/1.jpg", "Kätzchen", False),
    ]  # fmt: skip
    assert [d.id for d in DecisionStore(new).log()] == list(range(8, 0, -1))
    assert command("verify", new)[0] == 0
    DecisionStore(new).undo(1, "Ada")
    other = tmp_path / "other"
    assert (
        command("scan", words[1], "--out", other, "--decisions-from", new, "--fail-on", "never")[0]
        == 0
    )
    assert DecisionStore(other).log() == DecisionStore(new).log()
