"""The class names of YOLO: `data.yaml`, `obj.names`, `classes.txt`, the nearest to the labels.

YAML goes through PyYAML's parser alone, so each scalar stays the text as written (`no`, `012`).
What a trainer would refuse is a problem of the file; keys that ended before it are taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from audit.annotations.discovery import Tree
from audit.annotations.sink import ProblemLog
from dataset_preflight.foundation.files import regular

MOST_BYTES = 4 << 20  # of one file
MOST_NODES = 200_000  # lists, mappings and scalars; each alias counts all that it stands for
DEEPEST = 50  # lists and mappings in each other
MOST_TAGS = 100  # lines `%TAG`: libyaml compares each with all before it
_TWICE = "a key occurs twice: readers use the last"
_OWN = "tag:yaml.org,2002:"
_PLAIN_TAG = re.compile(rf"!|{_OWN}(?:str|int|float|bool|null|seq|map)")
# Files of other programs are no problem of ours: a key at the margin makes one of YOLO.
_STATES = re.compile(r"""(?:^|[\r\n])(?:\{\s*)?["']?(?:names|kpt_shape)["']?[ \t]*:""")

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
Fault: TypeAlias = tuple[str, str, int]  # kind of problem, sentence, line


@dataclass(slots=True)
class StatedNames:
    """What files near a folder of labels state: {class number: name}, and the file that says so.

    `settings` is the nearest YAML that names classes or gives the form of keypoints; `unread` is a
    nearer file, whose names cannot be read.
    """

    names: dict[str, str] = field(default_factory=dict)
    named_by: str = ""
    settings: dict[str, Value] = field(default_factory=dict)
    settings_path: str = ""
    unread: str = ""


def load_names(tree: Tree, folder: str, problems: ProblemLog) -> StatedNames:
    """Return what the nearest files state, and add what is wrong with them to the problems."""
    stated = StatedNames()
    for path, raw in _nearest_files(tree, folder):
        encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        text = raw[:MOST_BYTES].decode(encoding, "replace")
        if path.lower().endswith((".yaml", ".yml")):
            content, faults = read_yaml(text, whole=len(raw) <= MOST_BYTES)
            listed = content.get("names", "")
            names = numbered_texts(listed)
            if 0 < len(names) < len(listed):
                problems.note("malformed", "an entry of `names` is not a text with a number", path)
            for kind, said, line in faults:
                problems.note(kind, said, f"{path}, line {line}")
            if not names and any(kind == "malformed" for kind, *_ in faults):
                stated.unread = path
                break
            if not stated.settings and (names or content.get("kpt_shape")):
                stated.settings, stated.settings_path = content, path
        else:
            names = plain_names(text)
        if names and not stated.names:
            stated.names, stated.named_by = names, path
        if stated.names and stated.settings:
            break
    return stated


def _nearest_files(tree: Tree, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of the files that may name classes, the nearest to a folder first."""
    ranked = sorted(tree.named, key=lambda path: (-_shared(path, folder), _rank(path), path))
    for path in ranked:
        if os.path.basename(path) == "labelmap.txt":
            continue
        try:
            with open(os.path.join(tree.root, path), "rb", opener=regular) as file:
                yield path, file.read(MOST_BYTES + 1)
        except OSError:
            continue


def _shared(path: str, folder: str) -> int:
    """Return how many folders a file of names shares with the labels; nearer is better."""
    ours, theirs = os.path.dirname(path).split("/"), folder.rstrip("/").split("/")
    same = takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False))
    count = len(list(same))
    return count if count == len(ours) or ours == [""] else 0


def _rank(path: str) -> int:
    name = os.path.basename(path).lower()
    return 0 if name in ("data.yaml", "data.yml") else 1 if name.endswith(("yaml", "yml")) else 2


def plain_names(text: str) -> dict[str, str]:
    """Return one name per line."""
    lines = map(str.strip, text.splitlines())
    return {str(i): line for i, line in enumerate(lines) if line}


def numbered_texts(value: Value) -> dict[str, str]:
    """Return the texts of a list, or of a mapping from whole numbers, by number."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    texts = {str(key): text for key, text in pairs if isinstance(text, str)}
    return {} if isinstance(value, str) else {k: t for k, t in texts.items() if k.isdecimal()}


@dataclass(slots=True)
class _Part:
    """A list or mapping that has not ended, with lines; keys and values of a mapping take turns."""

    is_mapping: bool = False
    anchor: str = ""
    before: int = 0  # nodes of the document before this one
    items: list[tuple[Value, int]] = field(default_factory=list)

    def value(self, faults: list[Fault]) -> Value:
        """Return the list or mapping; keys given twice are faults, keys that are no texts none."""
        if not self.is_mapping:
            return [value for value, _ in self.items]
        merged, own = dict[str, Value](), dict[str, Value]()
        for (key, line), (value, _) in zip(self.items[::2], self.items[1::2], strict=True):
            if key == "<<" and not isinstance(value, str):
                for base in [value] if isinstance(value, dict) else reversed(value):
                    merged |= base if isinstance(base, dict) else {}
            elif isinstance(key, str):
                if key in own:
                    faults.append(("duplicate-key", _TWICE, line))
                own[key] = value
        return merged | own


def read_yaml(text: str, whole: bool = True) -> tuple[dict[str, Value], list[Fault]]:
    """Return the mapping that a text is, and what is wrong where it names classes or keypoints.

    A text that is not `whole` is not read. Of a key given twice the last value counts; `<<` merges.
    """
    if "names" not in text and "kpt_shape" not in text:
        return {}, []
    import yaml

    opened, faults = [_Part()], list[Fault]()
    anchors: dict[str, tuple[Value, int]] = {}
    nodes, line, why = 0, 1, ""
    try:
        if not whole:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        if text.count("%TAG") > MOST_TAGS:
            raise ValueError(f"it has more than {MOST_TAGS} lines `%TAG`")
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            kind, line = type(event).__name__, event.start_mark.line + 1
            anchor: str = getattr(event, "anchor", None) or ""
            tag: str = getattr(event, "tag", None) or "!"
            value, size = None, 1
            if kind == "DocumentStartEvent" and opened[0].items:
                raise ValueError("a second document begins")
            if not _PLAIN_TAG.fullmatch(tag):
                raise ValueError(f"`{tag.replace(_OWN, '!!')[:60]}` is not a tag of plain YAML")
            if kind in ("SequenceStartEvent", "MappingStartEvent"):
                opened.append(_Part(kind == "MappingStartEvent", anchor, nodes))
                nodes += 1
            elif kind in ("SequenceEndEvent", "MappingEndEvent"):
                part = opened.pop()
                anchor, value, size = part.anchor, part.value(faults), nodes - part.before
            elif kind == "ScalarEvent":
                value = event.value.rstrip("\n") if event.style in ("|", ">") else event.value
                nodes += 1
            elif kind == "AliasEvent":
                if anchor not in anchors:
                    raise ValueError(f"`*{anchor[:60]}` refers to nothing defined before it")
                value, size = anchors[anchor]
                nodes += size
            if nodes > MOST_NODES:
                raise ValueError(f"it has more than {MOST_NODES:,} entries, including aliases")
            if len(opened) > DEEPEST + 1:
                raise ValueError(f"its lists and mappings are more than {DEEPEST} deep")
            if value is not None:
                opened[-1].items.append((value, line))
                if anchor:
                    anchors[anchor] = value, size
    except yaml.reader.ReaderError as error:
        why, line = error.reason, text.encode()[: error.position].count(b"\n") + 1
    except yaml.MarkedYAMLError as error:
        tab = text[error.problem_mark.index :][:1] == "\t"
        why = "a tab is used where YAML allows only spaces" if tab else error.problem
        line = error.problem_mark.line + 1
    except (ValueError, OverflowError) as error:  # of PyYAML too: escapes, without libyaml
        why = str(error)
    if why:
        faults.append(("malformed", f"a file of class names is only partly read: {why}", line))
    if len(opened) > 1:
        # What has not ended; of its values, those count that a further key shows to have ended.
        del opened[1].items[(len(opened[1].items) - 1) // 2 * 2 :]
        opened[0].items.append((opened[1].value(faults), 0))
    top = opened[0].items[0][0] if opened[0].items else {}
    content = top if isinstance(top, dict) else {}
    is_ours = content.keys() & {"names", "kpt_shape"} or _STATES.search(text)
    return content, faults if is_ours else []
