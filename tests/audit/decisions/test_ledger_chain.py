"""The ledger's chain and its second copy: what is damaged is seen, and no intact row is lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from audit.decisions import ledger_check
from audit.decisions.ledger import (
    COLUMNS,
    LEDGER,
    NAME,
    Decision,
    Entry,
    Ledger,
    LedgerCopy,
    link_row,
    row_text,
)
from audit.decisions.ledger_check import check_ledger, read_both, repair_ledger
from audit.errors import DamagedError, RunError
from audit.exports.export import export_tables
from audit.records import Action
from audit.report import collect_report
from audit.run.healing import ABSENT, DAMAGED, SOUND, UNFINISHED
from tests.audit.conftest import Command
from tests.audit.reviewed import made_run

pytestmark = pytest.mark.slow


def entry(subject: str, verb: Action = Action.DROP, value: str | None = None) -> Entry:
    return Entry("sample", subject, "h", verb, value, "a note", "anna")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with a ledger: five decisions in three batches, the second of them undone."""
    run = tmp_path / "run"
    run.mkdir()
    ledger = Ledger(run)
    ledger.record([entry("a"), entry("b"), entry("c")])
    ledger.record([entry("d", Action.RELABEL, "cät")])
    ledger.undo(1, "anna")
    ledger.record([entry("e", Action.MOVE, "test")])
    return run


def states(run: Path) -> tuple[str, str]:
    ledger, copy = check_ledger(run)
    return ledger.state, copy.state


def test_what_is_whole_is_compared_row_by_row(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ledger_check, "_count_if_equal", lambda run: {})
        held = check_ledger(run)
    with monkeypatch.context() as patched:
        patched.setattr(ledger_check, "read_both", lambda run: pytest.fail("all rows are held"))
        assert check_ledger(run) == held
    assert [part.state for part in held] == [SOUND, SOUND]
    assert held[0].detail == "5 decisions and 1 undo"


