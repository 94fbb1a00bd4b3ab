"""New against library: which images of a new folder show a picture that an audited run holds.

The new images are measured as in a scan, and nothing is stored. The surest match of each counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from audit.errors import RunError, UsageError
from audit.machine.executors import Executor, Failure, Serial
from audit.neighbors.library import Library, large_array
from audit.neighbors.overlap import search_against
from audit.neighbors.pairs.relate import PICTURES, picture_opener
from audit.neighbors.pairs.signature_store import load_signatures
from audit.neighbors.transformation import describe_pair
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measurer, failed_rows
from audit.picture.signatures import SIGNATURE_DTYPE, Signatures
from audit.results.reader import open_reader
from audit.run.store import Store
from audit.sources import Source
from audit.sources.paths import reading_place

SCHEMA = "audit-overlap/1"
CHUNK = 64


@dataclass(frozen=True, slots=True)
class Match:
    """A new image and the library's sample that shows the same; `score` in log odds (near)."""

    new: str
    library: str
    split: str | None
    label: str | None
    kind: str
    score: float | None
    transformation: str


@dataclass(frozen=True, slots=True)
class OverlapReport:
    """What of a new folder a run holds; `without_picture`: files that give no picture."""

    run: str
    new_images: int
    without_picture: int
    matches: tuple[Match, ...]
    completeness: tuple[str, ...]

    def document(self) -> str:
        """Return the report as one JSON document."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, ensure_ascii=False)


def find_overlap(source: Source, run: Path, executor: Executor, limits: Limits) -> OverlapReport:
    """Look up every image of `source` in `run`; RunError where it has no near-duplicate search."""
    with open_reader(run).connection() as store:
        measured = measure_new(source, executor, limits)
        exact = _exact(store, measured.features)
        near, sentences = _near(store, run, measured, set(exact), limits, executor)
    matches = sorted([*exact.values(), *near], key=lambda m: m.new)
    total = measured.features.num_rows
    pictured = total - measured.features["pixel_hash"].null_count
    return OverlapReport(str(run), total, total - pictured, tuple(matches), sentences)


class NewImages(NamedTuple):
    """Features by sample, with `uri`, and signatures by content, of images that are not stored."""

    features: pa.Table
    signatures: pa.Table


def measure_new(source: Source, executor: Executor, limits: Limits) -> NewImages:
    """Measure every file of a source in memory."""
    uris = {sample.id: sample.uri for batch in source.batches() for sample in batch}
    jobs = [FileJob(name, "", reading_place(uri)) for name, uri in uris.items()]
    chunks: Iterator[list[FileJob]] = (jobs[i : i + CHUNK] for i in range(0, len(jobs), CHUNK))
    parts = [
        failed_rows(chunk, out) if isinstance(out, Failure) else out
        for chunk, out in executor.run(Measurer(limits), chunks)
    ] or [failed_rows([], Failure("", ""))]
    features = pa.concat_tables([part.features for part in parts])
    where = [uris[name] for name in features["sample_id"].to_pylist()]  # a path may be no UTF-8
    return NewImages(
        features.append_column("uri", pl.Series(where, dtype=pl.String).to_arrow()),
        pa.concat_tables([part.signatures for part in parts]),
    )


def _exact(store: Store, features: pa.Table) -> dict[str, Match]:
    """Return, by new sample, the library's first sample of the same bytes, else pixels."""
    fresh = features.select(["sample_id", "content_hash", "pixel_hash"])
    library = store.query(
        "SELECT id, split, label, content_hash, pixel_hash FROM images "
        "WHERE pixel_hash IS NOT NULL ORDER BY id"
    )
    new = pl.DataFrame(fresh)
    matches: dict[str, Match] = {}
    for kind, key in (("pixels", "pixel_hash"), ("bytes", "content_hash")):
        first = library.unique(key, keep="first", maintain_order=True)
        hits = new.join(first, on=key, how="inner")
        for name, twin, split, label in hits.select(
            "sample_id", "id", "split", "label"
        ).iter_rows():
            matches[name] = Match(name, twin, split, label, kind, None, f"same {kind}")
    return matches


def _near(
    store: Store,
    run: Path,
    measured: NewImages,
    done: set[str],
    limits: Limits,
    executor: Executor,
) -> tuple[list[Match], tuple[str, ...]]:
    """Return the best near-duplicate of each new image that is not in the library as it is."""
    library, held, lost = load_library(store, run)
    new, signatures = _new_pictures(measured, done)
    pairs, completeness = search_against(
        signatures,
        [bytes.fromhex(h) for h in new["pixel_hash"]],
        new["phash"].to_numpy().astype(np.uint64),
        held,
        open_new=picture_opener(new["uri"], new["content_hash"], limits, executor),
        open_library=picture_opener(library["uri"], library["content_hash"], limits, executor),
    )
    sentences = list(completeness.sentences())
    if lost:
        sentences.append(f"{lost:,} images of the library have no stored signature: left out.")
    by_hash = store.query(
        "SELECT pixel_hash, min(id) AS id, arg_min(split, id) AS split, arg_min(label, id) AS label"
        " FROM images WHERE pixel_hash IS NOT NULL GROUP BY pixel_hash"
    )
    first = {row[0]: row[1:] for row in by_hash.iter_rows()}
    best: dict[int, Match] = {}
    for row, (i, j) in enumerate(pairs.pairs.tolist()):
        if i not in best:  # best first for each new image
            # words say what turns the new image into that of the library
            words = describe_pair(signatures[i], held.table[j], pairs, row).words
            name, split, label = first[library["pixel_hash"][j]]
            score = round(float(pairs.score[row]), 3)
            best[i] = Match(new["sample_id"][i], name, split, label, "near", score, words)
    return list(best.values()), tuple(sentences)


