"""The page Changes: what a run is compared with unless a person chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.reviewed import made_run
from tests.audit.ui.pages import Show, text

pytestmark = pytest.mark.slow


def pets(run: Path, first: int = 0) -> Path:
    """Publish a run of ten images; those of another `first` are another dataset."""
    numbers = range(first, first + 10)
    return made_run(run, [{"id": f"{i}.jpg", "content_hash": f"{i:064x}"} for i in numbers])


def test_a_run_is_compared_with_its_own_dataset_and_another_only_where_chosen(
    show: Show, tmp_path: Path
) -> None:
    run, earlier = pets(tmp_path / "pets"), pets(tmp_path / "before", first=2)
    other, broken = pets(tmp_path / "birds", first=100), tmp_path / "broken"
    broken.mkdir()
    at = show("changes", other, broken, earlier, run, run="pets")
    (box,) = (one for one in at.selectbox if one.label == "Earlier scan")
    assert box.options == ["before", "another dataset: birds", "another dataset: broken"]
    assert box.value == "before"
    assert "another dataset" not in text(at)
    at = show("changes", other, earlier, run, run="pets", earlier="birds")
    assert "birds is a scan of another dataset: 0.0% of the samples" in text(at)
    assert at.metric

    pets(run, first=1)  # scanned again: its own version stands before every other run
    at = show("changes", other, earlier, run, run="pets")
    (box,) = (one for one in at.selectbox if one.label == "Earlier scan")
    assert box.options[-2:] == ["before", "another dataset: birds"]
    assert box.value == box.options[0] != "before"


def test_a_run_of_another_dataset_alone_is_not_compared(show: Show, tmp_path: Path) -> None:
    run, other = pets(tmp_path / "pets"), pets(tmp_path / "birds", first=100)
    at = show("changes", other, run, run="pets")
    assert "No other scan of this dataset" in text(at)
    (box,) = (one for one in at.selectbox if one.label == "Earlier scan")
    assert (box.value, box.options) == ("", ["Choose a run", "another dataset: birds"])
    assert not at.metric
