"""LOG007: checkpoints without the predictions of the chosen examples that others have."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, unclear
from pipeline_profiler.checks.log_subject import LogSubject

MODELS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".keras", ".h5")
TABLES = (".csv", ".jsonl", ".npz")
IDS = ("id", "ids", "example", "examples", "index", "file", "name")
NAMED = re.compile(r"(?<![a-z])pred(s|iction|ictions)?(?![a-z])")
BY_STEP = re.compile(r"(checkpoint|ckpt|step|epoch|iter)[-_=]?\d+", re.IGNORECASE)
NUMBER = re.compile(r"\d+")
MOST_FILES, DEEPEST, LEAST = 20_000, 3, 2
LINES = (
    'torch.save(model.state_dict(), f"{folder}/model-{step}.pt"); '
    'np.savez(f"{folder}/predictions-{step}.npz", id=ids, prediction=predictions)'
)


class KeptPredictions(Check):
    """Checkpoints without predictions of the same examples beside them.

    ## What it does
    Looks in the folder of the log, three deep, for models (`model-500.pt`, `checkpoint-500/`) and
    for predictions with a number in their names (`predictions-500.npz`, `.csv`, `.jsonl`), pairs
    them by that number, and compares the examples they are of (column or key `id`).

    ## Why is this bad
    Predictions of a few chosen examples show what a metric hides: which are learned, forgotten and
    never right. Predictions without the model that made them cannot be followed up.

    ## How it decides
    Two files of predictions are a claim that there is one for each checkpoint. Then it fails where
    a model has none, where examples are not those of the first file, or where a model's file is
    cut off. Predictions whose model was deleted since are no failure. With fewer than two files of
    predictions, or models in several folders (several runs), it cannot tell.

    ## What to do
    Two lines at each evaluation, with the same `ids` every time:
    `torch.save(model.state_dict(), f"{folder}/model-{step}.pt")` and
    `np.savez(f"{folder}/predictions-{step}.npz", id=ids, prediction=predictions)`.

    ## Limits
    Files are known by their names. That a model loads is seen by the ends of its file; the class
    that it needs is yours.
    """

    code = "LOG007"
    name = "predictions-not-kept"
    causes = (
        "a path of saving that skips the predictions (the best, the last, on interrupt)",
        "examples that are drawn anew at each evaluation",
        "a run that was killed while it wrote",
    )
    next_step = f"Write both in one place, with the same ids each time: {LINES}."

    def run(self, subject: LogSubject) -> Answer:
        """Each folder by itself; the first failure."""
        answers = [_judge(folder) for folder in subject.folders]
        failed = [a for a in answers if a.causes]
        known = [a for a in answers if a.evidence.get("pairs")]
        if not answers:
            return unclear("There is no folder of a run to look in.")
        return (failed or known or answers)[0]

    @staticmethod
    def _run(steps: tuple[int, ...], kept: tuple[int, ...], other: int = -1, cut: int = -1) -> Any:
        folder = tempfile.mkdtemp()
        for step in steps:
            with zipfile.ZipFile(f"{folder}/model-{step}.pt", "w") as file:
                file.writestr("data.pkl", "state" * 20)
        for step in kept:
            ids = np.arange(4) + (step == other)
            np.savez(f"{folder}/predictions-{step}.npz", id=ids, prediction=ids / 4)
        if cut >= 0:
            os.truncate(f"{folder}/model-{cut}.pt", 60)
        subject = LogSubject([], folders=(Path(folder),))
        weakref.finalize(subject, shutil.rmtree, folder)
        return subject

    @staticmethod
    def _two_runs() -> Any:
        subject = KeptPredictions._run((1, 2), (1, 2))
        other = subject.folders[0] / "other"
        other.mkdir()
        (other / "model-7.pt").write_bytes(b"another run")
        return subject

    PLANTED = (
        ("one is missing", lambda: KeptPredictions._run((100, 200, 300), (100, 300))),
        ("other examples", lambda: KeptPredictions._run((1, 2, 3), (1, 2, 3), other=3)),
        ("a model cut off", lambda: KeptPredictions._run((1, 2, 3), (1, 2, 3), cut=2)),
    )
    HEALTHY = (
        ("old models deleted", lambda: KeptPredictions._run((300,), (100, 200, 300))),
        ("predictions at the end only", lambda: KeptPredictions._run((100, 200), (200,))),
        ("another run beside it", _two_runs),
        ("nothing", lambda: LogSubject([])),
    )


def _judge(folder: Path) -> Answer:
    files = list(itertools.islice(_files(folder, DEEPEST), MOST_FILES))
    named = [f for f in files if f.suffix in TABLES and NAMED.search(f.stem.lower())]
    tables = {n[-1]: f for f in named if (n := _numbers(folder, f))}
    models = {f: n for f in files if f.suffix in MODELS and (n := _numbers(folder, f))}
    numbers: dict[str, Any] = {"models": len(models), "predictions": len(tables)}
    said = f"{folder.name} has {len(models)} numbered models and {len(tables)} files of predictions"
    if len(tables) < LEAST or not models:
        return unclear(f"{said}: nothing to pair.", f"Two lines at each evaluation: {LINES}.",
                       **numbers)  # fmt: skip
    homes = {f.parent.parent if BY_STEP.match(f.parent.name) else f.parent for f in models}
    if len(homes) > 1:
        return unclear(f"{said} in {len(homes)} folders: give the log of one run.", **numbers)
    alone = [f.name for f, own in models.items() if not set(own) & set(tables)]
    broken = [f.name for f in models if not _whole(f)]
    numbers |= {"pairs": len(models) - len(alone), "without": alone, "cut_off": broken}
    if alone:
        return KeptPredictions.failed(f"{said}; none for {_listed(alone)}.", **numbers)
    if broken:
        return KeptPredictions.failed(
            f"{said}; {_listed(broken)} cannot be loaded: the file is cut off.", **numbers
        )
    ids = {f.name: found for _, f in sorted(tables.items()) if (found := _ids(f)) is not None}
    first = next(iter(ids), "")
    other = [name for name, found in ids.items() if found != ids[first]]
    if other:
        numbers["other_examples"] = other
        return KeptPredictions.failed(
            f"{said}; {_listed(other)}: other examples than in {first}.", **numbers
        )
    of = f", of the same {len(ids[first])} examples" if ids else ""
    return passed(f"{said}: each model has its predictions{of}.", **numbers)


def _files(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and depth and not entry.is_symlink():
            yield from _files(entry, depth - 1)
        elif entry.is_file():
            yield entry


def _numbers(folder: Path, file: Path) -> list[int]:
    """Whole numbers of a path below the folder, its suffix left out."""
    return [int(n) for n in NUMBER.findall(str(file.relative_to(folder).with_suffix("")))]


def _whole(file: Path) -> bool:
    """Whether the file ends as its kind does; kinds that do not tell count as whole."""
    try:
        with file.open("rb") as stream:
            head = stream.read(8)
        size = file.stat().st_size
    except OSError:
        return False
    if head[:2] == b"PK":
        return zipfile.is_zipfile(file)
    if file.suffix == ".safetensors":
        return len(head) == 8 and int.from_bytes(head, "little") + 8 <= size
    return size > 0


def _ids(file: Path) -> list[str] | None:
    """The examples of a file of predictions, sorted; None where it does not say or is not read."""
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                key = next((k for k in IDS if k in arrays.files), None)
                return sorted(map(str, arrays[key].tolist())) if key else None
        text = file.read_text(encoding="utf-8", errors="replace").splitlines()
        rows = map(json.loads, filter(None, text)) if file.suffix == ".jsonl" else None
        found = list(rows if rows is not None else csv.DictReader(text))
        key = next((k for k in IDS if found and k in found[0]), None)
        return sorted(str(row[key]) for row in found) if key else None
    except (OSError, ValueError, KeyError, TypeError, csv.Error, zipfile.BadZipFile):
        return None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
