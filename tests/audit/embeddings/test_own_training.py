"""The lines of docs/embeddings.md that make probabilities from a training of one's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from audit.interface import Run
from audit.scanning.options import ScanOptions
from tests.conftest import picture

pytestmark = pytest.mark.slow

TRAINING = """
import numpy as np
from PIL import Image

def colours(files):
    return np.stack([np.asarray(Image.open(f).convert("RGB"), float).mean((0, 1)) for f in files])

def train(files, labels, classes):
    seen.append(set(files))
    return [np.median(colours(files)[np.array(labels) == name], axis=0) for name in classes]

def predict(model, files):
    assert not seen[-1] & set(files)
    away = np.stack([np.linalg.norm(colours(files) - centre, axis=1) for centre in model], 1)
    p = np.exp(-away / 5)
    return p / p.sum(1, keepdims=True)

seen = []
"""


def test_the_lines_of_the_documents_judge_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "embeddings.md").read_text("utf-8")
    (lines,) = re.findall(r"```py\n(import audit\n.*?)```", page, re.DOTALL)
    root = tmp_path / "data"
    for number in range(120):
        name = ("red", "blue")[number % 2 == 0]
        filed = ("red", "blue")[(number % 2 == 0) ^ (number in (7, 30, 90))]
        (root / filed).mkdir(parents=True, exist_ok=True)
        pixels = picture(number, 32, 32).astype(float) / 4
        pixels[..., 0 if name == "red" else 2] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(root / filed / f"{number}.png")
    wrong = {f"{('red', 'blue')[(n % 2 == 0) ^ True]}/{n}.png" for n in (7, 30, 90)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("my_training.py").write_text(TRAINING)
    run = Path("runs/data")
    ScanOptions(jobs=1).prepare(["data"], run).carry_out(lambda *_: None)
    exec(compile(lines, "embeddings.md", "exec"), {})
    assert len(sys.modules.pop("my_training").seen) == 5
    assert pl.read_parquet("predictions.parquet").columns == ["path", "blue", "red"]
    own = ScanOptions(jobs=1, predictions="predictions.parquet")
    own.prepare(["data"], run).carry_out(lambda *_: None)
    first = Run(run).review_labels(3)
    assert set(first.rows["id"]) == wrong
