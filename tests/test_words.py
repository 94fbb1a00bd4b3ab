"""Messages use the plain terms of the field: no private words, one form of numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PLACES = ("audit", "pipeline_profiler", "preflight", "app.py", "preflight_app.py")
FORBIDDEN = {
    r"\bcan(?:not|'t)? (?:be told|tell)\b": "inconclusive, or cannot estimate",
    r"\b(?:is|are|was|were) told\b": "reported, or named",
    r"\btells?\b": "shows, reports or distinguishes",
    r"\bknows?\b": "has, or is known",
    r"\bgives? way\b": "is dropped",
    r"\bin hand\b": "preloaded",
    r"\bfiles that lie\b": "misnamed files",
    r"\bt(?:ake|akes|ook|aken) (?:\w+ ){0,3}back\b": "undo, or remove",
    r"\bnot examined\b|\bundetermined\b|\bn/a\b": "skipped, not applicable or inconclusive",
    r"\bpictures?\b": "image",
    r"(?<=[\d}]) %": "% without a space before it",
    r"\bso many\b": "the number, or the noun",
    r"\bstrangers?\b": "unrelated images",
    r"\blikewise\b": "too, or in the same way",
    r"\bnumbers that are none\b": "NaN or infinite numbers",
    r"\bas chance (?:explains|makes)\b": "expected by chance",
    r"\bcame or went\b": "were added or removed",
    r"\blaid over\b|\blies? over\b": "aligned with",
}
SQL = re.compile(r"\b(?:SELECT|FROM|JOIN|WHERE|INSERT|CREATE)\b")


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every string that is no docstring, a gap for each expression."""
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
            values = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            yield node.lineno, "".join(map(str, values))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
        ):
            yield node.lineno, node.value


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a person may read: texts of several words that are no SQL."""
    for line, text in texts(ast.parse(path.read_text())):
        if " " in text.strip() and not (SQL.search(text) or text.startswith("(coalesce(")):
            yield line, re.sub(r"\{[^{}]*\}", "{}", text)


def product_files() -> list[Path]:
    found = (ROOT / place for place in PLACES)
    return sorted(p for one in found for p in ([one] if one.is_file() else one.rglob("*.py")))


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_message_has_a_forbidden_phrase(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:100]!r}"
        for path in product_files()
        for line, text in messages(path)
        if re.search(pattern, text, re.IGNORECASE)
    ]
    assert not found, f"write {FORBIDDEN[pattern]}:\n" + "\n".join(found)
