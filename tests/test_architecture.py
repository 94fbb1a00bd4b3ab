"""Who may import whom: the house's rules, read from the source with `ast`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Module (or package) of audit -> modules of audit it may import at any level, besides itself.
NOUNS = {"records", "errors"}
PICTURES = {"facts", "magic", "header", "pixels", "decode", "hashing", "features"}
ALLOWED: dict[str, set[str]] = {
    "records": set(),
    "errors": set(),
    "facts": {"records"},
    "magic": set(),
    "header": set(),
    "pixels": set(),
    "hashing": set(),
    "decode": NOUNS | {"header", "magic", "pixels"},
    "features": {"records", "facts", "hashing", "pixels"},
    "executors": {"errors"},
    "store": NOUNS,
    "stats": NOUNS,
    "neighbors": NOUNS | {"stats"},
    "sources": NOUNS,
    "runs": NOUNS | {"store"},
    "cases": NOUNS | {"features", "store"},
    "check": NOUNS | {"cases", "features", "store"},
    "checks": NOUNS | {"cases", "check", "features", "store", "stats", "neighbors"},
    "judge": NOUNS | {"check", "store"},
    "config": NOUNS | {"check", "decode"},
    "signatures": NOUNS | {"neighbors"},
    "relate": NOUNS | PICTURES | {"neighbors", "signatures", "sources", "store"},
    "overlap": NOUNS
    | PICTURES
    | {"executors", "measure", "neighbors", "relate", "runs", "signatures", "sources", "store"},
    "ledger": NOUNS,
    "settled": NOUNS | {"store"},
    "standing": NOUNS | {"ledger", "runs", "settled", "store"},
    "decisions": NOUNS | {"ledger", "settled", "standing", "store"},
    "keepers": NOUNS | {"decisions", "ledger", "settled"},
    "export": NOUNS | {"decisions", "runs", "store"},
    "measure": NOUNS | PICTURES | {"executors", "store", "neighbors", "signatures"},
    "engine": NOUNS
    | {"config", "executors", "features", "judge", "measure", "neighbors", "relate", "runs"}
    | {"signatures", "sources", "store"},
    "report": NOUNS | {"check", "decode", "pixels", "runs", "sources", "standing", "store"},
    "show": NOUNS | {"features", "report", "runs", "show_text", "sources", "store"},
    "show_pair": NOUNS | {"neighbors", "report", "runs", "show", "signatures", "store"},
    "show_text": NOUNS | {"report", "show", "store"},
    "subset": NOUNS | {"runs", "stats", "store"},
    "browse": NOUNS
    | {"decode", "decisions", "export", "features", "pixels", "report", "runs", "sources"}
    | {"store", "subset"},
    "progress": set(),
    "docs": NOUNS | {"check", "features", "store"},
}
# Everything above the engine may use all of audit but its command line and pages.
FRONT = {"cli", "cli_decide", "cli_subset", "ui", "progress"}
HEAVY = {"torch", "tensorflow", "keras", "streamlit", "ray"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def unit(path: Path) -> str:
    """The first name below the package: `checks` for checks/dup_bytes.py."""
    return path.relative_to(ROOT).parts[1].removesuffix(".py")


def own(names: set[str], package: str) -> set[str]:
    known = {unit(p) for p in modules(package)}
    return {n.split(".")[1] for n in names if n.startswith(f"{package}.")} & known


@pytest.mark.parametrize("path", modules("audit"), ids=lambda p: str(p.relative_to(ROOT)))
def test_audit_imports_only_what_it_may(path: Path) -> None:
    name = unit(path)
    used = own(imports(path), "audit") - {name}
    if name in ALLOWED:
        assert used <= ALLOWED[name], f"{path.name} may not import {used - ALLOWED[name]}"
    elif name not in FRONT:
        assert not used & FRONT


def test_checks_never_import_each_other() -> None:
    for path in modules("audit/checks"):
        assert not {n for n in imports(path) if n.startswith("audit.checks")}, path


def test_only_the_store_imports_duckdb() -> None:
    for path in [*modules("audit"), *modules("pipeline_profiler")]:
        if path != ROOT / "audit" / "store.py":
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
    path = ROOT / "pipeline_profiler" / "session.py"
    if path.exists():
        used = {n.split(".")[0] for n in imports(path)} - {"pipeline_profiler"}
        assert used <= set(sys.stdlib_module_names), used


@pytest.mark.parametrize(
    "code", ["import audit", "from audit import cli", "import pipeline_profiler"]
)
def test_importing_loads_nothing_heavy(code: str) -> None:
    script = f"import sys; {code}; print(','.join(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split(",")
    assert not set(out) & (HEAVY | {"numpy", "polars", "duckdb", "cv2", "numba"})
