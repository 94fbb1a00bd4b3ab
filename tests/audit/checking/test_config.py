"""audit.toml: what it may say, and the sentence where it says something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.checking.check import select_checks
from audit.checking.config import load_config
from audit.errors import UsageError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "audit.toml"
    path.write_text(text)
    return path


def test_settings_are_read(tmp_path: Path) -> None:
    relate = "[match]\nradius = 8\nturned = true\nuncertainty_band = 2.5\n"
    text = f"[scan]\nmax_pixels = 5\n{relate}[checks.IMG001]\nmax_p99 = 0.2\n"
    config = load_config(written(tmp_path, text))
    assert config.limits.max_pixels == 5
    assert config.match == {"radius": 8, "turned": True, "uncertainty_band": 2.5}
    assert config.thresholds == {"IMG001": {"max_p99": 0.2}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[match]\nradius = 64", "radius is 64: write a whole number, 0 to 20"),
        ("[match]\nnearest = true", "nearest is True: write a whole number"),
        ('[match]\nturned = "yes"', "turned is 'yes': write true or false"),
        ("[match]\nuncertainty_band = true", "uncertainty_band is True: write a number, 0 to 50"),
        ("[match]\nrechecks = -1", "rechecks is -1: write a whole number"),
        (
            "[match]\nradios = 6",
            "has no 'radios'. Did you mean 'radius'? It may have hashes, nearest, radius, "
            "rechecks, turned, uncertainty_band",
        ),
        ("[scan]\nmax_pixel = 6", "[scan] has no 'max_pixel'"),
        (
            "[check]\n",
            "Did you mean 'checks'? It may have checks, expect, match, measure, plan, plugins",
        ),
        ("[scan", "cannot be read as TOML"),
    ],
)
def test_what_is_wrong_gets_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"audit\.toml") as error:
        load_config(written(tmp_path, text))
    assert said in str(error.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_config(tmp_path / "none.toml")


def test_a_retired_code_is_noted_and_has_no_effect(tmp_path: Path) -> None:
    text = "[checks.DIST005]\nrate = 0.1\n[checks.IMG001]\nmax_p99 = 0.2\n"
    text += "[expect]\nDIST005 = 0\nfiles = 3\n[expect.test]\nDIST010 = 0\n"
    config = load_config(written(tmp_path, text))
    assert config.thresholds == {"IMG001": {"max_p99": 0.2}}
    assert config.expect == {"files": 3, "test": {}}
    assert [note.split(":")[0] for note in config.notes] == [
        "DIST005 was retired", "DIST010 was retired",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="DIST005 was retired: use DIST004"):
        select_checks(["DIST005"])
