"""An XML annotation of one picture as plain lists, with the line of every object; nothing else.

The parser is expat, driven directly: it knows the line of every element, and no tree is built. A
document that declares entities is not read: none of the formats needs them, and they are how a
file of one kilobyte becomes one of gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

MOST_BYTES = 64 << 20


@dataclass(slots=True)
class Node:
    """An element: its name, the line where it begins, its text, the elements inside."""

    name: str
    line: int
    text: str = ""
    inside: list[Node] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)

    def first(self, name: str) -> Node | None:
        """Return the first element inside of that name."""
        return next((node for node in self.inside if node.name == name), None)

    def all(self, name: str) -> list[Node]:
        """Return the elements inside of that name."""
        return [node for node in self.inside if node.name == name]

    def value(self, *path: str) -> str | None:
        """Return the text of the element at `path`, None without one or without text."""
        node: Node | None = self
        for name in path:
            node = node.first(name) if node else None
        return (node.text.strip() or None) if node else None


class XmlError(ValueError):
    """What is wrong with a document; `line` from 1."""

    def __init__(self, message: str, line: int) -> None:
        """Keep the line."""
        super().__init__(message)
        self.line = line


def parse_xml(raw: bytes) -> Node:
    """Return the outermost element; raises XmlError."""
    if len(raw) > MOST_BYTES:
        raise XmlError(f"it is larger than {MOST_BYTES >> 20} MB", 1)
    top = Node("", 0)
    stack, parser = [top], expat.ParserCreate()

    def begin(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > 50:
            raise XmlError("its elements nest deeper than 50 levels", parser.CurrentLineNumber)
        node = Node(name, parser.CurrentLineNumber, attributes=attributes)
        stack[-1].inside.append(node)
        stack.append(node)

    def end(_: str) -> None:
        stack.pop()

    def text(data: str) -> None:
        stack[-1].text += data

    def declared(*_: object) -> None:
        raise XmlError("it declares entities", parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler, parser.buffer_text = text, True
    parser.EntityDeclHandler = declared
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        said = expat.errors.messages.get(error.code, "not well-formed")
        raise XmlError(said, error.lineno) from None
    except (UnicodeDecodeError, LookupError, ValueError) as error:
        if isinstance(error, XmlError):
            raise
        raise XmlError("its encoding is not what it declares", 1) from None
    return top.inside[0]


def float_of(text: str | None) -> float | None:
    """Return a text as a number, None if it is none."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
