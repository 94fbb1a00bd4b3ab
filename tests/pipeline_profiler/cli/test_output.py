"""Results are not lost, and nobody's file is replaced by them."""

import argparse
import gzip
import json
from pathlib import Path

import pytest

from dataset_preflight.foundation.ending import ExitCode
from pipeline_profiler.cli import ending, main, output
from pipeline_profiler.profiling.record import session as session_module
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.report import render
from tests.pipeline_profiler.cli.loaders import FAST, write_source
from tests.pipeline_profiler.fakes import made_session, schedule

MEASURED = "repeats of the step"  # what stderr says once a measurement is on its way


def sound() -> Session:
    return made_session(schedule(40, 0, 0, 20.0, lambda j: 1.0), 20.0, repeats=2)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return sound().save(tmp_path / "s.json")


def run(*argv: object) -> int:
    return main.command_line([str(a) for a in argv])


# ---- whose file is it ----


def test_what_this_program_wrote_is_known_by_its_content(tmp_path: Path, session: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(session.read_bytes()))
    assert output.is_ours(session)
    assert output.is_ours(packed)
    for ending_ in (".txt", ".md", ".html", ".json"):
        path = tmp_path / f"r{ending_}"
        path.write_bytes(render.make_report(sound(), str(path)))
        assert output.is_ours(path), ending_
    (tmp_path / "empty").touch()
    assert output.is_ours(tmp_path / "empty")


