"""Two runs compared: nothing between alike ones, and what was changed between others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from audit import scanning
from audit.run_drift import find_drift
from audit.sources import open_source
from tests.conftest import picture
from tests.warm import warm_audit

pytestmark = pytest.mark.slow


def scanned(folder: Path, seed: int, labels: tuple[str, ...], light: float = 1.0) -> Path:
    """A run of 36 pictures a class, darkened by a factor."""
    for k, label in enumerate(labels):
        (folder / "set" / label).mkdir(parents=True)
        for i in range(36):
            pixels = np.round(picture(1000 * seed + 100 * k + i) * light).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "set" / label / f"{i}.png")
    scanning.scan(open_source([str(folder / "set")]), folder / "run", jobs=1)
    return folder / "run"


def drift(*arguments: object) -> subprocess.CompletedProcess[str]:
    return warm_audit("drift", *arguments)


def test_drift_between_runs(tmp_path: Path) -> None:
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
    printed = drift(darker, first, "--json", "--fail")
    document = json.loads(printed.stdout)
    assert printed.returncode == 1
    assert (document["schema"], len(document["findings"])) == ("audit-drift/1", 3)
    printed = drift(alike, first, "--fail")
    assert printed.returncode == 0
    assert "does not differ" in printed.stdout
