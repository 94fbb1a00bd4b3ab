"""What every benchmark needs: a command line, real pictures, costs, rows that a run resumes from.

A benchmark is a function: its parameters are the options, what it returns is the last line printed,
one JSON document. `typer`, which the product's own commands use, reads the parameters.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import typer

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

AUDIT = (sys.executable, "-P", "-m", "audit")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
Picture = npt.NDArray[np.uint8]
Document = dict[str, Any]
Item = TypeVar("Item")


# ---- the command line ----


def hall(doc: str | None) -> typer.Typer:
    """Return a command line that says what the head of its file says."""
    return typer.Typer(
        help=doc, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )


def measures(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Register a function that returns a document, or a document and whether it is as it should be.

    The document is printed as the last line; the command ends with 1 where it is not.
    """

    def register(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> None:
            found = function(*given, **named)
            document, held = found if isinstance(found, tuple) else (found, True)
            print(json.dumps(document))
            if not held:
                raise typer.Exit(1)

        app.command(name)(call)
        return function

    return register


def told(facts: Mapping[str, Any]) -> str:
    """Return a line of what a row has, numbers with four figures."""
    words = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in facts.items())
    return "  ".join(words)


def real_data(folder: Path | None, wanted: str = ".") -> Path:
    """Return the folder of real pictures, which $PREFLIGHT_REAL_DATA or ../shared/data is too.

    Where it lacks what is wanted, nothing is measured: the command says so and ends with 0.
    """
    given = os.environ.get("PREFLIGHT_REAL_DATA", ROOT.parent / "shared" / "data")
    found = folder or Path(given)
    if not (found / wanted).exists():
        print(f"No {found / wanted}: nothing measured. Name the folder that holds {wanted}.")
        print(json.dumps({"skipped": "no data"}))
        raise typer.Exit(0)
    return found


# ---- pictures ----


def read_picture(path: Path) -> Picture:
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"), np.uint8)


def cifar_files(real: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (split/class/name, JPEG file) of the small CIFAR-10, in the order of the archive."""
    with tarfile.open(real / "cifar10-mini.tar") as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.name.endswith(".jpg") else None
            if handle is not None:
                yield member.name.partition("/")[2], handle.read()


def judged_pairs(judged: str) -> list[tuple[str, str]]:
    """Return the pairs of names that were judged `same` or `unsure`."""
    with (Path(__file__).parent / "judged_pairs.csv").open() as file:
        return [(r["one"], r["other"]) for r in csv.DictReader(file) if r["judged"] == judged]


def cifar_pictures(real: Path) -> Iterator[tuple[str, Picture]]:
    """Yield (split/class/name, picture) of the small CIFAR-10."""
    import cv2

    for name, data in cifar_files(real):
        decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        assert decoded is not None
        yield name, np.ascontiguousarray(decoded[..., ::-1], np.uint8)


def photographs(real: Path) -> list[Path]:
    ends = (".jpg", ".jpeg")
    return sorted(p for p in (real / "photos").iterdir() if p.suffix.lower() in ends)


# ---- costs ----


def peak_mb() -> float:
    """Return the peak resident memory of this process so far, MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


@contextlib.contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Fill `cpu_s` (of this process and its ended children) and `wall_s` of the block."""
    found: dict[str, float] = {}
    cpu, wall = _cpu_s(), time.perf_counter()
    yield found
    found["cpu_s"] = round(_cpu_s() - cpu, 2)
    found["wall_s"] = round(time.perf_counter() - wall, 2)


def _cpu_s() -> float:
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def run_command(words: Sequence[object], codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run `audit` with these words; return CPU (children too), wall, the command's peak, output."""
    before = os.times()
    process = subprocess.Popen(
        [*AUDIT, *map(str, words)], env=ENVIRONMENT, text=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        raise SystemExit(f"audit {' '.join(map(str, words))} ended with {process.returncode}")
    return {
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "wall_s": round(os.times().elapsed - before.elapsed, 2),
        "peak_gb": round(used.ru_maxrss / 1e6, 3),  # kilobytes on Linux
        "printed": printed,
    }


def run_apart(work: Callable[..., Any], *given: Any) -> Any:
    """Return what a function returns in a process of its own, whose peak of memory is its own."""
    # spawned: what this process holds would count as the other's peak
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


# ---- rows that a run resumes from ----


def saved_rows(path: Path | None) -> list[Document]:
    """Return the rows of a file of results; one that was cut off by a kill is left out."""
    found = []
    for line in path.read_text().splitlines() if path and path.exists() else ():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def save_row(path: Path | None, row: Document) -> None:
    if path:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def shard_of(items: Sequence[Item], shard: str) -> Sequence[Item]:
    """Return every N-th item from I on, for a shard `I/N`."""
    at, of = map(int, shard.split("/"))
    return items[at::of]
