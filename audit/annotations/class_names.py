"""The class names of YOLO: `data.yaml`, `obj.names`, `classes.txt`, read without a YAML library.

Of YAML only lists are needed, in their three spellings: a list in brackets, a list of lines,
numbered lines. The nearest file above the folder of labels counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from audit.annotations.discovery import Tree

_ITEM = re.compile(r"^\s*-\s*(.+?)\s*$")
_NUMBERED = re.compile(r"^\s*['\"]?(\d+)['\"]?\s*:\s*(.+?)\s*$")
# A comment begins at `#` behind a blank; not inside quotes, which open where a word begins.
_COMMENT = re.compile(r"""((?:^|[\s:\[,])(?:'[^']*'|"[^"]*"))|(?:^|\s)#.*$""")


def load_class_names(tree: Tree, folder: str) -> tuple[dict[str, str], str]:
    """Return {class number: name} and the file that says so; ({}, '') without one."""
    for path, text in nearest_texts(tree, folder):
        yaml = path.lower().endswith((".yaml", ".yml"))
        found = yaml_items(text, "names") if yaml else plain_names(text)
        if found:
            return found, path
    return {}, ""


def nearest_texts(tree: Tree, folder: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of the files that may name classes, the nearest to a folder first."""
    ranked = sorted(tree.named, key=lambda path: (-_shared(path, folder), _rank(path), path))
    for path in ranked:
        if os.path.basename(path) == "labelmap.txt":
            continue
        try:
            with open(os.path.join(tree.root, path), encoding="utf-8-sig", errors="replace") as f:
                yield path, f.read(1 << 22)
        except OSError:
            continue


def _shared(path: str, folder: str) -> int:
    """Return how many folders a file of names shares with the labels; nearer is better."""
    ours, theirs = os.path.dirname(path).split("/"), folder.rstrip("/").split("/")
    count = 0
    for a, b in zip(ours, theirs, strict=False):
        if a != b:
            break
        count += 1
    return count if count == len(ours) or ours == [""] else 0


def _rank(path: str) -> int:
    name = os.path.basename(path).lower()
    return 0 if name in ("data.yaml", "data.yml") else 1 if name.endswith(("yaml", "yml")) else 2


def plain_names(text: str) -> dict[str, str]:
    """Return one name per line."""
    lines = [line.strip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return {str(i): line for i, line in enumerate(lines) if line}


def yaml_items(text: str, key: str) -> dict[str, str]:
    """Return what a key of the document lists, by number, {} without."""
    match = re.search(rf"^{key}\s*:[ \t]*(.*)$", text, re.MULTILINE)
    if not match:
        return {}
    inline = _COMMENT.sub(r"\1", match[1]).strip()
    rest = text[match.end() :]
    if inline.startswith(("[", "{")):
        return _flow(inline + rest)
    return _block(rest)


def _flow(text: str) -> dict[str, str]:
    """Read `[a, 'b c', ...]` or `{0: a, 1: b}`; commas inside quotes belong to the name."""
    close = {"[": "]", "{": "}"}[text[0]]
    parts, current, quote = [], "", ""
    for char in text[1:]:
        if quote:
            quote = "" if char == quote else quote
            current += char
        elif char in "'\"" and not current.strip().strip(":0123456789 "):
            quote = char
            current += char
        elif char in (",", close):
            parts.append(current)
            current = ""
            if char == close:
                break
        else:
            current += " " if char in "\r\n" else char
    named = [part.strip() for part in parts if part.strip()]
    if text[0] == "[":
        return {str(i): _unquoted(part) for i, part in enumerate(named)}
    pairs = [_NUMBERED.match(part) for part in named]
    return {m[1]: _unquoted(m[2]) for m in pairs if m}


def _block(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw in text.splitlines():
        line = _COMMENT.sub(r"\1", raw)
        if not line.strip():
            continue
        if item := _ITEM.match(line):
            found[str(len(found))] = _unquoted(item[1])
        elif (line[0] in " \t") and (pair := _NUMBERED.match(line)):
            found[pair[1]] = _unquoted(pair[2])
        else:
            break
    return found


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
