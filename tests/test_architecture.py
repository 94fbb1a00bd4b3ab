"""Who may import whom, read from the source with `ast`; and what an import must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest

import audit
import pipeline_profiler
from tests.conftest import ROOT

# The modules of each package: a module imports only modules to its left, in its own line or in the
# lines above. A module that is not in this table fails.
MODULES = {
    "dataset_preflight": "foundation, request, page, app cli interface, __main__",
    "audit": (
        "errors kernels records, machine sources statistics, picture run,"
        "annotations, checking, checks decisions neighbors, embeddings, results,"
        "report subset, compare exports, scanning, interface, service, ui, cli,"
        "__main__ testing"
    ),
    "pipeline_profiler": ("profiling, checks runs, precision, report, ui, cli, interface __main__"),
}
# Packages within a package, in the same way.
WITHIN = {
    "dataset_preflight.foundation": (
        "check_contract cores files progress push steps terminal text tree_hash,"
        "charts ci_documents ending pages settings"
    ),
    "dataset_preflight.page": "rows, documents parts, runner",
    "pipeline_profiler.profiling": "record, adapters diagnose, measure, monitor",
}
FOUNDATION = "dataset_preflight.foundation"
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)  # imports are nowhere else
HEAVY = {"torch", "tensorflow", "keras", "streamlit"}
# Loaded inside functions only: they would cost every command between 0.02 and 0.6 s.
SLOW = {"scipy", "cv2", "imagehash", "yaml"}


# What a training's own Python has for the profiler, and what it may lack: for pages alone, or asked
# for where it is missing.
TRAININGS = {"numpy", "torch", "tensorflow", "keras"}
LACKED = {"jinja2", "markupsafe", "PIL", "pynvml", "rich", "_typeshed"}


@cache
def modules(package: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / package).rglob("*.py")))


@cache
def known_modules(package: str) -> frozenset[str]:
    return frozenset(dotted(path) for path in modules(package))


@cache
def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def nodes(path: Path, *, top_level_only: bool) -> Iterator[ast.AST]:
    """Every statement, or those that run at import (not in functions nor under TYPE_CHECKING)."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        yield node
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if not (top_level_only and (isinstance(node, ast.FunctionDef) or typing_only)):
            waiting += (n for n in ast.iter_child_nodes(node) if isinstance(n, STATEMENTS))


@cache
def imports(path: Path, *, top_level_only: bool = False) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes(path, top_level_only=top_level_only):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def submodule(name: str, within: str) -> str:
    """The first name below a package or module: `checks` for audit.checks.dup_equal."""
    return name.removeprefix(f"{within}.").split(".")[0]


def allowed(table: str) -> dict[str, set[str]]:
    """Module -> modules it may import: all groups to its left."""
    left: set[str] = set()
    allowed_imports: dict[str, set[str]] = {}
    for group in table.split(","):
        allowed_imports |= {name: set(left) for name in group.split()}
        left |= set(group.split())
    return allowed_imports


TABLES = MODULES | WITHIN


@pytest.mark.parametrize("place", TABLES)
def test_a_module_imports_modules_to_its_left(place: str) -> None:
    known, table = known_modules(place.replace(".", "/")), allowed(TABLES[place])
    for path in (p for p in modules(place.replace(".", "/")) if dotted(p) != place):
        own = submodule(dotted(path), place)
        assert own in table, f"{own} has no place in the table of {place}"
        used = {submodule(n, place) for n in imports(path) if n in known and n != place} - {own}
        assert used <= table[own], f"{path}: {own} may not import {used - table[own]}"


@pytest.mark.parametrize("package", MODULES)
def test_no_circles_of_files(package: str) -> None:
    paths = {dotted(path): path for path in modules(package)}
    graph = {name: imports(path) & paths.keys() - {name} for name, path in paths.items()}
    # `from package import file` names the package too, and its __init__ may import its files
    graph = {n: {u for u in used if not n.startswith(f"{u}.")} for n, used in graph.items()}
    while free := [name for name, used in graph.items() if not used & graph.keys()]:
        for name in free:
            del graph[name]
    assert not graph, f"circle among {sorted(graph)}"


