"""The documents promise nothing that is not there: commands, options, examples and paths."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from PIL import Image

import audit
from audit.checking.check import Check, all_checks
from audit.sources import open_source
from audit.sources.packs.formats import pack_formats
from audit.subset import read_predictions
from pipeline_profiler.checks.check import FAMILIES as PROFILER_FAMILIES
from pipeline_profiler.checks.check import all_checks as profiler_checks
from pipeline_profiler.cli.main import parser
from pipeline_profiler.profiling.diagnose.finding import NAMES as CAUSES
from pipeline_profiler.profiling.record.session import Session
from tests.audit.checking import test_check_docs as check_rules
from tests.audit.checks import test_cases as case_rules
from tests.audit.subset.frames import made_set, predicted
from tests.conftest import ROOT, make_tree, picture
from tests.pipeline_profiler.fakes import made_session, schedule

DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "audit/checks/README.md")]
DOCUMENTS += [ROOT / "pipeline_profiler" / "checks" / "README.md"]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))
TOOLS = ("audit", "pipeline-profiler")


def imported(path: Path, name: str) -> ModuleType:
    """The module of a file that is in no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


make_commands = imported(ROOT / "docs" / "make_commands.py", "make_commands")
COMMANDS = {c.name: c for c in make_commands.audit_commands() + make_commands.profiler_commands()}
GROUPS = {" ".join(name.split()[:n]) for name in COMMANDS for n in (1, 2)} - COMMANDS.keys()
GLOBAL_OPTIONS = {"--config", "--set", "--trace", "--help"}  # of every command
EVERY = [*COMMANDS.values(), make_commands.page_command()]
ALL_OPTIONS = {option for c in EVERY for p in c.parameters for option in p.names}


# ---- the page of commands ----


def test_the_page_of_commands_is_current() -> None:
    assert make_commands.PAGE.read_text() == make_commands.document(), "run `make docs`"


make_checks = imported(ROOT / "docs" / "make_checks.py", "make_checks")


def test_the_documents_of_checks_and_tables_are_current() -> None:
    for path, text in make_checks.documents().items():
        assert path.read_text() == text, "run `make docs`"


def test_the_table_of_checks() -> None:
    lines = make_checks.table_of_checks().splitlines()
    assert lines[:2] == ["| code | name | severity | finds |", "|---|---|---|---|"]
    assert len(lines) == 2 + len(all_checks())
    first = next(iter(all_checks().values()))
    assert lines[2].startswith(f"| {first.code} | {first.name} | {first.severity} | ")


def test_the_map_and_the_table_of_modules_are_current() -> None:
    for path, text in (
        imported(ROOT / "docs" / "make_modules.py", "make_modules").documents().items()
    ):
        assert path.read_text() == text, "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_each_of_its_options_says_what_it_is_for(name: str) -> None:
    command = COMMANDS[name]
    assert command.summary.endswith((".", "?"))
    for parameter in command.parameters:
        assert parameter.meaning.strip(), f"{name}: {parameter.written} has no help"


def test_the_page_has_every_option_of_the_help() -> None:
    """The help is made by typer and argparse; the page is made by `docs/make_commands.py`."""
    from typer.testing import CliRunner

    from audit.cli.main import app

    for name, command in COMMANDS.items():
        tool, *words = name.split()
        if tool == "audit":
            printed = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output
        else:
            with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit):
                parser().parse_args([*words, "--help"])
            printed = out.getvalue()
        listed = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", printed))
        own = {option for p in command.parameters for option in p.names if option.startswith("--")}
        mentioned = {
            word for p in command.parameters for word in re.findall(r"--[\w-]+", p.meaning)
        }
        assert own <= listed, name
        assert listed - {"--help"} <= own | mentioned | GLOBAL_OPTIONS, name


def test_every_page_of_the_app_has_a_picture_with_its_title() -> None:
    from dataset_preflight.app import all_pages

    pictures = imported(ROOT / "docs" / "screenshots" / "make.py", "make_pictures")
    shown = {}
    for name, (link, *_) in pictures.PAGES.items():
        with Image.open(ROOT / "docs" / "screenshots" / f"{name}.png") as picture:
            shown[re.split(r"[?]", link)[0] or "preflight"] = picture.info.get("Title")
    titles = {name: title for name, (_, _, title, _) in all_pages().items()}
    assert shown == titles, "run `make pictures`"


# ---- commands in the documents ----


