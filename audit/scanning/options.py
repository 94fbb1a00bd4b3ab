"""The options of a scan, each with its meaning, for the command, Python and the app.

Light at import: the command line reads the meanings for its help.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audit.checking.config import Config
    from audit.embeddings.settings import VectorOptions
    from audit.scanning.scanning import ScanRequest

Place = str | os.PathLike[str]
RUNS = Path("runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How to scan.

    layout: split/class/file, class/file, split/file or flat.
    exclude: Glob of files to skip; repeatable.
    roots: OLD=NEW: read a manifest's paths elsewhere.
    checks: Codes, prefixes or names, comma-separated: DUP,IMG003.
    embeddings: Your embeddings by path (.npy, .parquet), to check labels.
    embedder: Model of embeddings: file.py:make, model.onnx, lite0 (extra), auto.
    predictions: Class probabilities by path, or boxes as COCO results.
    config: Settings (default ./audit.toml).
    plugins: Python file with your own checks and columns; repeatable.
    jobs: Processes (default: cores).
    verify: Hash every file, to detect edits that kept size and modification time.
    """

    layout: str | None = None
    exclude: Sequence[str] = ()
    roots: Mapping[str, str] | None = None
    checks: Sequence[str] | str | None = None
    embeddings: Place | None = None
    embedder: str | None = None
    predictions: Place | None = None
    config: Place | Config | None = None
    plugins: Sequence[Place] = ()
    jobs: int | None = None
    verify: bool = False

    @classmethod
    def meaning(cls, name: str) -> str:
        """Return what an option does, as the documentation of this class says it."""
        found = re.search(rf"^ *{name}: (.+)$", cls.__doc__ or "", re.MULTILINE)
        return found[1] if found else ""

    def prepare(self, sources: Sequence[str], run: Path | None = None) -> ScanRequest:
        """Return the request for a folder, a manifest or several `name=PATH`; reads no file.

        `run`: default runs/<dataset name>. Raises UsageError for invalid options.
        """
        from audit.checking.config import Config, load_config
        from audit.scanning.scanning import ScanRequest
        from audit.sources import open_source

        config = self.config
        if not isinstance(config, Config):
            config = load_config(None if config is None else Path(config))
        config = replace(config, plugins=(*config.plugins, *map(Path, self.plugins)))
        vectors = self._vectors(config)
        source = open_source(
            sources,
            layout=self.layout,
            exclude=(*config.exclude, *self.exclude),
            roots=self.roots or {},
            ignore=[run or RUNS],
            label_separator=config.label_separator,
            one_hot=config.one_hot,
        )
        place = run or RUNS / source.name
        _refuse_around(place, source.roots.values())
        return ScanRequest(
            source,
            place,
            config,
            vectors,
            checks=[self.checks] if isinstance(self.checks, str) else self.checks,
            jobs=self.jobs,
            lock=config.lock,
            verify=self.verify,
        )

    def _vectors(self, config: Config) -> VectorOptions:
        from audit.annotations import holds_boxes
        from audit.embeddings.settings import VectorOptions

        embeddings, predictions = (
            None if place is None else Path(place) for place in (self.embeddings, self.predictions)
        )
        vectors = VectorOptions(embeddings, predictions)
        vectors.check_files()
        if predictions is not None and holds_boxes(predictions):
            vectors = VectorOptions(embeddings, boxes=predictions)
        # a file that is given here goes before what audit.toml asks of every scan
        wanted = self.embedder or (config.embedder if embeddings is None else None)
        if wanted is not None:
            from audit.embeddings.embedder import AUTO, best_installed, load_embedder

            chosen = best_installed() if wanted == AUTO else wanted
            model = None if chosen is None else load_embedder(chosen)
            vectors = replace(vectors, embedder=model)
            vectors.check_files()
        return vectors


def _refuse_around(run: Path, roots: Iterable[str]) -> None:
    """Raise UsageError where the run would contain the dataset, whose files it then is to skip."""
    from audit.errors import UsageError
    from audit.sources.paths import path_of
    from audit.sources.python_objects import FOLDER

    place = Path(os.path.realpath(run))  # `resolve` raises where links lead in a circle
    for root in map(path_of, roots):
        if root is None or Path(os.path.realpath(root)).is_relative_to(place / FOLDER):
            continue  # pictures that were given as Python objects
        if Path(os.path.realpath(root)).is_relative_to(place):
            raise UsageError(
                f"--out {run} contains the dataset {root}: choose a folder for the run outside of "
                "the dataset, such as runs/NAME."
            )
