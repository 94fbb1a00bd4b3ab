"""Names that try to move the cursor: no command lets one of their characters reach a terminal."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from PIL import Image

from tests.audit.conftest import Command
from tests.audit.hostile_files import RAW
from tests.conftest import ROOT, picture

pytestmark = pytest.mark.slow

# Clears the screen, colours, sets the title, C1's own introducer, turns the line around, DEL.
EVIL = "\x1b[2J\x1b[31m\x1b]0;t\x07\x9b1m\u202e\x7f\u2028\r\n"


@pytest.fixture
def said(run: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command beside the run; exit code, output and messages."""
    monkeypatch.chdir(run.parent)
    monkeypatch.setenv("COLUMNS", "100")
    return command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose dataset, splits, classes, files and own path are hostile."""
    folder = tmp_path_factory.mktemp("evil")
    for split in (f"train{EVIL}", "test"):
        for seed, label in enumerate((f"cat{EVIL}", "dog")):
            (folder / f"set{EVIL}" / split / label).mkdir(parents=True)
            for i in range(3):
                path = folder / f"set{EVIL}" / split / label / f"{i}{EVIL}.png"
                Image.fromarray(picture(i + 10 * seed)).save(path)
    (path.parent / f"broken{EVIL}.jpg").write_bytes(b"no picture")
    (path.parent / f"notes{EVIL}.txt{EVIL}").write_bytes(b"left out")
    return folder / f"run{EVIL}"


SAMPLE = f"test/cat{EVIL}/0{EVIL}.png"
COPY = f"train{EVIL}/cat{EVIL}/0{EVIL}.png"
PLAN = ("--split", "all", "--by", "label", "--target", "this-set", "--half-width", "0.2")
COMMANDS = [
    ("scan", f"set{EVIL}", "--out", "RUN", "--jobs", "1"),
    ("scan", f"set{EVIL}", "--out", "RUN", "--jobs", "1"),
    ("scan", f"set{EVIL}", "--out", "RUN", "--jobs", "1", "--json"),
    ("recheck", "RUN", "--trace"),
    ("report", "RUN"),
    ("report", "RUN", "--json"),
    ("report", "RUN", "-o", f"r{EVIL}.md"),
    ("report", "RUN", "-o", f"none{EVIL}/r.md"),
    ("show", "RUN", SAMPLE),
    ("show", "RUN", SAMPLE, COPY),
    ("show", "RUN", f"gone{EVIL}"),
    ("find", f"set{EVIL}", "RUN", "--jobs", "1"),
    (
        "decide",
        "RUN",
        SAMPLE,
        "--as",
        f"relabel:new{EVIL}",
        "--new-name",
        "--note",
        EVIL,
        "--by",
        f"me{EVIL}",
    ),
    ("decide", "RUN", "--where", f"label = 'cat{EVIL}'", "--as", "drop"),
    ("decide", "RUN", "--where", f"label ={EVIL}", "--as", "drop"),
    ("decide", "RUN", "--code", "DUP001", "--as", "drop"),
    ("decide", "RUN", "--code", "DUP001", "--rule", "largest", "--yes", "--by", f"me{EVIL}"),
    ("decide", "RUN", "--code", EVIL, "--as", EVIL),
    ("decide", "RUN", "--log"),
    ("decide", "RUN", "--stale"),
    ("decide", "RUN", "--log", "--json"),
    ("export", "RUN", "--out", f"out{EVIL}"),
    ("export", "RUN", "--out", f"m{EVIL}", "--annotations", EVIL),
    ("decide", "RUN", "--undo", "--by", f"me{EVIL}"),
    ("sql", "RUN", 'SELECT id AS "a\x1b[31m\nb", label, [label] AS l FROM images'),
    ("sql", "RUN", "SELECT * FROM images", "--json"),
    ("sql", "RUN", f"SELECT {EVIL}"),
    ("subset", "plan", "RUN", *PLAN),
    ("subset", "plan", "RUN", "--sizes", "auto", "--split", "all", "--predictions", EVIL),
    ("subset", "plan", "RUN", "--split", EVIL, "--half-width", "0.2"),
    ("subset", "draw", "RUN", "--plan", EVIL, "--seed", "1", "-o", f"{EVIL}.csv"),
    ("subset", "score", EVIL, "--predictions", EVIL),
    ("explain", EVIL),
    ("explain", EVIL, EVIL),
    ("app", f"none{EVIL}"),
    ("scan", f"none{EVIL}"),
    ("scan", f"set{EVIL}", "--layout", EVIL),
    ("scan", f"set{EVIL}", "--config", EVIL),
    ("scan", f"set{EVIL}", f"--{EVIL}"),
    ("report", f"none{EVIL}"),
    (EVIL,),
]


def test_no_control_character_of_a_name_is_printed(run: Path, said: Command) -> None:
    answered = 0
    for command in COMMANDS:
        code, out, err = said(*(run if word == "RUN" else word for word in command))
        assert "Traceback" not in err, command
        assert RAW.findall(err) == [], command
        if "--json" in command:
            json.loads(out)
            assert "\x1b" not in out
        else:
            assert RAW.findall(out) == [], command
        answered += code in (0, 1)
    assert answered > len(COMMANDS) / 2, "most commands worked"
    # a line break in a name makes no line
    for command in (("show", run, SAMPLE), ("sql", run, "SELECT id, label FROM images")):
        _, out, _ = said(*command)
        assert [line for line in out.splitlines() if line.startswith((".png", "/"))] == []
    _, out, _ = said("sql", run, "SELECT id FROM images")
    assert len(out.splitlines()) == 2 + 13


@pytest.mark.parametrize("path", sorted((ROOT / "audit/cli").glob("*.py")), ids=lambda p: p.stem)
def test_only_the_terminal_writes(path: Path) -> None:
    if path.stem != "terminal":
        calls = [ast.unparse(n.func) for n in ast.walk(ast.parse(path.read_text()))
                 if isinstance(n, ast.Call)]  # fmt: skip
        assert not {"print", "typer.echo", "sys.stdout.write", "sys.stderr.write"} & set(calls)
