"""The user's source where a check points: the line with a mark, and a short fix as a diff."""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import io
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_profiler.checks.check import Answer

Fix = dict[tuple[str, int], str]  # (path, line) -> its new text; {} where no fix is certain
PLACE = re.compile(r"(.+?):(\d+)(?::(\d+)-(\d+):(\d+))?")  # as `user_place` returns it
POSITION = ("lineno", "col_offset", "end_lineno", "end_col_offset")
ARGUMENT = re.compile(r"(?:Set|with) (shuffle|drop_last|mode|fused)=(\w+|'\w+')")  # of a next step
CALLABLES = {"mode": "ReduceLROnPlateau", "fused": "SGD"}  # of the other arguments: DataLoader


class Site(NamedTuple):
    """A file, the nodes of its syntax tree, and the expression or line that a check points at."""

    path: str
    lines: list[str]
    nodes: list[Any]
    at: Any

    def marked(self) -> list[str]:
        """Return the first line, and a mark below."""
        text, column = self.lines[self.at.lineno - 1].rstrip(), self.at.col_offset
        end = self.at.end_col_offset if self.at.end_lineno == self.at.lineno else len(text)
        head, margin = f"  {self.at.lineno} | ", re.sub(r"[^\t]", " ", text[:column])
        return [head + text, f"{'| ':>{len(head)}}{margin}{'^' * (end - column)}"]

    def code(self, node: Any) -> str:
        """Return the source of a node."""
        return ast.get_source_segment("".join(self.lines), node) or ""

    def calls(self, name: str) -> list[Any]:
        """Return the calls of a function, method or class; lower and upper case are alike."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        return [n for n in calls if self.code(n.func).lower().split(".")[-1] == name.lower()]

    def around(self, line: int) -> list[Any]:
        """Return the statements that hold a line, from the inside."""
        statements: list[Any] = [node for node in self.nodes if isinstance(node, ast.stmt)]
        return [n for n in reversed(statements) if n.lineno <= line <= n.end_lineno]

    def insert(self, added: str, line: int, after: bool = False) -> Fix:
        """Insert a line before or after the statement of a line, if no other one shares it."""
        at = self.around(line)[0]
        number, margin = at.end_lineno if after else at.lineno, " " * at.col_offset
        pair = [self.lines[number - 1], f"{margin}{added}\n"]
        alone = self.lines[at.lineno - 1].startswith(margin) and ";" not in pair[0]
        return {(self.path, number): "".join(pair if after else pair[::-1])} if alone else {}

    def replace(self, node: Any, text: str) -> Fix:
        """Replace a node of one line of ASCII."""
        line = self.lines[node.lineno - 1]
        changed = line[: node.col_offset] + text + line[node.end_col_offset :]
        simple = line.isascii() and node.lineno == node.end_lineno
        return {(self.path, node.lineno): changed} if simple else {}


@functools.cache
def site_of(place: str) -> Site | None:
    """Return the site of `/src/train.py:57` or `/src/train.py:57:8-57:20`, if it can be read."""
    found = PLACE.fullmatch(place)
    with contextlib.suppress(OSError, ValueError, SyntaxError, IndexError):
        path, first, *rest = found.groups() if found else ("", "")
        text = Path(path).read_bytes().decode()
        lines = list(io.StringIO(text))
        line = lines[int(first) - 1].rstrip()
        if rest[0] is None or not line.isascii():  # columns count bytes
            rest = [len(line) - len(line.lstrip()), first, len(line)]
        position = dict(zip(POSITION, map(int, (first, *rest)), strict=True))
        nodes = [node for node in ast.walk(ast.parse(text)) if hasattr(node, "end_lineno")]
        return Site(os.path.relpath(path), lines, nodes, ast.expr(**position))
    return None


def unified_diff(fixes: Iterable[Fix]) -> str:
    """Return the diff of all fixes, the last one of each line, for files that parse with them."""
    changed, diff = {at: text for fix in fixes for at, text in fix.items()}, ""
    for path in dict.fromkeys(path for path, _ in changed):
        old = list(io.StringIO(Path(path).read_bytes().decode()))
        new = "".join(changed.get((path, number), line) for number, line in enumerate(old, 1))
        with contextlib.suppress(SyntaxError):
            ast.parse(new)
            if "\r" not in new and new.endswith("\n") and not path.startswith(".."):
                sides = f"a/{path}", f"b/{path}"
                diff += "".join(difflib.unified_diff(old, list(io.StringIO(new)), *sides))
    return diff


def fix_of(code: str, answer: Answer, site: Site, step: Site | None) -> Fix:
    """Return the fix of a failed check; `step`: where the optimizer makes its step."""
    here = site.code(site.at)
    if argument := ARGUMENT.search(answer.next):
        return _set_argument(site, *argument.groups())
    if code == "TRAIN009":
        return _set_mode(site, "eval" if "eval()" in answer.next else "train")
    if code == "TRAIN020" and answer.sentence.startswith(("Outputs are prob", "Outputs went")):
        return _take_scores(site, "sigmoid" if "sigmoid" in answer.sentence else "softmax")
    clears = "zero_grad()" in answer.next and "lost" not in answer.evidence
    if code == "TRAIN016" and step and clears:
        clear = re.sub(r"^scaler\.step\((.+)\)$|\.step\(\)$", r"\1.zero_grad()", step.code(step.at))
        return step.insert(clear, step.at.lineno, after=True) if "zero_grad()" in clear else {}
    if code == "TRAIN043" and here.endswith(".state_dict()"):
        return site.replace(site.at, f"{{key: value.clone() for key, value in {here}.items()}}")
    if code == "TRAIN049":
        return _without_graph(site)
    return _detach(site) if code == "TRAIN056" else {}


def _without_graph(site: Site) -> Fix:
    """Decorate the function, if it only evaluates a loader."""
    functions = [n for n in site.around(site.at.lineno) if isinstance(n, ast.FunctionDef)]
    code = site.code(functions[0]) if functions else ""
    sure = ".eval()" in code and "for " in code and "import torch\n" in site.lines
    if not sure or re.search(r"backward|\.step\(|grad\b|yield", code):
        return {}
    return site.insert("@torch.no_grad()", functions[0].lineno)


def _detach(site: Site) -> Fix:
    """Detach what is appended or added, if the file calls backward() of it."""
    statement = site.around(site.at.lineno)[0]
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call) and site.code(value.func).endswith(".append"):
        value = value.args[0]
    elif isinstance(statement, ast.Assign) and isinstance(value, ast.BinOp):
        value = value.right
    code = site.code(value) if isinstance(value, ast.Name | ast.BinOp) else ""
    names = "|".join(re.findall(r"\b[A-Za-z_]\w*", code))
    scalar = re.search(rf"\b({names})\)?\.backward\(|backward\(({names})\b", "".join(site.lines))
    detached = f"{code}.detach()" if code == names else f"({code}).detach()"
    return site.replace(value, detached) if code and scalar else {}


def _set_argument(site: Site, name: str, value: str) -> Fix:
    calls, here = site.calls(CALLABLES.get(name, "DataLoader")), site.around(site.at.lineno)[:1]
    calls = [c for c in calls for n in here if n.lineno <= c.lineno <= n.end_lineno] or calls
    if len(calls) != 1 or len(calls[0].args) > 2 - (name == "mode"):
        return {}
    words = {word.arg: word.value for word in calls[0].keywords}
    given = [*calls[0].args, *words.values()]
    if {None, "sampler", "batch_sampler"} & words.keys() or ast.Starred in map(type, given):
        return {}
    if name in words:
        return site.replace(words[name], value) if isinstance(words[name], ast.Constant) else {}
    return site.replace(given[-1], f"{site.code(given[-1])}, {name}={value}")


def _set_mode(site: Site, mode: str) -> Fix:
    """Call train() in the loop of a step; or eval() before an evaluation, if the loop trains."""
    model, _, inputs = site.code(site.at).partition("(")
    text, line, name = "".join(site.lines), site.at.lineno, re.escape(model)
    loops = [node for node in site.around(line) if isinstance(node, ast.For)]
    others = set(re.findall(r"([\w.]+)\.eval\(", text)) - {model}
    parts = [other for other in others if not re.search(rf"def .*\b{other}\b", text)]
    known = re.search(rf"\b{name}\.(parameters|train|eval)\(|def \w+\(.*\b{name}\b", text)
    if mode == "train" and loops and known and not parts:  # no part stays in eval mode
        inner = len(loops) > 1 or isinstance(site.around(line)[-1], ast.FunctionDef | ast.ClassDef)
        line = loops[0].lineno if inner else loops[0].body[0].lineno
    elif mode == "eval" and known and re.search(rf"\n[ \t]+({name}|\w+)\.train\(", text):
        drawn = {*re.findall(r"\w+", site.code(loops[0].target))} if loops else set()
        line = loops[0].lineno if drawn & {*re.findall(r"\w+", inputs)} else line
    else:
        return {}
    return site.insert(f"{model}.{mode}()", line)


def _take_scores(site: Site, kind: str) -> Fix:
    """Remove the only softmax or sigmoid of the file, where it leads to the loss."""
    if len(calls := site.calls(kind)) != 1:
        return {}
    call, name, statement = calls[0], site.code(calls[0].func), site.around(calls[0].lineno)[0]
    if name.endswith(kind.capitalize()):  # a layer: the others keep their numbers
        last = re.search(rf"Sequential\((.|\n)*{kind}\([^()]*\)\W*$", site.code(statement), re.I)
        return site.replace(call, f"{name[: -len(kind)]}Identity()") if last else {}
    method = not call.args or isinstance(call.args[0], ast.Constant | ast.UnaryOp)
    target = site.code(statement.targets[0]) if isinstance(statement, ast.Assign) else "return"
    leads = getattr(statement, "value", None) is call and target in f"return {site.code(site.at)}"
    inner = site.code(call.func.value if method else call.args[0])
    return site.replace(call, inner) if leads or call.lineno == site.at.lineno else {}
