"""Who may import whom, read from the source with `ast`; and what an import must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

# The rooms of both packages, left to right: a room imports from rooms to its left, of its own line
# or of lines above. A room that is not in this table fails.
ROOMS = {
    "audit": (
        "errors printable class_names, workers, records executors stats progress,"
        "likeness properties association rare_cells spacings gaps,"
        "chains sources neighbors run, picture, cluster,"
        "pairs annotations,"
        "embeddings, checking, checks, review, report subset, measuring, known_content judging,"
        "scanning browse, scan_request verifying run_diff expectations run_drift picture_needs,"
        "applying choosing, results, interface ui, cli, __main__"
    ),
    "pipeline_profiler": (
        "record, adapters diagnose, measure, checking watching,"
        "loader_checks log_checks training_checks,"
        "precision run_table, report, ui, cli, interface __main__"
    ),
}
HEAVY = {"torch", "tensorflow", "keras", "streamlit", "ray"}
# Loaded inside functions only: they would cost every command between 0.1 and 0.6 s.
SLOW = {"scipy", "cv2", "numba", "imagehash"}


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
    """Every node, or those that run at import (not in functions, not under TYPE_CHECKING)."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        yield node
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        inside = isinstance(node, ast.FunctionDef | ast.Lambda) or typing_only
        if not (top_level_only and inside):
            waiting += ast.iter_child_nodes(node)


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


def room(name: str) -> str:
    """The first name below the package: `checks` for audit.checks.dup_bytes."""
    return name.split(".")[1]


def allowed(package: str) -> dict[str, set[str]]:
    """Room -> rooms it may import: all groups to its left."""
    left: set[str] = set()
    table: dict[str, set[str]] = {}
    for group in ROOMS[package].split(","):
        table |= {name: set(left) for name in group.split()}
        left |= set(group.split())
    return table


FILES = [p for package in ROOMS for p in modules(package) if p.parent.name != package]
GROUND = [p for package in ROOMS for p in (ROOT / package).glob("*.py") if p.stem != "__init__"]


@pytest.mark.parametrize("path", [*FILES, *GROUND], ids=dotted)
def test_a_room_imports_rooms_to_its_left(path: Path) -> None:
    package, own = path.relative_to(ROOT).parts[0], room(dotted(path))
    table = allowed(package)
    assert own in table, f"{own} has no place in ROOMS"
    known = known_modules(package)
    used = {room(n) for n in imports(path) if n in known and n != package} - {own}
    assert used <= table[own], f"{own} may not import {used - table[own]}"


@pytest.mark.parametrize("package", ROOMS)
def test_no_circles_of_files(package: str) -> None:
    paths = {dotted(path): path for path in modules(package)}
    graph = {name: imports(path) & paths.keys() - {name} for name, path in paths.items()}
    # `from room import file` names the room too, and a room's __init__ may import its files
    graph = {n: {u for u in used if not n.startswith(f"{u}.")} for n, used in graph.items()}
    while free := [name for name, used in graph.items() if not used & graph.keys()]:
        for name in free:
            del graph[name]
    assert not graph, f"circle among {sorted(graph)}"


def test_a_check_needs_the_contract_and_arithmetic_only() -> None:
    ours = {"audit", "audit.errors", "audit.records", "audit.stats", "audit.neighbors"}
    ours |= {"audit.class_names", "audit.association", "audit.likeness", "audit.properties"}
    ours |= {"audit.rare_cells", "audit.spacings", "audit.gaps", "audit.chains"}
    ours |= {"audit.checking.check", "audit.checking.cases", "audit.run.store"}
    ours |= {"audit.annotations.findings", "audit.annotations.overlap_sql"}
    ours |= {"audit.annotations.keypoints"}
    known = {dotted(path) for path in modules("audit")}
    others = {"audit", "numpy", "scipy", "polars"} | set(sys.stdlib_module_names)
    for path in modules("audit/checks"):
        used = imports(path)
        assert used & known <= ours | {"audit.checking", "audit.run", "audit.annotations"}, path
        assert {n.split(".")[0] for n in used} <= others, path


def test_only_the_store_imports_duckdb() -> None:
    for path in [*modules("audit"), *modules("pipeline_profiler")]:
        if path != ROOT / "audit" / "run" / "store.py":
            assert "duckdb" not in imports(path), path


def test_the_two_packages_do_not_know_each_other() -> None:
    for one, other in (("audit", "pipeline_profiler"), ("pipeline_profiler", "audit")):
        for path in modules(one):
            assert not {n for n in imports(path) if n.split(".")[0] == other}, path


def test_heavy_packages_are_imported_inside_functions_only() -> None:
    for path in [*modules("audit"), *modules("pipeline_profiler")]:
        if "ui" not in path.parts:
            top = {n.split(".")[0] for n in imports(path, top_level_only=True)}
            assert not top & HEAVY, path


def test_the_session_needs_the_standard_library_alone() -> None:
    path = ROOT / "pipeline_profiler" / "record" / "session.py"
    used = {n.split(".")[0] for n in imports(path)} - {"pipeline_profiler"}
    assert used <= set(sys.stdlib_module_names), used


def test_both_packages_count_the_cores_alike() -> None:
    def body(path: str) -> str:
        tree = ast.parse((ROOT / path).read_text())
        made = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "usable_cores"]
        return ast.unparse(made[0])

    assert body("audit/executors.py") == body("pipeline_profiler/record/cores.py")


@pytest.mark.parametrize(
    "code", ["import audit", "from audit.cli import main", "import pipeline_profiler"]
)
def test_importing_loads_nothing_heavy(code: str) -> None:
    script = f"import sys; {code}; print(','.join(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split(",")
    assert not set(out) & (HEAVY | SLOW | {"numpy", "polars", "duckdb"})


def test_a_scan_is_imported_without_what_only_its_work_needs() -> None:
    """`import audit.scanning` stays under 0.4 s on the machine where it was measured."""
    script = "import sys, audit.scanning; print(','.join(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split(",")
    assert not set(out) & (HEAVY | SLOW | {"polars", "pyarrow"})
