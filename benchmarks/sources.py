"""One dataset in every kind of pack: what a scan finds, and what it costs beside a folder.

cifar10-mini (6,000 pictures of 32 px) is read as a folder, as tar shards, zip, LMDB, Parquet with
bytes and TFRecord, each by `audit scan` as a user runs it, in turn. For each: CPU seconds of all
processes, seconds of listing and measuring, and how many findings are those of the folder (by
fingerprint; rows of Parquet and TFRecord have numbers for names, so that theirs are compared by
code and number). Then every kind is cut at ten places: a scan ends, says FILE009 or a sentence, and
reads what lies before.

    python benchmarks/sources.py [--real ../shared/data] [--files 6000]

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import audit
from audit.errors import AuditError
from audit.sources import open_source
from tests.audit.sources.packed_sets import (
    write_lmdb,
    write_parquet,
    write_tar,
    write_tfrecord,
    write_zip,
)

SHARD = 1000  # pictures
Files = dict[str, bytes]


def read_pictures(tar: Path, most: int) -> Files:
    """Return pictures of cifar10-mini by `split/class/name`."""
    with tarfile.open(tar) as archive:
        found = {
            entry.name.partition("/")[2]: archive.extractfile(entry).read()  # type: ignore[union-attr]
            for entry in archive
            if entry.isfile()
        }
    step = max(len(found) // most, 1)
    return dict(sorted(found.items())[::step][:most])


def write_all(folder: Path, files: Files) -> dict[str, Path]:
    """Write the files in every kind; return the source of each."""
    for name, data in files.items():
        (folder / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "folder" / name).write_bytes(data)
    for kind in ("tar", "parquet", "tfrecord"):
        (folder / kind).mkdir()
    for split in ("train", "test"):
        mine = [(n, d) for n, d in files.items() if n.startswith(split)]
        for number in range(0, len(mine), SHARD):
            part, name = dict(mine[number : number + SHARD]), f"{split}-{number:06}"
            inside = {n.partition("/")[2]: d for n, d in part.items()}
            write_tar(folder / "tar" / f"{name}.tar", inside)
            write_parquet(folder / "parquet" / f"{name}.parquet", part)
            write_tfrecord(folder / "tfrecord" / f"{name}.tfrecord", part)
    write_zip(folder / "set.zip", files)
    write_lmdb(folder / "set.lmdb", files)
    kinds = {kind: folder / kind for kind in ("folder", "tar", "parquet", "tfrecord")}
    return {**kinds, "zip": folder / "set.zip", "lmdb": folder / "set.lmdb"}


def scan_cost(source: Path, run: Path) -> dict[str, float]:
    """Scan by the command line; return CPU seconds and the seconds that the run reports."""
    before = os.times()
    command = [sys.executable, "-m", "audit", "scan", str(source), "--out", str(run)]
    subprocess.run([*command, "--fail-on", "never"], check=True, capture_output=True)
    after = os.times()
    spent = after.children_user - before.children_user
    return {"cpu_s": round(spent + after.children_system - before.children_system, 1),
            "wall_s": round(after.elapsed - before.elapsed, 1)}  # fmt: skip


def cut_everywhere(path: Path, cuts: int = 10) -> Counter[str]:
    """Return how often a pack that is cut is read in part, refused by a sentence, or raises."""
    whole, outcomes = path.read_bytes(), Counter[str]()
    for cut in range(1, cuts + 1):
        path.write_bytes(whole[: len(whole) * cut // (cuts + 1)])
        try:
            source = open_source([str(path)])
            read = sum(len(batch) for batch in source.batches())
            told = any(kind == "damaged-pack" for kind, _, _ in source.notes)
            outcomes["part read, damage told" if read and told else "silent"] += 1
        except AuditError:
            outcomes["a sentence"] += 1
        except Exception as error:  # noqa: BLE001 - what the benchmark looks for
            outcomes[type(error).__name__] += 1
    path.write_bytes(whole)
    return outcomes


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--files", type=int, default=6000)
    arguments = parser.parse_args()
    tar = arguments.real / "cifar10-mini.tar"
    if not tar.exists():
        print(f"No pictures at {tar}: give --real, the folder with cifar10-mini.tar.")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = write_all(folder, read_pictures(tar, arguments.files))
        result: dict[str, dict[str, object]] = {}
        expected = None
        for kind, source in sources.items():
            cost = scan_cost(source, folder / f"run-{kind}")
            findings = audit.open(folder / f"run-{kind}").findings
            prints, codes = set(findings["fingerprint"]), Counter(findings["code"])
            expected = expected or (prints, codes)
            result[kind] = {
                **cost,
                "findings": len(findings),
                "same_fingerprints": len(prints & expected[0]),
                "codes_that_differ": {
                    code: [expected[1][code], codes[code]]
                    for code in sorted(expected[1] | codes)
                    if expected[1][code] != codes[code]
                },
            }
            packs = [source] if source.is_file() else sorted(source.glob("*.*"))
            if kind != "folder":
                result[kind]["cut"] = dict(cut_everywhere(packs[0]))
            print(f"{kind:10}", json.dumps(result[kind]), flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
