"""One dataset in every kind of pack: what a scan finds, and what it costs beside a folder.

cifar10-mini (6,000 pictures of 32 px) is read as a folder, as tar shards, zip, LMDB, Parquet with
bytes and TFRecord, each by `audit scan` as a user runs it, in turn. For each: CPU seconds of all
processes, seconds of listing and measuring, and how many findings are those of the folder (by
fingerprint; rows of Parquet and TFRecord have numbers for names, so that theirs are compared by
code and number). Then every kind is cut at ten places: a scan ends, says FILE009 or a sentence, and
reads what lies before.

    python benchmarks/sources.py [--real ../shared/data] [--files 6000]
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from bench import Document, cifar_files, hall, measures, real_data, run_command

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
app = hall(__doc__)


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


@measures(app)
def sources(real: Path | None = None, files: int = 6000) -> Document:
    """What does a scan find in each kind of pack, and what does it cost?"""
    pictures = dict(cifar_files(real_data(real, "cifar10-mini.tar")))
    pictures = dict(sorted(pictures.items())[:: max(len(pictures) // files, 1)][:files])
    result: Document = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = None
        for kind, source in write_all(folder, pictures).items():
            run = folder / f"run-{kind}"
            cost = run_command(["scan", source, "--out", run, "--fail-on", "never"])
            findings = audit.open(run).findings
            prints, codes = set(findings["fingerprint"]), Counter(findings["code"])
            expected = expected or (prints, codes)
            result[kind] = {
                "cpu_s": cost["cpu_s"], "wall_s": cost["wall_s"],
                "findings": len(findings), "same_fingerprints": len(prints & expected[0]),
                "codes_that_differ": {
                    code: [expected[1][code], codes[code]]
                    for code in sorted(expected[1] | codes)
                    if expected[1][code] != codes[code]
                },
            }  # fmt: skip
            packs = [source] if source.is_file() else sorted(source.glob("*.*"))
            if kind != "folder":
                result[kind]["cut"] = dict(cut_everywhere(packs[0]))
            print(f"{kind:10} {result[kind]}", flush=True)
    return result


if __name__ == "__main__":
    app()
