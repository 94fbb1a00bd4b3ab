"""The built wheel, unpacked beside the environment's packages and outside the tree, does its work.

What lies in the tree and not in the wheel (a template, a hook, the app's script) is missing here.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, make_tree

pytestmark = pytest.mark.slow
PATIENCE_S = 300.0
BUILT = ("audit", "pipeline_profiler", "dataset_preflight")
BESIDE = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
LOADER = "def make_loader():\n    return [[i] * 8 for i in range(64)]\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the unpacked wheel."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    for name in BUILT:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BESIDE:
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "wheel"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", place]
    subprocess.run([*pip, *options, source], check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place / "lib")
    shutil.rmtree(source)
    subprocess.run([sys.executable, "-m", "compileall", "-q", place / "lib"], check=True)
    return place / "lib"


def words(module: str, *rest: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, rest)]


def environment(lib: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(lib), "PIPELINE_PROFILER_RUNS": "off"}


def run(lib: Path, folder: Path, module: str, *rest: object) -> str:
    done = subprocess.run(
        words(module, *rest), cwd=folder, env=environment(lib), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", ["audit", "pipeline_profiler"])
def test_the_pages_of_checks_are_in_the_wheel(installed: Path, package: str) -> None:
    assert (installed / package / "checks" / "README.md").is_file()


def test_it_is_the_wheel_that_is_imported(installed: Path, tmp_path: Path) -> None:
    code = "import audit, dataset_preflight as page; print(audit.__file__, page.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(installed),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.split() == [
        str(installed / n / "__init__.py") for n in (BUILT[0], BUILT[2])
    ]


def test_it_scans_reports_and_explains(installed: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "images")
    run(installed, tmp_path, "audit", "scan", "images", "--out", "run", "--fail-on", "never")
    run(installed, tmp_path, "audit", "report", "run", "-o", "report.html")
    assert "<html" in (tmp_path / "report.html").read_text()
    assert "DUP001" in run(installed, tmp_path, "audit", "explain", "DUP001")


def test_it_profiles_a_loader(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "loader.py").write_text(LOADER)
    said = run(
        installed, tmp_path, "pipeline_profiler", "run", "loader.py:make_loader",
        "--emulate-step-ms", 1, "--set", "measure.steps=20", "--set", "measure.repeats=2",
        "--seconds", 3, "--json", "-o", "profile.json",
    )  # fmt: skip
    assert json.loads(said)["schema"] == "profile/1"
    run(installed, tmp_path, "pipeline_profiler", "report", "profile.json", "-o", "profile.html")
    assert "<html" in (tmp_path / "profile.html").read_text()


def test_it_works_beside_a_package_of_a_similar_name(installed: Path, tmp_path: Path) -> None:
    """preflight-ml installs a package and a command `preflight`: neither overwrites ours."""
    beside = ROOT / ".venv" / "peers_packages"
    if not (beside / "preflight").is_dir() and not os.environ.get("CI"):
        pytest.skip("needs `make test`, which installs preflight-ml beside the environment")
    ours = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    theirs = {str(p.relative_to(beside)) for p in beside.rglob("preflight*/**/*") if p.is_file()}
    assert theirs
    assert not ours & theirs
    env = environment(installed) | {"PYTHONPATH": f"{installed}{os.pathsep}{beside}"}
    make_tree(tmp_path / "images")
    commands = {
        "from preflight.cli import main; main()": ["--help"],
        "from dataset_preflight.cli import main; main()": ["images", "--out", "run"],
    }
    said = [
        subprocess.run(
            [sys.executable, "-c", code, *rest], cwd=tmp_path, env=env, capture_output=True,
            text=True, check=True,
        ).stdout
        for code, rest in commands.items()
    ]  # fmt: skip
    assert "Usage" in said[0]
    assert said[1].startswith("2 go, 3 skipped")


def test_it_serves_the_app(installed: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "log"
    with log.open("w") as file:
        app = subprocess.Popen(
            words("audit", "app", "--no-browser", "--port", port),
            cwd=tmp_path, env=environment(installed), stdout=file, stderr=file,
        )  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE_S
        while not (link := re.search(r"/\?token=\S+", log.read_text())) or not answers(port):
            assert app.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        line.request("GET", link[0])
        assert "set-cookie" in {name.lower() for name, _ in line.getresponse().getheaders()}
        line.close()
    finally:
        app.terminate()
        app.wait(PATIENCE_S)


def answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0
