"""The file of the table of runs: many writers, kills, files that are none, values of any kind."""

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_profiler import Recorder, Session
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.runs import table_file
from pipeline_profiler.runs.entry import default_file, mask_secrets, read_code
from pipeline_profiler.runs.row import RunRow
from pipeline_profiler.runs.table_file import append_note, append_row, read_row, read_rows
from tests.conftest import ROOT
from tests.pipeline_profiler.fakes import FakeClock

ROW = RunRow("2026-01-02T03:04:05Z", "run", study="birds", verdict="fine", value=0.5, trials=3)
WRITER = """
import sys
from pathlib import Path
from pipeline_profiler.runs.row import RunRow
from pipeline_profiler.runs.table_file import append_row
for number in range(8):
    append_row(Path(sys.argv[1]), RunRow("t", "run", note=f"{sys.argv[2]} {number}"))
"""
KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
for number in range(200):
    connection.execute("INSERT INTO runs (command, note) VALUES ('half', ?)", ("x" * 5000,))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the table that recorders write to; it does not exist yet."""
    path = tmp_path / "runs.sqlite"
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(path))
    return path


def change(path: Path, statement: str) -> None:
    """Another program's change of the file."""
    with sqlite3.connect(path) as file:
        file.execute(statement)
    file.close()


def test_a_row_reads_back_and_takes_notes(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "runs.sqlite"
    assert read_rows(path) == []
    assert append_row(path, ROW) == 1
    assert read_rows(path) == [replace(ROW, id=1)]
    append_note(path, 1, "first")
    append_note(path, 1, "second")
    assert (noted := read_row(path, 1)) == replace(ROW, id=1, note="first\nsecond")
    assert next(iter(noted.as_dict().items())) == ("id", 1)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ProfileError, match="has no run 9"):
        append_note(path, 9, "x")


def test_a_list_has_no_diffs_and_a_word_is_found_in_them(table: Path) -> None:
    append_row(table, replace(ROW, git_diff="-rate = 1\n+rate = 2\n"))
    append_row(table, ROW)
    (row,) = read_rows(table, "RATE = 2")
    assert (row.id, row.git_diff, row.git_diff_lines) == (1, "", 2)
    assert read_row(table, 1).git_diff.endswith("+rate = 2\n")


def test_values_that_a_database_does_not_take_are_changed_so_that_it_does(table: Path) -> None:
    append_row(table, replace(ROW, value=float("nan"), note="\ud800 and \0", study="x" * 2_000_000))
    (row,) = read_rows(table, "AND")
    assert read_rows(table, "absent") == []
    assert row.value is None
    assert row.note.startswith("\\ud800")
    assert len(row.study) == 1_000_000
    # what a stranger put into columns is read as what it can be
    change(table, "UPDATE runs SET value = 'much', trials = x'00', study = NULL, note = 3")
    (row,) = read_rows(table)
    assert (row.value, row.trials, row.study, row.note) == (None, None, "", "3")


@pytest.mark.slow
def test_many_writers_lose_nothing_and_a_killed_one_leaves_nothing(table: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(table), str(n)], cwd=ROOT)
        for n in range(3)
    ]
    assert [w.wait() for w in writers] == [0, 0, 0]
    assert len({row.note for row in read_rows(table)}) == 24
    subprocess.run([sys.executable, "-c", KILLED, str(table)], check=False)
    assert table.with_name("runs.sqlite-journal").exists()  # it was killed with pages on disk
    assert append_row(table, ROW) == 25
    assert [row.command for row in read_rows(table)] == ["run"] * 25


def test_a_locked_file_is_a_sentence(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_row(table, ROW)
    monkeypatch.setattr(table_file, "BUSY_S", 0.05)
    other = sqlite3.connect(table, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ProfileError, match="is locked by another process"):
        append_row(table, ROW)
    other.close()


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\0" + b"x" * 200]
)
def test_a_file_that_is_no_table_is_a_sentence_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for call in (lambda: append_row(path, ROW), lambda: read_rows(path)):
        with pytest.raises(ProfileError, match="no table of runs"):
            call()
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    change(path, "CREATE TABLE runs (a)")
    with pytest.raises(ProfileError, match="of another program"):
        append_row(path, ROW)
    with pytest.raises(ProfileError, match="cannot be opened"):
        append_row(tmp_path, ROW)  # a folder
    newer = tmp_path / "newer.sqlite"
    append_row(newer, ROW)
    change(newer, "PRAGMA user_version = 7")
    with pytest.raises(ProfileError, match="newer pipeline-profiler"):
        read_rows(newer)


