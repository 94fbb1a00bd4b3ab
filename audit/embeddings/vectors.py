"""Where the vectors of a run come from: built in, the user's own file, or a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.embeddings.given import match_rows, read_probabilities, read_vectors
from audit.embeddings.patches import scale_columns
from audit.embeddings.settings import VectorOptions
from audit.executors import Executor
from audit.neighbors.signatures import is_comparable
from audit.picture.decode import Limits
from audit.run.store import Store

if TYPE_CHECKING:
    from audit.embeddings.embedder import Embedder

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Opening:
    """How a model's pictures are opened; `advance` gets (done, all, failed)."""

    executor: Executor
    limits: Limits
    advance: Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class PictureVectors:
    """`views` (v, n, d), columns of mean 0, of v views of the pictures in `rows`; `source` names
    them in words; `probabilities` are the user's own (n, K) with the columns `classes`;
    `facts` are sentences and counts to keep; `failures` say why a sample's picture has no vector.
    """

    rows: pl.DataFrame
    views: Floats
    source: str
    probabilities: Floats | None = None
    classes: tuple[str, ...] = ()
    facts: Mapping[str, str | int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def whole(self) -> Floats:
        """Return one vector a picture (n, d), the mean of its views, columns of mean 0."""
        if len(self.views) == 1:
            return np.asarray(self.views[0])
        mean = self.views.mean(0)
        return np.asarray(mean - mean.mean(0))


def load_vectors(
    store: Store,
    run: Path,
    pictures: pl.DataFrame,
    options: VectorOptions,
    advance: Callable[[float], None],
    opening: Opening | None = None,
) -> PictureVectors:
    """Return the vectors of those `pictures` that have one; a model needs an `opening`.

    Raises UsageError where the user's own file or model cannot be used.
    """
    if options.embedder is not None:
        assert opening is not None
        found = _modelled(run, pictures, options.embedder, opening)
    elif options.embeddings is not None:
        found = _own(store, pictures, options.embeddings)
    else:
        found = _built_in(run, pictures, advance)
    if options.predictions is not None:
        found = _with_probabilities(store, found, options.predictions)
    return found


def _own(store: Store, pictures: pl.DataFrame, path: Path) -> PictureVectors:
    """Return the user's vectors; a picture takes that of its first sample that has one."""
    names, vectors = read_vectors(path)
    chosen = _rows_of(store, pictures, path, names)
    has = chosen >= 0
    views = scale_columns(vectors[chosen[has]])[None]
    missing = int((~has).sum())
    source = f"the vectors of {path.name} ({vectors.shape[1]} numbers)"
    if missing:
        source += f", which has none of {missing:,} pictures"
    return PictureVectors(pictures.filter(pl.Series(has)), views, source)


def _modelled(
    run: Path, pictures: pl.DataFrame, model: Embedder, opening: Opening
) -> PictureVectors:
    """Return the vectors that a model gives."""
    from audit.embeddings.asking import ask_model

    answers = ask_model(run, pictures, model, opening.executor, opening.limits, opening.advance)
    views = directions(answers.vectors[answers.found])
    source = f"the vectors of {model.name} ({views.shape[1]:,} numbers)"
    if failures := answers.failures:
        sample, why = next(iter(sorted(failures.items())))
        source += f", which has none of {len(failures):,} pictures (such as {sample}: {why})"
    kept = pictures.filter(pl.Series(answers.found, dtype=pl.Boolean))
    return PictureVectors(kept, views[None], source, failures=failures)


def directions(vectors: Floats) -> Floats:
    """Scale the vectors of a model (n, d) to length 1, columns of mean 0, in place."""
    # what a network does not know it answers weakly, so near the middle: only directions compare
    # (Sun, Ming, Zhu and Li 2022, Out-of-distribution detection with deep nearest neighbors, ICML)
    vectors /= np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None] + np.float32(1e-12)
    vectors -= vectors.mean(0, dtype=np.float64).astype(np.float32)
    return vectors


def _with_probabilities(store: Store, found: PictureVectors, path: Path) -> PictureVectors:
    """Add the user's probabilities, rows of NaN where a picture has none."""
    names, classes, values = read_probabilities(path)
    chosen = _rows_of(store, found.rows, path, names)
    own = np.where((chosen >= 0)[:, None], values[chosen], np.float32(np.nan))
    source = f"the probabilities of {path.name}"
    return replace(found, probabilities=own, classes=classes, source=source)


def _rows_of(
    store: Store, pictures: pl.DataFrame, path: Path, names: list[str]
) -> npt.NDArray[np.int64]:
    """Return for each picture the row of the file that belongs to one of its samples, or -1."""
    samples = store.query("SELECT id, uri, pixel_hash FROM images ORDER BY id")
    rows = match_rows(path, names, samples)
    first: dict[str, int] = {}
    for picture, row in zip(samples["pixel_hash"].to_list(), rows.tolist(), strict=True):
        if row >= 0 and picture is not None:
            first.setdefault(picture, row)
    return np.array([first.get(p, -1) for p in pictures["pixel_hash"].to_list()], np.int64)


def _built_in(
    run: Path, pictures: pl.DataFrame, advance: Callable[[float], None]
) -> PictureVectors:
    """Return the vectors of stored signatures; flat and see-through pictures have none."""
    from audit.embeddings.patches import describe_patches
    from audit.pairs.signature_store import load_signatures

    table, stored = load_signatures(run, pictures["content_hash"])
    usable = stored & is_comparable(table)
    if not usable.all():  # else all signatures would be there twice
        table = table[usable]
    views = describe_patches(table, advance=advance)
    source = "built-in vectors (patches of the stored signatures)"
    return PictureVectors(pictures.filter(pl.Series(usable)), views, source)
