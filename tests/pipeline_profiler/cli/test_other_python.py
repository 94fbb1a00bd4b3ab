"""A training whose Python is another than ours is measured there, and nothing there changes."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.cli import main
from pipeline_profiler.profiling.monitor.interpreter import lent_packages
from pipeline_profiler.profiling.record.session import Session
from tests.conftest import ROOT, make_once

PACKAGES = Path(sys.prefix) / "older_packages"
# torch, and what its import needs: as large as it is, it is linked
LINKED = ("torch", "torchgen", "functorch", "typing_extensions", "sympy", "mpmath")
# what every process of the training has imported, told at its end
TRAIN = """
import io, json, os, sys
from multiprocessing.util import Finalize

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

def tell(place):
    files = {name: getattr(m, "__file__", None) for name, m in list(sys.modules.items())}
    with open(os.path.join(place, f"{os.getpid()}.json"), "w") as out:
        json.dump({"python": sys.executable, "path": sys.path, "files": files}, out)

Finalize(None, tell, [os.path.dirname(os.path.abspath(__file__))], exitpriority=0)

class Pictures(Dataset):
    def __init__(self):
        out = io.BytesIO()
        Image.fromarray(np.arange(4800, dtype=np.uint8).reshape(40, 40, 3)).save(out, "JPEG")
        self.blob = out.getvalue()

    def __len__(self):
        return 64

    def __getitem__(self, i):
        pixels = np.array(Image.open(io.BytesIO(self.blob)), np.float32)
        return torch.from_numpy(pixels / 255 + i % 2).permute(2, 0, 1), i % 2

def make_loader():
    return DataLoader(Pictures(), 4, True, num_workers=1, multiprocessing_context="spawn")

def make_model():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4800, 2))

def make_loss():
    return torch.nn.CrossEntropyLoss()

def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), 1e-4)

def make_step():
    model, loss = make_model(), make_loss()
    optimizer = make_optimizer(model)
    def step(batch):
        optimizer.zero_grad()
        loss(model(batch[0]), batch[1]).backward()
        optimizer.step()
    return step

if __name__ == "__main__":
    step = make_step()
    for batch in make_loader():
        step(batch)
"""
PLAIN = """
def make_loader():
    return [1] * 99

def make():
    import absent_x
    return absent_x.loader()
"""
COMMANDS = [
    ("run", "train.py:make_loader", "--step", "train.py:make_step", "--quick", "--seconds", "2",
     "--set", "measure.steps=10", "--set", "measure.repeats=1", "--python", "{}"),
    ("check", "train.py", "--only", "TRAIN005,TRAIN020", "--python", "{}/bin/python"),
    ("watch", "--python", "{}", "--", "train.py"),
]  # fmt: skip
WALK = """
import importlib, pkgutil, sys
sys.path.append(sys.argv[1])
sys.modules |= dict.fromkeys(("torch", "PIL"))
import pipeline_profiler, dataset_preflight.foundation
found = [m.name for p in (pipeline_profiler, dataset_preflight.foundation)
         for m in pkgutil.walk_packages(p.__path__, f"{p.__name__}.", onerror=lambda name: None)
         if not m.name.startswith("pipeline_profiler.ui") and not m.name.endswith("__main__")]
for name in found:
    importlib.import_module(name)
print(len(found))
"""
OURS = {"pipeline_profiler", "dataset_preflight", "sitecustomize"}  # the last waits for a framework

installed = pytest.mark.skipif(
    not (PACKAGES / "PIL").is_dir() and not os.environ.get("CI"),
    reason="needs `make test`, which installs older packages beside the environment",
)


def make_environment(folder: Path) -> None:
    """An environment as a training has it: torch, and older versions of numpy and Pillow."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    shutil.copytree(PACKAGES, site, dirs_exist_ok=True)
    for name in LINKED:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            file = Path(spec.origin)
            file = file.parent if spec.submodule_search_locations else file
            (site / file.name).symlink_to(file)


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    return make_once(tmp_path_factory, "other_environment", make_environment)


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of everything in a folder; links are not followed."""
    rows = {}
    for at, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            state = os.lstat(os.path.join(at, name))
            rows[os.path.join(at, name)] = state.st_size, state.st_mtime_ns
    return rows


def profile(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of this checkout, whose folder is on no other Python's path."""
    start = f"import sys; sys.path[0] = {str(ROOT)!r}; from pipeline_profiler.cli import main"
    unset = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return subprocess.run(
        [sys.executable, "-c", f"{start}; sys.exit(main.command_line())", *words],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k not in unset} | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def told_by(folder: Path) -> Iterator[dict[str, Any]]:
    """What the processes of the training have told."""
    for path in folder.glob("[0-9]*.json"):
        yield json.loads(path.read_text())


def foreign(told: dict[str, Any], *places: Path | str) -> set[str]:
    """The packages that a process has imported from elsewhere than these places."""
    files = {name: file for name, file in told["files"].items() if file and os.path.isabs(file)}
    names = {n for n, file in files.items() if not file.startswith(tuple(map(str, places)))}
    return {name.partition(".")[0] for name in names}