def test_the_place_is_for_the_user_to_choose() -> None:
    assert default_file({"PIPELINE_PROFILER_RUNS": "off"}) is None
    assert default_file({"PIPELINE_PROFILER_RUNS": "a/b.sqlite"}) == Path("a/b.sqlite")
    assert default_file({"XDG_DATA_HOME": "/d"}) == Path("/d/pipeline-profiler/runs.sqlite")
    assert str(default_file({})).endswith(".local/share/pipeline-profiler/runs.sqlite")


# ---- where a run comes from: masked texts and the state of git ----


SECRET = "Zx81qP0v7Lm2Kd93Tz5Rw6Yb"


@pytest.mark.parametrize(
    "text",
    [
        f"--token={SECRET}",
        f"https://me:{SECRET}@host/run",
        f"https://host/run?api_key={SECRET}&x=1",
        f"key is {SECRET}",
        f'{{"secret": "{SECRET}"}}',
        "hf_abcdefghijklmnop",
        "Authorization: Bearer abcdefghijkl",
        "0123456789abcdef0123456789abcdef01234567",
    ],
    ids=str,
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    masked = mask_secrets(text)
    assert "***" in masked
    for secret in (SECRET, "abc", "hf_", "0123456789abcdef"):
        assert secret not in masked.replace("Bearer", "")


@pytest.mark.parametrize(
    "word",
    [
        "train_resnet50_imagenet_2024_11_22.py:make_loader",
        "/data/experiments/2026-01-02T030405/run_000123/metrics.jsonl",
        "the learning rate 0.000300 was 10 times too high",
        "InternationalizationConfigurationFactory",
        "checkpoints/epoch=12-step=40000.ckpt",
        "tokens=4",
        "s3://bucket/folder/train-00000-of-01024.tar",
    ],
)
def test_ordinary_words_stay(word: str) -> None:
    assert mask_secrets(word) == word


def test_the_state_of_the_code_is_commit_diff_and_new_files(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip

    assert read_code(tmp_path).commit == ""
    git("init", "-q", "-b", "main")
    (tmp_path / "train.py").write_text("rate = 1\n")
    assert "+rate = 1" in read_code(tmp_path).diff  # nothing is committed yet
    git("add", ".")
    git("commit", "-q", "-m", "x")
    clean = read_code(tmp_path)
    assert (len(clean.commit), clean.diff) == (40, "")
    (tmp_path / "train.py").write_text(f"rate = 2\ntoken = '{SECRET}'\n")
    (tmp_path / "model.py").write_text("deep = True\n")
    (tmp_path / "large.bin").write_bytes(b"\0" * 1000)
    git("config", "diff.external", "touch was_run")  # a repository's settings are not obeyed
    diff = read_code(tmp_path).diff
    assert "-rate = 1" in diff
    assert "+rate = 2" in diff
    assert "new file model.py\n+deep = True" in diff
    assert SECRET not in diff
    assert not (tmp_path / "was_run").exists()


# ---- a session of the recorder in the table of runs ----


def recorded(steps: int) -> Recorder:
    clock = FakeClock()
    rec = Recorder(clock, cpu=lambda: 0)
    for _ in rec.watch([0] * steps):
        clock.advance(2)
    return rec


def test_a_saved_session_is_a_row_unless_recording_is_off(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = recorded(20).save(tmp_path / "a.json", study="width", note="64", config="conf.yaml")
    (row,) = read_rows(table)
    said = (row.command, row.study, row.note, row.config)
    assert said == ("recorder", "width", "64", "conf.yaml")
    assert row.file == str(file)
    assert (row.metric, row.trials) == ("stall share", 1)
    assert row.verdict not in ("", "no verdict")
    assert len(Session.load(file).runs) == 1
    recorded(2).save(tmp_path / "b.json")
    assert read_row(table, 2).verdict == "no verdict"  # too short for any
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", "off")
    recorded(2).save(tmp_path / "c.json")
    assert len(read_rows(table)) == 2


def test_a_table_that_takes_no_row_costs_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign").write_bytes(b"no database, but a text of some length " * 40)
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", str(tmp_path / "foreign"))
    with pytest.warns(UserWarning, match="not in the table of runs"):
        file = recorded(2).save(tmp_path / "a.json")
    assert Session.load(file).runs
