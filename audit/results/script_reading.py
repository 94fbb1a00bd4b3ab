"""What a training script reads of a dataset: the files that it opened, joined with the samples."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl

from audit.results.evaluation import read_units
from audit.results.results import Results
from audit.sources.paths import file_of

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
LARGE_PIXELS = 20_000_000
MAX_UNREAD = 0.02  # share of the images that a sampler may leave out of an epoch


@dataclass(frozen=True, slots=True)
class ScriptReading:
    """Counts of images. `known`: whether the script opened any file of the dataset.

    `training`: images outside of the evaluation splits; `unread` of them were not opened, most of
    class `unread_class`. `trained_evaluation`: images by evaluation split that are read for
    training and for evaluation. `evaluated`: images that are read for evaluation alone; `copies` of
    them are in a duplicate group with a training image. `foreign`: images outside of the dataset,
    in `foreign_folder`. `large`: files of more than 20 megapixels, which hold a share of pixels.
    """

    known: bool
    damaged: int
    training: int
    unread: int
    unread_class: str
    trained_evaluation: dict[str, int]
    evaluated: int
    copies: int
    foreign: int
    foreign_folder: str
    large: int
    large_share: float

    def sentences(self, script: str, complete: bool) -> tuple[str, ...]:
        """Return sentences about damaged images that are read, and images that never are.

        `complete`: whether the script read its training data to the end of an epoch.
        """
        found = []
        if self.damaged:
            found.append(f"{script} reads {self.damaged} of the damaged files.")
        if self.known and complete and self.unread > MAX_UNREAD * self.training:
            most = f", most of class {self.unread_class}" * bool(self.unread_class)
            images = f"{self.unread} of {self.training} training images"
            found.append(f"{images} were not read in an epoch{most}.")
        return tuple(found)

    def evaluation_problems(self, script: str, max_leak: float) -> list[str]:
        """Return why images that the script evaluates on are not unseen by the training.

        `max_leak`: share of the images that may be copies of training images.
        """
        trained = self.trained_evaluation.items()
        found = [f"{script} trains on {n} images of {split}." for split, n in trained]
        if self.copies > max_leak * self.evaluated:
            found.append(
                f"{self.copies} of {self.evaluated} images that {script} evaluates on are copies "
                "of images that it trains on (SPLIT001)."
            )
        return found


def join_reading(
    results: Results,
    trained: Collection[str],
    evaluated: Collection[str],
    others: Collection[str],
    evaluation_splits: Sequence[str],
) -> ScriptReading:
    """Return what was read; paths by the loader that opened them: training, evaluation, others."""
    images, folders = results.images(), dict[str, str]()

    def real(path: str) -> str:
        folder, name = os.path.split(path)
        return os.path.join(folders.setdefault(folder, os.path.realpath(folder)), name)

    files = [real(file_of(uri) or "") for uri in images["path"]]
    opened = {"trained": set(map(real, trained)), "evaluated": set(map(real, evaluated))}
    opened["read"] = opened["trained"] | opened["evaluated"] | set(map(real, others))
    flags = {name: [file in paths for file in files] for name, paths in opened.items()}
    images = images.hstack(pl.DataFrame(flags)).with_columns(good=pl.col("status") == "ok")
    evaluation = pl.col("split").is_in(evaluation_splits).fill_null(False)
    training = images.filter(~evaluation & pl.col("good"))
    unread = training.filter(~pl.col("read"))
    classes = unread["label"].drop_nulls().value_counts(sort=True)
    both = images.filter(evaluation & pl.col("trained") & pl.col("evaluated"))
    held_out = images.filter(pl.col("evaluated") & ~pl.col("trained") & pl.col("good"))
    units = read_units(results).select("unit", id="sample_id")
    seen = units.join(images.filter("trained"), on="id", how="semi")
    copies = units.join(held_out, on="id", how="semi").join(seen, on="unit", how="semi")
    foreign = [p for p in opened["read"] - set(files) if p.lower().endswith(IMAGE_ENDINGS)]
    pixels = images.filter("read")["pixels"].drop_nulls()
    large = pixels.filter(pixels > LARGE_PIXELS)
    return ScriptReading(
        known=bool(images["read"].any()),
        damaged=images.filter(pl.col("read") & ~pl.col("good")).height,
        training=training.height,
        unread=unread.height,
        unread_class=str(classes["label"][0]) if len(classes) else "",
        trained_evaluation=dict(both["split"].value_counts().iter_rows()),
        evaluated=held_out.height,
        copies=copies.height,
        foreign=len(foreign),
        foreign_folder=os.path.commonpath([os.path.dirname(p) for p in foreign]) if foreign else "",
        large=len(large),
        large_share=float(large.sum()) / max(1.0, float(pixels.sum())),
    )
