"""Hostile inputs from fixed seeds: every call ends with a result or one sentence.

Faults that were found have a test of their own where they were mended; those of the command line
are here.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.audit.hostile_inputs import KINDS, Broken, Place, answer, make_case, make_place

pytestmark = pytest.mark.slow

# At least this many seeds; more until one call was read and one was refused, because the damage of
# a seed depends on the files of the run.
CASES = {"manifest": 60, "layout": 30, "config": 60, "decisions": 5, "run": 4}


@pytest.fixture(scope="module")
def place(reviewed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(reviewed_run, tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_hostile_inputs_are_answered(
    kind: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.run.parent)
    codes: Counter[int] = Counter()
    for seed in range(5 * CASES[kind]):
        if seed >= CASES[kind] and codes[0] and codes[2]:
            break
        try:
            codes.update(answer(call) for call in make_case(kind, seed, place))
        except Broken as error:
            pytest.fail(f"{kind} {seed}: {error}")
    assert codes[0], "some of them are read"
    assert codes[2], "some of them are refused"


def broken_by(call: object) -> str:
    with pytest.raises(Broken) as caught:
        answer(call)  # type: ignore[arg-type]
    return str(caught.value)


def test_what_is_no_answer_is_noticed(place: Place) -> None:
    def fails() -> None:
        raise ZeroDivisionError("by nothing")

    def panics() -> None:
        os.write(2, b"thread 'x' panicked at src/lib.rs")

    def colours() -> None:
        import sys

        sys.stdout.write("\x1b[2J")

    assert "ZeroDivisionError" in broken_by(fails)
    assert "a library wrote" in broken_by(panics)
    assert "raw characters" in broken_by(colours)
    assert answer(["report", str(place.run)]) == 0
    assert answer(["report", "absent"]) == 2


# ---- what was found ----


def copy_of(place: Place) -> Path:
    shutil.rmtree(place.folder, ignore_errors=True)
    return Path(shutil.copytree(place.run, place.folder / "run"))


def test_a_folder_in_place_of_the_decisions_is_moved_aside(place: Place) -> None:
    run = copy_of(place)
    (run / "decisions.sqlite").unlink()
    (run / "decisions.sqlite").mkdir()
    assert answer(["decide", str(run), "--log"]) == 2
    assert answer(["verify", str(run)]) == 1
    assert answer(["decide", str(run), "--from", str(run / "decisions.jsonl")]) == 0
    assert answer(["decide", str(run), "--log"]) == 0


def test_decisions_that_are_a_link_to_itself_are_answered(place: Place) -> None:
    run = copy_of(place)
    (run / "decisions.sqlite").unlink()
    (run / "decisions.sqlite").symlink_to("decisions.sqlite")
    for words in (
        ["report"],
        ["decide", "--log"],
        ["decide", "--undo"],
        ["verify"],
        ["decide", "--from", str(run / "decisions.jsonl")],
        ["decide", "--log"],
    ):
        assert answer([*words[:1], str(run), *words[1:]]) in (0, 1, 2), words


@pytest.mark.parametrize(
    ("column", "value"),
    [("evidence", "{"), ("evidence", "[]"), ("evidence", '{"members": 1}'), ("note", b"\xff")],
    ids=["json", "list", "members", "bytes"],
)
def test_a_value_that_no_decision_has_is_damage(place: Place, column: str, value: object) -> None:
    run = copy_of(place)
    with closing(sqlite3.connect(run / "decisions.sqlite")) as con:
        con.execute("DROP TRIGGER decisions_update")
        con.execute(f"UPDATE decisions SET {column} = ? WHERE kind = 'finding'", [value])
        con.commit()
    assert answer(["report", str(run)]) == 2
    assert answer(["decide", str(run), "--log"]) == 2
    assert answer(["verify", str(run)]) == 1
    assert answer(["decide", str(run), "--from", str(run / "decisions.jsonl")]) == 0
    assert answer(["report", str(run), "--json"]) == 0
