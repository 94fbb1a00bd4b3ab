"""New splits without leaks: what belongs together stays together, and classes keep their shares.

Samples of one image or one group (patient, video) are one unit; so are numbered frames and bursts
that look alike. `audit.exports.stratified` deals the units out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.exports.stratified import as_matrix, stratify
from audit.results.formatting import counted


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """Names and shares of the new splits; `resplit`: also of samples that have a split."""

    shares: Mapping[str, float]
    seed: int = 0
    resplit: bool = False


def parse_shares(text: str) -> dict[str, float]:
    """Return the shares of `train=.8,val=.1,test=.1`; raises UsageError unless they make 1."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        name = name.strip()
        if not name or name in shares or "/" in name or not 0 < number <= 1:
            raise UsageError(f"{part!r} is not a split: write train=.8,val=.1,test=.1.")
        shares[name] = number
    if not math.isclose(sum(shares.values()), 1.0, abs_tol=1e-6):
        raise UsageError(
            f"The shares of {text} sum to {sum(shares.values()):g}, but must sum to 1."
        )
    return shares


def assign_splits(
    samples: pl.DataFrame,
    request: SplitRequest,
    pairs: Iterable[tuple[str, str]] = (),
    together: Iterable[Sequence[str]] = (),
    held: Mapping[str, Mapping[Thing, int]] | None = None,
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Return the samples with their splits, and what was done: counts by split and class.

    `samples`: id, split, label, group, unit, content_hash, pixel_hash; `pairs` of pixel hashes
    show one picture. Without `resplit` a sample that has a
    split keeps it, and so does a unit that has one: its other samples follow. `together`: ids of
    samples that are not to be parted either. `held`: the classes of each sample by id (default:
    its label). The facts say how nearly each class has its share.
    """
    units = join_units(samples, pairs, together)
    ids = samples["id"].to_list()
    splits = [None if request.resplit else split for split in samples["split"].to_list()]
    if None not in splits:
        raise UsageError("All samples have a split: --resplit assigns new splits to all samples.")
    if held is None:
        labels = zip(ids, samples["label"].to_list(), strict=True)
        held = {sample: {("pictures", label): 1} for sample, label in labels if label}
    members = defaultdict[int, list[int]](list)
    for row, unit in enumerate(units):
        members[unit].append(row)
    classes = _stratified(ids, splits, members, request, held)
    facts = {
        "shares": dict(request.shares), "seed": request.seed, "resplit": request.resplit,
        "units": len(members),
        # that the given splits tear
        "torn": sum(len({splits[row] for row in rows}) > 1 for rows in members.values()),
        "counts": dict(Counter(splits)), "classes": classes,
        "missing": _missing(ids, splits, request, held),
    }  # fmt: skip
    return samples.with_columns(pl.Series("split", splits, pl.String)), facts


MAX_NAMES = 20  # classes in a sentence; `missing` of the plan has all
Thing = tuple[str, str]
"""A class and what it is of: ("pictures", "cat") or ("objects", "car")."""


def _stratified(
    ids: Sequence[str], splits: list[str | None], members: Mapping[int, Sequence[int]],
    request: SplitRequest, held: Mapping[str, Mapping[Thing, int]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Fill the splits so that every class has its share, and return how nearly it has."""
    names, units = list(request.shares), list(members.values())
    rows, fixed = [], []
    for unit in units:
        said = Counter(splits[row] for row in unit if splits[row] is not None).most_common(1)
        fixed.append(-1 if not said else names.index(said[0][0]) if said[0][0] in names else -2)
        total = Counter[Thing]({PICTURES: len(unit)})
        for row in unit:
            total.update(held.get(ids[row], {}))
        rows.append(total)
        for row in unit if said else ():
            splits[row] = splits[row] or said[0][0]
    matrix, things = as_matrix(rows)
    shares = np.array(list(request.shares.values()))
    split_of, lacking = stratify(matrix, shares, np.array(fixed), request.seed)
    for unit, s in zip(units, split_of.tolist(), strict=True):
        for row in unit if s >= 0 else ():
            splits[row] = splits[row] or names[s]
    off = np.abs(lacking[:, 1:])
    total_of = np.asarray(matrix.sum(0)).ravel()[1:]
    classes = [
        {"of": of, "class": name, "n": int(n), "off_by_pictures": round(float(x), 3)}
        for (of, name), n, x in zip(things[1:], total_of, off.max(0), strict=True)
    ]  # fmt: skip
    return sorted(classes, key=lambda c: -float(str(c["off_by_pictures"])))


def _missing(
    ids: Sequence[str], splits: Sequence[str | None], request: SplitRequest,
    held: Mapping[str, Mapping[Thing, int]],
) -> dict[str, list[str]]:  # fmt: skip
    """Return the classes that have no sample in a split, by split; without the complete splits."""
    present: dict[str | None, set[str]] = {split: set() for split in (*request.shares, *splits)}
    for sample, split in zip(ids, splits, strict=True):
        present[split].update(name for _, name in held.get(sample, ()))
    classes = set[str]().union(*present.values())
    return {
        split: sorted(classes - found)
        for split, found in present.items()
        if split and classes - found
    }


def missing_classes(facts: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each split in which classes have no sample."""
    sentences = []
    for split, classes in facts.get("missing", {}).items():
        names = ", ".join(classes[:MAX_NAMES])
        more = f" and {len(classes) - MAX_NAMES:,} more" if len(classes) > MAX_NAMES else ""
        verb = "has" if len(classes) == 1 else "have"
        sentences.append(
            f"{counted(len(classes), 'class')} {verb} no sample in {split}: {names}{more}."
        )
    return sentences


PICTURES: Thing = ("", "")  # the first of all: how many pictures


def evenness(facts: Mapping[str, Any]) -> str:
    """Return how nearly each class has its share, as a sentence; "" where nothing is known."""
    classes = facts.get("classes")
    if not classes:
        return ""
    far = [c for c in classes if c["off_by_pictures"] > 1]
    worst = classes[0]
    of = "objects" if worst["of"] == "objects" else "images"
    head = f"{len(classes) - len(far):,} of {len(classes):,} classes have their share in each split"
    return (
        f"{head} to within one group of images. The largest deviation is {worst['class']} "
        f"({worst['n']:,} {of}): {worst['off_by_pictures']:.1f} times the largest group."
    )


def assign_without_tearing(
    samples: pl.DataFrame,
    request: SplitRequest,
    pairs: Sequence[tuple[str, str]],
    find_torn: Callable[[pl.DataFrame], Iterable[Sequence[str]]],
    held: Mapping[str, Mapping[Thing, int]] | None = None,
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Assign splits, join what `find_torn` names in the result, and assign again until it is whole.

    `find_torn` gets the samples with their splits and returns ids that belong together. What given
    splits tear stays torn. The facts say how many such sets were joined: `sequences`.
    """
    together: list[Sequence[str]] = []
    while True:
        made, facts = assign_splits(samples, request, pairs, together, held)
        fresh = [ids for ids in map(tuple, find_torn(made)) if ids not in together]
        if not fresh or len(together) > samples.height:
            return made, {**facts, "sequences": len(together)}
        together += fresh


def join_units(
    samples: pl.DataFrame,
    pairs: Iterable[tuple[str, str]] = (),
    together: Iterable[Sequence[str]] = (),
) -> list[int]:
    """Return for each sample the number of its unit: samples that share any key, in chains."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    frame = samples.with_row_index("row")
    links = list[tuple[int, int]]()
    for name in ("unit", "content_hash", "pixel_hash", "group", "id"):
        known = frame.drop_nulls(name).select("row", first=pl.first("row").over(name))
        links += known.filter(pl.col("row") != pl.col("first")).rows()
    for name, chains in (("pixel_hash", pairs), ("id", together)):
        first = dict(frame.drop_nulls(name).select(name, "row").reverse().iter_rows())
        for keys in chains:
            links += pairwise(first[key] for key in keys if key in first)
    ends = np.array(links, np.int64).reshape(-1, 2).T
    graph = csr_array((np.ones(len(links)), tuple(ends)), shape=(len(frame), len(frame)))
    return [int(unit) for unit in connected_components(graph, directed=False)[1]]
