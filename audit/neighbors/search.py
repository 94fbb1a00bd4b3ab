"""The whole search: candidates, verification, full-resolution checks, groups.

Candidates are generous and come from two sides: every pair of perceptual hashes within a stated
radius (complete), and the k nearest by descriptor in any orientation (a stated cap; a burst of
forty shots is still found whole, through its representative). Pairs that share the middle
only (`centres`: soft frames, replaced backgrounds) are found apart, upright and in place. Each
candidate is verified. Pairs whose score lies near the threshold and whose files hold more than a
signature are checked at full resolution, nearest to the threshold first, up to a bound. Then
groups.

Everything works in the order of the keys (content hashes), so neither the order of the input nor
the number of workers shows in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from audit.neighbors.calibration import (
    LEAST_SOURCES,
    LOWEST_THRESHOLD,
    Calibration,
    calibrate,
    measure_recall,
)
from audit.neighbors.candidates import (
    find_hash_pairs,
    find_usable_neighbours,
    merge_pairs,
    neighbour_pairs,
)
from audit.neighbors.centres import NONE, SameCentres, find_same_centres
from audit.neighbors.completeness import Completeness, count_left_out, why_no_middles
from audit.neighbors.dense import EXACT_LIMIT, Neighbours
from audit.neighbors.descriptor import Descriptors, describe
from audit.neighbors.groups import Grouping, Pairs, group_pictures
from audit.neighbors.hamming import Codes
from audit.neighbors.pair_cache import (
    Fingerprints,
    KnownRecall,
    PairCache,
    find_contained,
    key_codes,
    pair_fingerprints,
)
from audit.neighbors.rechecks import Opener, recheck_limit, recheck_pairs, select_rechecks
from audit.neighbors.signatures import Signatures, is_comparable
from audit.neighbors.verification import (
    NO_MATCH,
    NOT_ALIGNED,
    Floats,
    VerifiedPairs,
    key_ranks,
    spread_rows,
    verify,
)

Advance = Callable[[float], None]
"""Gets the share of the work that is done, 0 to 1."""
# Shares of the work after which the slow steps end: neighbours, verification.
NEIGHBOURS_UNTIL, VERIFIED_UNTIL = 0.45, 0.95
GATE_FROM = 500
"""With fewer pictures, aligning every candidate takes less than compiling the gate, and the shots
of a burst, which the gate loses more often than changed copies, are worth its price."""
PICTURES_PER_SOURCE = 50
MOST_CHANGED = 0.25
"""Share of the pictures that may come or go until the recall is measured anew: it moves by less
than the interval of one that is measured on a few pictures."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What the search may do.

    `radius`: bits within which all pairs of hashes are candidates; `turned`: of mirror images and
    quarter turns as well, at eight times the codes. `nearest`: neighbours by descriptor per image.
    `hash_pairs_per_image`: the radius is lowered until there are no more candidates than this.
    `rechecks`: most full-resolution checks (None: 500 or one image in fifty). `uncertainty_band`:
    distance of the score from the threshold within which a pair is checked. `threshold`: log odds
    (None: calibrated). `exact_limit`: images up to which the descriptor search is exact.
    `gate_from`: images from which candidates pass a gate before they are aligned.
    `synthetic_sources`: pictures of which duplicates are made, to state the recall to expect
    (needs `open_picture`): at most so many, of a small data set one in 50 but three, and fewer
    where that is enough.
    """

    radius: int = 10
    turned: bool = False
    nearest: int = 12
    hash_pairs_per_image: int = 20
    rechecks: int | None = None
    uncertainty_band: float = 3.0
    threshold: float | None = None
    exact_limit: int = EXACT_LIMIT
    gate_from: int = GATE_FROM
    synthetic_sources: int = 12
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Relation:
    """Near-duplicate pairs, groups, neighbours, and how sure and complete all this is.

    `pairs`: the verified ones, `score` at or above the threshold. `verified_full_size` (m,): True
    where a full-resolution check decided. `neighbours` index rows of the input. `cache`: what was
    decided, to hand to the next search as `known`.
    """

    pairs: VerifiedPairs
    verified_full_size: npt.NDArray[np.bool_]
    grouping: Grouping
    neighbours: Neighbours
    calibration: Calibration
    completeness: Completeness
    cache: PairCache = field(default_factory=PairCache)


def find_near_duplicates(
    table: Signatures,
    keys: Sequence[bytes],
    hashes: Codes,
    *,
    more_hashes: Mapping[str, Codes] | None = None,
    options: SearchOptions | None = None,
    open_picture: Opener | None = None,
    known: PairCache | None = None,
    advance: Advance = lambda share: None,
) -> Relation:
    """Find near-duplicates among images.

    `table` (n,) signatures; `keys` their content hashes, best distinct (collapse identical files
    first); `hashes` (n,) uint64 perceptual hashes; `more_hashes` others by
    name, whose close pairs are candidates too; `open_picture` gives the larger pictures for
    full-resolution checks (None: none are made); `known` is the `cache` of an earlier search.
    """
    chosen = options or SearchOptions()
    ranks = key_ranks(keys)
    order = np.argsort(ranks)
    search = _Search(table[order], [keys[i] for i in order], hashes[order], chosen, advance)
    search.more_hashes = {name: codes[order] for name, codes in (more_hashes or {}).items()}
    opener = None if open_picture is None else lambda row: open_picture(int(order[row]))
    return _in_input_order(search.run(opener, known or PairCache()), order)


class _Search:
    """One search, rows in the order of the keys; holds what several steps share."""

    def __init__(
        self,
        table: Signatures,
        keys: list[bytes],
        hashes: Codes,
        options: SearchOptions,
        advance: Advance,
    ) -> None:
        self.table, self.keys, self.hashes, self.options = table, keys, hashes, options
        self.more_hashes: Mapping[str, Codes] = {}
        self.advance = advance
        self.ranks = np.arange(len(table))
        self.usable = np.flatnonzero(is_comparable(table))
        self.descriptors: Descriptors = describe(table)
        self.threshold = 0.0
        self.background: Floats | None = None  # what the gate needs; None: every pair is aligned
        self.verdicts: dict[tuple[int, int], float] = {}  # of full-resolution checks, by rows
        self.framed: dict[tuple[int, int], float] = {}  # similarity of middles that are the same
        self.more: list[VerifiedPairs] = []  # what grouping had verified on its way

    def run(self, opener: Opener | None, known: PairCache) -> Relation:
        """All steps."""
        options = self.options
        near = self._neighbours()
        if len(self.usable) >= options.gate_from:
            self.background = near.similarity[:, -1].astype(np.float64)
        hash_pairs, radius, plan = self._hash_pairs()
        middles = self._compare_centres()
        framed = np.array(list(self.framed), np.int64).reshape(-1, 2)
        candidates = merge_pairs(hash_pairs, neighbour_pairs(near), framed)
        verified, aligned, rejected = self._verify_new(candidates, known.rejected_pairs)
        calibration = calibrate(
            self.table,
            self.descriptors,
            self.ranks,
            background=self.background,
            verified=verified.take(aligned),
            wanted=len(candidates),
            seed=options.seed,
        )
        calibration = self._with_recall(calibration, opener, known.recall)
        self.threshold = calibration.threshold if options.threshold is None else options.threshold
        self._load_verdicts(known.rechecks)
        uncertain = select_rechecks(self.table, verified, self.threshold, options.uncertainty_band)
        rechecks = self._recheck(verified, uncertain, opener)
        # groups come after the checks: a pair that a check overruled must not hold a group together
        scores = self._final_scores(verified)
        grouping = group_pictures(
            verified.pairs, scores, self._verify_more, self.threshold, self.keys
        )
        pairs, by_check = self._same_pairs(VerifiedPairs.joined([verified, *self.more]))
        completeness = Completeness(
            images=len(self.table),
            compared_images=len(self.usable),
            radius=radius,
            hash_pairs=len(hash_pairs),
            hash_plan=plan,
            nearest=options.nearest,
            exact=near.exact,
            recall=near.recall,
            recall_sample=near.sample,
            verified_pairs=len(verified.pairs) + len(grouping.extra),
            gated_pairs=int((verified.score == NOT_ALIGNED).sum()),
            rechecks=rechecks,
            rechecks_wanted=len(uncertain),
            left_out=count_left_out(self.table),
            rejected_before=int((~aligned).sum()),
            middles=middles,
        )
        cache = PairCache(self._verdicts_by_key(), rejected)
        return Relation(pairs, by_check, grouping, near, calibration, completeness, cache)

    def _with_recall(
        self, calibration: Calibration, opener: Opener | None, known: KnownRecall | None
    ) -> Calibration:
        """Add the recall to expect, from duplicates made of a few pictures picked by seed.

        What an earlier search measured stands while most pictures are those of then.
        """
        if opener is None or not self.options.synthetic_sources:
            return calibration
        if known is not None and known.changed <= len(self.table) * MOST_CHANGED:
            return replace(
                calibration,
                recall=known.recall,
                synthetic_copies=known.copies,
                recall_age=known.changed,
            )
        rng = np.random.default_rng(self.options.seed)
        # each is changed in 29 ways: of few pictures, many would take longer than the search
        most = max(LEAST_SOURCES, len(self.usable) // PICTURES_PER_SOURCE)
        most = min(most, self.options.synthetic_sources)
        sources = rng.permutation(self.usable)[:most].tolist()
        opened = ((row, opener(row)) for row in sources)
        pictures = ((row, picture) for row, picture in opened if picture is not None)
        return measure_recall(
            calibration,
            self.table,
            self.descriptors,
            pictures,
            neighbours=self.options.nearest,
            uncertainty_band=self.options.uncertainty_band,
            gated=self.background is not None,
            seed=self.options.seed,
        )

    def _neighbours(self) -> Neighbours:
        return find_usable_neighbours(
            self.descriptors,
            self.usable,
            self.options.nearest,
            exact_limit=self.options.exact_limit,
            seed=self.options.seed,
            advance=lambda share: self.advance(NEIGHBOURS_UNTIL * share),
        )

    def _compare_centres(self) -> str:
        """Find the pairs that share the middle; return why not, where they are not looked for."""
        limit, found = self.options.exact_limit, SameCentres(*NONE)
        if len(self.usable) <= limit:
            found = find_same_centres(self.table[self.usable], seed=self.options.seed)
        self.framed = framed_pairs(found, self.usable)
        return why_no_middles(len(self.usable), limit, found.telling)

    def _hash_pairs(self) -> tuple[Pairs, int, str]:
        """Pairs of usable rows within the radius, which shrinks where there would be too many."""
        if len(self.usable) < 2:
            return np.zeros((0, 2), np.int64), self.options.radius, "nothing to compare"
        pairs, radius, plan = find_hash_pairs(
            self.table[self.usable],
            self.hashes[self.usable],
            radius=self.options.radius,
            turned=self.options.turned,
            limit=self.options.hash_pairs_per_image * len(self.usable),
        )
        for name, codes in self.more_hashes.items():
            others, reach, _ = find_hash_pairs(
                self.table[self.usable],
                codes[self.usable],
                radius=self.options.radius,
                turned=False,  # only phash is taken of signatures, in all orientations
                limit=self.options.hash_pairs_per_image * len(self.usable),
            )
            pairs, plan = merge_pairs(pairs, others), f"{plan}; also {name} within {reach} bits"
        return self.usable[pairs], radius, plan

    def _verify_new(
        self, candidates: Pairs, rejected: Fingerprints
    ) -> tuple[VerifiedPairs, npt.NDArray[np.bool_], Fingerprints]:
        """Verify the pairs not rejected before.

        Returns all pairs, which were not rejected before, and the fingerprints of those that are
        rejected now.
        """
        lowest = LOWEST_THRESHOLD
        if self.options.threshold is not None:
            lowest = min(lowest, self.options.threshold)
        # no later calibration can set the threshold lower than this, nor a check reach further
        least = lowest - self.options.uncertainty_band
        prints = pair_fingerprints(key_codes(self.keys), candidates)
        before = find_contained(prints, rejected)
        if lowest < LOWEST_THRESHOLD:
            # the user asks for less than any calibration: old rejections were made above that
            before[:] = False
        span = VERIFIED_UNTIL - NEIGHBOURS_UNTIL
        fresh = verify(
            self.table,
            self.descriptors,
            candidates[~before],
            self.ranks,
            background=self.background,
            advance=lambda share: self.advance(NEIGHBOURS_UNTIL + span * share),
        )
        verified = spread_rows(fresh, candidates, ~before)
        # what the gate refused is not kept: its surroundings may be others at the next scan
        hopeless = (verified.score < least) & (verified.score > NOT_ALIGNED)
        return verified, ~before, np.sort(prints[hopeless])

    def _verify_more(self, pairs: Pairs) -> Floats:
        self.more.append(
            verify(self.table, self.descriptors, pairs, self.ranks, background=self.background)
        )
        return self._final_scores(self.more[-1])

    def _load_verdicts(self, known: Mapping[tuple[bytes, bytes], float]) -> None:
        """Translate the verdicts of earlier full-resolution checks from keys to rows."""
        row = {key: k for k, key in enumerate(self.keys)}
        for (a, b), verdict in known.items():
            if a in row and b in row:
                self.verdicts[min(row[a], row[b]), max(row[a], row[b])] = verdict

    def _verdicts_by_key(self) -> dict[tuple[bytes, bytes], float]:
        return {(self.keys[a], self.keys[b]): verdict for (a, b), verdict in self.verdicts.items()}

    def _recheck(
        self, verified: VerifiedPairs, uncertain: npt.NDArray[np.intp], opener: Opener | None
    ) -> int:
        """Check uncertain pairs at full resolution within the bound; return how many."""
        if opener is None:
            return 0
        rows = uncertain[: recheck_limit(self.options.rechecks, len(self.table))]
        pairs = [tuple(sorted(pair)) for pair in verified.pairs[rows].tolist()]
        fresh = [k for k, pair in enumerate(pairs) if pair not in self.verdicts]
        verdicts = recheck_pairs(verified, rows[fresh], opener)
        for k, verdict in zip(fresh, verdicts, strict=True):
            if verdict is not None:
                self.verdicts[pairs[k]] = verdict
        # verdicts from the cache count against the bound too, or each scan would check 500 more
        return len(rows)

    def _final_scores(self, verified: VerifiedPairs) -> Floats:
        """Scores, overruled where a full-resolution check decided."""
        score = verified.score.copy()
        if self.verdicts or self.framed:
            for k, (a, b) in enumerate(np.sort(verified.pairs, axis=1).tolist()):
                verdict = self.verdicts.get((a, b))
                if (a, b) in self.framed:
                    # whatever the whole says: the frame is what differs there
                    score[k] = max(score[k], self.threshold)
                elif verdict:
                    # at least the threshold, not more: the check says same, not how surely
                    score[k] = max(score[k], self.threshold) if verdict > 0 else NO_MATCH
        return score

    def _same_pairs(self, verified: VerifiedPairs) -> tuple[VerifiedPairs, npt.NDArray[np.bool_]]:
        """Pairs at or above the threshold, and which of them a full-resolution check decided."""
        score = self._final_scores(verified)
        rows = np.flatnonzero(score >= self.threshold)
        described = describe_by_middles(verified, self.framed, self.threshold)
        same = replace(described.take(rows), score=score[rows])
        checked = [bool(self.verdicts.get((min(p), max(p)))) for p in same.pairs.tolist()]
        return same, np.array(checked, bool)


def framed_pairs(found: SameCentres, rows: npt.NDArray[np.intp]) -> dict[tuple[int, int], float]:
    """Return the similarity of middles by pair, in numbers of a larger table: `rows` are in it."""
    pairs = rows[found.pairs].tolist()
    return {(a, b): s for (a, b), s in zip(pairs, found.similarity.tolist(), strict=True)}


def describe_by_middles(
    verified: VerifiedPairs, framed: Mapping[tuple[int, int], float], threshold: float
) -> VerifiedPairs:
    """Describe pairs that only their middles prove by those: in place, a quarter in common."""
    asked = np.sort(verified.pairs, axis=1).tolist()
    middle = np.array([framed.get((a, b), -1.0) for a, b in asked])
    by_middle = (middle > 0) & (verified.score < threshold)
    return replace(
        verified,
        similarity=np.where(by_middle, middle, verified.similarity),
        overlap=np.where(by_middle, 0.25, verified.overlap),
        orientation=np.where(by_middle, 0, verified.orientation),
        matrix=np.where(by_middle[:, None], 0.0, verified.matrix),
    )


def _in_input_order(relation: Relation, order: npt.NDArray[np.intp]) -> Relation:
    """Translate row numbers from the order of the keys back to the order of the input."""
    pairs = replace(relation.pairs, pairs=order[relation.pairs.pairs])
    groups = tuple(
        type(group)(
            int(order[group.representative]),
            tuple(int(order[m]) for m in group.members),
            group.scores,
        )
        for group in relation.grouping.groups
    )
    grouping = replace(relation.grouping, groups=groups, extra=order[relation.grouping.extra])
    near = relation.neighbours
    index, similarity = np.empty_like(near.index), np.empty_like(near.similarity)
    index[order] = np.where(near.index >= 0, order[near.index], -1)
    similarity[order] = near.similarity
    neighbours = replace(near, index=index, similarity=similarity)
    return replace(relation, pairs=pairs, grouping=grouping, neighbours=neighbours)
