"""The whole search: candidates, verification, full-resolution checks, groups.

Candidates are every pair of perceptual hashes within a stated radius (complete), the k nearest by
descriptor in any orientation (a stated cap), and pairs that share the middle only (`centres`). Each
is verified; pairs near the threshold are checked at full resolution, nearest first, up to a bound.
Everything works in the order of the keys (content hashes), and what the bounds cost is stored with
the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from audit.machine.executors import give_back_freed_memory, keep_no_freed_memory
from audit.machine.sharing import Advance, ignore_share
from audit.neighbors.calibration import (
    LEAST_SOURCES,
    USUAL_WEIGHT,
    Calibration,
    calibrate,
    measure_recall,
)
from audit.neighbors.candidates import (
    Places,
    contains_pairs,
    find_hash_pairs,
    merge_pairs,
    neighbour_pairs,
)
from audit.neighbors.centres import (
    NONE,
    SameCentres,
    describe_by_middles,
    find_same_centres,
    framed_pairs,
)
from audit.neighbors.dense import (
    EXACT_LIMIT,
    Neighbours,
    find_nearest,
    find_nearest_again,
)
from audit.neighbors.descriptor import describe
from audit.neighbors.groups import Grouping, Pairs, group_pictures
from audit.neighbors.hamming import Codes
from audit.neighbors.inspection import (
    CONFIRMED,
    SAME_ABOVE,
    Opener,
    Overruled,
    measure_strangers,
    pairs_of_drawings,
    recheck_limit,
    select_rechecks,
)
from audit.neighbors.pair_cache import (
    Fingerprints,
    KnownCentres,
    KnownCodes,
    KnownNeighbours,
    KnownPairs,
    KnownRecall,
    PairCache,
    find_contained,
    key_codes,
    pair_fingerprints,
    surrounded_codes,
)
from audit.neighbors.strangers import choose_pool, name_strangers, weigh
from audit.neighbors.verification import (
    LINKED,
    NO_MATCH,
    NOT_ALIGNED,
    ExaminedPairs,
    Floats,
    VerifiedPairs,
    examine_pairs,
    verify,
)
from audit.picture.signatures import Flag, Signatures, is_comparable

# Shares of the work after which the slow steps end: neighbours, verification.
NEIGHBOURS_UNTIL, VERIFIED_UNTIL = 0.45, 0.95
Flags = npt.NDArray[np.bool_]
GATE_FROM = 500
"""With fewer pictures every candidate is aligned: the gate loses shots of a burst more often than
changed copies, and these few are worth the price."""
PICTURES_PER_SOURCE = 50
WEIGHED_TOGETHER = 5000
"""Pairs that are weighed against strangers, the most alike first, until none of so many could be
called a copy. Only digits and the like have more that come near: at 1 ms each."""
PICTURES_PER_WEIGHED = 20
"""One pair for so many pictures is weighed in any case: of a large set the first thousands are all
copies, and say nothing of strangers."""
KEPT_FROM = 1_000
"""Pictures from which neighbours and near pairs are kept for the next search: of fewer they are
found as quickly."""
MOST_CHANGED = 0.25
"""Share of the pictures that may come or go until the recall is measured anew: it moves by less
than the interval of one that is measured on a few pictures."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What the search may do.

    `radius`: bits within which all pairs of hashes are candidates; `turned`: of mirror images and
    quarter turns as well. `nearest`: neighbours by descriptor per image. `hash_pairs_per_image`:
    the radius is lowered until there are no more candidates. `rechecks`: most full-resolution
    checks (None: 500 or one image in fifty). `uncertainty_band`: distance of the score from the
    threshold within which a pair is checked. `exact_limit`: images up to which the descriptor
    search is exact. `gate_from`: images from which candidates pass a gate. `synthetic_sources`:
    most pictures of which duplicates are made, to state the recall (needs `open_picture`);
    `recall_from`: images from which that is done.
    """

    radius: int = 10
    turned: bool = False
    nearest: int = 12
    hash_pairs_per_image: int = 20
    rechecks: int | None = None
    uncertainty_band: float = 3.0
    exact_limit: int = EXACT_LIMIT
    gate_from: int = GATE_FROM
    synthetic_sources: int = 12
    recall_from: int = 1_000


@dataclass(frozen=True, slots=True)
class Relation:
    """Near-duplicate pairs, groups, neighbours, and how sure and complete all this is.

    `pairs`: the verified ones, `score` at or above the threshold. `verified_full_size` (m,): True
    where a full-resolution check decided, and `verdicts` what, by keys. `neighbours` index rows of
    the input. `cache`: what was decided, to hand to the next search as `known`.
    """

    pairs: VerifiedPairs
    verified_full_size: npt.NDArray[np.bool_]
    grouping: Grouping
    neighbours: Neighbours
    calibration: Calibration
    completeness: Completeness
    cache: PairCache = field(default_factory=PairCache)
    verdicts: Mapping[tuple[bytes, bytes], bool] = field(default_factory=dict)


def find_near_duplicates(
    table: Signatures,
    keys: Sequence[bytes],
    hashes: Codes,
    *,
    more_hashes: Mapping[str, Codes] | None = None,
    options: SearchOptions | None = None,
    open_picture: Opener | None = None,
    known: PairCache | None = None,
    advance: Advance = ignore_share,
) -> Relation:
    """Find near-duplicates among images, which are in the order of their keys.

    `table` (n,) signatures; `keys` their content hashes, best distinct; `hashes` (n,) uint64
    perceptual hashes; `more_hashes` others by name, whose close pairs are candidates too;
    `open_picture` gives the larger pictures (None: no full-resolution checks); `known` is the
    `cache` of an earlier search.
    """
    chosen = options or SearchOptions()
    if len(table) > chosen.exact_limit:
        keep_no_freed_memory()
    search = _Search(table, keys, hashes, more_hashes, chosen, advance)
    return search.run(open_picture, known or PairCache())


def expect_recall(
    calibration: Calibration,
    table: Signatures,
    keys: Sequence[bytes],
    opener: Opener,
    options: SearchOptions | None = None,
) -> Calibration:
    """Add to the calibration of an earlier search what share of changed copies it finds.

    `table` (n,) signatures in the order of their `keys`; `opener` gives the pictures.
    """
    asked = replace(options or SearchOptions(), recall_from=0)
    search = _Search(table, keys, np.zeros(len(table), np.uint64), None, asked)
    return search.with_recall(calibration, opener)


class _Search:
    """One search, rows in the order of the keys; holds what several steps share."""

    def __init__(
        self,
        table: Signatures,
        keys: Sequence[bytes],
        hashes: Codes,
        more_hashes: Mapping[str, Codes] | None,
        options: SearchOptions,
        advance: Advance = ignore_share,
    ) -> None:
        self.table, self.keys, self.hashes, self.options = table, keys, hashes, options
        self.more_hashes = more_hashes or {}
        self.advance = advance
        self.ranks = np.arange(len(table))
        self.usable = np.flatnonzero(is_comparable(table))
        self.descriptors = describe(table, self.usable)
        self.codes = self.around = key_codes(keys)
        self.pool = choose_pool(self.usable, self.codes)
        self.background: Floats | None = None  # what the gate needs; None: every pair is aligned
        self.more: list[VerifiedPairs] = []  # what grouping had verified on its way

    def run(self, opener: Opener | None, known: PairCache) -> Relation:
        """All steps."""
        options = self.options
        near = self._neighbours(known.neighbours)
        if len(self.usable) >= options.gate_from:
            self.background = near.similarity[:, -1].astype(np.float64)
            if near.exact:  # else they would be others at the next search
                self.around = surrounded_codes(self.codes, self.background)
        hash_pairs, radius, plan, known_hashes = self._hash_pairs(known.hashes)
        framed, middles, known_centres = self._compare_centres(known.centres)
        overruled = Overruled(self.keys, known.rechecks, framed)
        in_middle = np.array(list(framed), np.int64).reshape(-1, 2)
        candidates = merge_pairs(hash_pairs, neighbour_pairs(near), in_middle)
        n_hash_pairs = len(hash_pairs)
        del hash_pairs
        give_back_freed_memory()
        looked = self._examine(candidates, in_middle, known)
        examined, before = looked.examined, looked.rejected
        places, weighed, calibration = self._weigh_promising(looked, overruled)
        calibration = self.with_recall(calibration, opener, known.recall)
        threshold = calibration.threshold
        uncertain = select_rechecks(self.table, weighed, threshold, options.uncertainty_band)
        most = recheck_limit(options.rechecks, len(self.table))
        least = SAME_ABOVE
        if opener is not None and len(uncertain) and calibration.strangers >= USUAL_WEIGHT:
            least = max(least, measure_strangers(self.table, weighed, threshold, opener))
        sure = select_rechecks(self.table, weighed, threshold, np.inf, options.uncertainty_band)
        rechecks = overruled.check(weighed, uncertain[:most], opener, least)
        beyond = 0
        if opener is not None:
            drawn = np.flatnonzero(pairs_of_drawings(self.table, weighed.pairs))
            sure = np.concatenate([np.intersect1d(uncertain[most:], drawn), sure])
            beyond = overruled.check_sure(weighed, sure, opener, most)
            less = drawn[weighed.score[drawn] < threshold - CONFIRMED]
            less = less[np.argsort(-weighed.score[less], kind="stable")]
            overruled.find_equal_drawings(weighed, less[: max(most - rechecks, 0)], opener)
        # groups come after the checks: a pair that a check overruled must not hold a group together
        scores = np.full(len(examined.pairs), NO_MATCH)
        scores[examined.places[places]] = overruled.scores(weighed, threshold)
        gated = int((examined.score == NOT_ALIGNED).sum()) + looked.gated
        unweighed = len(examined.places) - len(places)
        pairs, known_pairs = examined.pairs, self._known_pairs(looked)
        del examined, candidates
        if len(before):  # what an earlier search rejected is as good as given up
            pairs = np.concatenate([pairs, before])
            scores = np.concatenate([scores, np.full(len(before), NO_MATCH)])

        def verify_more(pairs: Pairs) -> Floats:
            around = self.background
            found = verify(self.table, self.descriptors, pairs, self.ranks, background=around)
            self.more.append(found := self._weigh(found))
            near = np.flatnonzero(found.score >= threshold)
            drawn = near[pairs_of_drawings(self.table, found.pairs[near])]
            overruled.check(found, drawn, opener, least)
            return overruled.scores(self.more[-1], threshold)

        grouping = group_pictures(pairs, scores, verify_more, threshold, self.keys)
        joined = VerifiedPairs.joined([weighed, *self.more])
        final = overruled.scores(joined, threshold)
        found = np.flatnonzero(final >= threshold)
        described = describe_by_middles(joined.take(found), framed, threshold)
        same = replace(described, score=final[found])
        completeness = Completeness(
            images=len(self.table),
            compared_images=len(self.usable),
            radius=radius,
            hash_pairs=n_hash_pairs,
            hash_plan=plan,
            nearest=options.nearest,
            exact=near.exact,
            recall=near.recall,
            recall_sample=near.sample,
            verified_pairs=len(pairs) + len(grouping.extra),
            gated_pairs=gated,
            unweighed_pairs=unweighed,
            rechecks=rechecks + beyond,
            rechecks_wanted=len(uncertain) + beyond,
            left_out=count_left_out(self.table["flags"]),
            rejected_before=len(before) - looked.gated,
            middles=middles,
        )
        kept = None
        if near.exact and self._kept():
            kept = KnownNeighbours(self.codes, near.index.astype(np.int32), near.similarity)
        cache = PairCache(
            overruled.by_keys(), looked.prints, neighbours=kept, pairs=known_pairs,
            hashes=known_hashes, centres=known_centres,
        )  # fmt: skip
        by_check = overruled.by_check(same.pairs)
        keys, verdicts = self.keys, overruled.verdicts
        decided = {(keys[a], keys[b]): v > 0 for (a, b), v in verdicts.items() if v}
        return Relation(same, by_check, grouping, near, calibration, completeness, cache, decided)

    def _weigh_promising(
        self, looked: _Looked, overruled: Overruled
    ) -> tuple[Places, VerifiedPairs, Calibration]:
        """Weigh the pairs that were kept, the most alike first, until many in turn are not alike.

        Returns their places among those kept, the pairs, and the threshold that follows from them.
        What was weighed is noted for the next search.
        """
        examined = looked.examined
        score = examined.score[examined.places]
        concerned = overruled.concerns(examined.pairs[examined.places])
        order, end, calibration = np.lexsort((-score, ~concerned)), 0, calibrate(np.zeros(0))
        for end in range(WEIGHED_TOGETHER, len(order) + WEIGHED_TOGETHER, WEIGHED_TOGETHER):
            part = np.sort(order[end - WEIGHED_TOGETHER : end])
            fresh = part[np.isnan(looked.weighed[part])]
            looked.weighed[fresh] = self._weigh(examined.whole(fresh)).score
            calibration = calibrate(looked.weighed[order[:end]])
            barren = not (looked.weighed[part] >= calibration.threshold).any()
            if barren and end * PICTURES_PER_WEIGHED >= len(self.table):
                break
        places = np.sort(order[:end])
        weighed = replace(examined.whole(places), score=looked.weighed[places])
        return places, weighed, calibration

    def _weigh(self, verified: VerifiedPairs) -> VerifiedPairs:
        """Return pairs with their final scores: against what strangers of this set share."""
        return weigh(verified, self.table, self.descriptors, self.pool)

    def with_recall(
        self, calibration: Calibration, opener: Opener | None, known: KnownRecall | None = None
    ) -> Calibration:
        """Add the recall to expect, from duplicates made of a few pictures.

        What an earlier search measured stands while most pictures are those of then.
        """
        options = self.options
        if opener is None or not options.synthetic_sources:
            return calibration
        if known is not None and known.changed <= len(self.table) * MOST_CHANGED:
            return replace(
                calibration,
                recall=known.recall,
                synthetic_copies=known.copies,
                recall_age=known.changed,
            )
        if len(self.usable) < options.recall_from:
            return calibration
        rng = np.random.default_rng(0)
        # each is changed in 29 ways: of few pictures, many would take longer than the search
        most = max(LEAST_SOURCES, len(self.usable) // PICTURES_PER_SOURCE)
        most = min(most, options.synthetic_sources)
        sources = rng.permutation(self.usable)[:most].tolist()
        opened = ((row, opener(row)) for row in sources)
        pictures = ((row, picture) for row, picture in opened if picture is not None)
        return measure_recall(
            calibration,
            self.table,
            self.descriptors,
            pictures,
            pool=self.pool,
            neighbours=options.nearest,
            uncertainty_band=options.uncertainty_band,
            gated=len(self.usable) >= options.gate_from,
        )

    def _neighbours(self, known: KnownNeighbours | None) -> Neighbours:
        k, near = self.options.nearest, None
        exact = len(self.usable) <= self.options.exact_limit
        if known is not None and exact and known.index.shape[1] == k:
            near = self._neighbours_again(known)
        if near is None:
            near = find_nearest(
                self.descriptors,
                k,
                rows=self.usable,
                exact_limit=self.options.exact_limit,
                advance=lambda share: self.advance(NEIGHBOURS_UNTIL * share),
            )
        give_back_freed_memory()
        return near

    def _neighbours_again(self, known: KnownNeighbours) -> Neighbours | None:
        """Return the neighbours of before, brought up to date; None where too much changed."""
        index, similarity, new, lost = known.carried_over(self.codes)
        usable = np.zeros(len(new), np.bool_)
        usable[self.usable] = True
        if (new | lost).mean() > MOST_CHANGED:
            return None
        return find_nearest_again(
            self.descriptors, self.usable, index, similarity,
            np.flatnonzero(new & usable), np.flatnonzero(lost & usable),
        )  # fmt: skip

    def _known_pairs(self, looked: _Looked) -> KnownPairs | None:
        """Return what is known of the pairs that came near, for the next search."""
        if not self._kept():
            return None
        examined = looked.examined
        prints = pair_fingerprints(self.around, examined.pairs[examined.places])
        order = np.argsort(prints)
        score, weighed = examined.score[examined.places], looked.weighed
        strangers = self._name_strangers(examined, ~np.isnan(weighed))
        return KnownPairs(
            prints[order], score[order], weighed[order], examined.packed[order], strangers[order]
        )

    def _name_strangers(self, examined: ExaminedPairs, asked: Flags) -> Fingerprints:
        """Return digests of the strangers of those that are kept and `asked` for, else 0."""
        names = np.zeros(len(asked), np.uint64)
        pairs = examined.whole(np.flatnonzero(asked))
        names[asked] = name_strangers(pairs, self.table, self.descriptors, self.pool, self.codes)
        return names

    def _kept(self) -> bool:
        """Say whether what is found is kept for the next search."""
        return len(self.table) >= KEPT_FROM and len(self.usable) <= self.options.exact_limit

    def _compare_centres(
        self, known: KnownCentres | None
    ) -> tuple[dict[tuple[int, int], float], str, KnownCentres | None]:
        """Find the pairs that share the middle; return why not, where they are not looked for, and
        what the next search can use.
        """
        limit, found = self.options.exact_limit, SameCentres(*NONE)
        if len(self.usable) <= limit:
            codes = self.codes[self.usable] if self._kept() else None
            found = find_same_centres(self.table[self.usable], codes=codes, known=known)
        why_not = why_no_middles(len(self.usable), limit, found.telling)
        return framed_pairs(found, self.usable), why_not, found.known

    def _hash_pairs(self, known: KnownCodes | None) -> tuple[Pairs, int, str, KnownCodes | None]:
        """Pairs of usable rows within the radius, which shrinks where there would be too many; and
        what the next search can use.
        """
        asked = self.options.radius
        if len(self.usable) < 2:
            return np.zeros((0, 2), np.int64), asked, "nothing to compare", None
        limit = self.options.hash_pairs_per_image * len(self.usable)
        find = partial(find_hash_pairs, self.table, self.usable, radius=asked, limit=limit)
        pairs, radius, search, plan = find(self.hashes, turned=self.options.turned, known=known)
        kept = search.known(asked) if self._kept() and len(search.first) <= limit else None
        for name, codes in self.more_hashes.items():
            # only phash is taken of signatures, in all orientations
            others, reach, *_ = find(codes, turned=False)
            pairs, plan = merge_pairs(pairs, others), f"{plan}; also {name} within {reach} bits"
        return pairs, radius, plan, kept

    def _examine(self, candidates: Pairs, in_middle: Pairs, known: PairCache) -> _Looked:
        """Verify the pairs of which an earlier search does not know enough."""
        prints = pair_fingerprints(self.codes, candidates)
        kept = self.around is not self.codes  # what the gate refuses
        around = pair_fingerprints(self.around, candidates) if kept else prints
        # the whole of a pair that shares the middle may have been rejected, and is described
        framed = contains_pairs(candidates, in_middle)
        before = find_contained(prints, known.rejected_pairs) & ~framed
        gated = find_contained(around, known.rejected_pairs) & ~framed & ~before
        fresh = ~(before | gated)
        asked, at = candidates[fresh], around[fresh]
        examined, weighed = self._score(asked, framed[fresh], at, known.pairs)
        hopeless = (examined.score < LINKED) & (examined.score > NOT_ALIGNED)
        decided = [prints[before], around[gated], prints[fresh][hopeless]]
        if kept:
            decided.append(at[examined.score == NOT_ALIGNED])
        rejected = candidates[~fresh]
        return _Looked(
            examined, weighed, rejected, int(gated.sum()), np.unique(np.concatenate(decided))
        )

    def _score(
        self, pairs: Pairs, keep: Flags, prints: Fingerprints, known: KnownPairs | None
    ) -> tuple[ExaminedPairs, Floats]:
        """Score pairs, those that an earlier search knows without aligning them.

        Returns what was found, and what those that are kept weighed then (NaN: not weighed).
        """
        there = np.zeros(len(pairs), np.bool_)
        if known is not None:
            there = find_contained(prints, known.prints)
        span = VERIFIED_UNTIL - NEIGHBOURS_UNTIL
        found = examine_pairs(
            self.table,
            self.descriptors,
            pairs[~there] if there.any() else pairs,
            background=self.background,
            keep=keep[~there],
            advance=lambda share: self.advance(NEIGHBOURS_UNTIL + span * share),
        )
        weighed = np.full(len(found.places), np.nan)
        if known is None or not there.any():
            return found, weighed
        row = np.searchsorted(known.prints, prints[there])
        score = np.empty(len(pairs))
        score[there], score[~there] = known.score[row], found.score
        stays = (known.score[row] >= LINKED) | keep[there]
        near, row = np.flatnonzero(there)[stays], row[stays]
        places = np.concatenate([np.flatnonzero(~there)[found.places], near])
        packed = np.concatenate([found.packed, known.packed[row]])
        order = np.argsort(places)
        joined = ExaminedPairs(pairs, score, places[order], packed[order])
        before = np.concatenate([np.zeros(len(weighed), np.uint64), known.strangers[row]])[order]
        weighed = np.concatenate([weighed, known.weighed[row]])[order]
        weighed[self._name_strangers(joined, ~np.isnan(weighed)) != before] = np.nan
        return joined, weighed


@dataclass(frozen=True, slots=True)
class _Looked:
    """The candidates `examined`, and what those that are kept weighed in an earlier search;
    those that it had `rejected`, `gated` of them by the gate; fingerprints of all rejected now.
    """

    examined: ExaminedPairs
    weighed: Floats
    rejected: Pairs
    gated: int
    prints: Fingerprints


@dataclass(frozen=True, slots=True)
class Completeness:
    """What was compared, how, and what was left out.

    `hash_pairs`: pairs within `radius` bits, all of them found. `exact` and `recall` describe the
    descriptor search. `left_out`: reason -> images. `rechecks` of `rechecks_wanted` full-resolution
    checks were made. Of the `verified_pairs`, `rejected_before` were rejected by an earlier search
    and `gated_pairs` by the gate; `unweighed_pairs` were left out as more alike ones were too many.
    `middles`: why pairs that share the middle only were not looked for.
    """

    images: int
    compared_images: int
    radius: int
    hash_pairs: int
    hash_plan: str
    nearest: int
    exact: bool
    recall: float
    recall_sample: int
    verified_pairs: int
    rechecks: int
    rechecks_wanted: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    rejected_before: int = 0
    gated_pairs: int = 0
    unweighed_pairs: int = 0
    middles: str = ""

    def sentences(self) -> tuple[str, ...]:
        """What to print, with the counts."""
        hashes = (
            f"All pairs of {self.compared_images:,} images with perceptual hashes within "
            f"{self.radius} bits were found ({self.hash_pairs:,}; {self.hash_plan})."
        )
        how = (
            "exactly"
            if self.exact
            else f"approximately (recall {self.recall:.1%} measured on {self.recall_sample} images)"
        )
        dense = f"The {self.nearest} nearest of each image by descriptor were found {how}."
        earlier = f" ({self.rejected_before:,} of them by an earlier scan)"
        gated = f"; the prefilter rejected {self.gated_pairs:,} (it loses at most 1 pair in 2,000)"
        aligned = (
            f"{self.verified_pairs:,} candidate pairs were aligned and verified"
            f"{earlier if self.rejected_before else ''}{gated if self.gated_pairs else ''}."
        )
        framed = (
            "Copies in a soft frame or on another background were not searched (they share the "
            f"centre only): {self.middles}."
        )
        unweighed = (
            f"{self.unweighed_pairs:,} more pairs look alike, but no more than unrelated images of "
            "this dataset; not reported."
        )
        left = [f"{count:,} images left out: {why}." for why, count in self.left_out.items()]
        missed = self.rechecks_wanted - self.rechecks
        unchecked = f"; {missed:,} more uncertain pairs had none." if missed else "."
        return (
            hashes,
            dense,
            aligned,
            f"{self.rechecks:,} pairs had a full-resolution check of their files{unchecked}",
            *[unweighed] * bool(self.unweighed_pairs),
            *[framed] * bool(self.middles),
            *left,
        )


def why_no_middles(images: int, limit: int, telling: bool) -> str:
    """Return why the middles of so many images say nothing, empty where they were compared.

    `limit`: images up to which they are; `telling`: they tell strangers apart.
    """
    if images > limit:
        return f"{images:,} images exceed the limit of {limit:,} for comparing centres"
    return "" if telling else "the centres of different images are too similar in this dataset"


def count_left_out(flags: npt.NDArray[np.uint8]) -> dict[str, int]:
    """Count the images that are compared with nothing, by reason, from the flags of signatures."""
    transparent = (flags & Flag.TRANSPARENT) != 0
    flat = ((flags & Flag.FLAT) != 0) & ~transparent
    counts = {
        "one colour or nearly (nothing to align)": int(flat.sum()),
        "transparent (hardly an opaque pixel)": int(transparent.sum()),
    }
    return {why: count for why, count in counts.items() if count}