@cache
def tokens(document: Path) -> list[Token]:
    parsed = MarkdownIt("commonmark").enable("table").parse(document.read_text())
    return [one for token in parsed for one in (token, *(token.children or ()))]


def command_lines(document: Path) -> Iterator[str]:
    """Every line that begins with one of the tools, in blocks and in running text."""
    for token in tokens(document):
        if token.type == "fence" and token.info in ("", "bash", "sh"):
            lines = token.content.replace("\\\n", " ").splitlines()
        elif token.type == "code_inline":
            lines = [token.content]
        else:
            continue
        for line in lines:
            line = re.sub(r"^\.venv/bin/", "", line.strip())
            if line.split(" ")[0] in TOOLS:
                yield line


def problem(line: str) -> str:
    """What is wrong with a command line of a document; "": nothing."""
    words = shlex.split(re.sub(r"[\[\]]", " ", line.replace("\\|", "|")), comments=True)
    words = words[: words.index("--")] if "--" in words else words  # then another program's
    place = next((n for n in (3, 2, 1) if " ".join(words[:n]) in COMMANDS), 0)
    if not place:
        rest = [word for word in words[1:3] if not word.startswith("-")]
        return "" if " ".join(words[:2]) in GROUPS or not rest else f"no such command: {line}"
    command = COMMANDS[" ".join(words[:place])]
    options = {option for p in command.parameters for option in p.names} | GLOBAL_OPTIONS
    unknown = {w.split("=")[0] for w in words[place:] if re.match(r"--?[a-z]", w)} - options
    return f"{command.name} has no {', '.join(sorted(unknown))}: {line}" if unknown else ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_the_documents_exist(document: Path) -> None:
    assert [text for line in command_lines(document) if (text := problem(line))] == []


def test_the_documents_name_commands_at_all_and_wrong_ones_are_seen() -> None:
    assert sum(1 for document in DOCUMENTS for _ in command_lines(document)) > 40
    assert "no such command" in problem("audit scam data --out runs/x")
    assert "has no --outt" in problem("audit scan data --outt runs/x  # a comment")
    assert "has no --halfwidth" in problem("audit subset plan RUN --halfwidth 0.03")
    assert "has no --sped" in problem("pipeline-profiler run train.py:make_loader --sped")
    assert problem("audit subset plan RUN --half-width 0.03") == ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_options_in_running_text_exist(document: Path) -> None:
    texts = [t.content for t in tokens(document) if t.type == "code_inline"]
    options = {text.split()[0] for text in texts if re.match(r"--[a-z]", text)}
    assert options <= ALL_OPTIONS | GLOBAL_OPTIONS


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(
            re.findall(r"(?:`|^)make ([a-z]+)(?:`| +#|$)", document.read_text(), re.MULTILINE)
        )
        assert named <= targets, document.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_and_links_lead_somewhere(document: Path) -> None:
    links = [str(t.attrs["href"]) for t in tokens(document) if t.type == "link_open"]
    links += [str(t.attrs["src"]) for t in tokens(document) if t.type == "image"]
    own = [link.split("#")[0] for link in links if not re.match(r"https?:|#", link)]
    assert [link for link in own if not (document.parent / link).exists()] == []
    if document.name == "CONTRIBUTING.md":
        texts = [t.content for t in tokens(document) if t.type == "code_inline"]
        paths = [t for t in texts if re.fullmatch(r"[a-z_]+(/[\w.-]+)*/?", t) and "/" in t]
        assert len(paths) > 20
        assert [path for path in paths if not (ROOT / path).exists()] == []


# ---- examples in Python ----


def blocks(document: Path) -> list[str]:
    """The blocks of Python; not parsed, because each test process asks at its start."""
    return re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


class EvaluationLoop:
    """What an evaluation loop has: ids, images, and a model of torch, Keras or a trainer."""

    def __init__(self, ids: list[str]) -> None:
        self.ids, self.classes = ids, [f"class{k}" for k in range(5)]
        self.logits = np.random.default_rng(0).normal(size=(len(ids), 5)).astype(np.float32)

    def predict(self, of: str) -> Any:
        """Keras returns what the last layer gives, a trainer an object with `predictions`."""
        shares = np.exp(self.logits) / np.exp(self.logits).sum(axis=1, keepdims=True)
        return shares if of == "dataset" else SimpleNamespace(predictions=self.logits)

    def names(self) -> dict[str, Any]:
        import torch

        half = len(self.ids) // 2
        parts = (slice(None, half), slice(half, None))
        loader = [(self.ids[part], torch.from_numpy(self.logits[part])) for part in parts]
        return {
            "model": torch.nn.Identity(), "loader": loader, "classes": self.classes,
            "keras_model": self, "dataset": "dataset", "trainer": self, "test_set": "test set",
            "file_names": self.ids,
        }  # fmt: skip


