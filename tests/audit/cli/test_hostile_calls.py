"""Calls that cannot work: every one ends with one sentence and the exit code that says whose turn
it is, 2 the caller's, 4 the machine's; never with a traceback.

In this process where it is the arguments that are wrong; in one of its own where its streams,
folder or environment are.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import audit
from audit.cli.ending import exit_code_of
from audit.cli.main import app
from tests.audit.conftest import Command
from tests.conftest import ROOT, picture
from tests.warm import warm_audit, warm_shell

pytestmark = pytest.mark.slow

AUDIT = f"{shlex.quote(sys.executable)} -m audit"
PLAN = "--split all --target this-set --half-width 0.3"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset `set`, its run `run`, a plan, and things that are in the way."""
    folder = tmp_path_factory.mktemp("calls")
    for split in ("train", "test"):
        for seed, label in enumerate(("cat", "dog")):
            (folder / "set" / split / label).mkdir(parents=True)
            for i in range(2):
                drawn = Image.fromarray(picture(i + 10 * seed))
                drawn.save(folder / "set" / split / label / f"{i}.png")
    (folder / "set/broken.jpg").write_bytes(b"no picture")
    (folder / "file").write_text("in the way")
    (folder / "folder").mkdir()
    (folder / "empty.csv").write_text("")
    (folder / "nul.jsonl").write_text('{"path": "a\\u0000.png"}\n')
    (folder / "nul.txt").write_bytes(b"path\na\0.png\n")
    (folder / "self").symlink_to("self")
    (folder / "notes.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "bad.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    (folder / "bad.json").write_bytes(b"[" * 100_000)
    made = call(folder, "audit scan set --out run --jobs 1")
    assert made.returncode == 1, made.stderr
    assert call(folder, f"audit subset plan run {PLAN} --output plan.json").returncode == 0
    return folder


def call(folder: Path, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell in a folder, `audit` standing for this one.

    A start of its own is needed only where the environment or a closed stream meets it.
    """
    if environment or "&-" in line or "2>" in line or not line.startswith("audit "):
        line = line.replace("audit ", f"{AUDIT} ", 1)
    return subprocess.run(
        ["bash", "-c", warm_shell(line, "audit", "audit")],
        capture_output=True, text=True, cwd=folder, check=False, errors="replace",
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


CONFIGS = {
    "types": "scan = 3",
    "list": "[[scan]]\nexclude = []",
    "match": "match = [1]",
    "checks": "checks = 'all'",
    "check": "[checks]\nIMG001 = 3",
    "threshold": "[checks.IMG003]\nmin_sharpness = 'high'",
    "text": "[scan]\nexclude = 'abc'",
    "item": "[scan]\nexclude = [1]",
    "negative": "[scan]\nmax_pixels = -1",
    "infinite": "[scan]\nmax_pixels = inf",
    "endless": f"[scan]\nmax_pixels = {'9' * 5000}",
    "endless time": f"[scan]\ntimeout_s = {'9' * 400}",
    "endless threshold": f"[checks.IMG003]\nmin_sharpness = {'9' * 400}",
    "late": "[scan]\ntimeout_s = nan",
    "measure": "measure = 1",
    "hashes": "[measure]\nhashes = [[1]]",
    "candidates": "[match]\nhashes = [{a = 1}]",
    "radius": "[match]\nradius = 'far'",
    "unfinished": "[scan",
    "deep": "a = " + "[" * 5000,
    "no threshold": "[checks.IMG001]\nmax_p9 = 0.2",
    "no code": "[checks.IMG999]",
}
SAYS = {
    "threshold": "min_sharpness",
    "unfinished": "TOML",
    "no threshold": "max_p9",
    "no code": "IMG999",
    "audit scan none": "none",
    "audit scan set --config none.toml": "none.toml",
    "audit scan set --root x": "OLD=NEW",
    "audit recheck none": "audit scan",
    "audit report none": "audit scan",
    "audit explain NONE001": "audit explain",
    "audit sql none 'SELECT 1'": "audit scan",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hostile_config_is_the_callers(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    Path(f"{name}.toml").write_text(CONFIGS[name])
    said = refused_here(["recheck", "run", "--config", f"{name}.toml"], capfd)
    assert SAYS.get(name, "") in said


def refused_here(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """Assert that a call in this process ends with 2 and a sentence; returns what was said."""
    capfd.readouterr()
    code = exit_code_of(lambda: app(words, standalone_mode=False))
    said = capfd.readouterr().err
    check_refused(code, said, 2)
    return said


def refused(folder: Path, line: str, code: int) -> str:
    """Assert that a call ends with a code and a sentence; returns what was said."""
    done = call(folder, line)
    check_refused(done.returncode, done.stderr, code)
    return done.stderr


def check_refused(code: int, said: str, expected: int) -> None:
    for wrong in ("Traceback", "Exception ignored", "please report this"):
        assert wrong not in said, said
    assert code == expected, (code, said)
    assert said.strip()


CALLERS = [
    "audit scan none",
    "audit scan ''",
    "audit scan set --out file",
    "audit scan set --out file/run",
    "audit scan set --out self",
    "audit scan set --out set",
    "audit scan set --out .",
    "audit scan set --out ''",
    f"audit scan set --out {'x' * 300}",
    "audit scan set --out /proc/run",
    "audit scan self",
    "audit scan empty.csv",
    "audit scan nul.jsonl",
    "audit scan nul.txt",
    "audit scan bad.parquet",
    "audit scan bad.json",
    f"audit scan {'y' * 5000}",
    "audit scan set --config none.toml",
    "audit scan set --config folder",
    "audit scan set --config notes.txt",
    "audit scan set --config /dev/null/x",
    "audit scan set --layout none",
    "audit scan set --checks NONE",
    "audit scan set --root x",
    "audit scan set --jobs 0",
    "audit scan set set",
    "audit recheck none",
    "audit recheck file",
    "audit recheck run --checks ''",
    "audit report none",
    "audit report file",
    "audit report run -o folder",
    "audit report run -o folder/none/x.md",
    "audit report run -o file/x.md",
    "audit report run -o /proc/x.md",
    f"audit report run -o {'x' * 300}.md",
    "audit report run -o ''",
    "audit show run none",
    "audit show run ''",
    "audit find none run",
    "audit find set none",
    "audit find set",
    "audit decide run --as drop none",
    "audit decide run --where 'no sql' --as drop",
    "audit decide run",
    "audit decide none 0.png --as drop",
    "audit decide none --undo",
    "audit decide none --log",
    "audit export run",
    "audit export run --out file",
    "audit export run --out file/x",
    "audit export run --out /proc/x",
    "audit export none --out x",
    "audit sql run 'no sql'",
    "audit sql none 'SELECT 1'",
    "audit sql run ''",
    "audit sql run \"SELECT * FROM 'file'\"",
    "audit explain NONE001",
    "audit explain ''",
    "audit app none",
    "audit app --port 0",
    "audit none",
    "audit --none",
    f"audit subset plan run {PLAN} --output folder",
    f"audit subset plan run {PLAN} --output file/x",
    f"audit subset plan run {PLAN} --predictions bad.parquet",
    f"audit subset plan run {PLAN} --predictions notes.txt",
    "audit subset draw run --plan bad.json --seed 1 -o x.csv",
    "audit subset draw run --plan notes.txt --seed 1 -o x.csv",
    "audit subset draw run --plan folder --seed 1 -o x.csv",
    "audit subset draw run --plan plan.json --split all --seed 1 -o file/x.csv",
    "audit subset draw run --plan plan.json --split all --seed 1 -o none/x.parquet",
    "audit subset score run --split all --predictions bad.parquet",
    "audit subset score notes.txt --predictions notes.txt",
    "audit subset plan run --sizes auto --split none",
]


@pytest.mark.parametrize("line", CALLERS, ids=[line[6:60] for line in CALLERS])
def test_a_wrong_call_is_one_sentence_and_2(
    place: Path, line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    before = (place / "file").read_text(), sorted(os.listdir(place / "set"))
    said = refused_here(shlex.split(line)[1:], capfd)
    assert SAYS.get(line, "") in said
    assert (place / "file").read_text() == before[0]
    assert sorted(os.listdir(place / "set")) == before[1], "nothing is written into the dataset"


# Answers of each kind, with their exit code where nothing is in the way: all are written by one
# function, `dataset_preflight.foundation.terminal`.
ANSWERS = {
    "audit scan set --out run --jobs 1 --json": 1,
    "audit report run": 0,
    f"audit subset plan run {PLAN}": 0,
    "audit scan --help": 0,
}


@pytest.mark.parametrize("line", ANSWERS, ids=[line[6:60] for line in ANSWERS])
def test_an_answer_that_cannot_be_written_is_4(place: Path, line: str) -> None:
    for where in (">/dev/full", ">&-") if line == "audit report run" else (">/dev/full",):
        said = refused(place, f"{line} {where}", 4)
        assert "cannot be written" in said or "No space left" in said


@pytest.mark.parametrize("line", ANSWERS, ids=[line[6:60] for line in ANSWERS])
def test_a_reader_that_leaves_ends_nothing(place: Path, line: str) -> None:
    done = call(place, f"{line} | true; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == ANSWERS[line], done.stderr
    for noise in ("Traceback", "Broken pipe", "Exception ignored"):
        assert noise not in done.stderr


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "<&-"])
def test_messages_that_cannot_be_written_change_nothing(place: Path, where: str) -> None:
    done = call(place, f"audit scan set --out run --jobs 1 {where}")
    assert done.returncode == 1
    assert "FILE001" in done.stdout


def test_a_working_folder_that_is_gone_is_the_callers(place: Path) -> None:
    for command in ("scan set", "report run", "explain", "subset plan run"):
        said = refused(place, f"mkdir gone; cd gone; rmdir ../gone; audit {command}", 2)
        assert "does not exist any more" in said


def test_the_default_config_may_be_anything(place: Path, tmp_path: Path) -> None:
    run = shutil.copytree(place / "run", tmp_path / "run")
    (tmp_path / "audit.toml").mkdir()
    assert "audit.toml" in refused(tmp_path, f"audit recheck {run}", 2)
    (tmp_path / "audit.toml").rmdir()
    (tmp_path / "audit.toml").write_bytes(b"# caf\xe9")
    assert "UTF-8" in refused(tmp_path, f"audit recheck {run}", 2)


def test_a_home_that_cannot_be_written_is_no_trouble(place: Path) -> None:
    home = {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none", "XDG_CONFIG_HOME": "/proc/none"}
    done = call(place, "audit scan set --out homeless --jobs 1", **home)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    for line in (
        "decide run train/cat/0.png --as keep",
        "decide run --log",
        "decide run --undo",
        "explain",
    ):
        done = warm_audit(*line.split(), folder=place, USER="", LOGNAME="", **home)
        assert done.returncode == 0, done.stderr


def test_a_run_inside_the_dataset_is_no_part_of_it(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "set", tmp_path / "set")
    for said in ("9 files read", "9 unchanged"):
        done = call(tmp_path, "audit scan set --out set/run --jobs 1")
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr


def test_output_in_another_encoding_is_no_trouble(place: Path) -> None:
    done = call(place, "audit report run", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("sql", "RUN", "SELECT '\udcff'"),
        ("decide", "RUN", "--where", "id = '\udcff'", "--as", "drop", "--yes"),
        ("decide", "RUN", "train/cat/0.jpg", "--as", "relabel:\udcff"),
        ("decide", "RUN", "train/cat/0.jpg", "--as", "drop", "--note", "\udcff"),
        ("export", "RUN", "--plan", "PLAN", "--splits", "\udcff=.5,val=.5", "--resplit"),
    ],
)
def test_text_that_is_not_utf8_is_refused_and_nothing_is_recorded(
    words: tuple[str, ...], command: Command, run: Path, tmp_path: Path
) -> None:
    places = {"RUN": run, "PLAN": tmp_path / "plan.json"}
    code, out, err = command(*(places.get(word, word) for word in words))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is not valid UTF-8 text" in err
    assert not (tmp_path / "plan.json").exists()
    assert audit.open(run).decisions.is_empty()


def test_a_folder_whose_name_is_not_utf8_is_scanned(
    command: Command, tree: Path, tmp_path: Path
) -> None:
    folder = tree.rename(tmp_path / "pets\udcff")
    run = tmp_path / "run"
    assert command("scan", folder, "--out", run, "--checks", "FILE")[0] == 0
    assert command("export", run, "--plan", tmp_path / "plan.json")[0] == 0
    assert command("apply", tmp_path / "plan.json", "--to", tmp_path / "new")[0] == 0
    assert command("scan", folder, "--out", tmp_path / "run\udcff")[0] == 2
