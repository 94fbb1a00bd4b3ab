"""Two runs compared: nothing between alike ones, and what was changed between others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from audit.compare.drift import find_drift
from tests.audit.conftest import Command
from tests.audit.run.scanned import scan_tree
from tests.conftest import picture

pytestmark = pytest.mark.slow


def scanned(folder: Path, seed: int, labels: tuple[str, ...], light: float = 1.0) -> Path:
    """A run of 36 pictures a class, darkened by a factor."""
    for k, label in enumerate(labels):
        (folder / "set" / label).mkdir(parents=True)
        for i in range(36):
            pixels = np.round(picture(1000 * seed + 100 * k + i) * light).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "set" / label / f"{i}.png")
    scan_tree(folder / "set", folder / "run", checks=("FILE",))
    return folder / "run"


def test_drift_between_runs(tmp_path: Path, command: Command) -> None:
    first = scanned(tmp_path / "a", 1, ("cat", "dog"))
    alike = scanned(tmp_path / "b", 2, ("cat", "dog"))
    darker = scanned(tmp_path / "c", 3, ("cat", "owl"), 0.6)
    assert find_drift(alike, first).findings == []
    assert find_drift(first, first).findings == []
    found = {(f.code, f.subject): f for f in find_drift(darker, first).findings}
    assert set(found) == {
        ("DIST003", "split:reference/class:owl"), ("DIST003", "split:run/class:dog"),
        ("DIST007", "split:run"),
    }  # fmt: skip
    darkened = found["DIST007", "split:run"]
    assert "brightness" in str(darkened.evidence["properties"])
    assert all(name.startswith("cat/") for name in darkened.sample_ids)
    code, out, _ = command("drift", darker, first, "--json", "--fail")
    document = json.loads(out)
    assert (code, document["schema"], len(document["findings"])) == (1, "audit-drift/1", 3)
    code, out, _ = command("drift", alike, first, "--fail")
    assert code == 0
    assert "does not differ" in out
