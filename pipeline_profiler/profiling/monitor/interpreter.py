"""The Python of a training with an environment of its own, and how a command runs there.

Other versions of Pillow, numpy and OpenCV would change the decoding. That Python imports our
packages through a folder of links; nothing is installed, and no bytecode is written (-B).
"""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dataset_preflight.foundation.terminal import nearest_path
from pipeline_profiler.profiling.monitor.hook.sitecustomize import OLDEST
from pipeline_profiler.profiling.monitor.launch import wait_for
from pipeline_profiler.profiling.record.errors import ProfileError

HOME = Path(__file__).resolve().parents[3]
LENT = ("pipeline_profiler", "dataset_preflight")
RUN = """
import sys
sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]  # -c has put the working folder there
from pipeline_profiler.cli.main import command_line
sys.exit(command_line(lent=True))
"""
ASK_S = 60.0  # a file system that sleeps takes its time
ASK = """
import platform, sys
sys.path[:] = [path for path in sys.path if path]
try:
    import numpy
    told = numpy.__version__, ""
except Exception as error:
    told = "", "%s: %s" % (type(error).__name__, str(error).strip().split("\\n")[0])
sys.stdout.write("\\n" + repr((platform.python_version(), sys.prefix) + told))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that can run us, as it told of itself."""

    path: str  # absolute; links stay, as a venv is known by the place of its own
    version: str
    prefix: str
    numpy: str  # its version, '' without
    why: str  # there is no numpy

    @property
    def is_ours(self) -> bool:
        """Whether it is the Python of this process, with the same packages."""
        same = os.path.realpath(self.prefix) == os.path.realpath(sys.prefix)
        return same and self.version == platform.python_version()


def training_python(named: str, with_numpy: bool = True) -> Interpreter:
    """Return the Python of a path, an environment's folder or a name; ProfileError with the fix."""
    path = _find(named)
    told = _ask(path)
    if tuple(map(int, told.version.split(".")[:2])) < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise ProfileError(
            f"{path} is Python {told.version}, and the profiler needs {least} or newer: name such "
            "a one, or make the training's environment with it."
        )
    if with_numpy and not told.numpy:
        raise ProfileError(
            f"{path} cannot import numpy ({told.why}), which measuring needs: install numpy there, "
            "or name the Python that your training runs with."
        )
    return told


def _find(named: str) -> str:
    if os.path.isdir(named):
        program = os.path.join(named, "bin", "python")
        if not os.path.isfile(program):
            raise ProfileError(
                f"{named} is a folder without bin/python: name the folder of an environment (venv, "
                "conda), or its Python."
            )
        return os.path.abspath(program)
    found = named if os.path.isfile(named) else shutil.which(named)
    if found is None:
        raise ProfileError(f"There is no Python at {named}.{nearest_path(named)}")
    return os.path.abspath(found)


def _ask(path: str) -> Interpreter:
    said = [""]
    try:
        done = subprocess.run(
            [path, "-B", "-c", ASK],
            capture_output=True,
            timeout=ASK_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or said
        told = done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Interpreter(path, *map(str, ast.literal_eval(told)))
    except OSError as error:
        why = error.strerror or str(error)
    except subprocess.TimeoutExpired:
        why = f"it gave no answer within {ASK_S:.0f} s"
    except (ValueError, SyntaxError, TypeError):
        why = said[0].strip()[:120] or "it did not say its version"
    raise ProfileError(
        f"{path} is no Python that runs here ({why}): name the one of your training, such as "
        ".venv/bin/python."
    )


@contextmanager
def lent_packages() -> Iterator[str]:
    """Yield a folder of links to our packages, and to nothing else, for the path of a Python."""
    made = tempfile.TemporaryDirectory(prefix="pipeline-profiler-", ignore_cleanup_errors=True)
    with made as folder:
        for name in LENT:
            os.symlink(HOME / name, os.path.join(folder, name))
        yield folder


def run_in(python: Interpreter, words: Sequence[str]) -> int:
    """Run a command of ours in that Python, as if it had been typed there; return its exit code."""
    with lent_packages() as folder:
        return wait_for(subprocess.Popen([python.path, "-B", "-c", RUN, folder, *words]))
