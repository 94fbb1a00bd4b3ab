"""What pictures need, on classes of which it is known: fine detail, colour, position, nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner

from audit.cli.main import app
from audit.compare.needs import LOSES, NOTHING_LOST, PictureNeeds, Version, judge_pictures
from tests.audit.run.scanned import scan_tree

pytestmark = pytest.mark.slow

N, BASE = 240, 32


def backgrounds(rng: np.random.Generator) -> np.ndarray:
    """Coarse fields of light that say nothing of a class."""
    coarse = rng.uniform(90, 160, (N, 4, 4, 1)).repeat(3, axis=3)
    return coarse.repeat(BASE // 4, 1).repeat(BASE // 4, 2) + rng.normal(0, 3, (N, BASE, BASE, 3))


def needs(pictures: np.ndarray, labels: np.ndarray) -> PictureNeeds:
    rows = pl.DataFrame(
        {"label": [f"class {i}" for i in labels], "unit": [f"{i:04}" for i in range(N)]}
    ).with_columns(width=pl.lit(640), height=pl.lit(480))
    return judge_pictures(Path("run"), rows, np.clip(pictures, 0, 255).astype(np.uint8))


def version(found: PictureNeeds, name: str) -> Version:
    return next(v for v in (*found.sizes, *found.versions) if name in v.name)


def test_detail_that_only_the_full_size_has() -> None:
    rng = np.random.default_rng(1)
    labels, pictures = np.arange(N) % 2, backgrounds(rng)
    stripes = 25 * (-1.0) ** np.arange(BASE)
    pictures[labels == 0] += stripes[None, :, None, None]
    pictures[labels == 1] += stripes[None, None, :, None]
    found = needs(pictures, labels)
    assert (found.base, found.smallest) == (BASE, BASE)
    assert found.accuracy > 0.95
    assert version(found, "16 px").verdict == LOSES
    assert version(found, "tiles").verdict == NOTHING_LOST
    assert version(found, "grey").verdict == NOTHING_LOST


def test_colour_alone() -> None:
    rng = np.random.default_rng(2)
    labels, pictures = np.arange(N) % 2, backgrounds(rng)
    # of equal luma, 0.299 R + 0.587 G + 0.114 B
    pictures[labels == 0] += np.array([30.0, -15.28, 0.0])
    pictures[labels == 1] -= np.array([30.0, -15.28, 0.0])
    found = needs(pictures, labels)
    assert found.smallest == 8
    # 640 x 480 for 8 px: libjpeg makes an eighth of each side
    assert (found.pixels, found.decoded) == (640 * 480, 64)
    assert version(found, "grey").verdict == LOSES
    assert version(found, "tiles").verdict == NOTHING_LOST


def test_position_alone() -> None:
    rng = np.random.default_rng(3)
    labels, pictures = np.arange(N) % 2, backgrounds(rng)
    pictures[labels == 0, : BASE // 2] += 50
    pictures[labels == 1, BASE // 2 :] += 50
    found = needs(pictures, labels)
    assert version(found, "tiles").verdict == LOSES
    assert version(found, "grey").verdict == NOTHING_LOST
    assert found.smallest == 8


def test_classes_that_show_nothing() -> None:
    rng = np.random.default_rng(4)
    found = needs(backgrounds(rng), rng.integers(2, size=N))
    assert "largest class alone" in found.reason
    assert found.sizes == ()


def test_the_command(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for number in range(210):
        folder = tmp_path / "shots" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = backgrounds(rng)[0] + (np.arange(BASE) < BASE // 2)[:, None, None] * (
            80 * (number % 2) - 40
        )
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{number}.png")
    run = tmp_path / "run"
    scan_tree(tmp_path / "shots", run, checks=("FILE",))
    result = CliRunner().invoke(app, ["needs", str(run), "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["schema"], said["base"], said["classes"]) == ("audit-needs/1", 32, 2)
    assert [v["size"] for v in said["sizes"]] == [32, 16, 8]
    few = CliRunner().invoke(app, ["needs", str(run), "--jobs", "1", "--pictures", "100"])
    assert "cannot be told: 100 pictures in classes" in " ".join(few.output.split())
