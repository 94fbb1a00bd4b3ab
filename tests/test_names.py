"""Names: one public meaning a package, files that are nouns, functions that are verbs."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("audit", "pipeline_profiler")
# Interfaces that each file of a kind implements under one name: a page of the app, a source's
# sniffer, a format of packs, an adapter's functions, the entry of a command line.
INTERFACES = {
    "page", "sniff", "attach", "describe", "rebuild", "command_line",
    "recognises", "list_members", "read_member",
}  # fmt: skip


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def body(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


def public(path: Path, *kinds: type[ast.stmt]) -> Iterator[str]:
    for node in body(path):
        if isinstance(node, kinds) and not node.name.startswith("_"):  # type: ignore[attr-defined]
            yield node.name  # type: ignore[attr-defined]


def module_names(folder: Path) -> set[str]:
    """Modules and packages in a folder, by the name under which they are imported."""
    paths = [p for p in folder.iterdir() if p.suffix == ".py" or p.is_dir()]
    return {p.stem for p in paths if not p.name.startswith("__")}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_has_the_name_of_a_module_beside_it_or_of_a_package(package: str) -> None:
    """Importing the submodule would overwrite the function in the namespace of the package."""
    inner = module_names(ROOT / package)
    wrong = []
    for path in modules(package):
        names = set(public(path, ast.FunctionDef)) & (module_names(path.parent) | inner)
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(names)]
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_a_public_name_is_defined_once_a_package(package: str) -> None:
    places = defaultdict(set)
    for path in modules(package):
        for name in public(path, ast.FunctionDef, ast.ClassDef):
            places[name].add(str(path.relative_to(ROOT)))
    twice = {n: sorted(p) for n, p in places.items() if len(p) > 1 and n not in INTERFACES}
    assert not twice
