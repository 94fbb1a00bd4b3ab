"""New splits without leaks: what belongs together stays together, and classes keep their shares.

Samples that show one picture (groups of near-duplicates, verified pairs, equal pixels, equal bytes)
and those of one group (patient, video) are one unit, joined over all of these at once; so are
numbered frames and bursts that look alike, which are seen only once they are torn. The largest
units go first, equal ones in the order that a seed draws, each to the split that has room for its
classes and lacks the largest part of them. That is iterative stratification (Sechidis, Tsoumakas
and Vlahavas 2011, On the stratification of multi-label data, ECML PKDD) of units that are not
torn. Seconds for 100,000 samples. Where samples are of many classes (objects, several labels),
`audit.exports.stratified` deals the units out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import blake3
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
    samples that are not to be parted either. `held`: the classes of each sample by id, where a
    sample may have many: then all of them get their shares, and the facts say how nearly.
    """
    units = join_units(samples, pairs, together)
    labels = [label or "" for label in samples["label"].to_list()]
    given = [None if request.resplit else s for s in samples["split"].to_list()]
    if not any(split is None for split in given):
        raise UsageError("All samples have a split: --resplit assigns new splits to all samples.")
    members = defaultdict[int, list[int]](list)
    for row, unit in enumerate(units):
        members[unit].append(row)
    splits, more = list[str | None](given), dict[str, Any]()
    if held is not None:
        more = _stratified(samples["id"].to_list(), splits, members, request, held)
    need = {} if held is not None else _needs(labels, given, request.shares)
    for unit in _order(members, samples["id"].to_list(), request.seed) if need else ():
        open_rows = [row for row in members[unit] if given[row] is None]
        if not open_rows:
            continue
        fixed = [given[row] for row in members[unit] if given[row] is not None]
        counts = Counter(labels[row] for row in open_rows)
        chosen = (
            Counter(fixed).most_common(1)[0][0]
            if fixed
            else _neediest(need, counts, request.shares)
        )
        for row in open_rows:
            splits[row] = chosen
        for label, n in counts.items():
            if chosen in need:
                need[str(chosen)][label] -= n
    facts = {
        "shares": dict(request.shares), "seed": request.seed, "resplit": request.resplit,
        "units": len(members),
        # that the given splits tear
        "torn": sum(len({splits[row] for row in rows}) > 1 for rows in members.values()),
        "counts": dict(Counter(splits)), **more,
        "missing": _missing(samples["id"].to_list(), labels, splits, request, held),
    }  # fmt: skip
    return samples.with_columns(pl.Series("split", splits, pl.String)), facts


MAX_NAMES = 20  # classes in a sentence; `missing` of the plan has all
Thing = tuple[str, str]
"""A class and what it is of: ("pictures", "cat") or ("objects", "car")."""


def _stratified(
    ids: Sequence[str], splits: list[str | None], members: Mapping[int, Sequence[int]],
    request: SplitRequest, held: Mapping[str, Mapping[Thing, int]],
) -> dict[str, Any]:  # fmt: skip
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
    made = stratify(matrix, shares, np.array(fixed), request.seed)
    for unit, s in zip(units, made.split.tolist(), strict=True):
        for row in unit if s >= 0 else ():
            splits[row] = splits[row] or names[s]
    off = np.abs(made.off[:, 1:])
    total_of = np.asarray(matrix.sum(0)).ravel()[1:]
    classes = [
        {"of": of, "class": name, "n": int(n), "off_by_pictures": round(float(x), 3)}
        for (of, name), n, x in zip(things[1:], total_of, off.max(0), strict=True)
    ]  # fmt: skip
    return {"classes": sorted(classes, key=lambda c: -float(str(c["off_by_pictures"])))}


def _missing(
    ids: Sequence[str], labels: Sequence[str], splits: Sequence[str | None],
    request: SplitRequest, held: Mapping[str, Mapping[Thing, int]] | None,
) -> dict[str, list[str]]:  # fmt: skip
    """Return the classes that have no sample in a split, by split; without the complete splits."""
    present: dict[str | None, set[str]] = {split: set() for split in (*request.shares, *splits)}
    for sample, label, split in zip(ids, labels, splits, strict=True):
        own = [name for _, name in held.get(sample, ())] if held is not None else [label]
        present[split].update(filter(None, own))
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
    head = f"{len(classes) - len(far):,} of {len(classes):,} classes have their share in each split"
    return (
        f"{head} to within one group of images. The largest deviation is {worst['class']} "
        f"({worst['n']:,} {worst['of']}): {worst['off_by_pictures']:.1f} times the largest group."
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
    parent = list(range(samples.height))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    first: dict[Hashable, int] = {}
    for name in ("unit", "content_hash", "pixel_hash", "group", "id"):
        for row, key in enumerate(samples[name].to_list()):
            if key is not None:
                other = first.setdefault((name, key), row)
                parent[root(row)] = root(other)
    alike = ([("pixel_hash", key) for key in pair] for pair in pairs)
    for keys in (*alike, *([("id", name) for name in ids] for ids in together)):
        known = [first[key] for key in keys if key in first]
        for row in known[1:]:
            parent[root(row)] = root(known[0])
    return [root(row) for row in range(samples.height)]


def _needs(
    labels: list[str], given: list[str | None], shares: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return how many samples of each class each split still lacks."""
    total = Counter(labels)
    have = Counter(zip(given, labels, strict=True))
    return {
        split: {label: share * n - have[split, label] for label, n in total.items()}
        for split, share in shares.items()
    }


def _order(members: Mapping[int, list[int]], ids: list[str], seed: int) -> list[int]:
    """Return the units, the largest first, equal ones in an order that the seed draws."""

    def drawn(unit: int) -> bytes:
        key = min(ids[row] for row in members[unit])
        return blake3.blake3(f"{seed}\0{key}".encode()).digest()

    return sorted(members, key=lambda unit: (-len(members[unit]), drawn(unit)))


def _neediest(
    need: Mapping[str, Mapping[str, float]], counts: Mapping[str, int], shares: Mapping[str, float]
) -> str:
    """Return the split that has room for most of a unit; of those the one that is least filled."""

    def shortfall(split: str) -> tuple[float, float]:
        room = sum(max(0.0, min(n, need[split][label])) for label, n in counts.items())
        return room, sum(n * need[split][label] for label, n in counts.items()) / shares[split]

    return max(need, key=shortfall)
