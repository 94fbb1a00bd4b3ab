"""Annotation files that are damaged or invented, and the outline of a document."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from audit.annotations import coco as coco_reader
from audit.annotations.geometry import unpack_runs
from tests.audit.annotations.datasets import annotated, coco, coco_tree, judge, picture
from tests.audit.annotations.test_annotation_forms import VOC

pytestmark = pytest.mark.slow


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=8),
    st.lists(st.one_of(st.floats(), st.integers(), st.text(max_size=3), st.none()), max_size=6),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
)  # fmt: skip
KEYS = st.sampled_from(
    ["id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints",
     "num_keypoints", "attributes", "track_id", "caption", "segments_info"]
)  # fmt: skip
FUZZ = settings(max_examples=6)
READ = settings(FUZZ, max_examples=3)  # of whole datasets: each is read, settled and judged


def examine(root: Path) -> None:
    """Read and check: whatever is wrong must be a row; a reader that failed is none."""
    with annotated(root) as store:
        for finding in judge(store):
            assert finding.message.endswith(".")
            assert finding.evidence_json()
        failed = store.rows("FROM annotation_problems WHERE kind = 'reader-failed'")
        assert failed == []


def damaged(raw: bytes, at: int, byte: int, kind: str) -> bytes:
    at %= len(raw)
    rest = {
        "cut": b"",
        "flip": bytes([byte]) + raw[at + 1 :],
        "insert": bytes([byte] * 3) + raw[at:],
    }
    return raw[:at] + rest.get(kind, raw[at:])


@READ
@given(changes=st.lists(st.tuples(st.integers(0, 3), KEYS, ODD), min_size=1, max_size=5))
@example(changes=[(0, "segmentation", [0.0, ""])])
def test_odd_values_in_coco(tmp_path: Path, changes: list[tuple[int, str, Any]]) -> None:
    document = coco(2, [(1, 5, 6, 20, 10), (2, 1, 2, 30, 20), (1, 9, 9, 9, 9), (2, 4, 4, 8, 8)])
    for at, key, value in changes:
        document["annotations"][at][key] = value
    examine(coco_tree(tmp_path, json.dumps(document), 2))


@READ
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(["images", "categories", "annotations"]), ODD, st.integers(0, 2)),
        max_size=4,
    )
)
def test_odd_entries_in_coco(tmp_path: Path, changes: list[tuple[str, Any, int]]) -> None:
    document = coco(2, [(1, 5, 6, 20, 10), (2, 1, 2, 30, 20)])
    for name, value, at in changes:
        document[name].insert(at, value)
    examine(coco_tree(tmp_path, json.dumps(document), 2))


@READ
@given(
    at=st.integers(0, 600),
    kind=st.sampled_from(["cut", "flip", "insert"]),
    byte=st.integers(0, 255),
)
def test_damaged_coco_bytes(tmp_path: Path, at: int, kind: str, byte: int) -> None:
    document = coco(2, [(1, 5, 6, 20, 10), (2, 1, 2, 30, 20)], segmentation=[[1, 2, 30, 4, 5, 6]])
    raw = json.dumps(document).encode()
    examine(coco_tree(tmp_path, damaged(raw, at, byte, kind), 2))


LINE = st.text(alphabet="0123456789. -enaif,\t\ufeffx", max_size=40)


@READ
@given(lines=st.lists(LINE, max_size=6), raw=st.binary(max_size=12))
def test_any_yolo_lines(tmp_path: Path, lines: list[str], raw: bytes) -> None:
    labels = tmp_path / "labels"
    labels.mkdir(exist_ok=True)
    for i in range(3):
        picture(tmp_path / "images" / f"{i}.jpg")
        (labels / f"{i}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (labels / "1.txt").write_bytes("\n".join(lines).encode() + raw)
    examine(tmp_path)


@READ
@given(at=st.integers(0, len(VOC)), raw=st.binary(max_size=6), cut=st.integers(0, 9))
def test_damaged_xml(tmp_path: Path, at: int, raw: bytes, cut: int) -> None:
    for i in range(3):
        picture(tmp_path / "JPEGImages" / f"{i}.jpg")
    (tmp_path / "Annotations").mkdir(exist_ok=True)
    for name in ("0", "2"):
        (tmp_path / "Annotations" / f"{name}.xml").write_text(VOC.replace("0.jpg", f"{name}.jpg"))
    data = VOC.encode()
    (tmp_path / "Annotations" / "1.xml").write_bytes(data[:at] + raw + data[at + cut :])
    examine(tmp_path)


@READ
@given(
    cells=st.lists(
        st.lists(st.text(alphabet='0123456789.,"\n -nax', max_size=6), max_size=9), max_size=5
    )
)
def test_any_table(tmp_path: Path, cells: list[list[str]]) -> None:
    picture(tmp_path / "0.jpg")
    rows = ["filename,width,height,class,xmin,ymin,xmax,ymax", *(",".join(row) for row in cells)]
    (tmp_path / "boxes.csv").write_text("\n".join(rows))
    examine(tmp_path)


@READ
@given(
    shapes=st.lists(
        st.dictionaries(st.sampled_from(["label", "points", "shape_type"]), ODD), max_size=3
    )
)
def test_any_labelme_shapes(tmp_path: Path, shapes: list[dict[str, Any]]) -> None:
    picture(tmp_path / "0.jpg")
    document = {"shapes": shapes, "imagePath": "0.jpg", "imageHeight": 48}
    (tmp_path / "0.json").write_text(json.dumps(document))
    examine(tmp_path)


@FUZZ
@given(text=st.text(max_size=80))
def test_any_runs(text: str) -> None:
    runs = unpack_runs(text)
    assert runs is None or len(runs) <= len(text.encode()) + 1


def members_of(raw: bytes) -> list[Any]:
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
    check_outline(damaged(raw, at, byte, kind))


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
