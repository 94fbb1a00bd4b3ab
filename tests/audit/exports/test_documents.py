"""Documents that name places: whatever they say, nothing outside of their folder is touched."""

import contextlib
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import blake3
import pytest

from audit.annotations.box_doubts import holds_boxes, read_results
from audit.checking.config import load_config
from audit.decisions.label_sample import _read
from audit.decisions.store import DATABASE, DecisionStore, Entry
from audit.embeddings.vectors import _read_frame, _read_npy
from audit.errors import AuditError
from audit.exports import annotation_export
from audit.exports.export import export_tables
from audit.exports.planning import PLAN_SCHEMA, read_plan
from audit.exports.review_tasks import read_review
from audit.records import Action
from audit.run import run_version
from audit.run.store import Store
from audit.run.tables import SCHEMA_VERSION
from audit.sources import open_source
from audit.subset.draw import load_recipe
from audit.subset.goal import session_throughput
from audit.subset.predictions import read_table
from dataset_preflight.foundation.files import SpecialFileError

VICTIM = b"somebody's picture"
BLAKE = blake3.blake3(VICTIM).hexdigest()


def _plan(folder: Path, name: object) -> None:
    file = {"source": "/x.jpg", "target": name, "content_hash": BLAKE, "n_bytes": len(VICTIM)}
    head = {"run": "", "generation": "", "decisions": "", "roots": {}, "layout": "", "notes": []}
    path = folder / "plan.json"
    path.write_text(json.dumps({"schema": PLAN_SCHEMA, **head, "files": [file], "left_out": []}))
    read_plan(path)


def _exported(folder: Path, name: object) -> None:
    digest = hashlib.sha256(VICTIM).hexdigest()
    record = {"schema": annotation_export.SCHEMA, "sha256": {name: digest}}
    (folder / annotation_export.RECORD).write_text(json.dumps(record))
    (folder / "stage").mkdir()
    annotation_export._move_to_place(folder / "stage", folder, {}, replace=True)


def _current(folder: Path, name: object) -> None:
    named = {"generation": name, "findings": "findings-0001.duckdb"}
    (folder / "CURRENT").write_text(json.dumps({"schema": SCHEMA_VERSION, **named}))
    if (version := run_version.read_pointer(folder)) is not None:
        assert version.path.parent == folder


DOCUMENTS: dict[str, Callable[[Path, object], None]] = {
    "plan": _plan, "record of an export": _exported, "CURRENT": _current,
}  # fmt: skip
NAMES = (
    "{outside}/victim.duckdb", "../victim.duckdb", "a/../../victim.duckdb", "link/victim.duckdb",
    "a/../link/victim.duckdb", "//victim.duckdb", "victim\0.duckdb", "C:\\victim.duckdb",
    "..\\victim.duckdb", "n" * 300 + ".duckdb", "a/" * 3000 + "victim.duckdb", "", ".", "..",
    "\udcff\ud800",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:25])
@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_nothing_outside_of_the_folder_is_touched(
    document: Callable[[Path, object], None], name: str, tmp_path: Path
) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim.duckdb"
    folder.mkdir()
    (folder / "a").mkdir()
    (folder / "link").symlink_to(tmp_path)
    victim.write_bytes(VICTIM)
    with contextlib.suppress(AuditError):
        document(folder, name.replace("{outside}", str(tmp_path)))
    assert victim.read_bytes() == VICTIM
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "victim.duckdb"]


def test_a_loop_of_links_is_no_run_and_no_place(tmp_path: Path) -> None:
    (loop := tmp_path / "loop").symlink_to(loop)
    for run, out in ((loop, tmp_path / "new"), (tmp_path, loop)):
        with pytest.raises(AuditError):
            export_tables(run, out)
        with pytest.raises(AuditError), annotation_export.open_stage(run, out, "x", replace=False):
            pass


def _decisions(path: Path) -> None:
    (path.parent / DATABASE).symlink_to(path)
    DecisionStore(path.parent).record([Entry("sample", "x", None, Action.KEEP)])


READERS: dict[str, Callable[[Path], object]] = {
    "x.json": read_plan,
    "x.jsonl": lambda path: open_source([str(path)]),
    "x.csv": lambda path: open_source([str(path)]),
    "x.parquet": lambda path: open_source([str(path)]),
    "x.tar": lambda path: open_source([str(path)]),
    "x.toml": load_config,
    "boxes.json": read_results,
    "boxes.csv": holds_boxes,
    "plan.json": load_recipe,
    "set.csv": lambda path: read_table(path, "set"),
    "set.parquet": lambda path: read_table(path, "set"),
    "set.npz": lambda path: read_table(path, "set"),
    "session.json": session_throughput,
    "session.json.gz": session_throughput,
    "vectors.npy": _read_npy,
    "vectors.csv": _read_frame,
    "reviewed.csv": _read,
    "answers.json": lambda path: read_review(path.parent, path),
    "CURRENT": lambda path: run_version.read_pointer(path.parent),
    "x.duckdb": Store.open,
    "decisions": _decisions,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_at_once(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    def hangs(*_: object) -> None:
        raise TimeoutError

    make(tmp_path / name)
    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(30)
    try:
        with pytest.raises((AuditError, SpecialFileError)):
            READERS[name](tmp_path / name)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
