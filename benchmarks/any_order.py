"""Near-duplicates among pictures in any order: those of a scan are in the order of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.neighbors import search
from audit.neighbors.hamming import Codes
from audit.neighbors.inspection import Opener
from audit.neighbors.search import Relation
from audit.neighbors.verification import key_ranks
from audit.picture.signatures import Signatures


def find_near_duplicates(
    table: Signatures,
    keys: Sequence[bytes],
    hashes: Codes,
    *,
    open_picture: Opener | None = None,
    **options: Any,
) -> Relation:
    """Find near-duplicates; arguments and rows of the result are in the order of the input."""
    order = np.argsort(key_ranks(keys))
    found = search.find_near_duplicates(
        table[order],
        [keys[i] for i in order],
        hashes[order],
        open_picture=open_picture and (lambda row: open_picture(int(order[row]))),
        **options,
    )
    return _in_input_order(found, order)


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
