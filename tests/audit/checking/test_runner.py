"""Running checks: what one leaves to another, and what is kept of each check's cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audit.checking.runner import MemoryGauge
from audit.report import collect_report
from audit.run import run_version
from tests.audit.reviewed import made_run

GREY = {"channels_equal": True, "channel_spread": 0.0, "saturation": 0.0}
PICTURES = [{} for _ in range(60)] + [
    {"id": "one channel.png", "mode": "L", **GREY},
    {"id": "three channels.jpg", **GREY},
]


def named(run: Path, code: str) -> list[str]:
    with run_version.open_run(run) as store:
        sql = "SELECT sample_id FROM finding_samples JOIN findings USING (fingerprint) "
        return list(store.query(sql + "WHERE code = ? ORDER BY ALL", [code])["sample_id"])


# Whatever the order in which they are asked for: the one that gives way runs last.
@pytest.mark.parametrize("codes", [("FILE007", "IMG007"), ("IMG007", "FILE007")])
def test_a_grey_file_is_told_once(tmp_path: Path, codes: tuple[str, ...]) -> None:
    run = made_run(tmp_path / "run", PICTURES, codes)
    assert named(run, "FILE007") == ["one channel.png"]
    assert named(run, "IMG007") == ["three channels.jpg"]
    (said,) = [c.completeness for c in collect_report(run).checks if c.code == "IMG007"]
    assert said.endswith(" FILE007 reports 1 more.")


def test_a_check_alone_names_every_file(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", PICTURES, ["IMG007"])
    assert named(run, "IMG007") == ["one channel.png", "three channels.jpg"]


def test_every_check_keeps_its_time_and_memory(tmp_path: Path) -> None:
    timing = collect_report(made_run(tmp_path / "run", PICTURES, ["IMG", "DUP001"])).timing
    assert set(timing["checks_memory_bytes"]) == set(timing["checks_s"])
    assert "DUP001" in timing["checks_s"]
    assert all(growth >= 0 for growth in timing["checks_memory_bytes"].values())


def test_the_gauge_sees_memory_that_is_gone_again() -> None:
    size = 1 << 28
    with MemoryGauge() as gauge:
        np.ones(size, np.uint8)
        grown = gauge.growth()
        gauge.start()
        assert gauge.growth() < size // 2
    assert grown > size * 0.9
