"""A thousand changes of ten kinds between two audits: is each named, and none invented?

    python benchmarks/run_diff.py [--real DATA] [--each 100] [--seed 1]

The pictures are unpacked, prepared, scanned, changed on disk and scanned again. What `audit diff`
says is then compared with what was done: every file and every finding that it calls new or fixed
must be one of the changes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from bench import Document, cifar_files, hall, measures, peak_mb, real_data, timed, told
from PIL import Image

from audit.compare.diff import RunDiff, compare_runs
from audit.scanning import scanning
from audit.sources import open_source

BROKEN = b"\xff\xd8nothing"
CHECKS = ("FILE001", "DUP001", "IMG004")
app = hall(__doc__)
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
        kinds = ("removed", "edited", "moved", "copied", "parted", "reclassed", "spoilt")
        chosen = self.rng.choice(files, (len(kinds), each), replace=False).tolist()
        self.parts = dict(zip(kinds, chosen, strict=True))

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


def said_by(diff: RunDiff) -> tuple[Wanted, Wanted]:
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
    rows = {}
    for change in sorted(wanted.keys() | said.keys()):
        planted, named = wanted.get(change, set()), said.get(change, set())
        rows[change] = {"planted": len(planted), "named": len(planted & named),
                        "invented": len(named - planted)}  # fmt: skip
    return rows


@measures(app)
def run_diff(real: Path | None = None, each: int = 100, seed: int = 1) -> tuple[Document, bool]:
    """Plant, scan, change, scan, compare; ends with 1 where a change was missed or invented."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tree = folder / "data"
        for name, data in cifar_files(real_data(real, "cifar10-mini.tar")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(data)
        changes = Changes(tree, each, seed)
        changes.prepare()
        for name, step in (("before", changes.change), ("after", lambda: None)):
            scanning.scan(open_source([str(tree)]), folder / name, checks=CHECKS)
            step()
        with timed() as cost:
            diff = compare_runs(folder / "before", folder / "after")
        rows = diff.files.height + diff.findings.height
        files, found = said_by(diff)
    # groups that the dataset has by itself persist: they are neither planted nor invented
    own = {key for key in found.get("persisting", set()) if key[0] != "IMG004"}
    found["persisting"] = found.get("persisting", set()) - own
    tables = {
        "files": compare(changes.wanted_files(), files),
        "findings": compare(changes.wanted_findings(), found),
    }
    wrong = 0
    for part, table in tables.items():
        for change, row in table.items():
            wrong += row["invented"] + row["planted"] - row["named"]
            print(told({"part": part, "change": change, **row}))
    return {**tables, "cpu_s": cost["cpu_s"], "rows": rows, "peak_mb": round(peak_mb())}, not wrong


if __name__ == "__main__":
    app()
