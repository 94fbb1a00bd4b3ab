"""Groups of copies that never chain: every member is verified against its representative.

Connected components would join A to C because both resemble B. Representatives are compared with
each other until nothing merges. The order depends on content hashes and scores only, so the order
of the input and the number of workers change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

Pairs = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Verify = Callable[[Pairs], Scores]
"""Scores of pairs (m, 2) with first < second; at or above the threshold means verified."""
MOST_ROUNDS = 19


@dataclass(frozen=True, slots=True)
class Group:
    """One group: the representative, the members (itself first) and their scores against it."""

    representative: int
    members: tuple[int, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    """All groups of two or more, largest first, and what had to be verified on the way.

    `extra` (m, 2) are the pairs that grouping verified beyond those given.
    """

    groups: tuple[Group, ...]
    extra: Pairs


class _Links:
    """Scores of verified pairs, and which pairs were rejected; each is verified once."""

    def __init__(self, pairs: Pairs, scores: Scores, verify: Verify, threshold: float) -> None:
        self._verify = verify
        self.threshold = threshold
        self.near: dict[int, set[int]] = {}
        self.extra: list[tuple[int, int]] = []
        self._score: dict[tuple[int, int], float] = {}
        self._rejected_late: set[tuple[int, int]] = set()
        turned = bool((pairs[:, 0] > pairs[:, 1]).any())
        ordered = np.sort(pairs, axis=1) if turned else pairs
        # at the threshold counts as verified: a full-resolution check raises a score to just that
        passed = scores >= threshold
        # a pair as one number, a * n + b: 8 bytes and a binary search instead of a tuple of objects
        self._n = np.int64(pairs.max() + 1 if len(pairs) else 1)
        self._rejected = np.sort(ordered[~passed, 0] * self._n + ordered[~passed, 1])
        for (a, b), score in zip(ordered[passed].tolist(), scores[passed].tolist(), strict=True):
            self._add(a, b, score)

    def _add(self, a: int, b: int, score: float) -> None:
        self._score[a, b] = score
        self.near.setdefault(a, set()).add(b)
        self.near.setdefault(b, set()).add(a)

    def score(self, a: int, b: int) -> float:
        """The score of a verified pair."""
        return self._score[min(a, b), max(a, b)]

    def verify_missing(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Verify, in one call, the pairs whose score is not known yet."""
        missing = {(min(p), max(p)) for p in wanted} - self._score.keys() - self._rejected_late
        fresh = np.array(sorted(missing), np.int64).reshape(-1, 2)
        fresh = fresh[~self._was_rejected(fresh)]
        if not len(fresh):
            return
        # one call for all: verification works in batches and on all cores
        scores = self._verify(fresh)
        for (a, b), score in zip(fresh.tolist(), scores.tolist(), strict=True):
            self.extra.append((a, b))
            if score >= self.threshold:
                self._add(a, b, score)
            else:
                self._rejected_late.add((a, b))

    def _was_rejected(self, pairs: Pairs) -> npt.NDArray[np.bool_]:
        if not len(self._rejected):
            return np.zeros(len(pairs), np.bool_)
        # a row beyond those of the first pairs cannot be among them, whatever its number says
        number = np.where(pairs[:, 1] < self._n, pairs[:, 0] * self._n + pairs[:, 1], -1)
        place = np.minimum(np.searchsorted(self._rejected, number), len(self._rejected) - 1)
        return np.asarray(self._rejected[place] == number, np.bool_)


def group_pictures(
    pairs: Pairs,
    scores: Scores,
    verify: Verify,
    threshold: float,
    keys: Sequence[bytes],
) -> Grouping:
    """Group pictures around representatives.

    `pairs` (m, 2) and `scores` are the pairs examined so far; `verify` scores further ones; `keys`
    are content hashes, which break ties. A representative has most verified links still free; its
    members are those linked to it. Representatives that share a neighbourhood are compared, until a
    round brings nothing new, or for `MOST_ROUNDS`.
    """
    links = _Links(pairs, scores, verify, threshold)
    groups = _cover(links, keys)
    for _ in range(MOST_ROUNDS):
        before = len(links.extra)
        links.verify_missing(_pairs_between(groups, links))
        links.verify_missing(_pairs_across(groups, links))
        if len(links.extra) == before:
            break
        # the cover is made again each round: a new link may make another picture the better
        # representative, and keeping old groups would make the result depend on the order
        groups = _cover(links, keys)
    extra = np.array(links.extra, np.int64).reshape(-1, 2)
    of_two = (group for group in groups if len(group.members) > 1)
    ranked = sorted(
        of_two, key=lambda g: (-len(g.members), keys[g.representative], g.representative)
    )
    return Grouping(tuple(ranked), extra)


def _cover(links: _Links, keys: Sequence[bytes]) -> list[Group]:
    """Cover the verified links by groups, greedily: most free neighbours first, then hash."""
    free = set(links.near)
    degree = {a: len(near) for a, near in links.near.items()}
    # greedy by degree, as for a dominating set: most free neighbours first leaves few singles.
    # Equal degrees: by key, so that the rows' order does not show
    heap = [(-d, keys[a], a) for a, d in degree.items()]
    heapify(heap)
    groups: list[Group] = []
    while heap:
        d, _, centre = heappop(heap)
        # an entry whose degree has fallen since was replaced by another one
        if centre not in free or degree[centre] != -d:
            continue
        around = sorted(links.near[centre] & free, key=lambda a: (keys[a], a))
        members = (centre, *around)
        free.difference_update(members)
        scores = (1.0, *(links.score(centre, a) for a in around))
        groups.append(Group(centre, members, scores))
        lowered: set[int] = set()
        for member in members:
            for other in links.near[member] & free:
                degree[other] -= 1
                lowered.add(other)
        for other in lowered:
            heappush(heap, (-degree[other], keys[other], other))
    return groups


def _pairs_between(groups: list[Group], links: _Links) -> list[tuple[int, int]]:
    """Representatives to compare: of groups that touch, by a verified link between any members."""
    # two halves of one family have no link between their representatives, but their members touch
    home = {member: k for k, group in enumerate(groups) for member in group.members}
    touching: dict[int, set[int]] = {}
    for a, near in links.near.items():
        for b in near:
            if home[a] != home[b]:
                touching.setdefault(home[a], set()).add(home[b])
    wanted: list[tuple[int, int]] = []
    for k, others in touching.items():
        reach = set(others)
        # quadratic in the family: 16 keeps a burst whole and a pile of look-alikes cheap
        if len(others) <= 16:
            for other in others:
                reach |= touching[other]
        wanted += [
            (groups[k].representative, groups[other].representative) for other in reach if other > k
        ]
    return wanted


def _pairs_across(groups: list[Group], links: _Links) -> list[tuple[int, int]]:
    """Where two representatives match, compare the members of one with the other's."""
    home = {group.representative: group for group in groups}
    wanted: list[tuple[int, int]] = []
    for group in groups:
        for other in links.near.get(group.representative, set()):
            if other in home and other != group.representative:
                wanted += [(group.representative, m) for m in home[other].members if m != other]
    return wanted
