"""What is installed and what is shipped: locks fit the declaration, sources can be tested."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"core": [], "app": ["app"], "all": ["app", "tf", "dev"]}


def locked(name: str) -> dict[str, str]:
    """Package to version of a lock file."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


@pytest.mark.parametrize("name", EXTRAS)
def test_the_lock_satisfies_what_is_declared(name: str) -> None:
    optional = PROJECT["optional-dependencies"]
    declared = PROJECT["dependencies"] + [r for extra in EXTRAS[name] for r in optional[extra]]
    versions = locked(name)
    for requirement in map(Requirement, declared):
        version = versions.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is not locked: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement}: run `make lock`"


@pytest.mark.parametrize("name", EXTRAS)
def test_every_locked_file_has_a_hash_and_names_no_host(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert text.count("--hash=sha256:") >= len(locked(name))
    assert "://" not in text


def test_a_larger_lock_holds_the_smaller_one() -> None:
    assert locked("core").items() <= locked("app").items() <= locked("all").items()


@pytest.mark.slow
def test_the_source_distribution_can_run_its_tests(tmp_path: Path) -> None:
    build = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"
    copy = tmp_path / "copy"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    files = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    if not files:
        pytest.skip(
            "these sources are no git checkout, so nothing tells which files belong to them"
        )
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=copy, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        packed = {name.split("/", 1)[-1] for name in archive.getnames()}
    left_out = {".gitignore", "MANIFEST.in"}
    missing = {name for name in files if name not in packed} - left_out
    assert not missing, sorted(missing)[:10]
