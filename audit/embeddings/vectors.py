"""Where the vectors of a run come from: built in, the user's own file, or a model.

A scan loads them (`load_vectors`); whoever needs those of its last scan takes them as it did,
without asking a model again (`stored_vectors`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.embeddings.nearest import Compared, compare_axes
from audit.embeddings.patches import Coder, Codes, scale_columns
from audit.embeddings.ridge import Floats, decompose
from audit.embeddings.settings import VectorOptions, file_identity
from audit.embeddings.vector_parts import VectorParts
from audit.errors import UsageError
from audit.machine.executors import Executor
from audit.neighbors.pair_cache import key_codes
from audit.picture.decode import Limits
from audit.picture.signatures import is_comparable
from audit.run.store import Store
from dataset_preflight.foundation.files import read_regular, refuse_special

if TYPE_CHECKING:
    from audit.embeddings.embedder import Embedder

UNUSABLE = -128
"""What the codes of a picture hold that has no vector: no code reaches it."""
KEPT_FROM, KEPT_UP_TO = 1_000, 200_000
"""Pictures whose built-in codes and neighbours are kept for the next scan: of fewer they are made
as quickly, of more they would take the disk."""


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
    `failures` say why a sample's picture has no vector; `compared` are the points of neighbours,
    where these are the same in every set, and `name` then tells how they were made.
    """

    rows: pl.DataFrame
    views: Floats
    source: str
    probabilities: Floats | None = None
    classes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    compared: Compared | None = None
    name: str = ""

    def points(self) -> Compared:
        """Return the points by which neighbours are found."""
        return self.compared or compare_axes(decompose(self.whole()))

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
    opening: Opening | None = None,
    *,
    crops: bool = True,
) -> PictureVectors:
    """Return the vectors of those `pictures` that have one; a model needs an `opening`.

    Built-in ones have views of crops too, unless nobody asks for these (`crops`). Raises UsageError
    where the user's own file or model cannot be used.
    """
    if options.embedder is not None:
        assert opening is not None
        found = _modelled(run, pictures, options.embedder, opening)
    elif options.embeddings is not None:
        found = _own(store, pictures, options.embeddings)
    else:
        found = _built_in(run, pictures, crops)
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
    source = f"the embeddings of {path.name} ({vectors.shape[1]} numbers)"
    if missing:
        source += f", missing for {missing:,} images"
    return PictureVectors(pictures.filter(pl.Series(has)), views, source)


def _modelled(
    run: Path, pictures: pl.DataFrame, model: Embedder, opening: Opening
) -> PictureVectors:
    from audit.embeddings.embedder import ask_model

    vectors, there, failures = ask_model(
        run, pictures, model, opening.executor, opening.limits, opening.advance
    )
    views = directions(vectors[there])
    source = f"the embeddings of {model.name} ({views.shape[1]:,} numbers)"
    if failures:
        sample, why = next(iter(sorted(failures.items())))
        source += f", missing for {len(failures):,} images (such as {sample}: {why})"
    kept = pictures.filter(pl.Series(there, dtype=pl.Boolean))
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
    several = store.scalar("SELECT 1 FROM several_labels LIMIT 1") is not None
    names, classes, values = read_probabilities(path, several=several)
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


def _built_in(run: Path, pictures: pl.DataFrame, crops: bool) -> PictureVectors:
    """Return the vectors of stored signatures; flat and see-through pictures have none."""
    from audit.embeddings.patches import MANY_PICTURES, SQUARE, choose_views, load_coder, vectors_of

    n, hashes = len(pictures), pictures["content_hash"]
    coder = load_coder(n > MANY_PICTURES)
    regions = choose_views(n, crops=crops)
    codes = [codes_of_view(run, hashes, coder, region) for region in regions]
    usable = codes[0][:, 0] > UNUSABLE
    if not usable.all():  # else all codes would be there twice
        codes = [of_view[usable] for of_view in codes]
    rows = pictures.filter(pl.Series(usable))
    made = vectors_of(codes, coder)
    del codes
    # of few labelled pictures, axes of their own name a few more wrong labels
    compared = None
    if len(regions) == 1:
        both = rows.select(pl.concat_str("pixel_hash", "content_hash")).to_series()
        names = key_codes([text.encode() for text in both.to_list()])
        compared = Compared(made.directions, made.points, SQUARE, names)
    source = "built-in features (patches of the stored signatures)"
    name = f"{coder.name} {len(regions)}"
    return PictureVectors(rows, made.views, source, compared=compared, name=name)


