"""The outline of a document is what a parser finds in it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audit.annotations import coco as coco_reader
from tests.audit.annotations.datasets import coco
from tests.audit.annotations.test_annotation_fuzz import FUZZ, KEYS, ODD

pytestmark = pytest.mark.slow


def members_of(raw: bytes) -> list[Any]:
    """Return the outline of a document."""
    text = np.frombuffer(raw, np.uint8)
    return list(coco_reader.scan_document(text, ("images", "annotations")))


def check_outline(raw: bytes) -> None:
    """Members and elements are those that a parser finds; what is no document is broken."""
    found = members_of(raw)
    try:
        pairs = json.loads(raw.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=Pairs)
    except ValueError:
        pairs = None
    if not isinstance(pairs, Pairs):
        assert isinstance(found[-1], coco_reader.Broken) or pairs is None
        assert all(part.at <= len(raw) for part in found if isinstance(part, coco_reader.Broken))
        return
    seen: list[tuple[str, Any]] = []
    for part in found:
        if isinstance(part, coco_reader.Value):
            seen.append((part.key, json.loads(raw[part.start : part.end], object_pairs_hook=Pairs)))
            continue
        assert isinstance(part, coco_reader.Elements)
        seen += [(part.key, [])] if part.first == 0 else []
        for start, end, repeats in zip(part.starts, part.ends, part.repeats, strict=True):
            element = json.loads(raw[start:end], object_pairs_hook=Pairs)
            keys = [key for key, _ in element] if isinstance(element, Pairs) else []
            assert repeats == (len(set(keys)) < len(keys))
            seen[-1][1].append(element)
    assert repr(seen) == repr([tuple(pair) for pair in pairs])


class Pairs(list[Any]):
    """Keys and values of an object, repeated ones too."""


@FUZZ
@given(
    changes=st.lists(st.tuples(st.integers(0, 1), KEYS, ODD), max_size=4),
    at=st.integers(0, 900), byte=st.integers(0, 255),
    kind=st.sampled_from(["whole", "cut", "flip", "insert"]),
)  # fmt: skip
@example(changes=[], at=0, byte=0, kind="whole")
def test_an_outline_is_what_a_parser_finds(
    changes: list[tuple[int, str, Any]], at: int, byte: int, kind: str
) -> None:
    document = coco(2, [(1, 5, 6, 20, 10), (2, 1, 2, 30, 20)], segmentation=[[1, 2, 30, 4, 5, 6]])
    for which, key, value in changes:
        document["annotations"][which][key] = value
    raw = json.dumps(document).replace('"iscrowd": 0', '"iscrowd": 0, "iscrowd": 1', 1).encode()
    at %= len(raw)
    made = {
        "whole": raw, "cut": raw[:at], "flip": raw[:at] + bytes([byte]) + raw[at + 1 :],
        "insert": raw[:at] + bytes([byte] * 3) + raw[at:],
    }[kind]  # fmt: skip
    check_outline(made)


@FUZZ
@given(text=st.text(alphabet='{}[],:"\\01e.- \nnultrfasimge', max_size=60))
def test_any_text_has_an_outline(text: str) -> None:
    check_outline(f'{{"images": [{text}'.encode())


@pytest.mark.parametrize(
    ("raw", "status", "at"),
    [
        ("", coco_reader.TRUNCATED, 0),
        ("[]", coco_reader.WRONG, 0),
        ('{"images": [1, 2', coco_reader.TRUNCATED, 16),
        ('{"images": [{"a": "b]}', coco_reader.TRUNCATED, 22),
        ('{"images": [1,]}', coco_reader.WRONG, 15),
        ('{"images": [1 2]}', coco_reader.WRONG, 14),
        ('{"images": [}', coco_reader.WRONG, 12),
        ('{"images": [' + "[" * 101, coco_reader.DEEP, 112),
        ('{"a": 1} x', coco_reader.WRONG, 9),
    ],
)
def test_a_document_that_is_not_whole(raw: str, status: int, at: int) -> None:
    assert members_of(raw.encode())[-1] == coco_reader.Broken(status, at)


def test_deep_and_long_elements_are_read() -> None:
    deep, long = "[" * 90 + "]" * 90, '"' + 'a\\"' * 300_000 + '"'
    (part,) = members_of(f'{{"images": [{deep}, {{"a": {long}}}, [{"[1]," * 9}1]]}}'.encode())
    assert part.ends.tolist() == [192, 192 + 2 + 900_009, 192 + 2 + 900_009 + 2 + 39]


def test_lines_are_counted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = np.frombuffer(b"{\n\n  [\n1,\n\n2,3\n,4]\n", np.uint8)
    positions = np.array([8, 12, 14, 17], np.int64)
    monkeypatch.setattr(coco_reader, "LINE_BLOCK", 3)
    assert coco_reader.lines_before(text, positions, 0, 1).tolist() == [4, 6, 6, 7]
    assert coco_reader.lines_before(text, positions[2:], 8, 4).tolist() == [6, 7]
    assert coco_reader.count_lines(text, 0, len(text)) == 7
