"""Measure the size of a checkout: lines, packages, imports, functions, commands, options.

    python benchmarks/house.py [FOLDER]

Counts the product (`audit`, `pipeline_profiler`, `dataset_preflight` and `app.py`), tests
and benchmarks of a checkout (default: this one). Only files that git tracks count, so generated
code does not. `lines` are lines of the kinds in KINDS; the figures from `files` to `public_names`
are of Python alone, where a code line is a line with a token of code. Modules are the names in
MODULES of `tests/test_architecture.py`; an arrow is a pair of modules with an import. Settings are
the keys of `audit.toml`; thresholds of checks (`[checks.CODE]`) are counted apart. Sources are read
with `ast`; only command lines and tables of settings are imported. About 15 s; the last line
is JSON.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

PACKAGES = ("audit", "pipeline_profiler", "dataset_preflight")
MODULES = ("app.py",)
KINDS = (".py", ".pyx", ".pxd", ".c", ".h", ".js", ".css", ".html", ".toml")
# Scripts as users write them, for which `benchmarks` is the place and not the code; `planted.py`
# runs them and counts as a benchmark.
PLANTED = "planted_"
LONG, MANY = 40, 7  # lines of a function; parameters
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER, tokenize.ENCODING,
}  # fmt: skip
COUNT_COMMANDS = """
import json, sys, typer
from audit.cli.main import app
from pipeline_profiler.cli.main import parser
from dataset_preflight.cli import parser as page_parser
commands, options = [], 0
SHELL = ("help", "install_completion", "show_completion")  # of every program of typer
def walk(command, path):
    global options
    if getattr(command, "hidden", False):
        return
    options += sum(p.param_type_name == "option" and not p.hidden and p.name not in SHELL
                   for p in command.params)
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            walk(inner, [*path, name])
        return
    commands.append(" ".join(path))
walk(typer.main.get_command(app), ["audit"])
def dig(parser, path):
    global options
    hidden = "==SUPPRESS=="
    options += sum(bool(a.option_strings) and a.help != hidden and a.dest != "help"
                   for a in parser._actions)
    inner = [a for a in parser._actions if hasattr(a, "choices") and isinstance(a.choices, dict)]
    for action in inner:
        shown = {a.dest for a in action._choices_actions}
        for name, below in action.choices.items():
            if name in shown:
                dig(below, [*path, name])
    if not inner:
        commands.append(" ".join(path))
dig(parser(), ["pipeline-profiler"])
dig(page_parser(), ["dataset-preflight"])
print(json.dumps([len(commands), options]))
"""
COUNT_SETTINGS = """
import dataclasses, json
from audit.checking.check import all_checks
from audit.checking import config
from audit.compare import expectations as e
from pipeline_profiler.cli.settings import setting_fields
keys = sum(map(len, getattr(config, "SETTINGS", {}).values()))
keys += len(setting_fields())
keys += len(e.NUMBERS) + len(e.SEVERITIES) + len(e.NAMES)
print(json.dumps([keys, sum(len(dataclasses.fields(c.Params)) for c in all_checks().values())]))
"""


def tracked(root: Path, places: Iterable[str], kinds: Collection[str]) -> list[Path]:
    """Return the files of these kinds that git tracks below the places."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *places], cwd=root, capture_output=True, check=True
    ).stdout.decode()
    paths = (root / name for name in listed.split("\0") if name)
    return [path for path in paths if path.suffix in kinds and path.is_file()]


def product_files(root: Path) -> list[Path]:
    """Return the tracked files of the product, of every kind."""
    return tracked(root, (*PACKAGES, *MODULES), KINDS)


def count_lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def code_lines(path: Path) -> int:
    """Return the lines with a token of code; a string that stands alone is documentation."""
    rows: set[int] = set()
    tree = ast.parse(path.read_text())
    alone = {
        (n.value.lineno, n.value.col_offset)
        for n in ast.walk(tree)
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    }
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type not in NOT_CODE and token.start not in alone:
            rows.update(range(token.start[0], token.end[0] + 1))
    return len(rows)


def dotted(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """Yield every name that a file imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_names(root: Path) -> list[str]:
    """Return the modules of the table in tests/test_architecture.py, `package.module` each."""
    for node in ast.parse((root / "tests" / "test_architecture.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "MODULES":
            table: dict[str, str] = ast.literal_eval(node.value)
            return [f"{p}.{r}" for p, rows in table.items() for r in rows.replace(",", " ").split()]
    raise SystemExit("tests/test_architecture.py has no table MODULES.")


def arrows_of(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the pairs of modules between which a file imports another."""

    def module(name: str) -> str:
        return ".".join(name.split(".")[:2])

    pairs = {(module(name), module(used)) for name, uses in graph.items() for used in uses}
    return {(a, b) for a, b in pairs if a != b}


def files_in_circles(graph: dict[str, set[str]]) -> int:
    """Return how many files import each other in a loop."""
    left = {n: {u for u in used if not n.startswith(f"{u}.")} for n, used in graph.items()}
    while free := [name for name, used in left.items() if not used & left.keys()]:
        for name in free:
            del left[name]
    return len(left)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    yield from (node for node in ast.walk(tree) if isinstance(node, kinds))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of parameters, `self` and `cls` apart."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return sum(a.arg not in ("self", "cls") for a in every)


def public_names(tree: ast.Module) -> int:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return sum(isinstance(n, kinds) and not n.name.startswith("_") for n in tree.body)


def counted_by(script: str, root: Path) -> tuple[int, int]:
    """Return the two numbers that a script prints, run with the modules of the checkout."""
    out = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    first, second = json.loads(out.stdout)
    return first, second


def measure(root: Path) -> dict[str, int]:
    product = product_files(root)
    paths = [path for path in product if path.suffix == ".py"]
    names = {dotted(path, root): path for path in paths}
    graph = {n: {u for u in imported(p) if u in names and u != n} for n, p in names.items()}
    trees = [ast.parse(path.read_text()) for path in paths]
    made = [f for tree in trees for f in functions(tree)]
    commands, options = counted_by(COUNT_COMMANDS, root)
    settings, thresholds = counted_by(COUNT_SETTINGS, root)
    benchmarks = tracked(root, ["benchmarks"], KINDS)
    planted = [p for p in benchmarks if PLANTED in p.relative_to(root).as_posix()]
    return {
        "lines": count_lines(product),
        "files": len(paths),
        "code_lines": sum(map(code_lines, paths)),
        "modules": len(module_names(root)),
        "arrows": len(arrows_of({n: u for n, u in graph.items() if "." in n})),
        "files_in_circles": files_in_circles(graph),
        "functions": len(made),
        "functions_over_40_lines": sum((f.end_lineno or 0) - f.lineno >= LONG for f in made),
        "functions_over_7_parameters": sum(parameters(f) > MANY for f in made),
        "public_names": sum(map(public_names, trees)),
        "commands": commands,
        "options": options,
        "settings": settings,
        "options_and_settings": options + settings,
        "thresholds": thresholds,
        "test_lines": count_lines(tracked(root, ["tests"], KINDS)),
        "benchmark_lines": count_lines(set(benchmarks) - set(planted)),
        "planted_script_lines": count_lines(planted),
    }


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    counts = measure(root)
    for name, value in counts.items():
        print(f"{name.replace('_', ' '):<30} {value:>9,}")
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