def codes_of_view(
    run: Path, hashes: pl.Series, coder: Coder, region: tuple[int, int, int]
) -> Codes:
    """Return the codes (n, w) of a view, `UNUSABLE` of pictures without a signature or with one
    that says nothing; of some thousand pictures they are kept.
    """
    if not KEPT_FROM <= len(hashes) <= KEPT_UP_TO:
        return _made_codes(run, hashes, coder, region)[0]
    kept = VectorParts(run, "-".join([coder.name, *map(str, region)]), np.int8)
    codes, there = kept.load(hashes.to_list())
    if there.all():
        return codes
    missing = hashes.filter(pl.Series(~there))
    fresh, signed = _made_codes(run, missing, coder, region)
    kept.write(missing.filter(pl.Series(signed)).to_list(), fresh[signed])
    if not there.any():
        return fresh
    codes[~there] = fresh
    return codes


def _made_codes(
    run: Path, hashes: pl.Series, coder: Coder, region: tuple[int, int, int]
) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Return codes of stored signatures, and which of them were there."""
    from audit.embeddings.patches import code_view
    from audit.neighbors.pairs.signature_store import load_signatures

    table, stored = load_signatures(run, hashes)
    usable = stored & is_comparable(table)
    if usable.all():
        return code_view(table, coder, region), stored
    codes = np.full((len(hashes), len(coder.middle)), UNUSABLE, np.int8)
    codes[usable] = code_view(table[usable], coder, region)
    return codes, stored


def stored_vectors(store: Store, run: Path, pictures: pl.DataFrame) -> PictureVectors:
    """Return the vectors of those `pictures` (pixel_hash, id, content_hash) that have one.

    Raises UsageError, with the command that makes them, where none is left.
    """
    used = json.loads(store.meta().get("related_as") or "{}").get("labels") or {}
    if "embedder" in used:
        identity = str(used["embedder"])
        vectors, there = VectorParts(run, identity).load(pictures["content_hash"].to_list())
        kept = pictures.filter(pl.Series(there, dtype=pl.Boolean))
        source = f"the stored embeddings of model {identity} ({vectors.shape[1]:,} numbers)"
        found = PictureVectors(kept, directions(vectors[np.asarray(there)])[None], source)
    else:
        options = VectorOptions()
        if "embeddings" in used:
            options = VectorOptions(embeddings=_unchanged(str(used["embeddings"])))
        found = load_vectors(store, run, pictures, options)
    if len(pictures) and not len(found.rows):
        again = " --embedder MODEL" if "embedder" in used else ""
        raise UsageError(
            f"{run} has no embeddings of these images: run `audit scan SOURCE --out {run}{again}`."
        )
    return found


def _unchanged(identity: str) -> Path:
    """Return the user's file of vectors; raises UsageError where it is not that of the scan."""
    path = Path(identity.rsplit(" ", 2)[0])
    if not path.is_file() or file_identity(path) != identity:
        raise UsageError(
            f"{path}, the embeddings of the last scan, was deleted or changed: scan again with "
            "--embeddings FILE, or without it for the built-in features."
        )
    return path


# Vectors: Parquet with a column `path` (or `id`, `sample_id`) and one list column or a number
# column per dimension; or .npy, (n, d), with the paths in a text file of the same name.
# Probabilities: Parquet or CSV with `path` and a column per class. A path is a sample's id or its
# file.

KEYS = ("path", "id", "sample_id")
SUM_TOLERANCE = 0.02
"""How far the probabilities of one picture may be from one in all: they were rounded."""


def read_vectors(path: Path) -> tuple[list[str], Floats]:
    """Return paths and vectors (n, d) of a file; raises UsageError for what cannot be used."""
    if path.suffix.lower() == ".npy":
        names, vectors = _read_npy(path)
    elif path.suffix.lower() == ".parquet":
        names, vectors = _read_columns(path)
    else:
        raise UsageError(f"{path} is neither .npy nor .parquet: store the vectors as one of them.")
    _refuse_not_finite(path, names, vectors)
    return names, vectors


