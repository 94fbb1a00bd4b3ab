"""Lists of pictures without a header, as ImageNet's train.txt: a path a line, maybe a label.

The path goes up to the extension of a picture, so that it may hold spaces; what follows is the
label. Labels that are numbers get their names where a file of class names lies beside, one a line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from audit.sources.formats import KINDS

EXTENSIONS = ("txt", "lst")
NAME_FILES = ("synsets.txt", "classes.txt", "labels.txt", "class_names.txt")
FOLDERS = ("", "images", "JPEGImages", "data")
"""Where the paths of a list may begin, below its own folder."""
_PICTURES = "|".join(sorted(name for name, kind in KINDS.items() if kind == "image"))
_LINE = re.compile(
    rf"\s*(?P<path>.+?\.(?:{_PICTURES}))(?:[\s,;]+(?P<label>.*?))?\s*", re.IGNORECASE
)


def split_line(line: str) -> tuple[str, str | None] | None:
    """Return path and label of a line, None where it names no picture."""
    found = _LINE.fullmatch(line)
    return None if found is None else (found["path"], found["label"] or None)


def is_image_list(path: str, first: str) -> bool:
    """Return whether a file with this first line is such a list, and no table with a header."""
    extension = os.path.splitext(path)[1].lower().lstrip(".")
    return extension in EXTENSIONS and split_line(first) is not None


def list_rows(path: str, lines: Iterator[str]) -> Iterator[tuple[int, str, str | None]]:
    """Yield (line number, path, label) of each line; a line that names no picture is a path."""
    names, below = _class_names(path), None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        listed, label = split_line(line) or (line.strip(), None)
        below = _folder(path, listed) if below is None else below
        if label is not None and label.isdecimal() and int(label) < len(names):
            label = names[int(label)]
        yield number, listed if os.path.isabs(listed) else os.path.join(below, listed), label


def _folder(path: str, listed: str) -> str:
    """Return where the paths begin: the first place in which the first of them is."""
    base = os.path.dirname(path)
    places = (name for name in FOLDERS if os.path.exists(os.path.join(base, name, listed)))
    return next(places, "")


def _class_names(path: str) -> list[str]:
    """Return the class names of a file beside a list, [] without one."""
    for name in NAME_FILES:
        try:
            with open(os.path.join(os.path.dirname(path), name), encoding="utf-8") as file:
                return [line.strip() for line in file if line.strip()]
        except (OSError, UnicodeDecodeError):
            continue
    return []
