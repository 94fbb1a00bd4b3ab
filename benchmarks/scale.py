"""What each stage of an audit takes at 100,000 and 1,000,000 rows, and how fast that grows.

    python benchmarks/scale.py [--rows 20000 100000] [--real ../shared/data] [--flat]

The files are real (hard links to small pictures, so that listing and the unchanged re-scan stat
what a user has); their features are those of others, their signatures and hashes grown from
CIFAR-10, one in fifty a changed copy (`grown_signatures.py`). Everything else is the scan as it is:
list, measure (storing only, no decoder), relate, judge, publish; then a re-scan of the unchanged
tree beside `find -printf`, `audit recheck` and a report. For each stage: processor seconds and peak
memory (resident, sampled every 10 ms); between two sizes the exponent of growth. `--flat`: pictures
of one colour, which no search compares: the stages beside relate, at little cost.

The last line is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from grown_signatures import BLOCK, read_grown, write_grown
from hard_negatives import cifar_pictures

from audit import scanning
from audit.executors import Serial
from audit.measuring import Progress
from audit.neighbors.signatures import Flag
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measured, Measurer, feature_schema, signature_table
from audit.report import collect_report, to_json
from audit.sources import open_source

BASES, PER_FOLDER = 6000, 1000
PAGE = os.sysconf("SC_PAGE_SIZE")
Figures = dict[str, dict[str, float]]


class Stages:
    """Processor seconds and peak memory of each stage, from when it is entered to the next."""

    def __init__(self) -> None:
        """Begin to watch the memory."""
        self.found: Figures = {}
        self.name, self.peak, self.since = "", 0, time.process_time()
        threading.Thread(target=self._watch, daemon=True).start()

    def enter(self, name: str) -> None:
        """End the stage that runs and begin another; a stage that runs goes on."""
        if name == self.name:
            return
        now = time.process_time()
        if self.name:
            figures = self.found.setdefault(self.name, {"cpu_s": 0.0, "peak_mb": 0.0})
            figures["cpu_s"] = round(figures["cpu_s"] + now - self.since, 2)
            figures["peak_mb"] = max(figures["peak_mb"], round(self.peak / 1e6))
        self.name, self.peak, self.since = name, 0, now

    def follow(self, step: Progress) -> None:
        """Take the stages of a scan from its progress; publishing follows the last check."""
        ended = step.phase == "judge" and step.done == step.total
        self.enter("publish" if ended else step.phase)

    def _watch(self) -> None:
        while True:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.peak = max(self.peak, pages * PAGE)
            time.sleep(0.01)


class MadeUp(Serial):
    """Rows and signatures without a decoder, grown ones; other work is really done."""

    def __init__(self, base: Measured, grown: Path, flat: bool) -> None:
        """Take the rows of the real pictures, and where the grown signatures lie."""
        self.rows = pl.DataFrame(pl.from_arrow(base.features))
        self.grown, self.flat, self.made = grown, flat, 0

    def run(self, work: Any, chunks: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yield every chunk with its made-up answer."""
        for chunk in chunks:
            yield chunk, self._measured(chunk) if isinstance(work, Measurer) else work(chunk)

    def _measured(self, jobs: Sequence[FileJob]) -> Measured:
        first, rng = self.made, np.random.default_rng(self.made)
        self.made += len(jobs)
        names = [_digest(number) for number in range(first, self.made)]
        grown = read_grown(self.grown, first, len(jobs))
        signatures = grown["signature"].copy()
        if self.flat:
            signatures["flags"] |= np.uint8(Flag.FLAT)
        rows = self.rows[rng.integers(len(self.rows), size=len(jobs))].with_columns(
            sample_id=pl.Series([job.sample_id for job in jobs]),
            file_key=pl.Series([job.file_key for job in jobs]),
            content_hash=pl.Series(names),
            pixel_hash=pl.Series([name[::-1][:32] for name in names]),
            phash=pl.Series(grown["hash"].copy()),
        )
        schema = feature_schema()
        table = rows.select(schema.names).to_arrow().cast(schema)
        return Measured(table, signature_table(names, list(signatures)))


def _digest(number: int) -> str:
    return hashlib.blake2b(str(number).encode(), digest_size=32).hexdigest()