@pytest.mark.parametrize(
    "content",
    [
        b"import torch\n",
        b"# README\nwritten with pipeline-profiler\n",
        b'{"schema": "audit-report/1"}',
        b'{"data": {"schema": "profile/1"}}',
        b"<html><head></head></html>",
        b"\x1f\x8bnothing packed",
        gzip.compress(b"another file", mtime=0),
    ],
)
def test_other_files_are_not_ours(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert not output.is_ours(path)
    with pytest.raises(ProfileError, match="was not written by pipeline-profiler: choose"):
        output.check_output(str(path))


def test_a_report_replaces_a_report_and_nothing_else(
    tmp_path: Path, session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# Mine\n")
    assert run("report", session, "-o", readme) == 2
    assert readme.read_text() == "# Mine\n"
    assert "choose another name" in capsys.readouterr().err
    readme.unlink()
    for _ in range(2):  # the second replaces the first
        assert run("report", session, "-o", readme) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README.md", "s.json"]  # no draft
    (tmp_path / "disk").mkdir()
    link = tmp_path / "latest.html"
    link.symlink_to(tmp_path / "disk/real.html")
    assert run("report", session, "-o", link) == 0
    assert link.is_symlink()
    assert output.is_ours(tmp_path / "disk/real.html")  # written through the link


def test_a_command_never_writes_over_what_it_reads(
    tmp_path: Path, session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = session.read_bytes()
    link = tmp_path / "link.json"
    link.symlink_to(session)
    assert run("report", session, "-o", link) == 2
    assert session.read_bytes() == before
    train = write_source(tmp_path)
    text = train.read_text()
    assert run("run", f"{train}:make_loader", *FAST, "-o", train) == 2
    assert train.read_text() == text
    assert "is read by this command" in capsys.readouterr().err


# ---- asked before anything is measured ----


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "LOADER", *FAST, "-o", "taken.py"], "was not written by pipeline-profiler"),
        (["run", "LOADER", *FAST, "-o", "."], "is a folder"),
        (["run", "LOADER", *FAST, "-o", "taken.py/below/x.json"], "cannot be written"),
        (["run", "LOADER", *FAST, "-o", "/proc/none/x.json"], "cannot be written"),
        (["run", "LOADER", *FAST, "-o", "/dev/null"], "is no regular file"),
        (["run", "LOADER", *FAST, "-o", "frozen.json"], "is read-only"),
        (["run", "LOADER", *FAST, "-o", ""], "takes the name of a file"),
        (["run", "LOADER", *FAST, "--fail-on", "stall"], "takes a bound like"),
        (["run", "LOADER", *FAST, "--fail-on", "stall>inf"], "takes a bound like"),
        (["run", "LOADER", *FAST, "--fail-on", "wait>2%"], "takes a bound like"),
        (["run", "LOADER", *FAST, "--fail-on", "stall<3%"], "takes a bound like"),
        (["run", "LOADER", *FAST, "--seconds", "nan"], "--seconds takes a number above 0"),
        (["run", "LOADER", *FAST, "--seconds", "0"], "--seconds takes a number above 0"),
        (["run", "LOADER", *FAST, "--set", "measure.limit=-1"], "write a number of seconds"),
        (["run", "LOADER", *FAST, "--set", "measure.steps=3"], "run needs at least 10"),
        (["run", "LOADER", *FAST, "--emulate-step-ms", "inf"], "--emulate-step-ms takes"),
        (["run", "LOADER", "--try", "workers=1,x"], "--try workers takes whole numbers with"),
        (["run", "LOADER", "--try", "workers=-1"], "--try workers takes whole numbers from 0"),
        (["run", "LOADER", "--try", "workers"], "--try workers takes whole numbers from 0"),
        (["run", "LOADER", "--try", "pin=7"], "--try pin takes whole numbers from 0 to 1"),
        (["run", "LOADER", "--try", "prefetch=0"], "--try prefetch takes whole numbers from 1"),
        (["run", "LOADER", "--try", "worker=0"], "Did you mean 'workers'?"),
        (["run", "LOADER", "--try", "pin=0", "--try", "pin=1"], "--try pin is given twice"),
        (["run", "LOADER", "--try", "pin=0", "--fail-on", "stall>2%"], "which --try does not"),
        (["run", "LOADER", "--", "train.py"], "run runs no script"),
        (
            ["run", "LOADER", "-o", "taken.py"],
            "was not written by pipeline-profiler",
        ),
        (["precision", "-o", "taken.py"], "was not written by pipeline-profiler"),
        (["precision", "--lr", "nan"], "--lr takes a number above 0"),
        (["precision", "--optimizer", "x"], "--optimizer is one of sgd"),
        (["precision", "--workers", "-2"], "--workers takes whole numbers"),
        (["report", "s.json", "-o", "x.pdf"], "No report format"),
        (["report", "s.json", "-o", "x.trace.json"], "No report format"),
        (["report", "s.json", "-o", "x.trace.json.gz"], "No report format"),
        (["report", "s.json", "-o", "taken.py/x.html"], "cannot be written"),
        (["report", "s.json", "--fail-on", "x"], "takes a bound like"),
        (["report", "none.json"], "No session at"),
        (["report", "a\0b"], "is not a readable session"),
        (["report", "s.json", "--against", "taken.py"], "is not a readable session"),
        (["report", "s.json", "--against", "s.json", "-o", "x.md"], "does not go with -o"),
        (["report", "s.json", "--json", "-o", "x.md"], "Give -o or --json"),
        (["report", "s.json", "s.json", "--audit", "run"], "does not go with --audit"),
    ],
)
def test_arguments_are_looked_at_first(
    argv: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    train = write_source(tmp_path)
    Path("taken.py").write_text("x = 1\n")
    sound().save("s.json")
    sound().save("frozen.json").chmod(0o444)
    assert run(*[f"{train}:make_loader" if a == "LOADER" else a for a in argv]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
    assert MEASURED not in said.err
    assert "Traceback" not in said.err
    assert Path("taken.py").read_text() == "x = 1\n"


# ---- what is measured is kept ----


def options(path: str, **more: object) -> argparse.Namespace:
    return argparse.Namespace(**{"output": path, "json": False, "fail_on": None} | more)


def test_a_failed_rule_is_saved_with_the_session_and_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"rule": "slow", "error": "KeyError", "text": "x", "at": "a.py:1"}
    folder = tmp_path / "new" / "folder"  # folders are made
    args = options(str(folder / "s.json"), json=True)
    conclude = lambda session: session.results.update(failed_rules=[failed])  # noqa: E731
    assert ending.finish(sound(), args, conclude) == 3
    assert json.loads(capsys.readouterr().out)["failed_rules"] == [failed]
    assert Session.load(folder / "s.json").results["failed_rules"] == [failed]


def test_a_conclusion_that_fails_comes_after_saving(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = options(str(tmp_path / "s.json"))

    def conclude(session: Session) -> None:
        raise ZeroDivisionError("a renderer that raises")

    with pytest.raises(ZeroDivisionError) as raised:
        ending.finish(sound(), args, conclude)
    assert ending.failed(raised.value, args) is ExitCode.NO_RESULT
    assert Session.load(tmp_path / "s.json").runs
    assert f"The session is saved in {tmp_path / 's.json'}" in capsys.readouterr().err


def test_a_file_that_came_meanwhile_sends_the_session_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr(output.tempfile, "tempdir", str(spare))
    mine = tmp_path / "s.json"
    mine.write_text("mine")
    assert ending.finish(sound(), options(str(mine)), lambda session: None) == 2
    (saved,) = spare.iterdir()
    assert Session.load(saved).runs
    assert mine.read_text() == "mine"
    assert f"The session is saved in {saved} instead" in capsys.readouterr().err


def test_what_no_disk_takes_goes_to_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setattr(output.tempfile, "tempdir", str(tmp_path / "none"))
    gone.rmdir()
    args = options("/proc/none/s.json")
    assert ending.finish(sound(), args, lambda session: None) == 4
    out = capsys.readouterr()
    assert json.loads(out.out.splitlines()[0])["schema"] == "profile/1"
    assert "it follows on stdout" in out.err


def test_a_session_that_grows_into_a_packed_one_leaves_no_older_one_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = options(str(tmp_path / "s.json"))
    assert ending.save_meanwhile(sound(), args) == tmp_path / "s.json"
    assert Session.load(tmp_path / "s.json").runs
    monkeypatch.setattr(session_module, "GZIP_ABOVE_BYTES", 1000)
    assert ending.finish(sound(), args, lambda session: None) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["s.json.gz"]
    assert args.saved == tmp_path / "s.json.gz"


# ---- terminals ----

EVIL = "a\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp.exe\r\x00b"


def test_nothing_of_a_session_reaches_the_terminal_as_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = sound()
    session.notes = [EVIL]
    session.environment[EVIL] = EVIL
    session.results = {"verdict": EVIL, "sentence": EVIL}
    path = session.save(tmp_path / "s.json")
    assert run("report", path) == 0
    assert run("report", tmp_path / EVIL.replace("\0", "")) == 2
    assert run("report", path, "-o", tmp_path / f"{EVIL[:5]}.pdf") == 2
    with pytest.raises(SystemExit):
        run(EVIL)
    said = capsys.readouterr()
    text = said.out + said.err
    assert "\\x1b[2J" in text
    assert not set(text) & set("\x1b\x07\x9b\u202e\r\x00")
    for ending_ in (".txt", ".md", ".html"):
        written = render.make_report(session, f"r{ending_}").decode()
        assert not set(written) & set("\x1b\x07\x9b\u202e\r\x00"), ending_
    session.notes = ["first\nVerdict\n-------\nnot input-bound"]  # begins no line of the report
    assert "\nnot input-bound" not in render.to_text(session)