def test_a_check_needs_the_contract_and_arithmetic_only() -> None:
    ours = {
        "audit",
        "audit.errors",
        "audit.records",
        "audit.checking.class_names",
        "audit.neighbors",
    }
    ours |= {name for name in known_modules("audit") if name.startswith("audit.statistics")}
    ours |= {"audit.checking.check", "audit.checking.properties"}
    ours |= {"audit.checking.class_names", "audit.checking.objects"}
    ours |= {"audit.run.store", "audit.checking.boxes", "audit.checking.label_facts"}
    ours |= {"audit.annotations.keypoints", "audit.annotations.box_pairs"}
    known = {dotted(path) for path in modules("audit")}
    others = {"audit", "numpy", "scipy", "polars"} | set(sys.stdlib_module_names)
    for path in modules("audit/checks"):
        used = imports(path)
        assert used & known <= ours | {"audit.checking", "audit.run", "audit.annotations"}, path
        assert {n.split(".")[0] for n in used} <= others, path


def test_no_module_imports_the_cases_of_checks() -> None:
    for path in [p for package in MODULES for p in modules(package)]:
        assert not {n for n in imports(path) if n.startswith(("audit.testing", "tests"))}, path


def test_only_the_store_imports_duckdb() -> None:
    for path in [p for package in MODULES for p in modules(package)]:
        if path != ROOT / "audit" / "run" / "store.py":
            assert "duckdb" not in imports(path), path


def test_audit_and_profiler_import_the_foundation_and_not_each_other() -> None:
    """No arrow upwards: only the page and the app of `dataset_preflight` import both programs."""
    above = tuple(
        f"dataset_preflight.{name}"
        for name in ("request", "page", "app", "cli", "interface", "__main__")
    )
    for path in [p for package in MODULES for p in modules(package)]:
        own = dotted(path)
        if not own.startswith(above):
            others = MODULES.keys() - {own.split(".")[0]}
            used = {n for n in imports(path) if n.split(".")[0] in others}
            assert not {n for n in used if not n.startswith(FOUNDATION)}, path


def test_the_package_above_imports_nothing() -> None:
    """A user's training imports the foundation, and with it `dataset_preflight/__init__.py`."""
    path = ROOT / "dataset_preflight" / "__init__.py"
    assert not imports(path, top_level_only=True)


def test_heavy_packages_are_imported_inside_functions_only() -> None:
    for path in [p for package in MODULES for p in modules(package)]:
        if "ui" not in path.parts and path != ROOT / "dataset_preflight" / "app.py":
            top = {n.split(".")[0] for n in imports(path, top_level_only=True)}
            assert not top & HEAVY, path


def test_the_session_needs_the_standard_library_alone() -> None:
    path = ROOT / "pipeline_profiler" / "profiling" / "record" / "session.py"
    used = {n.split(".")[0] for n in imports(path)} - {"pipeline_profiler"}
    assert used <= set(sys.stdlib_module_names), used


def test_the_profiler_needs_of_a_training_numpy_and_its_framework_alone() -> None:
    ours = {"pipeline_profiler", "dataset_preflight"}
    known = TRAININGS | LACKED | ours | set(sys.stdlib_module_names)
    for path in [*modules("pipeline_profiler"), *modules("dataset_preflight/foundation")]:
        if "ui" not in path.parts:
            assert not {n.split(".")[0] for n in imports(path)} - known, path


@pytest.mark.parametrize("path", modules("dataset_preflight/foundation"), ids=dotted)
def test_what_both_are_made_of_needs_the_standard_library_alone(path: Path) -> None:
    used = {n.split(".")[0] for n in imports(path, top_level_only=True)} - {"dataset_preflight"}
    assert used <= set(sys.stdlib_module_names), used


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "left_out"),
    [
        ("import audit", {"numpy", "polars", "duckdb"}),
        ("from audit.cli import main", {"numpy", "polars", "duckdb"}),
        ("import pipeline_profiler", {"numpy", "polars", "duckdb"}),
        # under 0.4 s on the machine where it was measured: without what only its work needs
        ("import audit.scanning.scanning", {"polars", "pyarrow"}),
    ],
)
def test_importing_loads_nothing_heavy(code: str, left_out: set[str]) -> None:
    script = f"import sys; {code}; print(','.join(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split(",")
    assert not set(out) & (HEAVY | SLOW | {"audit.testing"} | left_out)


@pytest.mark.parametrize("package", [audit, pipeline_profiler])
def test_no_submodule_takes_the_name_of_a_public_function(package: ModuleType) -> None:
    """Importing `audit.scan` would set `audit.scan`: such a room would hide the function."""
    assert not {found.name for found in iter_modules(package.__path__)} & set(package.__all__)
