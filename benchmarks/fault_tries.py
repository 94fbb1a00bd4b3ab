"""Hostile things in the place of every file that a command opens, and what the command answers.

    python benchmarks/fault_tries.py [--only WORD] [--docs docs/faults.md]

Each try is one `audit` command (a fork of a warm process, as in the tests) with one thing in the
place of one of its files: a pipe, a device, a socket, a folder, a loop of links, nothing, noise,
JSON that nests 100,000 deep. Held: it ends within `PATIENCE_S` with the exit code of a wrong call
(2) and one sentence, or with 0 or 1 where the thing is no fault for it, or with 3 where a check of
the user's own broke and the rest ran; never with a traceback, and the run, the dataset and
everything beside them is byte for byte what it was.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from bench import ROOT, Document, hall, measures, shard_of
from faults import Struck, conclude, with_share

sys.path.insert(0, str(ROOT))
from tests.audit.reviewed import reviewed_dataset
from tests.warm import warm_audit, warm_line

PATIENCE_S = 60
app = hall(__doc__)

LINES = """
    scan X.csv --out NEW | scan X.parquet --out NEW | scan X.jsonl --out NEW | scan X.tar --out NEW
    scan X.zip --out NEW | scan X.tfrecord --out NEW | scan X.npz --out NEW | scan X.idx --out NEW
    scan DATA --out NEW --config X.toml | scan DATA --out NEW --own X.py
    scan DATA --out NEW --embeddings X.npy | scan DATA --out NEW --embeddings X.parquet
    scan DATA --out NEW --embedder X.onnx | scan DATA --out NEW --predictions X.csv
    scan DATA --out NEW --predictions X.json | scan DATA --out NEW --predictions X.npz
    scan DATA --out NEW --baseline X.run | scan DATA --out X.run
    report X.run | report RUN --config X.toml | report RUN --reviewed X.csv
    recheck COPY --config X.toml | recheck COPY --own X.py | recheck X.run
    decide COPY --from X.json | decide COPY --from X.xml | decide COPY --from X.csv
    export X.run --out NEW | apply X.json --to NEW | apply --rollback X.run
    show X.run a | overlap DATA X.run | overlap X.csv RUN | labels RUN --reviewed X.csv
    needs X.run | sql X.run SELECT | log X.run | verify X.run | expect RUN --config X.toml
    select RUN -o NEW.csv --n 2 --from X.csv | select RUN -o NEW.csv --n 2 --fresh-from X.csv
    select RUN -o NEW.csv --n 2 --predictions X.csv | diff X.run RUN | drift RUN X.run
    subset plan --from X.csv --half-width .3 | subset plan --from X.json --half-width .3
    subset plan RUN --split all --half-width .3 --throughput X.json
    subset plan RUN --split all --half-width .3 --throughput X.json.gz
    subset plan RUN --split all --half-width .3 --predictions X.csv
    subset plan RUN --split all --half-width .3 --predictions X.npz
    subset plan RUN --split all --half-width .3 --baseline X.parquet
    subset draw RUN --seed 1 --plan X.json -o NEW.csv
    subset draw --seed 1 --from X.csv --plan PLAN -o NEW.csv
    subset draw RUN --split all --plan PLAN --fresh-from X.csv -o NEW.csv
    subset score X.csv --predictions ANSWERS | subset score X.parquet --predictions ANSWERS
    subset score DRAWN --predictions X.csv | subset score DRAWN --predictions X.json
    subset score DRAWN --predictions ANSWERS --labels X.csv
    subset score DRAWN --predictions ANSWERS --baseline X.csv
    subset score DRAWN --predictions ANSWERS --plan X.json | subset sheet X.csv -o NEW.csv
