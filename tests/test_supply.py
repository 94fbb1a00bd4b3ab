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

from pipeline_profiler.profiling.monitor.hook.sitecustomize import OLDEST
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


def test_the_oldest_python_of_a_training_is_the_declared_one() -> None:
    assert PROJECT["requires-python"] == ">={}.{}".format(*OLDEST)


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


TOLD = re.compile(r"pip install ('[^']+'|[\w.*/-]+)")
PRODUCT = ("audit", "pipeline_profiler", "dataset_preflight", "docs")
OWN = "dataset-preflight"


def told_installs() -> dict[str, list[str]]:
    """What README, docs and messages tell people to install, and where."""
    files = [ROOT / "README.md"]
    files += [f for name in PRODUCT for f in (ROOT / name).rglob("*") if f.suffix in (".md", ".py")]
    found: dict[str, list[str]] = {}
    for file in files:
        # A message may go on in the next line of its source.
        text = re.sub(r'"\n\s*f?"', "", file.read_text(encoding="utf-8"))
        for what in TOLD.findall(text):
            found.setdefault(what.strip("'"), []).append(str(file.relative_to(ROOT)))
    return found


def test_every_install_line_names_an_extra_that_there_is_or_a_package_of_the_lock() -> None:
    """Where the package is installed an extra is asked of it by name; elsewhere of a clone."""
    extras, asked = PROJECT["optional-dependencies"], set()
    for what, files in told_installs().items():
        if what.startswith("tools/dataset_preflight-*.whl"):
            continue  # the wheel that tests/test_wheel.py builds
        assert what != OWN, f"{files}: the package is not in an index yet"
        assert not what.startswith("-"), f"{files}: {what}"
        name, _, extra = what.rstrip("]").partition("[")
        if "{" in extra + name:  # a message that names one of the extras
            continue
        asked.add(extra)
        assert not extra or extra in extras, f"{files}: no extra is called {extra}"
        assert name in (".", OWN) or canonicalize_name(what) in locked("all"), f"{files}: {what}"
    assert "remote" in asked