def prepare_subsets(folder: Path) -> dict[str, Any]:
    frame = made_set(400, seed=1)
    frame.write_parquet(folder / "test.parquet")
    for seed, name in ((1, "A"), (2, "B")):
        predicted(frame, 0.8, seed).write_csv(folder / f"{name}.csv")
    return EvaluationLoop(frame["sample_id"].to_list()).names()


def prepare_loop(folder: Path) -> dict[str, Any]:
    return {"loader": [1, 2, 3], "train": lambda batch: None}


def prepare_profile(folder: Path) -> dict[str, Any]:
    """Write a session, and return the names of a training loop."""
    session: Session = made_session(schedule(20, 1, 2, 5.0, lambda j: 3.0), 5.0, workers=1)
    session.save(folder / "profile.json")
    return prepare_loop(folder)


def prepare_recorder(folder: Path) -> dict[str, Any]:
    from pipeline_profiler import Recorder

    return prepare_loop(folder) | {"Recorder": Recorder}


def prepare_scan(folder: Path) -> dict[str, Any]:
    make_tree(folder / "images")
    return {"source": open_source([str(folder / "images")])}


def prepare_pictures(folder: Path) -> dict[str, Any]:
    """A folder and datasets of a few pictures."""
    make_tree(folder / "images")
    (folder / "images/train/cat/0.jpg").rename(folder / "images/train/cat/17.jpg")
    shown = [picture(seed, 40, 32) for seed in range(4)]
    return {
        "train_set": [(p, "cat") for p in shown], "test_set": [(shown[0], "cat")],
        "images": np.stack(shown), "labels": [0, 1, 0, 1],
        "rows": [{"image": p, "species": "cat"} for p in shown], "loader": iter(shown),
        "audit": audit,
    }  # fmt: skip


def prepare_own_check(folder: Path) -> dict[str, Any]:
    path = folder / "my_checks.py"
    path.write_text(blocks(ROOT / "docs" / "ci.md")[0])
    imported(path, "my_checks")
    return {}


# What the examples need that stands outside of them, by document.
SETTINGS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "subsets.md": prepare_subsets,
    "profile.md": prepare_profile,
    "python.md": prepare_pictures,
    "review.md": prepare_pictures,
    "preflight.md": prepare_recorder,
    "README.md": prepare_scan,
    "embeddings.md": lambda folder: {},
    "ci.md": prepare_own_check,
}
EXAMPLES = [
    pytest.param(document.name, text, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    if document.name != "CONTRIBUTING.md"
    for number, text in enumerate(blocks(document))
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_examples_run(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in SETTINGS, f"say in SETTINGS what the example in {name} needs"
    monkeypatch.chdir(tmp_path)
    names = SETTINGS[name](tmp_path)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, name, "exec"), names)
        for key, test in list(names.items()):
            if key.startswith("test_") and callable(test):
                test()


@pytest.mark.slow
def test_what_evaluation_loops_write_is_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loops = [text for text in blocks(ROOT / "docs" / "subsets.md") if "probabilities" in text]
    assert len(loops) == 3
    names = prepare_subsets(tmp_path)
    for text in loops:
        exec(compile(text, "subsets.md", "exec"), names)
    files = [
        read_predictions(tmp_path / f) for f in ("torch.npz", "keras.parquet", "trainer.jsonl")
    ]
    for one in files[1:]:
        assert one["key"].to_list() == files[0]["key"].to_list()
        assert one["prediction"].to_list() == files[0]["prediction"].to_list()
        assert one["prob_class3"].to_numpy() == pytest.approx(files[0]["prob_class3"], abs=1e-6)


@pytest.fixture(scope="module")
def contributed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    """The check that CONTRIBUTING.md shows, loaded as a file of `audit/checks/` would be."""
    text, _ = blocks(ROOT / "CONTRIBUTING.md")
    path = tmp_path_factory.mktemp("checks") / "img_oversaturated.py"
    path.write_text(text)
    module = imported(path, "img_oversaturated")
    (kind,) = (
        value for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Check) and value is not Check
    )  # fmt: skip
    yield kind()
    del sys.modules["img_oversaturated"]


