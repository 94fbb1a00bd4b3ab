"""Documents have one outline, whether a kernel or its plain form finds it; nothing is compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audit.annotations import coco as coco_reader
from audit.kernels.library import find_kernel
from tests.audit.annotations.datasets import coco, coco_tree
from tests.audit.annotations.test_annotation_fuzz import FUZZ, KEYS, ODD
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def no_kernel(_: str) -> None:
    """Find no kernel: the plain form runs."""


def parts(raw: bytes, kernel: Callable[[str], Any] = find_kernel) -> list[Any]:
    """What the outline of a document is, in plain values."""
    found: list[Any] = []
    with patch.object(coco_reader, "find_kernel", kernel):
        members = list(
            coco_reader.scan_document(np.frombuffer(raw, np.uint8), ("images", "annotations"))
        )
    for part in members:
        if isinstance(part, coco_reader.Elements):
            arrays = (part.starts.tolist(), part.ends.tolist(), part.repeats.tolist())
            found.append((part.key, part.first, *arrays))
        else:
            found.append(part)
    return found


@FUZZ
@given(
    changes=st.lists(st.tuples(st.integers(0, 1), KEYS, ODD), max_size=4),
    at=st.integers(0, 900), byte=st.integers(0, 255),
    kind=st.sampled_from(["whole", "cut", "flip", "insert"]),
)  # fmt: skip
@example(changes=[], at=0, byte=0, kind="whole")
def test_documents_have_one_outline(
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
    assert parts(made) == parts(made, no_kernel)


@FUZZ
@given(text=st.text(alphabet='{}[],:"\\01e.- \nnultrfasimge', max_size=60))
def test_any_text_has_one_outline(text: str) -> None:
    raw = f'{{"images": [{text}'.encode()
    found = parts(raw)
    assert found == parts(raw, no_kernel)
    assert len(found) <= len(raw)


def test_lines_are_counted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = np.frombuffer(b"{\n\n  [\n1,\n\n2,3\n,4]\n", np.uint8)
    positions = np.array([8, 12, 14, 17], np.int64)
    monkeypatch.setattr(coco_reader, "LINE_BLOCK", 3)
    assert coco_reader.lines_before(text, positions, 0, 1).tolist() == [4, 6, 6, 7]
    assert coco_reader.lines_before(text, positions[2:], 8, 4).tolist() == [6, 7]
    assert coco_reader.count_lines(text, 0, len(text)) == 7


def test_small_files_load_no_compiled_code(tmp_path: Path) -> None:
    document = coco(3, [(1, 5, 6, 20, 10), (2, 1, 2, 30, 20)], segmentation=[[1, 2, 30, 4, 5, 6]])
    document["annotations"][1]["segmentation"] = {"size": [48, 64], "counts": "5:8"}
    coco_tree(tmp_path, document, 3)
    (tmp_path / "images" / "0.txt").write_text("0 0.1 0.1 0.4 0.1 0.4 0.4 0.1 0.4\n")
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from tests.audit.annotations.datasets import annotated\n"
        "from audit.annotations import measure_boxes\n"
        f"with annotated(Path({str(tmp_path)!r})) as store:\n"
        "    measure_boxes(store)\n"
        "    kinds = store.rows('SELECT kind, file FROM annotation_shapes ORDER BY ALL')\n"
        "assert [k['kind'] for k in kinds] == ['mask', 'polygon', 'polygon'], kinds\n"
        "assert 'numba' not in sys.modules, 'numba was loaded'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-600:]
