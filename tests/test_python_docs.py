"""What the documents say of Python: the page is current, the notebook runs, examples are true."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_docs import imported

make_python = imported(ROOT / "docs" / "make_python.py", "make_python")


def test_the_page_is_current() -> None:
    assert make_python.PAGE.read_text(encoding="utf-8") == make_python.page()


def test_everything_public_has_a_word() -> None:
    assert "None" not in [line.strip() for line in make_python.page().splitlines()]


make_screen = imported(ROOT / "docs" / "make_screen.py", "make_screen")


@pytest.mark.slow
def test_the_readme_is_two_pages_with_the_screen_of_today(sample_data_run: Path) -> None:
    text = make_screen.README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    assert make_screen.screen(sample_data_run) in text, "run `make docs`"


@pytest.mark.slow
def test_the_notebook_runs(sample_data_run: Path, tmp_path: Path) -> None:
    shutil.copytree(sample_data_run, tmp_path / "run")
    made = make_python.notebook(tmp_path / "run")
    kept = json.loads(make_python.NOTEBOOK.read_text(encoding="utf-8"))
    for now, then in zip(made["cells"], kept["cells"], strict=True):
        assert now["source"] == then["source"]
        if now["cell_type"] == "code":
            assert [sorted(o["data"]) for o in now["outputs"]] == [
                sorted(o["data"]) for o in then["outputs"]
            ]
    assert str(tmp_path) not in json.dumps(made)
    assert str(ROOT) not in json.dumps(kept)