def rules(module: ModuleType, *names: str) -> list[Any]:
    """The tests of a module that take these arguments."""
    tests = [f for n, f in vars(module).items() if n.startswith("test_")]
    return [f for f in tests if tuple(inspect.signature(f).parameters) == names]


@pytest.mark.parametrize("rule", rules(check_rules, "check"), ids=lambda f: f.__name__)
def test_the_check_of_contributing_is_documented_as_all_are(
    contributed: Check, rule: Callable[[Check], None]
) -> None:
    rule(contributed)


def test_the_cases_of_the_check_of_contributing_hold(contributed: Check) -> None:
    assert contributed.code not in all_checks(), "the example must not use a code that is taken"
    _, text = blocks(ROOT / "CONTRIBUTING.md")
    names: dict[str, Any] = {}
    exec(compile(text, "CONTRIBUTING.md", "exec"), names)
    for case in names["CASES"][contributed.code]:
        found, clean = case_rules.test_dirty_case_is_found, case_rules.test_clean_case_is_clean
        (found if case.expect else clean)(contributed, case)


# ---- scripts that no other test imports, and scripts in strings ----

SCRIPTS = [
    *(ROOT / "benchmarks").glob("*.py"),
    *(ROOT / "docs").rglob("*.py"),
    ROOT / "app.py",
    ROOT / "dataset_preflight" / "app.py",
]
# this file holds a bad example on purpose
SCRIPTS += [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
PACKAGES = ("audit", "pipeline_profiler")
SCRIPT = re.compile(r"^from (audit|pipeline_profiler)", re.MULTILINE)


def imports_of_ours(text: str) -> Iterator[tuple[str, str]]:
    """(module, name) of every import of the two packages, in strings that are scripts too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and SCRIPT.search(str(node.value)):
            with contextlib.suppress(SyntaxError):
                yield from imports_of_ours(str(node.value))


def exists(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(
            importlib.util.find_spec(f"{module}.{name}")
        )
    except ModuleNotFoundError:
        return False


@pytest.mark.slow
def test_what_scripts_import_from_here_exists() -> None:
    """A benchmark takes minutes; that it finds its names takes none, and a rename breaks them."""
    wanted = {(path.name, *pair) for path in SCRIPTS for pair in imports_of_ours(path.read_text())}
    assert len(wanted) > 300
    assert [row for row in sorted(wanted) if not exists(*row[1:])] == []


def test_a_script_in_a_string_is_read() -> None:
    script = "SCRIPT = '''\nimport sys\nfrom audit.gone import scan\n'''"
    assert list(imports_of_ours(script)) == [("audit.gone", "scan")]
    assert not exists("audit.gone", "scan")


def test_the_lists_of_the_readme_are_those_of_the_program() -> None:
    text = (ROOT / "README.md").read_text()
    row = re.search(r"audit scan path/to/images +# (.+)", text)
    assert row is not None
    sources = {word.strip().lower() for word in row[1].split(",")}
    assert sources == {"a folder", "a manifest", "an address", *pack_formats()}
    table = text.split("## What it finds")[1].split("##")[0]
    cells = re.findall(r"^\| ([A-Z]{3,}[A-Z, ]*) \|", table, re.MULTILINE)
    families = {word.strip() for cell in cells for word in cell.split(",")}
    codes = [*all_checks(), *(c for family in PROFILER_FAMILIES for c in profiler_checks(family))]
    assert families == {code.rstrip("0123456789") for code in [*codes, *CAUSES]}
    readers = {path.stem for path in (ROOT / "audit" / "annotations").glob("*.py")}
    forms = re.findall(r"# ([A-Z, ]+): annotations beside", text)
    assert {word.strip().lower() for word in forms[0].split(",")} - readers == {"csv"}
    lines = [*command_lines(ROOT / "README.md")]
    assert len(lines) > 5
    assert [problem(line) for line in lines if problem(line)] == []


def test_the_recipe_of_a_training_names_every_check() -> None:
    named = re.findall(
        r"\b(?:LOAD|TRAIN|LOG)\d{3}", (ROOT / "docs" / "checks-training.md").read_text()
    )
    codes = {code for family in PROFILER_FAMILIES for code in profiler_checks(family)}
    assert set(named) == codes
