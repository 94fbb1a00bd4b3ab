"""A thousand changes of ten kinds between two audits: is each named, and none invented?

    python benchmarks/run_diff.py DATA/cifar10-mini.tar [--each 100] [--seed 1]

The pictures are unpacked, prepared, scanned, changed on disk and scanned again. What `audit diff`
says is then compared with what was done: every file and every finding that it calls new or fixed
must be one of the changes. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

from audit import scanning
from audit.run_diff import RunDiff, compare_runs
from audit.sources import open_source

BROKEN = b"\xff\xd8nothing"
CHECKS = ("FILE001", "DUP001", "IMG004")
Wanted = dict[str, set[tuple[str, str]]]


def noise(path: Path, rng: np.random.Generator) -> None:
    """Write a picture that is like no other."""
    Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)


def blank(path: Path, rng: np.random.Generator) -> None:
    """Write a picture of one colour, whose bytes are like no other's."""
    Image.new("RGB", tuple(rng.integers(20, 400, 2).tolist()), (90, 90, 90)).save(path)


class Changes:
    """Ten kinds of change, planted in two steps: before the first scan and after it."""

    def __init__(self, tree: Path, each: int, seed: int) -> None:
        """Choose the pictures; nothing is written."""
        self.tree, self.rng, self.each = tree, np.random.default_rng(seed), each
        files = sorted(str(f.relative_to(tree)) for f in tree.rglob("*.jpg"))
        chosen = self.rng.choice(files, 7 * each, replace=False).tolist()
        self.parts = {
            kind: chosen[n * each : (n + 1) * each]
            for n, kind in enumerate(
                ("removed", "edited", "moved", "copied", "parted", "reclassed", "spoilt")
            )
        }

    def extra(self, kind: str) -> list[str]:
        """Return names of files of a kind that are not in the dataset."""
        return [f"train/extra/{kind}-{n}.png" for n in range(self.each)]

    def prepare(self) -> None:
        """Write what the first scan is to find."""
        (self.tree / "train/extra").mkdir()
        for name in self.extra("mended"):
            (self.tree / name).write_bytes(BROKEN + name.encode())
        for name in self.extra("blank"):
            blank(self.tree / name, self.rng)
        for name, twin in zip(self.parts["parted"], self.extra("twin"), strict=True):
            shutil.copy(self.tree / name, self.tree / twin)

    def change(self) -> None:
        """Do the ten things."""
        (self.tree / "train/other").mkdir()
        for name in self.parts["removed"]:
            (self.tree / name).unlink()
        for name in (*self.parts["edited"], *self.extra("mended"), *self.extra("twin")):
            noise(self.tree / name, self.rng)
        for name in self.extra("added"):
            noise(self.tree / name, self.rng)
        for name in (*self.parts["moved"], *self.parts["reclassed"], *self.extra("blank")):
            (self.tree / name).rename(self.tree / self.new_name(name))
        for name, copy in zip(self.parts["copied"], self.extra("copy"), strict=True):
            shutil.copy(self.tree / name, self.tree / copy)
        for name in self.parts["spoilt"]:
            (self.tree / name).write_bytes(BROKEN + name.encode())

    def new_name(self, name: str) -> str:
        """Return where a file is moved: within its class, or into another."""
        path = Path(name)
        if name in self.parts["moved"]:
            return str(path.with_name(f"moved-{path.name}"))
        return f"train/other/{name.replace('/', '-')}"

    def wanted_files(self) -> Wanted:
        """Return by change the ids before and after, empty where there is none."""
        edited = (*self.parts["edited"], *self.extra("mended"), *self.extra("twin"),
                  *self.parts["spoilt"])  # fmt: skip
        moved = (*self.parts["moved"], *self.parts["reclassed"], *self.extra("blank"))
        return {
            "removed": {(name, "") for name in self.parts["removed"]},
            "added": {("", name) for name in (*self.extra("added"), *self.extra("copy"))},
            "edited": {(name, name) for name in edited},
            "moved": {(name, self.new_name(name)) for name in moved},
        }

    def wanted_findings(self) -> Wanted:
        """Return by change the codes and ids of findings."""

        def pairs(kind: str, other: str) -> set[tuple[str, str]]:
            both = zip(self.parts[kind], self.extra(other), strict=True)
            return {("DUP001", " ".join(sorted(pair))) for pair in both}

        return {
            "fixed": {("FILE001", name) for name in self.extra("mended")} | pairs("parted", "twin"),
            "new": {("FILE001", name) for name in self.parts["spoilt"]} | pairs("copied", "copy"),
            "persisting": {("IMG004", self.new_name(name)) for name in self.extra("blank")},
        }


def told(diff: RunDiff) -> tuple[Wanted, Wanted]:
    """Return what `audit diff` says, in the form of what was wanted."""
    files: Wanted = {}
    for change, before, after in diff.files.select("change", "before", "after").iter_rows():
        files.setdefault(change, set()).add((before or "", after or ""))
    found: Wanted = {}
    for row in diff.findings.iter_rows(named=True):
        found.setdefault(row["change"], set()).add((row["code"], " ".join(sorted(row["ids"]))))
    return files, found


def compare(wanted: Wanted, said: Wanted) -> dict[str, dict[str, int]]:
    """Return by change how many were planted, named, and invented."""
    return {
        change: {
            "planted": len(wanted.get(change, set())),
            "named": len(wanted.get(change, set()) & said.get(change, set())),
            "invented": len(said.get(change, set()) - wanted.get(change, set())),
        }
        for change in sorted(wanted.keys() | said.keys())
    }


def measure(archive: Path, each: int, seed: int, folder: Path) -> dict[str, object]:
    """Plant, scan, change, scan, compare."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "data", filter="data")
    tree = next(path.parent for path in (folder / "data").rglob("train") if path.is_dir())
    changes = Changes(tree, each, seed)
    changes.prepare()
    for name, step in (("before", changes.change), ("after", lambda: None)):
        scanning.scan(open_source([str(tree)]), folder / name, checks=CHECKS)
        step()
    began = time.process_time()
    diff = compare_runs(folder / "before", folder / "after")
    seconds = time.process_time() - began
    files, found = told(diff)
    # groups that the dataset has by itself persist: they are neither planted nor invented
    planted = changes.wanted_findings()
    own = {key for key in found.get("persisting", set()) if key[0] != "IMG004"}
    found["persisting"] = found.get("persisting", set()) - own
    return {
        "files": compare(changes.wanted_files(), files), "findings": compare(planted, found),
        "cpu_s": round(seconds, 2), "rows": len(pl.concat([diff.files.select("change"),
                                                          diff.findings.select("change")])),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip


def main() -> int:
    """Print both tables; exit 1 where a change was missed or invented."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("archive", type=Path)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options.archive, options.each, options.seed, Path(folder))
    wrong = 0
    for part in ("files", "findings"):
        table = result[part]
        assert isinstance(table, dict)
        for change, row in table.items():
            wrong += row["invented"] + row["planted"] - row["named"]
            print(f"{part:<9} {change:<12} {row['planted']:>5} planted {row['named']:>5} named "
                  f"{row['invented']:>5} invented")  # fmt: skip
    print(json.dumps(result))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
