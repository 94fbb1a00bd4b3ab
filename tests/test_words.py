"""What a person reads uses the plain terms of the field: no private words, one form of numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PLACES = ("audit", "pipeline_profiler", "dataset_preflight", "app.py")
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


SCRIPT = re.compile(
    r"""(?s)//[^\n]*|/\*.*?\*/|"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|`((?:\\.|[^`\\])*)`"""
)
CODE = re.compile(r"(?s)\{%.*?%\}|\{\{.*?\}\}")
MARKUP = re.compile(r"(?s)<(style|script)\b.*?</\1>|<[^>]*>")
QUOTED = re.compile(r"""(?s)["']((?<=")[^"]*(?=")|(?<=')[^']*(?='))["']""")
READ_ATTRIBUTE = re.compile(r'(?s)\b(?:alt|title|aria-label|placeholder)="([^"]*)"')


def script_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of several words of a script, a gap for each expression."""
    for found in SCRIPT.finditer(source):
        text = next(filter(None, found.groups()), "")
        if " " in text.strip():
            yield source.count("\n", 0, found.start()) + 1, re.sub(r"\$\{[^{}]*\}", "{}", text)


def template_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield what a page made of a template may show, a gap for each value."""

    def hidden(found: re.Match[str]) -> str:
        """Return fillers in place of the match, so that what follows keeps its place."""
        value = found[0].startswith("{{")
        filled = re.sub(r"[^\n]", "\1" if value else "\0", found[0])
        return f"{filled[:-2]}{{}}" if value else filled

    source = re.sub(r"(?s)\{#.*?#\}", hidden, source)
    page = CODE.sub(hidden, source)
    shown = [(m.start(), m[0]) for m in re.finditer("[^\0]+", MARKUP.sub(hidden, page))]
    for blocks, strings, text in ((CODE, QUOTED, source), (MARKUP, READ_ATTRIBUTE, page)):
        for block in blocks.finditer(text):
            shown += [(block.start(), one[1] or "") for one in strings.finditer(block[0])]
    for place, text in shown:
        yield source.count("\n", 0, place) + 1, text.replace("\0", "").replace("\1", "")


READERS = {".js": script_texts, ".html": template_texts}


def shown_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of what a person may read of a file."""
    if path.suffix == ".py":
        return messages(path)
    return READERS[path.suffix](path.read_text("utf-8"))


def product_files() -> list[Path]:
    found = (ROOT / place for place in PLACES)
    files = (p for one in found for p in ([one] if one.is_file() else one.rglob("*")))
    return sorted(p for p in files if p.suffix in (".py", *READERS))


def test_scripts_and_templates_are_read() -> None:
    """Comments, code and markup are skipped; texts, headings and spoken names are read."""
    script = """// a picture
    make("div", "a", n ? `no picture of ${name} %` : 'one "big" picture');"""
    assert [text for _, text in script_texts(script)] == [
        "no picture of {} %", 'one "big" picture',
    ]  # fmt: skip
    page = """{# a picture #}<p class="picture">See {{ n }} %</p>
    {{ table(["pictures"], picture) }}<img alt="the {{ kind }} picture">"""
    read = [text.strip() for _, text in template_texts(page) if text.strip(" {}\n")]
    assert read == ["See {} %", "pictures", "the {} picture"]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_message_has_a_forbidden_phrase(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:100]!r}"
        for path in product_files()
        for line, text in shown_texts(path)
        if re.search(pattern, text, re.IGNORECASE)
    ]
    assert not found, f"write {FORBIDDEN[pattern]}:\n" + "\n".join(found)


DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / package / "checks" / "README.md" for package in ("audit", "pipeline_profiler")),
]
UNREAD = re.compile(r"(?ms)^```.*?^```[^\n]*$|`[^`\n]*`|(?<=\])\([^)]*\)|<!--.*?-->")


def prose(path: Path) -> str:
    """Return the text of a document without code, outputs and link targets, line by line."""
    return UNREAD.sub(lambda found: "\n" * found[0].count("\n"), path.read_text("utf-8"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_has_a_forbidden_phrase(path: Path) -> None:
    found = [
        f"{path.name}:{number}: {line[:100]!r}: write {better}"
        for number, line in enumerate(prose(path).splitlines(), 1)
        for pattern, better in FORBIDDEN.items()
        if re.search(pattern, line, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)


GENERATED = {"commands.md", "schema.md", "python.md"}
TABLES = {"architecture.md", "benchmarks.md", "checks-training.md"}


def test_the_documents_stay_short() -> None:
    by_hand = [path for path in DOCUMENTS[3:-2] if path.name not in GENERATED]
    guide = [path for path in by_hand if path.name not in TABLES]
    assert len(guide) <= 12
    assert sum(len(prose(path).split()) for path in (*DOCUMENTS[:3], *by_hand)) <= 30_000
    lines = {path.name: len(path.read_text("utf-8").splitlines()) for path in DOCUMENTS[:3]}
    assert lines["README.md"] <= 120
    assert lines["CHANGELOG.md"] <= 60