def write_bases(real: Path, folder: Path) -> list[Path]:
    """Write the real pictures that all others are links to."""
    folder.mkdir()
    with tarfile.open(real / "cifar10-mini.tar") as archive:
        entries = [entry for entry in archive if entry.isfile()]
        entries = entries[:: max(len(entries) // BASES, 1)][:BASES]
        for number, entry in enumerate(entries):
            file = archive.extractfile(entry)
            assert file is not None
            (folder / f"{number:03}.jpg").write_bytes(file.read())
    return sorted(folder.iterdir())


def link_files(bases: list[Path], tree: Path, rows: int) -> None:
    """Make a tree of so many files: train/class/number.jpg."""
    for number in range(rows):
        folder = tree / "train" / f"class{number // PER_FOLDER:04}"
        if number % PER_FOLDER == 0:
            folder.mkdir(parents=True)
        os.link(bases[number % len(bases)], folder / f"{number:07}.jpg")


def cpu_of(work: Callable[[], object]) -> float:
    """Return processor seconds of this process and its ended children."""
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    work()
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    spent = (
        b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime
        for a, b in zip(before, after, strict=True)
    )
    return round(sum(spent), 2)


def find_files(tree: Path) -> None:
    """List the tree as `find` does, with what a scan looks at."""
    line = ["find", str(tree), "-type", "f", "-printf", r"%P\t%s\t%T@\t%C@\n"]
    subprocess.run(line, stdout=subprocess.DEVNULL, check=True)


def measure_rows(real: Path, rows: int, flat: bool, work: Path) -> dict[str, Any]:
    """Run every stage once on so many rows."""
    bases, tree, run = write_bases(real, work / "bases"), work / "tree", work / "run"
    jobs = [FileJob(path.name, "", str(path)) for path in bases]
    base = Measurer(Limits())(jobs)
    link_files(bases, tree, rows)
    grown = work / "grown"
    pictures = [picture for _, picture in cifar_pictures(real / "cifar10-mini.tar")]
    write_grown(pictures, BLOCK if flat else rows, grown)
    del pictures
    stages, executor = Stages(), MadeUp(base, grown, flat)
    scanning.scan(open_source([str(tree)]), run, executor=executor, progress=stages.follow)
    stages.enter("re-scan")
    again = cpu_of(lambda: scanning.scan(open_source([str(tree)]), run, executor=executor))
    stages.enter("recheck")
    scanning.recheck(run)
    stages.enter("report")
    n_bytes = sum(len(part) for part in to_json(collect_report(run)))
    stages.enter("find")
    find = cpu_of(lambda: find_files(tree))
    return {
        "rows": rows, "stages": stages.found, "find_s": find, "rescan_s": again,
        "rescan_over_find": round(again / max(find, 0.01), 1), "report_mb": round(n_bytes / 1e6, 1),
    }  # fmt: skip


def growth(small: dict[str, Any], large: dict[str, Any]) -> dict[str, float]:
    """Return the exponent of each stage's processor time between two sizes."""
    ratio = math.log(large["rows"] / small["rows"])
    both = [(name, small["stages"].get(name), found) for name, found in large["stages"].items()]
    return {
        name: round(math.log(max(b["cpu_s"], 0.01) / max(a["cpu_s"], 0.01)) / ratio, 2)
        for name, a, b in both
        if a is not None
    }


def main() -> None:
    """Run every size in a process of its own and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--flat", action="store_true", help="pictures that no search compares")
    options = parser.parse_args()
    if len(options.rows) == 1:
        with tempfile.TemporaryDirectory(prefix="scale-") as work:
            print(json.dumps(measure_rows(options.real, options.rows[0], options.flat, Path(work))))
        return
    found = []
    for rows in options.rows:
        line = [sys.executable, __file__, "--rows", str(rows), "--real", str(options.real)]
        line += ["--flat"] * options.flat
        done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{rows:,} rows; re-scan {found[-1]['rescan_over_find']} x find -printf")
        for name, figures in found[-1]["stages"].items():
            print(f"  {name:10} {figures['cpu_s']:9.2f} CPU s {figures['peak_mb']:7,.0f} MB")
    exponents = growth(found[0], found[-1])
    print("exponents of growth:", exponents)
    print(json.dumps({"sizes": found, "exponents": exponents}))


if __name__ == "__main__":
    main()
