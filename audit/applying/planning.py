"""From a run and its decisions to a plan: what goes into the new dataset, where, what stays out.

Nothing is copied here and no picture is opened, except a file without a hash, as one that cannot be
decoded. Cost: a query, and about 20 microseconds a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import blake3
import polars as pl

from audit.applying.new_splits import SplitRequest, assign_without_tearing
from audit.applying.plan_document import DatasetPlan, LeftOut, PlannedFile
from audit.applying.planned_annotations import add_annotations
from audit.applying.targets import Placed, choose_targets
from audit.checking.runner import configure_checks
from audit.review.export import open_tables
from audit.review.ledger import Ledger
from audit.run import generations
from audit.run.store import Store
from audit.sources.formats import extension_of_name
from audit.sources.paths import path_of, reading_place

EXTENSIONS = {"JPEG": "jpg", "MPO": "jpg", "TIFF": "tif", "JPEG2000": "jp2"}
_KNOWN = """
    SELECT s.id, s.uri, s.source, s.split AS split_before, s.label AS label_before, s.n_bytes,
        s.mtime_ns, f.content_hash, f.pixel_hash, f.format, p.unit
    FROM measurements.main.samples s
    LEFT JOIN measurements.main.features f ON f.sample_id = s.id
    LEFT JOIN measurements.main.pictures p ON p.id = s.id ORDER BY s.rowid
"""


def plan_dataset(
    run: Path, path: Path | None = None, splits: SplitRequest | None = None, *,
    replace_file: bool = False,
) -> DatasetPlan:  # fmt: skip
    """Return the plan of the decided dataset, written to `path` where one is given.

    With a path the annotations go along, into the folder PATH.annotations. Raises UsageError where
    a file is in the way, and for splits that cannot be.
    """
    generation, revision = generations.require(run), Ledger(run).revision()
    with open_tables(run, generation) as tables:
        kept = tables.manifest().select("id", "split", "label", "group")
        quarantine = tables.quarantine().select("id", "path", "reason").rows()
        known = tables.store.query(_KNOWN).join(kept, on="id", how="left", maintain_order="left")
        meta = tables.store.meta()
        skipped = _skipped(tables.store)
        pairs = tables.store.query("SELECT a, b FROM measurements.main.pairs").rows()
        known = known.filter(pl.col("id").is_in(kept["id"].implode()))
        found: dict[str, Any] = {}
        if splits:
            torn = partial(_torn_sequences, tables.store)
            known, found = assign_without_tearing(known, splits, pairs, torn)
    rows, absent = _with_files(known)
    files, layout = _place(rows, meta)
    left_out = [LeftOut(*row) for row in quarantine] + absent
    plan = DatasetPlan(
        str(run.resolve()), generation.path.name, revision, json.loads(meta.get("roots", "{}")),
        layout, tuple(files), tuple(left_out), tuple(skipped), found,
    )  # fmt: skip
    if path is not None:
        plan = add_annotations(plan, run, path)
        plan.write(path, replace=replace_file)
    return plan


def _torn_sequences(store: Store, samples: pl.DataFrame) -> list[tuple[str, ...]]:
    """Return the members of each group, numbered sequence and burst that these splits tear."""
    (leakage,) = configure_checks(["SPLIT002"], {})
    store.show_split_as(samples)
    return [finding.sample_ids for finding in leakage.check.find(store, leakage.params)]


def _skipped(store: Store) -> list[str]:
    n = store.scalar("SELECT coalesce(sum(count), 0) FROM skipped_files")
    return [f"{int(n):,} files of the source are no samples and do not go along."] if n else []


def _with_files(known: pl.DataFrame) -> tuple[list[dict[str, Any]], list[LeftOut]]:
    """Return the rows whose bytes are there, and the samples that have none."""
    rows, absent, seen = list[dict[str, Any]](), list[LeftOut](), dict[Any, str]()
    for row in known.iter_rows(named=True):
        row["content_hash"] = row["content_hash"] or _hash_of(row["uri"])
        same = (row["uri"], row["split"], row["label"])
        why = None
        if reading_place(row["uri"]) is None:
            why = "its bytes are on another machine"
        elif row["content_hash"] is None:
            why = "its file could not be read"
        elif same in seen:
            why = f"it is the same file as {seen[same]}, in the same split and class"
        if why:
            absent.append(LeftOut(row["id"], row["uri"], why))
        else:
            seen[same] = row["id"]
            rows.append(row)
    return rows, absent


def _hash_of(uri: str) -> str | None:
    path = path_of(uri)
    try:
        return blake3.blake3(Path(path).read_bytes()).hexdigest() if path else None
    except OSError:
        return None


def _place(
    rows: Sequence[Mapping[str, Any]], meta: Mapping[str, str]
) -> tuple[list[PlannedFile], str]:
    roots = json.loads(meta.get("roots", "{}"))
    placed = [
        Placed(_below(row, roots), row["split_before"], row["label_before"], row["split"],
               row["label"])
        for row in rows
    ]  # fmt: skip
    by_folders = len(roots) == 1 and meta.get("layout") != "manifest"
    targets, layout = choose_targets(placed, by_folders=by_folders)
    files = [
        PlannedFile(
            row["uri"], target, row["content_hash"], row["n_bytes"], row["mtime_ns"], row["id"],
            row["split"], row["label"], row["group"],
        )
        for row, target in zip(rows, targets, strict=True)
    ]  # fmt: skip
    return files, layout


def _below(row: Mapping[str, Any], roots: Mapping[str, str]) -> str:
    """Return a sample's path below its root; of one outside of it, its name."""
    path = path_of(row["uri"])
    if path is None:
        return _name_inside(row)
    root = path_of(roots.get(row["source"], "")) or ""
    relative = os.path.relpath(path, root) if root else os.path.basename(path)
    return os.path.basename(path) if relative.split("/")[0] == ".." else relative


def _name_inside(row: Mapping[str, Any]) -> str:
    """Return the name of a picture in a pack or a store; a row of a table has no extension."""
    name = str(row["id"]).removeprefix(f"{row['source']}:" if row["source"] else "")
    if extension_of_name(name) or not row["format"]:
        return name
    return f"{name}.{EXTENSIONS.get(row['format'], row['format'].lower())}"
