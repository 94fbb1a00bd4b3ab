"""What to scan and how, as a person says it: words become a source, settings and a run's folder.

The command line and `audit.scan` are two ways to fill in one request.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from audit import scanning
from audit.annotations import holds_boxes
from audit.checking.config import Config, load_config
from audit.embeddings.settings import VectorOptions
from audit.errors import UsageError
from audit.executors import Executor
from audit.measuring import ProgressCallback, ignore_progress
from audit.sources import Source, open_source
from audit.sources.paths import path_of
from audit.sources.python_objects import FOLDER

if TYPE_CHECKING:
    from audit.cluster.shared_place import SharedPlace

RUNS = Path("runs")

PROCESSES, RAY = "processes", "ray"


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A scan that can begin: its source is open, its words are understood."""

    source: Source
    run: Path
    config: Config
    vectors: VectorOptions
    checks: Sequence[str] | None = None
    jobs: int | None = None
    executor: Executor | None = None
    parts: SharedPlace | None = None
    lock: bool = True
    verify: bool = False

    def carry_out(self, progress: ProgressCallback = ignore_progress) -> scanning.ScanResult:
        """Scan; raises what `audit.scanning.scan` raises."""
        return scanning.scan(
            self.source,
            self.run,
            jobs=self.jobs,
            executor=self.executor,
            parts=self.parts,
            checks=self.checks,
            config=self.config,
            vectors=self.vectors,
            verify=self.verify,
            progress=progress,
            lock=self.lock,
        )


def prepare_request(
    sources: Sequence[str],
    run: Path | None = None,
    *,
    layout: str | None = None,
    exclude: Sequence[str] = (),
    roots: Mapping[str, str] | None = None,
    embeddings: Path | None = None,
    embedder: str | None = None,
    predictions: Path | None = None,
    config: Path | Config | None = None,
    checks: Sequence[str] | None = None,
    jobs: int | None = None,
    executor: str = PROCESSES,
    address: str = "auto",
    parts: str | None = None,
    lock: bool = True,
    verify: bool = False,
) -> ScanRequest:
    """Return the request for a folder, a manifest or several `name=PATH`, without reading it.

    `run` is runs/<dataset name> if None, `config` ./audit.toml if there is one. `executor` is
    `processes` of this machine, or `ray` for the cluster at `address`, whose nodes see the folder
    or address `parts`. Raises UsageError for
    whatever is wrong with the words.
    """
    settings = config if isinstance(config, Config) else load_config(config)
    vectors = _choose_vectors(embeddings, embedder, predictions)
    source = open_source(
        sources,
        layout=layout,
        exclude=(*settings.exclude, *exclude),
        roots=roots or {},
        ignore=[run or RUNS],
    )
    place = run or RUNS / source.name
    _refuse_around(place, source.roots.values())
    chosen = _choose_executor(executor, address, settings)
    shared = None if parts is None else _shared_place(parts, executor, source.roots.values())
    return ScanRequest(source, place, settings, vectors, checks, jobs, chosen, shared, lock, verify)


def _shared_place(parts: str, executor: str, roots: Iterable[str]) -> SharedPlace:
    """Return the place where nodes leave what they measure, once it was seen to be writable."""
    from audit.cluster.shared_place import SharedPlace

    if executor != RAY:
        raise UsageError(f"--parts is for the nodes of a cluster: give --executor {RAY} as well.")
    place = SharedPlace(parts)
    for root in map(path_of, roots):
        folder = None if place.folder is None else Path(os.path.realpath(place.folder))
        if root and folder and folder.is_relative_to(Path(os.path.realpath(root))):
            raise UsageError(
                f"--parts {parts} lies inside {root}, which is to be scanned: choose a folder "
                "outside of the dataset."
            )
    place.prove()
    return place


def _choose_executor(name: str, address: str, config: Config) -> Executor | None:
    """Return a cluster, or None for processes of this machine."""
    if name == PROCESSES:
        return None
    if name != RAY:
        raise UsageError(f"There is no executor {name!r}: use {PROCESSES} or {RAY}.")
    from audit.cluster.ray_cluster import RayCluster

    return RayCluster(address, config.timeout_s, config.limits.max_memory)


def _choose_vectors(
    embeddings: Path | None, embedder: str | None, predictions: Path | None
) -> VectorOptions:
    vectors = VectorOptions(embeddings, predictions)
    vectors.check_files()
    if predictions is not None and holds_boxes(predictions):
        vectors = VectorOptions(embeddings, boxes=predictions)
    if embedder is not None:
        from audit.embeddings.embedder import load_embedder

        vectors = replace(vectors, embedder=load_embedder(embedder))
        vectors.check_files()
    return vectors


def _refuse_around(run: Path, roots: Iterable[str]) -> None:
    """Raise UsageError where the run would contain the dataset, whose files it then is to skip."""
    place = Path(os.path.realpath(run))  # `resolve` raises where links lead in a circle
    for root in map(path_of, roots):
        if root is None or Path(os.path.realpath(root)).is_relative_to(place / FOLDER):
            continue  # pictures that were given as Python objects
        if Path(os.path.realpath(root)).is_relative_to(place):
            raise UsageError(
                f"--out {run} contains {root}, which is to be scanned: choose a folder for the run "
                "outside of the dataset, such as runs/NAME."
            )