@installed
@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_a_training_is_measured_by_its_own_python_with_its_own_packages(
    other: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    # `run` starts its loader again and again: workers that import torch are those of the others
    (tmp_path / "train.py").write_text(
        TRAIN.replace("spawn", "fork") if words[0] == "run" else TRAIN
    )
    (site,) = other.glob("lib/python*/site-packages")
    shutil.rmtree(site / "__pycache__", ignore_errors=True)  # a run of ours must not write it
    if words[0] == "watch":  # a training itself does: as pip does beforehand
        python = other / "bin" / "python"
        subprocess.run([python, "-m", "compileall", "-q", "-l", site], check=True)
    before = listing(other)
    ended = profile(tmp_path, words[0], "-o", "x.json", *(w.format(other) for w in words[1:]))
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert listing(other) == before  # nothing of ours, and no bytecode
    processes = list(told_by(tmp_path))
    assert processes
    for told in processes:  # the workers too
        assert told["python"] == str(other / "bin" / "python")
        assert foreign(told, other, sysconfig.get_path("stdlib"), tmp_path) <= OURS
        assert not {sysconfig.get_path("purelib"), str(ROOT)} & set(told["path"])
    if words[0].startswith("check"):
        verdicts = {c["verdict"] for c in json.loads((tmp_path / "x.json").read_text())["checks"]}
        assert verdicts == {"passed"}
    else:
        session = Session.load(tmp_path / "x.json")
        assert session.environment["interpreter"] == str(other / "bin" / "python")
        older = {d.name.lower(): d.version for d in distributions(path=[str(PACKAGES)])}
        assert session.environment["packages"] == older
        assert older.items().isdisjoint((d.name.lower(), d.version) for d in distributions())


@installed
@pytest.mark.slow
def test_every_module_but_the_app_is_imported_with_numpy_alone(other: Path) -> None:
    with lent_packages() as folder:
        ended = subprocess.run(
            [other / "bin" / "python", "-I", "-B", "-c", WALK, folder],
            capture_output=True,
            text=True,
            check=True,
        )
    assert int(ended.stdout) > 100


# ---- which Python ----


@pytest.fixture
def loader(tmp_path: Path) -> str:
    path = tmp_path / f"plain_{abs(hash(str(tmp_path)))}.py"
    path.write_text(PLAIN)
    return f"{path}:make_loader"


def answering(path: Path, answer: str) -> Path:
    """A program that answers as a Python would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            """echo "('3.10.13', '/x', '1.26.4', '')" """,
            "is Python 3.10.13, and the profiler needs 3.11",
        ),
        ("""echo "('2.7.18', '/x', '', '')" """, "is Python 2.7.18, and the profiler needs 3.11"),
        (
            """echo "('3.12.1', '/x', '', 'ModuleNotFoundError: No module named numpy')" """,
            "cannot import numpy (ModuleNotFoundError: No module named numpy), which measuring",
        ),
        ("echo 7", "is no Python that runs here (it did not say its version)"),
        ("echo 'no such version' >&2; exit 127", "is no Python that runs here (no such version)"),
    ],
)
def test_a_python_that_cannot_measure_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loader: str, answer: str, words: str
) -> None:
    path = answering(tmp_path / "env" / "bin" / "python", answer)
    assert main.command_line(["run", loader, "--python", str(tmp_path / "env")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"pipeline-profiler: {path} {words}")
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "watch"])
@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("{}/env", "There is no Python at {}/env. Did you mean '{}/venv'?"),
        ("{}/venv", "{}/venv is a folder without bin/python: name the folder of an environment"),
        ("{}/text", "{}/text is no Python that runs here (Permission denied)"),
    ],
)
def test_a_path_without_a_python_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    loader: str,
    command: str,
    named: str,
    words: str,
) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "text").write_text("")
    last = ["--", loader.partition(":")[0]] if command == "watch" else [loader]
    assert main.command_line([command, "--python", named.format(tmp_path), *last]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"pipeline-profiler: {words.format(tmp_path, tmp_path)}")
    assert said.count("\n") == 1


@pytest.mark.parametrize("named", [sys.executable, sys.prefix])
def test_our_own_python_goes_on_in_this_process(
    capsys: pytest.CaptureFixture[str], loader: str, named: str
) -> None:
    assert main.command_line(["run", loader, "--set", "measure.steps=3", "--python", named]) == 2
    said = capsys.readouterr().err
    assert said == "pipeline-profiler: measure.steps is 3: run needs at least 10.\n"


def test_the_python_that_was_named_does_not_hand_on(
    capsys: pytest.CaptureFixture[str], loader: str
) -> None:
    words = ["run", loader, "--set", "measure.steps=3", "--python", "/nowhere/python"]
    assert main.command_line(words, lent=True) == 2
    assert capsys.readouterr().err.startswith("pipeline-profiler: measure.steps is 3")


def test_what_its_python_lacks_is_told_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loader: str
) -> None:
    path = tmp_path / "wants_absent_x.py"
    path.write_text("import absent_x\n")
    assert main.command_line(["run", f"{path}:make"]) == 2
    said = capsys.readouterr().err
    assert f"by {sys.executable} (No module named 'absent_x'): name the Python of your" in said
    assert (
        main.command_line(["run", loader.replace("make_loader", "make"), "-o", str(tmp_path / "x")])
        == 2
    )
    assert f"No module named 'absent_x' (in {sys.executable})" in capsys.readouterr().err


def test_a_child_that_is_killed_is_told_by_its_exit_code(tmp_path: Path, loader: str) -> None:
    answer = """[ -n "$4" ] && kill -9 $$; echo "('3.12.1', '/x', '2.0.0', '')" """
    path = answering(tmp_path / "env" / "bin" / "python", answer)
    assert main.command_line(["run", loader, "--python", str(path)]) == 137