def test_no_more_rows_of_the_ledger_are_objects_than_a_part(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = Ledger(run).current(), Ledger(run).log(2, [1, 2, 5])
    assert [d.id for d in part] == [5, 2]
    sizes: list[int] = []
    read = Ledger._read_parts

    def counted(*given: Any) -> Iterator[list[tuple[Any, ...]]]:
        for rows in read(*given):
            sizes.append(len(rows))
            yield rows

    monkeypatch.setattr("audit.decisions.ledger.PART", 2)
    monkeypatch.setattr(Ledger, "_read_parts", counted)
    assert Ledger(run).current().equals(whole)
    assert whole["subject"].to_list() == ["a", "b", "c", "e"]
    assert max(sizes) == 2


def flip(path: Path, place: int, mask: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= mask
    path.write_bytes(content)


def change(run: Path, *statements: str) -> None:
    """Change rows as somebody would who has SQLite and a reason."""
    with closing(sqlite3.connect(run / LEDGER)) as con:
        for (trigger,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            sql = con.execute("SELECT sql FROM sqlite_master WHERE name = ?", [trigger]).fetchone()
            con.execute(f"DROP TRIGGER {trigger}")
            statements = (*statements, sql[0])
        for statement in statements:
            con.execute(statement)
        con.commit()


# ---- the chain and the copy ----


def test_every_row_is_chained_to_the_one_before(run: Path) -> None:
    with closing(sqlite3.connect(run / LEDGER)) as con:
        for table, names in COLUMNS.items():
            previous = ""
            rows = con.execute(f"SELECT {', '.join(names)}, digest FROM {table} ORDER BY id")
            for *row, digest in rows.fetchall():
                assert digest == link_row(previous, table, row_text(row))
                previous = digest
    rows = [row for row in LedgerCopy(run).lines() if row]
    assert [(row.table, row.id, row.other) for row in rows] == [
        ("decisions", 1, 0), ("decisions", 2, 0), ("decisions", 3, 0), ("decisions", 4, 0),
        ("undos", 1, 4), ("decisions", 5, 1),
    ]  # fmt: skip
    assert states(run) == (SOUND, SOUND)


def test_a_copy_that_a_crash_left_behind_is_made_up_for(run: Path) -> None:
    whole = (run / NAME).read_bytes()
    lines = whole.splitlines(keepends=True)
    for rest in (b"".join(lines[:-1]), b"".join(lines[:-1]) + lines[-1][:50], whole[:-1]):
        (run / NAME).write_bytes(rest)
        assert states(run) == (SOUND, UNFINISHED)
        assert len(Ledger(run).log()) == 5, "readers go on"
    Ledger(run).record([entry("f")])
    assert states(run) == (SOUND, SOUND)
    assert (run / NAME).read_bytes().startswith(whole)


# ---- a ledger that is gone, empty or older ----


DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "gone": lambda path, _: path.unlink(),
    "empty": lambda path, _: path.write_bytes(b""),
    "older": lambda path, older: path.write_bytes(older),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_ledger_without_its_last_row_is_said_and_restored(damage: str, run: Path) -> None:
    ledger = Ledger(run)
    older = ledger.path.read_bytes()
    ledger.record([entry("f")])
    ledger.undo(1, "anna")
    log = ledger.log()
    DAMAGES[damage](ledger.path, older)
    for use in (
        ledger.log, ledger.current, ledger.revision, ledger.undo,
        lambda: ledger.record([entry("g")]),
    ):  # fmt: skip
        with pytest.raises(DamagedError, match="--repair"):
            use()
    assert states(run) == (DAMAGED, SOUND)
    repair_ledger(run)
    assert ledger.log() == log
    assert states(run) == (SOUND, SOUND)
    assert len(ledger.record([entry("g")])) == 1


def test_a_run_without_decisions_has_nothing_to_report(tmp_path: Path) -> None:
    assert states(tmp_path) == (ABSENT, ABSENT)
    assert repair_ledger(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


# ---- bytes that flip ----


def restored(run: Path, places: Iterable[int]) -> Iterator[int]:
    """Yield the places, the run as it was at each."""
    spare = Path(shutil.copytree(run, run.with_name("spare")))
    for place in places:
        shutil.rmtree(run)
        shutil.copytree(spare, run)
        yield place


def outcome(run: Path, log: list[Decision], place: object) -> None:
    """Either damage is reported and repaired without loss, or the ledger is what it was."""
    if DAMAGED in states(run):
        repair_ledger(run)
        assert states(run) == (SOUND, SOUND), place
        assert Ledger(run).log() == log, place
        return
    assert Ledger(run).log() == log, place
    made = Ledger(run).record([entry("z")])
    undone = Ledger(run).undo(1, "anna")
    assert Ledger(run).log() == [*undone, *log], place
    assert [d.subject for d in made] == ["z"]
    assert states(run) == (SOUND, SOUND), place


@pytest.mark.parametrize(("name", "mask"), [(LEDGER, 1), (LEDGER, 128), (LEDGER, 255), (NAME, 1)])
def test_no_flipped_byte_loses_a_decision(name: str, mask: int, run: Path) -> None:
    log, content = Ledger(run).log(), (run / name).read_bytes()
    rows = [n for n, byte in enumerate(content) if byte]
    # each byte of the ledger's header is flipped by one of the masks
    places = {*range(mask % 3, 100, 3), *rows[mask % 7 :: 31], *range(mask, len(content), 1321)}
    for place in restored(run, places if name == LEDGER else range(0, len(content), 13)):
        flip(run / name, place, mask)
        assert name == LEDGER or Ledger(run).log() == log, "readers go on"
        outcome(run, log, (place, mask))


@pytest.mark.parametrize("name", [LEDGER, NAME])
def test_a_file_cut_off_anywhere_loses_no_decision(name: str, run: Path) -> None:
    log, size = Ledger(run).log(), (run / name).stat().st_size
    for length in restored(run, range(0, size, size // 20)):
        os.truncate(run / name, length)
        outcome(run, log, (name, length))


def test_without_its_copy_a_changed_row_is_lost_and_named_and_the_others_stay(run: Path) -> None:
    (run / NAME).unlink()
    change(run, "UPDATE decisions SET verb = 'keep' WHERE id = 2", "DELETE FROM undos")
    ledger, copy = check_ledger(run)
    assert (ledger.state, copy.state) == (DAMAGED, DAMAGED)
    assert ledger.lost == "decision 2 (keep b anna)"
    (aside,) = {line.rpartition(" ")[2] for line in repair_ledger(run) if "damaged-" in line}
    assert [d.id for d in Ledger(run).log()] == [5, 4, 3, 1]
    assert states(run) == (SOUND, SOUND)
    assert b"keep" in (run / aside / LEDGER).read_bytes()


def test_rows_after_a_lost_one_keep_their_numbers_and_are_chained_anew(run: Path) -> None:
    lines = (run / NAME).read_bytes().splitlines(keepends=True)
    (run / NAME).write_bytes(b"".join(lines[:1] + lines[2:]))
    change(run, "UPDATE decisions SET note = 'other' WHERE id = 2")
    assert read_both(run).lost == [("decisions", 2)]
    repair_ledger(run)
    assert [d.id for d in Ledger(run).log()] == [5, 4, 3, 1]
    assert states(run) == (SOUND, SOUND)
    assert Ledger(run).record([entry("f")])[0].id == 6


def test_a_ledger_that_nothing_can_open_is_moved_aside(run: Path) -> None:
    (run / NAME).unlink()
    (run / LEDGER).write_bytes(b"no ledger at all " * 500)
    (ledger, _) = check_ledger(run)
    assert "(an unknown number)" in ledger.lost
    done = repair_ledger(run)
    assert any("every decision" in line for line in done)
    assert not (run / LEDGER).exists()
    assert len(list(run.glob(f"damaged-*/{LEDGER}"))) == 1
    assert states(run) == (ABSENT, ABSENT)
    assert len(Ledger(run).record([entry("a")])) == 1


def test_a_header_that_claims_another_version_is_damage(run: Path) -> None:
    log = Ledger(run).log()
    for version in (0, 1, 3):
        with closing(sqlite3.connect(run / LEDGER)) as con:
            con.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(RunError):
            Ledger(run).record([entry("f")])
        assert states(run) == (DAMAGED, SOUND)
        repair_ledger(run)
        assert Ledger(run).log() == log


def test_somebody_who_writes_both_files_anew_is_not_noticed(run: Path) -> None:
    """What the chain does not show, said in the documents."""
    for path in (run / LEDGER, run / NAME):
        path.unlink()
    Ledger(run).record([entry("forged")])
    assert states(run) == (SOUND, SOUND)


# ---- a verb that nobody knows ----


def test_an_unknown_verb_is_one_sentence_in_every_reader(tmp_path: Path, command: Command) -> None:
    run = made_run(tmp_path / "run", [{"id": "a.jpg"}, {"id": "b.jpg"}])
    Ledger(run).record([entry("a.jpg")])
    change(run, "UPDATE decisions SET verb = 'burn'")
    out = tmp_path / "out"
    readers: list[Callable[[], object]] = [
        Ledger(run).log, Ledger(run).current, lambda: Ledger(run).undo(1, "anna"),
        lambda: collect_report(run), lambda: export_tables(run, out),
    ]  # fmt: skip
    for read in readers:
        with pytest.raises(RunError, match="unknown verb 'burn'"):
            read()
    for words in (("decide", run, "--log"), ("report", run), ("export", run, "--out", out)):
        code, _, said = command(*words)
        assert (code, said.count("\n")) == (2, 1)
        assert "unknown verb 'burn'" in said


def test_values_of_another_kind_are_one_sentence(run: Path) -> None:
    change(run, "UPDATE decisions SET at = x'00ff' WHERE id = 1")
    with pytest.raises(RunError, match="is damaged"):
        Ledger(run).current()
