"""How fast is a whole scan, beside one decode and its rivals?

    python benchmarks/scan.py [DIR] [--files 20000] [--repeats 3] [--peers-python PYTHON]

For photographs: quarters of the pictures in DIR/photos are laid together into different ones until
there are `--files` of them (about 110 kB each; they stay in --work for the next run). For small
files: DIR/cifar10-mini.tar. Each arm runs in a process of its own, in turn (A B C A B C ...),
on all usable cores; arms:

- ours: `audit scan`, every feature and every check, into a fresh run; and again unchanged; - one
decode: read, one strict full colour decode a file (simplejpeg), as many processes as ours: CPU time
is compared with this one; - CleanVision (all its checks) and imagededup (PHash only), in
`--peers-python`, where installed.

Every arm runs on two sizes of the same data, so that start-up is told apart: the marginal time an
image is (t_large - t_small) / (n_large - n_small). Peak RSS is of the process tree. The last line
is JSON.
"""

from __future__ import annotations

import io
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import numpy as np
import simplejpeg
import typer
from bench import AUDIT, ROOT, Document, hall, measures, real_data, told
from bench import photographs as originals_of
from PIL import Image

from dataset_preflight.foundation.cores import usable_cores

WORK = Path(tempfile.gettempdir()) / "preflight-bench"
app = hall(__doc__)
Sample = tuple[float, float, float]


# ---- data ----


def photographs(source: Path, target: Path, count: int) -> Path:
    """Return a folder of `count` different JPEG files of the size of those in `source`.

    Each is laid together from quarters of four photographs, cut at random places and sizes and
    turned at random: no two show the same, so that the search for near-duplicates has about the
    work that a real collection gives it.
    """
    originals = [Image.open(path).convert("RGB") for path in originals_of(source)]
    target.mkdir(parents=True, exist_ok=True)
    there = len(list(target.iterdir()))
    if there > count:
        return part_of(target, count, target.parent)
    for number in range(there, count):
        rng = np.random.default_rng(number)
        canvas = originals[number % len(originals)].copy()
        width, height = canvas.width // 2, canvas.height // 2
        for corner in range(4):
            other = originals[int(rng.integers(len(originals)))]
            zoom = float(rng.uniform(0.3, 1.0))
            cut = round(zoom * other.width), round(zoom * other.height)
            x, y = (
                int(rng.integers(have - want + 1))
                for have, want in zip(other.size, cut, strict=True)
            )
            turned = other.crop((x, y, x + cut[0], y + cut[1])).transpose(int(rng.integers(7)))
            quarter = turned.resize((width, height))
            canvas.paste(quarter, (corner % 2 * width, corner // 2 * height))
        file = io.BytesIO()
        canvas.save(file, "JPEG", quality=95 + number // len(originals) % 4)
        (target / f"{number:06d}.jpg").write_bytes(file.getvalue())
    return target


def small_files(tar: Path, target: Path) -> Path:
    if not target.exists():
        with tarfile.open(tar) as archive:
            archive.extractall(target, filter="data")
    return target


def part_of(folder: Path, count: int, work: Path) -> Path:
    """Return a folder of links to the first `count` files of a tree."""
    part = work / f"{folder.name}-{count}"
    if not part.exists():
        for path in sorted(p for p in folder.rglob("*") if p.is_file())[:count]:
            link = part / path.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)
    return part


# ---- arms ----


def decode_all(paths: Sequence[str]) -> int:
    """Read and decode each file once, strictly, in full colour."""
    for path in paths:
        simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB", strict=True)
    return len(paths)


def decode_folder(folder: Path) -> None:
    """Decode all files of a folder with one process a core."""
    paths = sorted(str(p) for p in folder.rglob("*.jpg"))
    chunks = [paths[i : i + 64] for i in range(0, len(paths), 64)]
    with get_context("spawn").Pool(usable_cores()) as pool:
        assert sum(pool.imap_unordered(decode_all, chunks)) == len(paths)


CLEANVISION = """
import sys
from cleanvision import Imagelab
if __name__ == "__main__":
    lab = Imagelab(data_path=sys.argv[1])
    lab.find_issues()
"""
# Two __init__ files import torch and torchvision for what is not used here: step around them.
IMAGEDEDUP = """
import importlib.util, sys, types
from pathlib import Path
home = Path(importlib.util.find_spec("imagededup").origin).parent
for name in ("methods", "utils"):
    sys.modules[f"imagededup.{name}"] = part = types.ModuleType(f"imagededup.{name}")
    part.__path__ = [str(home / name)]
from imagededup.methods.hashing import PHash
if __name__ == "__main__":
    PHash(verbose=False).encode_images(image_dir=sys.argv[1], recursive=True)
"""


def command(arm: str, folder: Path, run: Path, peers: str) -> list[str]:
    ours = [*AUDIT, "scan", str(folder), "--out", str(run), "--fail-on", "never"]
    return {
        "ours": ours,
        "ours unchanged": ours,
        "one decode": [sys.executable, str(Path(__file__)), str(folder), "--decode"],
        "cleanvision": [peers, "-c", CLEANVISION, str(folder)],
        "imagededup": [peers, "-c", IMAGEDEDUP, str(folder)],
    }[arm]


# ---- measuring ----


def has(python: str, package: str) -> bool:
    """Say whether a Python has a package; one that is not installed is no arm."""
    line = f"import importlib.util as u; raise SystemExit(u.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", line], check=False).returncode == 0


