"""The whole search: candidates, verification, second looks, groups, and what was left undone.

Candidates are generous and come from two sides: every pair of perceptual hashes within a stated
radius (complete), and the k nearest by descriptor in any orientation (a stated cap; a burst of
forty shots is still found whole, through its representative). Each candidate is verified. Pairs
whose score lies near the threshold and whose files hold more than a thumbnail are looked at again,
nearest to the threshold first, up to a bound. Then groups.

Everything works in the order of the keys (content hashes), so neither the order of the input nor
the number of workers shows in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from audit.neighbors.calibration import LOWEST_THRESHOLD, Calibration, calibrate, planted_recall
from audit.neighbors.dense import EXACT_LIMIT, Neighbours, nearest
from audit.neighbors.descriptor import Descriptors, describe
from audit.neighbors.groups import Grouping, Pairs, group
from audit.neighbors.hamming import Codes, within_radius
from audit.neighbors.pair_cache import Fingerprints, Memory, contained, key_codes, pair_fingerprints
from audit.neighbors.rechecks import Opener, look_at_all, look_bound, worth_a_look
from audit.neighbors.thumbnails import Flag, Signatures, comparable
from audit.neighbors.turned import within_radius_turned
from audit.neighbors.verification import NO_MATCH, Floats, Verified, key_ranks, spread, verify

Advance = Callable[[float], None]
"""Gets the share of the work that is done, 0 to 1."""
# Shares of the work after which the slow steps end: neighbours, verification.
NEIGHBOURS_UNTIL, VERIFIED_UNTIL = 0.45, 0.95


@dataclass(frozen=True, slots=True)
class Options:
    """What the search may do.

    `radius`: bits within which all pairs of hashes are candidates; `turned`: of mirror images and
    quarter turns as well, at eight times the codes. `nearest`: neighbours by
    descriptor per image. `hash_pairs_per_image`: the radius is lowered until there are no more
    candidates than this. `looks`: most second looks (None: 500 or one image in fifty).
    `look_band`: distance of the score from the threshold within which a pair is looked at again.
    `threshold`: log odds (None: calibrated). `exact_limit`: images up to which the descriptor
    search is exact. `planted`: pictures on which known transformations are planted, to state the
    recall to expect (needs `open_picture`).
    """

    radius: int = 10
    turned: bool = False
    nearest: int = 12
    hash_pairs_per_image: int = 20
    looks: int | None = None
    look_band: float = 3.0
    threshold: float | None = None
    exact_limit: int = EXACT_LIMIT
    planted: int = 12
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Completeness:
    """What was compared, how, and what was left out.

    `hash_pairs`: pairs of images within `radius` bits of each other, all of them found. `exact`
    and `recall` speak of the descriptor search. `left_out`: reason -> images. `looks` of
    `looks_wanted` second looks were taken. `remembered` of the `verified` pairs had been refused
    by an earlier search and were not aligned again.
    """

    images: int
    compared: int
    radius: int
    hash_pairs: int
    hash_plan: str
    nearest: int
    exact: bool
    recall: float
    recall_sample: int
    verified: int
    looks: int
    looks_wanted: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    remembered: int = 0

    def sentences(self) -> tuple[str, ...]:
        """What to print, with the counts."""
        hashes = (
            f"All pairs of {self.compared:,} images with perceptual hashes within {self.radius} "
            f"bits were found ({self.hash_pairs:,}; {self.hash_plan})."
        )
        how = (
            "exactly"
            if self.exact
            else f"approximately (recall {self.recall:.1%} measured on {self.recall_sample} images)"
        )
        dense = f"The {self.nearest} nearest of each image by descriptor were found {how}."
        checked = f"{self.verified:,} candidate pairs were aligned and verified" + (
            f" ({self.remembered:,} of them by an earlier scan)." if self.remembered else "."
        )
        missed = self.looks_wanted - self.looks
        look = f"{self.looks:,} pairs had a second look at the files" + (
            f"; {missed:,} more deserved one." if missed else "."
        )
        out = [f"{count:,} images left out: {why}." for why, count in self.left_out.items()]
        return (hashes, dense, checked, look, *out)


@dataclass(frozen=True, slots=True)
class Relation:
    """Near-duplicate pairs, groups, neighbours, and how sure and complete all this is.

    `pairs`: the verified ones, `score` at or above the threshold. `looked` (m,): True where a
    second look decided. `neighbours` index rows of the input. `memory`: what was settled, to hand
    to the next search as `known`.
    """

    pairs: Verified
    looked: npt.NDArray[np.bool_]
    groups: Grouping
    neighbours: Neighbours
    calibration: Calibration
    completeness: Completeness
    memory: Memory = field(default_factory=Memory)


def relate(
    table: Signatures,
    keys: Sequence[bytes],
    hashes: Codes,
    *,
    options: Options | None = None,
    open_picture: Opener | None = None,
    known: Memory | None = None,
    advance: Advance = lambda share: None,
) -> Relation:
    """Find near-duplicates among images.

    `table` (n,) signatures; `keys` their content hashes, best distinct (collapse identical files
    first); `hashes` (n,) uint64 perceptual hashes; `open_picture` gives the larger pictures for
    second looks (None: none are taken); `known` is the `memory` of an earlier search.
    """
    chosen = options or Options()
    ranks = key_ranks(keys)
    order = np.argsort(ranks)
    work = _Work(table[order], [keys[i] for i in order], hashes[order], chosen)
    opener = None if open_picture is None else lambda row: open_picture(int(order[row]))
    return _restore(work.run(opener, known or Memory(), advance), order)


class _Work:
    """One search, rows in the order of the keys; holds what several steps share."""

    def __init__(
        self, table: Signatures, keys: list[bytes], hashes: Codes, options: Options
    ) -> None:
        self.table, self.keys, self.hashes, self.options = table, keys, hashes, options
        self.ranks = np.arange(len(table))
        self.usable = np.flatnonzero(comparable(table))
        self.descriptors: Descriptors = describe(table)
        self.threshold = 0.0
        self.settled: dict[tuple[int, int], bool] = {}
        self.more: list[Verified] = []  # what grouping asked for
        self.advance: Advance = lambda share: None

    def run(self, opener: Opener | None, known: Memory, advance: Advance) -> Relation:
        """All steps."""
        options, self.advance = self.options, advance
        calibration = calibrate(self.table, self.descriptors, self.ranks, seed=options.seed)
        calibration = self._with_recall(calibration, opener)
        self.threshold = calibration.threshold if options.threshold is None else options.threshold
        near = self._nearest()
        hash_pairs, radius, plan = self._hash_candidates()
        candidates = union(hash_pairs, neighbour_pairs(near))
        verified, refused, remembered = self._verify_new(candidates, known.refused)
        self._remember(known.looks)
        wanted = worth_a_look(self.table, verified, self.threshold, options.look_band)
        looks = self._look(verified, wanted, opener)
        scores = self._decided(verified)
        grouping = group(verified.pairs, scores, self._verify_more, self.threshold, self.keys)
        pairs, looked = self._kept(Verified.joined([verified, *self.more]))
        completeness = Completeness(
            len(self.table),
            len(self.usable),
            radius,
            len(hash_pairs),
            plan,
            options.nearest,
            near.exact,
            near.recall,
            near.sample,
            len(verified.pairs) + len(grouping.extra),
            looks,
            len(wanted),
            left_out(self.table),
            remembered,
        )
        settled = {
            (self.keys[a], self.keys[b]): 1.0 if same else -1.0
            for (a, b), same in self.settled.items()
        }
        memory = Memory(settled, refused)
        return Relation(pairs, looked, grouping, near, calibration, completeness, memory)

    def _with_recall(self, calibration: Calibration, opener: Opener | None) -> Calibration:
        """Add the recall to expect, from copies planted on a few pictures picked by seed."""
        if opener is None or not self.options.planted:
            return calibration
        rng = np.random.default_rng(self.options.seed)
        chosen = np.sort(rng.permutation(self.usable)[: self.options.planted])
        opened = {int(row): opener(int(row)) for row in chosen}
        pictures = {row: picture for row, picture in opened.items() if picture is not None}
        if not pictures:
            return calibration
        return planted_recall(
            calibration,
            self.table,
            self.descriptors,
            pictures,
            neighbours=self.options.nearest,
            look_band=self.options.look_band,
            seed=self.options.seed,
        )

    def _nearest(self) -> Neighbours:
        """Neighbours among usable rows, in row numbers of the whole table."""
        found = nearest(
            self.descriptors[self.usable],
            self.options.nearest,
            exact_limit=self.options.exact_limit,
            seed=self.options.seed,
            advance=lambda share: self.advance(NEIGHBOURS_UNTIL * share),
        )
        index = np.full((len(self.table), self.options.nearest), -1, np.int64)
        similarity = np.full(index.shape, -2.0, np.float32)
        index[self.usable] = np.where(found.index >= 0, self.usable[found.index], -1)
        similarity[self.usable] = found.similarity
        return replace(found, index=index, similarity=similarity)

    def _hash_candidates(self) -> tuple[Pairs, int, str]:
        """Pairs of usable rows within the radius, which shrinks where there would be too many."""
        if len(self.usable) < 2:
            return np.zeros((0, 2), np.int64), self.options.radius, "nothing to compare"
        found = within_radius(self.hashes[self.usable], self.options.radius)
        rows, distance = found.rows(chain_equal=True)
        limit = self.options.hash_pairs_per_image * len(self.usable)
        count = np.cumsum(np.bincount(distance, minlength=self.options.radius + 1))
        radius = self.options.radius
        while radius > 0 and count[radius] > limit:
            radius -= 1
        near = rows[distance <= radius]
        if not self.options.turned:
            return self.usable[near], radius, found.plan
        turned = within_radius_turned(self.table[self.usable], radius)
        return self.usable[union(near, turned)], radius, f"{found.plan}; in eight orientations"

    def _verify(self, pairs: Pairs) -> Verified:
        return verify(self.table, self.descriptors, pairs, self.ranks)

    def _verify_new(
        self, candidates: Pairs, refused: Fingerprints
    ) -> tuple[Verified, Fingerprints, int]:
        """Verify what was not refused before; return all, what is refused now, how many were."""
        least = min(self.threshold, LOWEST_THRESHOLD) - self.options.look_band
        prints = pair_fingerprints(key_codes(self.keys), candidates)
        old = contained(prints, refused)
        if self.threshold < LOWEST_THRESHOLD:
            old[:] = False
        span = VERIFIED_UNTIL - NEIGHBOURS_UNTIL
        fresh = verify(
            self.table,
            self.descriptors,
            candidates[~old],
            self.ranks,
            advance=lambda share: self.advance(NEIGHBOURS_UNTIL + span * share),
        )
        verified = spread(fresh, candidates, ~old)
        hopeless = np.sort(prints[verified.score < least])
        return verified, hopeless, int(old.sum())

    def _verify_more(self, pairs: Pairs) -> Floats:
        self.more.append(self._verify(pairs))
        return self._decided(self.more[-1])

    def _remember(self, known: Mapping[tuple[bytes, bytes], float]) -> None:
        """Translate what earlier second looks settled from keys to rows."""
        row = {key: k for k, key in enumerate(self.keys)}
        for (a, b), word in known.items():
            if a in row and b in row:
                self.settled[min(row[a], row[b]), max(row[a], row[b])] = word > 0

    def _look(self, verified: Verified, wanted: npt.NDArray[np.intp], opener: Opener | None) -> int:
        """Take second looks within the bound; return how many."""
        if opener is None:
            return 0
        rows = wanted[: look_bound(self.options.looks, len(self.table))]
        pairs = [tuple(sorted(pair)) for pair in verified.pairs[rows].tolist()]
        fresh = [k for k, pair in enumerate(pairs) if pair not in self.settled]
        words = look_at_all(verified, rows[fresh], opener)
        for k, same in zip(fresh, words, strict=True):
            if same is not None:
                self.settled[pairs[k]] = same
        return len(rows)

    def _decided(self, verified: Verified) -> Floats:
        """Scores, overruled where a second look settled the matter."""
        score = verified.score.copy()
        if self.settled:
            for k, (a, b) in enumerate(np.sort(verified.pairs, axis=1).tolist()):
                word = self.settled.get((a, b))
                if word is not None:
                    level = max(score[k], self.threshold) if word else NO_MATCH
                    score[k] = level
        return score

    def _kept(self, verified: Verified) -> tuple[Verified, npt.NDArray[np.bool_]]:
        """Pairs at or above the threshold, and which of them a second look settled."""
        score = self._decided(verified)
        rows = np.flatnonzero(score >= self.threshold)
        kept = replace(verified.take(rows), score=score[rows])
        looked = np.array([tuple(sorted(p)) in self.settled for p in kept.pairs.tolist()], bool)
        return kept, looked


def left_out(table: Signatures) -> dict[str, int]:
    """Count the images that are compared with nothing, by reason."""
    flags = table["flags"]
    transparent = (flags & Flag.TRANSPARENT) != 0
    flat = ((flags & Flag.FLAT) != 0) & ~transparent
    counts = {
        "one colour or nearly (nothing to align)": int(flat.sum()),
        "transparent (hardly an opaque pixel)": int(transparent.sum()),
    }
    return {why: count for why, count in counts.items() if count}


def neighbour_pairs(near: Neighbours) -> Pairs:
    """List (row, neighbour) of a table of neighbours."""
    row = np.repeat(np.arange(len(near.index)), near.index.shape[1])
    other = near.index.ravel()
    return np.stack([row, other], axis=1)[other >= 0]


def union(*parts: Pairs) -> Pairs:
    """Distinct pairs, smaller row first, sorted."""
    pairs = np.sort(np.concatenate([p.reshape(-1, 2) for p in parts]), axis=1)
    return np.unique(pairs, axis=0) if len(pairs) else pairs.astype(np.int64)


def _restore(relation: Relation, order: npt.NDArray[np.intp]) -> Relation:
    """Translate row numbers from the order of the keys back to the order of the input."""
    pairs = replace(relation.pairs, pairs=order[relation.pairs.pairs])
    stars = tuple(
        type(star)(
            int(order[star.representative]), tuple(int(order[m]) for m in star.members), star.scores
        )
        for star in relation.groups.stars
    )
    groups = replace(relation.groups, stars=stars, extra=order[relation.groups.extra])
    near = relation.neighbours
    index, similarity = np.empty_like(near.index), np.empty_like(near.similarity)
    index[order] = np.where(near.index >= 0, order[near.index], -1)
    similarity[order] = near.similarity
    neighbours = replace(near, index=index, similarity=similarity)
    return replace(relation, pairs=pairs, groups=groups, neighbours=neighbours)