def read_probabilities(
    path: Path, *, several: bool = False
) -> tuple[list[str], tuple[str, ...], Floats]:
    """Return paths, class names and probabilities (n, K); raises UsageError.

    `several`: a picture may have several labels, so that they need not sum to 1.
    """
    frame = _read_frame(path)
    names = _take_key(path, frame)
    numbers = [c for c in frame.columns if c not in KEYS and frame[c].dtype.is_numeric()]
    if len(numbers) < 2:
        raise UsageError(
            f"{path} has {len(numbers)} columns of numbers: add one column of probabilities per "
            "class, with its name, and `path`."
        )
    values = frame.select(numbers).to_numpy().astype(np.float32)
    _refuse_not_finite(path, names, values)
    sums = values.sum(1)
    off = values.max(1) > 1 + 1e-6 if several else np.abs(sums - 1) > SUM_TOLERANCE
    wrong = np.flatnonzero((values.min(1) < -1e-6) | off)
    if len(wrong):
        row = int(wrong[0])
        raise UsageError(
            f"{path}: the probabilities of {names[row]} sum to {sums[row]:.3g}, the least is "
            f"{values[row].min():.3g} ({len(wrong):,} of {len(names):,} rows are no "
            "probabilities): apply a softmax to scores first."
        )
    return names, tuple(numbers), values


def match_rows(path: Path, names: list[str], samples: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Return for each sample (columns `id`, `uri`) its row in the file, -1 where it has none.

    Raises UsageError where no path matches, or one is there twice.
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{path} has {twice} twice: keep one row per path.")
    known = {name: row for row, name in enumerate(names)}
    places = [uri.removeprefix("file://") for uri in samples["uri"].to_list()]
    rows = [known.get(i, known.get(p, -1)) for i, p in zip(samples["id"], places, strict=True)]
    found = np.array(rows, np.int64)
    if len(found) and (found < 0).all():
        raise UsageError(
            f"No path of {path} is one of this dataset: it has {names[0] if names else 'none'!r}, "
            f"and the dataset has {samples['id'][0]!r}."
        )
    return found


def _read_npy(path: Path) -> tuple[list[str], Floats]:
    beside = path.with_suffix(".txt")
    try:
        refuse_special(path)
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as .npy: {error}.") from None
    try:
        names = read_regular(beside).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"{path} has no paths of images: write the paths into {beside}, one per line."
        ) from None
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or len(vectors) != len(names):
        raise UsageError(
            f"{path} holds {vectors.dtype} of shape {vectors.shape} and {beside} {len(names):,} "
            "paths: write one row of numbers per path."
        )
    return names, vectors.astype(np.float32)


def _read_columns(path: Path) -> tuple[list[str], Floats]:
    frame = _read_frame(path)
    names = _take_key(path, frame)
    lists = [c for c in frame.columns if frame[c].dtype in (pl.List, pl.Array)]
    if len(lists) == 1:
        column: Any = frame[lists[0]]
        if column.dtype == pl.Array:
            column = column.arr.to_list()
        lengths = column.list.len().fill_null(0)
        if lengths.n_unique() > 1:
            row = int((lengths != lengths.mode()[0]).arg_max() or 0)
            raise UsageError(
                f"{path}: the vector of {names[row]} has {lengths[row]} numbers, others have "
                f"{lengths.mode()[0]}: make them of one length."
            )
        width = int(lengths[0]) if len(lengths) else 0
        flat = column.explode().cast(pl.Float32, strict=False).to_numpy()
        return names, np.asarray(flat, np.float32).reshape(len(names), width).copy()
    numbers = [c for c in frame.columns if c not in KEYS and frame[c].dtype.is_numeric()]
    if not numbers or lists:
        raise UsageError(
            f"{path} has no embeddings: give one column of lists, or columns of numbers."
        )
    return names, frame.select(numbers).to_numpy().astype(np.float32)


def _read_frame(path: Path) -> pl.DataFrame:
    kind = path.suffix.lower()
    if kind not in (".parquet", ".csv"):
        raise UsageError(f"{path} is neither .parquet nor .csv: store the table as one of them.")
    try:
        refuse_special(path)
        return pl.read_parquet(path) if kind == ".parquet" else pl.read_csv(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UsageError(f"{path} cannot be read: {str(error).splitlines()[0]}.") from None


def _take_key(path: Path, frame: pl.DataFrame) -> list[str]:
    key = next((name for name in KEYS if name in frame.columns), None)
    if key is None:
        raise UsageError(f"{path} has no column `path`: add the path or id of each image.")
    return [str(name) for name in frame[key].to_list()]


def _refuse_not_finite(path: Path, names: list[str], values: Floats) -> None:
    bad = np.flatnonzero(~np.isfinite(values).all(1))
    if len(bad):
        raise UsageError(
            f"{path}: {len(bad):,} of {len(names):,} rows contain NaN or infinite numbers, first "
            f"the row of {names[int(bad[0])]}: leave those rows out."
        )