def timed(argv: list[str]) -> Sample:
    """Run a command; return wall seconds, CPU seconds and peak RSS (MB) of its process tree."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, tree_rss(process.pid))
            time.sleep(0.05)
        wall = time.perf_counter() - started
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"{argv[:4]} failed: {log.read().decode()[-1500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, peak


def tree_rss(pid: int) -> float:
    """Return the resident memory of a process and its descendants, MB (shared pages twice)."""
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * 4096
            for task in Path(f"/proc/{one}/task").iterdir():
                todo += [int(c) for c in (task / "children").read_text().split()]
        except OSError:
            continue
    return total / 1e6


def measure(folder: Path, arms: list[str], repeats: int, peers: str, work: Path) -> dict[str, dict]:
    """Return per arm the marginal wall and CPU ms an image, start-up seconds and peak RSS."""
    files = sum(1 for p in folder.rglob("*.jpg"))
    small = max(200, files // 10)
    sizes = {small: part_of(folder, small, work), files: folder}
    samples: dict[tuple[str, int], list[Sample]] = {}
    for repeat in range(repeats):
        for size, data in sizes.items():
            run = work / "run"
            shutil.rmtree(run, ignore_errors=True)
            for arm in arms:
                samples.setdefault((arm, size), []).append(timed(command(arm, data, run, peers)))
                row = dict(zip(("wall_s", "cpu_s", "peak_mb"), samples[arm, size][-1], strict=True))
                print(told({"arm": arm, "repeat": repeat, "files": size, **row}), flush=True)
    result: dict[str, dict] = {}
    for arm in arms:
        both = (zip(*samples[arm, size], strict=True) for size in sizes)
        low, high = ([statistics.median(column) for column in columns] for columns in both)
        step = files - small
        wall, cpu = (1e3 * (high[k] - low[k]) / step for k in (0, 1))
        result[arm] = {
            "wall_ms": wall, "cpu_ms": cpu, "images_per_s": 1e3 / max(wall, 1e-9),
            "start_up_s": max(0.0, low[0] - small * wall / 1e3), "peak_mb": high[2],
            "peak_mb_small": low[2],
        }  # fmt: skip
        print(told({"data": folder.name, "arm": arm, **result[arm]}), flush=True)
    return result


@measures(app)
def scan(
    data: Annotated[Path | None, typer.Argument()] = None,
    files: int = 20_000,
    repeats: int = 3,
    peers_python: str = sys.executable,
    only: str = "",
    work: Path = WORK,
    decode: Annotated[bool, typer.Option(hidden=True)] = False,
) -> Document:
    """Run every arm in turn. ONLY: photographs or small files; WORK keeps the pictures."""
    if decode:
        decode_folder(data or Path())
        return {}
    real, results = real_data(data), {}
    arms = ["ours", "ours unchanged", "one decode"]
    arms += [name for name in ("cleanvision", "imagededup") if has(peers_python, name)]
    work.mkdir(parents=True, exist_ok=True)
    for name in ("photographs", "small files"):
        if name.startswith(only):
            made = (
                photographs(real, work / "collages", files)
                if name == "photographs"
                else small_files(real / "cifar10-mini.tar", work / "cifar")
            )
            results[name] = measure(made, arms, repeats, peers_python, work)
    return results


if __name__ == "__main__":
    app()