"""
"""Commands: X stands for the thing, its ending for what the command takes it for."""

Make = Callable[[Path], object]


def socket_at(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def linked_pipe(path: Path) -> None:
    os.mkfifo(path.with_suffix(".pipe"))
    path.symlink_to(path.with_suffix(".pipe"))


def device(name: str) -> Make:
    return lambda path: path.symlink_to(name)


THINGS: dict[str, Make] = {
    "a pipe": os.mkfifo,
    "a link to a pipe": linked_pipe,
    "a socket": socket_at,
    "/dev/zero": device("/dev/zero"),
    "/dev/full": device("/dev/full"),
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "nothing": lambda path: None,
    "5,000 random bytes": lambda path: path.write_bytes(random.Random(1).randbytes(5000)),
    "JSON that nests 100,000 deep": lambda path: path.write_bytes(
        b'{"schema": "audit-plan/1", "files": ' + b"[" * 100_000
    ),
}


@dataclass(frozen=True)
class Scene:
    """What the commands start from, by the word that stands for it; nothing of it may change."""

    kept: Path
    words: dict[str, Path]

    def state(self) -> dict[str, bytes]:
        """Return the content of every file that no command may change."""
        return {str(p): p.read_bytes() for p in sorted(self.kept.rglob("*")) if p.is_file()}


def prepare(folder: Path) -> Scene:
    """Make a dataset, a run with a decision, a plan, a subset and answers to it."""
    kept = folder / "kept"
    data, run = reviewed_dataset(kept / "pets"), kept / "run"
    plan, drawn, answers = kept / "plan.json", kept / "drawn.csv", kept / "answers.csv"
    for line in (
        f"scan {data} --out {run} --fail-on never --jobs 1",
        f"decide {run} train/cat/0.jpg --as drop",
        f"subset plan {run} --split all --estimand full-set --half-width .3 --output {plan}",
        f"subset draw {run} --plan {plan} --split all -o {drawn} --seed 1",
    ):
        done = warm_audit(*line.split())
        assert done.returncode == 0, (line, done.stderr)
    pl.read_csv(drawn).select("sample_id", prediction="label").write_csv(answers)
    words = {"DATA": data, "RUN": run, "PLAN": plan, "DRAWN": drawn, "ANSWERS": answers}
    return Scene(kept, words)


def lines() -> list[str]:
    return [one.strip() for row in LINES.strip().splitlines() for one in row.split("|")]


def attempt(scene: Scene, line: str, make: Make, work: Path) -> tuple[int, str]:
    """Run a line with a thing in the place of its X; return the code, and what is wrong with it."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    words = []
    for word in line.split():
        name = word.partition(".")[0]
        if name == "X":
            thing = work / word.replace("X", "thing", 1).removesuffix(".run")
            make(thing)
            words.append(str(thing))
        elif name == "NEW":
            words.append(str(work / word))
        elif name == "COPY":
            words.append(str(shutil.copytree(scene.words["RUN"], work / "copy")))
        else:
            words.append(str(scene.words.get(word, word)))
    process = subprocess.Popen(
        [*warm_line("audit"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", cwd=work, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _, said = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return -9, "it hangs"
    sentences = [one for one in said.splitlines() if one.startswith(("audit: ", "Error: "))]
    codes = (0, 1, 2, 3) if "--own" in words else (0, 1, 2)
    if "Traceback" in said or "report this" in said or process.returncode not in codes:
        return process.returncode, said.strip()[-300:]
    wrong = process.returncode == 2 and len(sentences) != 1
    return process.returncode, f"{len(sentences)} sentences: {said[-300:]}" if wrong else ""


HEAD = """
## Hostile things in the place of files

Written by `python benchmarks/fault_tries.py --docs docs/faults.md`: each thing in the place of each
file that the commands open ({n}: sources, plans, settings, predictions, lists, answers, runs).
Held: the command ends at once with one sentence and no traceback, and no byte of dataset, run and
documents has changed.

| in place of a file | tries | held | exit codes |
|---|---:|---:|---|
"""


@measures(app)
def strike(only: str = "", shard: str = "0/1", docs: Path | None = None) -> tuple[Document, bool]:
    """Try every thing in every place; ends with 1 where one did not hold."""
    totals = Counter(tries=0, failed=0, altered=0)

    def struck(folder: Path) -> Iterator[Struck]:
        scene = prepare(folder)
        before = scene.state()
        for name in shard_of([name for name in THINGS if only in name], shard):
            codes, wrong = Counter[int](), list[str]()
            for line in lines():
                code, said = attempt(scene, line, THINGS[name], folder / "work")
                codes[code] += 1
                wrong += [f"{line}: {said}"] if said else []
            n, failed, altered = codes.total(), len(wrong), scene.state() != before
            totals.update(tries=n, failed=failed, altered=altered)
            wrong += ["something else has changed"] * altered
            shown = ", ".join(map(str, sorted(codes)))
            yield name, [n, n - failed, shown], not wrong, wrong

    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        ended = conclude(struck(Path(name)), docs, HEAD.format(n=len(lines())))
        return with_share(ended, totals)


if __name__ == "__main__":
    app()
