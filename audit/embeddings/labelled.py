"""Which pictures of a run have labels that are judged, and their classes by number.

A picture with two labels is left to LABEL005, two spellings of a class (LABEL002) count as one.
What belongs together (near-duplicates, and a manifest's groups: one patient, one film) gets one
number, and is judged by a model that saw none of its members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.class_names import fold_name

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
LEAST_PICTURES = 50
"""Labelled pictures below which nothing is said: a share of wrong labels cannot be told from 0."""
LEAST_CLASS = 10
"""Pictures of a class below which its labels are not judged, and suggest nothing."""
ATYPICAL = 5.0
"""Robust deviations beyond which the length of a vector makes it no example of any class."""
MOST_CELLS = 30_000_000
"""Judged pictures times classes: each is a probability, and takes about 50 bytes at the peak."""
MOST_CLASSES = 1_700
"""With more, a model could not see `LEAST_CLASS` pictures of each."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """The pictures (n,) with what is known of them.

    `labels` (n,): -1 where they are not judged, else numbers of `names`; `classes` (n,) like them,
    of pictures too that are not judged for what they look like; `groups` (n,) equal within what
    belongs together; `reason` why no label is judged at all, else empty; `conflicting`,
    `in_small_classes`, `atypical` and `not_drawn` count pictures.
    """

    rows: pl.DataFrame
    labels: Ints
    classes: Ints
    names: list[str]
    groups: Ints
    reason: str
    conflicting: int
    in_small_classes: int
    atypical: int
    not_drawn: int = 0


def find_atypical(vectors: Floats) -> npt.NDArray[np.bool_]:
    """Return which vectors are far longer than the rest: pictures that look like no class."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)).astype(np.float64)
    if not len(lengths):
        return np.zeros(0, np.bool_)
    middle = np.median(lengths)
    # 1.4826: of a normal distribution, the median distance from the middle is one deviation
    deviation = 1.4826 * np.median(np.abs(lengths - middle))
    return np.asarray(lengths > middle + ATYPICAL * deviation + 1e-6 * middle)


def label_pictures(
    rows: pl.DataFrame,
    atypical: npt.NDArray[np.bool_],
    probabilities: Floats | None = None,
) -> Labelled:
    """Return which pictures are judged, and their classes by number.

    Those that are `atypical` are not, nor those without `probabilities` (rows of NaN).
    """
    folded = [
        sorted({fold_name(name) for name in names or ()}) for names in rows["labels"].to_list()
    ]
    conflicting = sum(len(names) > 1 for names in folded)
    one = pl.Series([names[0] if len(names) == 1 else None for names in folded], dtype=pl.String)
    counts = {
        name: n for name, n in one.drop_nulls().value_counts().iter_rows() if n >= LEAST_CLASS
    }
    keys = sorted(counts)
    numbers = {key: number for number, key in enumerate(keys)}
    labels = np.array([numbers.get(name, -1) if name else -1 for name in one], np.int64)
    small = int(one.is_not_null().sum()) - int((labels >= 0).sum())
    odd = int((atypical & (labels >= 0)).sum())
    classes = labels.copy()
    labels[atypical] = -1
    if probabilities is not None:
        labels[np.isnan(probabilities).any(1)] = -1
    own = probabilities is not None
    labels, left = draw_judged(labels, len(keys), 0 if own else LEAST_CLASS)
    groups = number_groups(rows)
    judged = int((labels >= 0).sum())
    reason = ""
    if judged < LEAST_PICTURES:
        reason = (
            f"{judged:,} pictures in classes of {LEAST_CLASS} and more, but {LEAST_PICTURES} are "
            "needed"
        )
    elif len(keys) < 2:
        reason = f"there is one class of {LEAST_CLASS} pictures and more, and a label needs another"
    elif len(keys) > MOST_CLASSES and not own:
        reason = (
            f"{len(keys):,} classes are more than the {MOST_CLASSES:,} that memory is for; those "
            "of your own --predictions can be judged"
        )
    return Labelled(
        rows, labels, classes, _names(rows, one, keys), groups, reason, conflicting, small, odd,
        left,
    )  # fmt: skip


def draw_judged(labels: Ints, n_classes: int, least: int) -> tuple[Ints, int]:
    """Return the labels with those that are not drawn as -1, and how many: memory bounds them.

    Of every class the same share is drawn, but `least` of it.
    """
    there = np.flatnonzero(labels >= 0)
    share = MOST_CELLS / max(1, n_classes * len(there))
    if share >= 1:
        return labels, 0
    mixed = np.random.default_rng(0).permutation(there)
    by_class = mixed[np.argsort(labels[mixed], kind="stable")]
    sizes = np.bincount(labels[there], minlength=n_classes)
    position = np.arange(len(by_class)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = np.maximum((sizes * share).astype(np.int64), least)
    left_out = by_class[position >= np.repeat(wanted, sizes)]
    drawn = labels.copy()
    drawn[left_out] = -1
    return drawn, len(left_out)


def number_groups(rows: pl.DataFrame) -> Ints:
    """Return a number for each picture, equal for those joined by near-duplicates or group keys.

    A near-duplicate of a picture of one film joins another film to it: what a model saw of either
    is a copy of the other.
    """
    n = len(rows)
    units = rows["representative"].fill_null(rows["pixel_hash"]).to_list()
    places = np.unique(np.asarray(units, str), return_inverse=True)[1].astype(np.int64)
    tied = rows.select(pl.int_range(n).alias("row"), pl.col("group_keys").alias("key"))
    tied = tied.explode("key").drop_nulls("key")
    if not len(tied):
        return places
    at = tied["row"].to_numpy()
    keys = np.unique(tied["key"].to_numpy().astype(str), return_inverse=True)[1]
    found = np.arange(places.max() + 1)  # the least unit that each unit is joined to
    while True:
        least = np.full(keys.max() + 1, len(found))
        np.minimum.at(least, keys, found[places[at]])
        joined = found.copy()
        np.minimum.at(joined, places[at], least[keys])
        joined = joined[joined]
        if (joined == found).all():
            return np.unique(found[places], return_inverse=True)[1].astype(np.int64)
        found = joined


def _names(rows: pl.DataFrame, folded: pl.Series, keys: list[str]) -> list[str]:
    """Return for each key its most frequent spelling."""
    spelled = pl.DataFrame({"key": folded, "name": rows["labels"].list.first()}).drop_nulls()
    ranked = (
        spelled.group_by("key", "name").len().sort(["len", "name"], descending=[True, False])
        .unique("key", keep="first", maintain_order=True)
    )  # fmt: skip
    by_key = dict(ranked.select("key", "name").iter_rows())
    return [by_key[key] for key in keys]
