"""From a folder of many small pictures to verified groups: how long, and where the time goes.

CIFAR-10 pictures (6,000 of 32 px) are grown to `--files` distinct ones by blending two of them at
a random share and mirroring some; one file in fifty is then a changed copy of another, changed in
one of the ways of `audit.neighbors.synthetic`. `audit scan` runs on them as a user runs it, all
checks included, in a process of its own; the seconds are those that it reports by phase, and the
whole from start to exit. Of the planted copies it says how many were found.

    python benchmarks/near_duplicates_scale.py [--real ../shared/data] [--files 60000]

A blend keeps edges of both its pictures, so that the nearest neighbours are nearer than in
real data and verification has rather more work. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
from hard_negatives import Picture, cifar_pictures

from audit.neighbors import TRANSFORMATIONS, plant

SCAN = """
import json, resource, sys, threading, time
from pathlib import Path
from audit.scanning import scan
from audit.sources import open_source
from audit.run.generations import open_run
if __name__ == "__main__":
    result = scan(open_source([sys.argv[1]]), Path(sys.argv[2]))
    with open_run(Path(sys.argv[2])) as store:
        pairs = store.rows(
            "SELECT x.id AS a, y.id AS b FROM pairs p JOIN images x ON x.pixel_hash = p.a "
            "JOIN images y ON y.pixel_hash = p.b"
        )
        groups = store.scalar("SELECT count(DISTINCT representative) FROM groups")
        told = store.scalar("SELECT completeness FROM check_runs WHERE code = 'DUP003'")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"seconds": dict(result.seconds), "pairs": pairs, "groups": groups,
                      "told": told, "peak_gb": peak}))
"""


def grow(base: list[Picture], folder: Path, files: int, seed: int = 0) -> dict[str, str]:
    """Write the files; return copy -> original."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    copies = files // 50
    kept: list[tuple[str, Picture]] = []
    planted: dict[str, str] = {}
    for number in range(files - copies):
        one, two = base[rng.integers(len(base))], base[rng.integers(len(base))]
        share = float(rng.uniform(0.3, 0.7))
        mixed = cv2.addWeighted(one, share, two, 1 - share, 0.0)
        picture = np.asarray(mixed[:, ::-1] if rng.random() < 0.5 else mixed, np.uint8)
        name = f"{number:07d}.jpg"
        _write(folder / name, picture)
        if number % 49 == 0 and len(kept) < copies:
            kept.append((name, picture))
    kinds = [kind for kind in TRANSFORMATIONS if kind != "crop_80"]
    for number, (original, picture) in enumerate(kept):
        name = f"{files + number:07d}.png"
        changed = plant(picture, kinds[number % len(kinds)], rng)
        _write(folder / name, changed)
        planted[name] = original
    return planted


def _write(path: Path, picture: Picture) -> None:
    options = [cv2.IMWRITE_JPEG_QUALITY, 92] if path.suffix == ".jpg" else []
    path.write_bytes(cv2.imencode(path.suffix, picture[..., ::-1], options)[1].tobytes())


def main() -> None:
    """Grow, scan, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--files", type=int, default=60_000)
    arguments = parser.parse_args()
    tar = arguments.real / "cifar10-mini.tar"
    if not tar.exists():
        print(f"No {tar}: give --real, the folder that holds it.")
        return
    with tempfile.TemporaryDirectory() as work:
        folder, run, script = (Path(work) / name for name in ("images", "run", "scan.py"))
        planted = grow([picture for _, picture in cifar_pictures(tar)], folder, arguments.files)
        script.write_text(SCAN)
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, script, folder, run], check=True, capture_output=True, text=True
        )
        whole = time.perf_counter() - start
    found = json.loads(done.stdout.splitlines()[-1])
    called = {frozenset((row["a"], row["b"])) for row in found["pairs"]}
    hits = sum(frozenset(pair) in called for pair in planted.items())
    result = {
        "files": arguments.files,
        "seconds": round(whole, 1),
        **{f"{phase}_s": seconds for phase, seconds in found["seconds"].items()},
        "planted": len(planted),
        "found": hits,
        "pairs": len(called),
        "groups": found["groups"],
        "peak_gb of the parent": round(found["peak_gb"], 2),
    }
    print(found["told"])
    print(*(f"  {key}: {value}" for key, value in result.items()), sep="\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