def load_library(store: Store, run: Path) -> tuple[pl.DataFrame, Library, int]:
    """Return the pictures of a run, their search index, and how many lack a signature.

    Raises RunError for a run without near-duplicate search.
    """
    if not store.columns("relate_facts") or not store.scalar("SELECT 1 FROM relate_facts"):
        raise RunError(f"{run} has no near-duplicate search: scan its source again.")
    pictures = store.query(PICTURES)
    out = large_array((len(pictures),), SIGNATURE_DTYPE)
    table, stored = load_signatures(run, pictures["content_hash"], out)
    if not stored.all():
        pictures, table = pictures.filter(pl.Series(stored)), table[stored]
    held = Library(
        table,
        [bytes.fromhex(h) for h in pictures["pixel_hash"]],
        pictures["phash"].to_numpy().astype(np.uint64),
        float(store.scalar("SELECT value FROM relate_facts WHERE key = 'threshold'")),
    )
    return pictures, held, int((~stored).sum())


def _new_pictures(measured: NewImages, done: set[str]) -> tuple[pl.DataFrame, Signatures]:
    """Return the new files still to be looked up, and their signatures, row by row."""
    packed = pl.DataFrame(measured.signatures).unique("content_hash")
    names = ["sample_id", "uri", "content_hash", "pixel_hash", "phash"]
    frame = pl.DataFrame(measured.features.select(names))
    new = frame.filter(
        pl.col("pixel_hash").is_not_null() & ~pl.col("sample_id").is_in(list(done))
    ).sort("sample_id")
    new = new.join(packed, on="content_hash", how="left", maintain_order="left")
    return new, np.frombuffer(b"".join(new["signature"]), SIGNATURE_DTYPE)


class Finder:
    """Finds the samples of a run's present version that show a picture."""

    def __init__(self, run: Path, limits: Limits | None = None) -> None:
        """Load what a search needs; raises RunError where there is no search to take it from."""
        self.run, self.limits = run, limits or Limits()
        with open_reader(run).connection() as store:
            self._pictures, self._library, _ = load_library(store, run)
            # at hand: the query takes longer than the search
            self._samples = store.query(
                "SELECT uri AS path, id, split, label, content_hash, pixel_hash FROM images "
                "WHERE pixel_hash IS NOT NULL ORDER BY pixel_hash, id"
            )
        self._opener = partial(picture_opener, limits=self.limits, executor=Serial())
        self._open = self._opener(self._pictures["uri"], self._pictures["content_hash"])

    def find(self, path: str) -> pl.DataFrame:
        """Return the samples that show the picture of a file, the surest first.

        path, id, split, label, kind (bytes, pixels, near), score (log odds of near, else null),
        transformation (into the file). Raises UsageError for a file without a picture.
        """
        measured = Measurer(self.limits)([FileJob(path, "", path)])
        row = measured.features.to_pylist()[0]
        if row["pixel_hash"] is None:
            raise UsageError(f"{path} contains no image ({row['error']}): give an image file.")
        table = np.frombuffer(measured.signatures["signature"][0].as_py(), SIGNATURE_DTYPE)
        pairs, _ = search_against(
            table,
            [bytes.fromhex(row["pixel_hash"])],
            np.array([row["phash"]], np.uint64),
            self._library,
            open_new=self._opener([path], [row["content_hash"]]),
            open_library=self._open,
            quick=True,
        )
        near = {
            self._pictures["pixel_hash"][j]: (
                round(float(pairs.score[place]), 3),
                describe_pair(table[0], self._library.table[j], pairs, place).words,
            )
            for place, j in enumerate(pairs.pairs[:, 1].tolist())
        }
        near.pop(row["pixel_hash"], None)
        hashes, shown = self._samples["pixel_hash"], []
        for pixels in (row["pixel_hash"], *near):
            first, end = (int(hashes.search_sorted(pixels, side)) for side in ("left", "right"))
            shown.append(self._samples[first:end])
        found = pl.concat(shown)
        kinds = [
            "near" if pixels in near else "bytes" if content == row["content_hash"] else "pixels"
            for content, pixels in found.select("content_hash", "pixel_hash").iter_rows()
        ]
        more = [
            near.get(pixels, (None, f"same {kind}"))
            for pixels, kind in zip(found["pixel_hash"], kinds, strict=True)
        ]
        return (
            found.drop("content_hash", "pixel_hash")
            .with_columns(
                kind=pl.Series(kinds, dtype=pl.String),
                score=pl.Series([score for score, _ in more], dtype=pl.Float64),
                transformation=pl.Series([words for _, words in more], dtype=pl.String),
            )
            .sort(
                pl.col("kind").cast(pl.Enum(["bytes", "pixels", "near"])), -pl.col("score"), "id"
            )
        )  # fmt: skip
