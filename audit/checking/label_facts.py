"""What a scan knows of its vectors and labels as a whole: the table `label_facts`, typed.

The table holds text by key, so that a fact more needs no other schema. The scan that judges labels
writes it (`audit.embeddings`), checks read it; both use the classes below, and nothing else does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audit.run.store import Store

_SHARES = ("share", "share_limit", "gain", "accuracy", "largest_class")


@dataclass(frozen=True, slots=True)
class JudgedFacts:
    """What is known of all judged labels together.

    `share` of them that is wrong if errors do not follow the classes, and its `share_limit` if a
    wrong label is named unseen by chance alone; `gain`, by how much wrong labels explain what is
    seen better than overlap (log likelihood); `accuracy`, the share that the classifier names
    unseen, and that of the `largest_class`; `expected` shares of wrong labels among the first n.
    """

    share: float
    share_limit: float
    gain: float
    accuracy: float
    largest_class: float
    expected: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """What is known of the vectors and labels of a run; `labels` is None where none is judged.

    `vectors` and `map` say in words how they were made; `reason` why no label is judged, else
    empty. The others count pictures, but for `classes`: `judged`, and left out because they have
    several labels (`conflicting`), are of small classes, look like no other (`atypical`), or were
    not drawn; `compared` with each other, of which `least_compared` are needed, among `references`.
    """

    vectors: str
    compared: int
    least_compared: int
    judged: int = 0
    classes: int = 0
    conflicting: int = 0
    in_small_classes: int = 0
    atypical: int = 0
    not_drawn: int = 0
    references: int = 0
    map: str = ""
    reason: str = ""
    labels: JudgedFacts | None = None

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the table."""
        facts = {name: getattr(self, name) for name in self.__slots__ if name != "labels"}
        if self.labels is not None:
            facts |= {name: getattr(self.labels, name) for name in _SHARES}
            facts["expected"] = json.dumps({str(n): s for n, s in self.labels.expected.items()})
        return [{"key": key, "value": str(value)} for key, value in facts.items()]


def read_label_facts(store: Store) -> LabelFacts | None:
    """Return what the last scan wrote; None where labels and vectors were never looked at."""
    told = dict(store.query("SELECT key, value FROM label_facts").iter_rows())
    if not told:
        return None
    labels = None
    if "gain" in told:
        expected = {int(n): float(share) for n, share in json.loads(told["expected"]).items()}
        shares: dict[str, Any] = {name: float(told[name]) for name in _SHARES}
        labels = JudgedFacts(**shares, expected=expected)
    words = {"vectors", "map", "reason"}
    counted = [name for name in LabelFacts.__slots__ if name not in {*words, "labels"}]
    facts: dict[str, Any] = {name: told[name] for name in words}
    return LabelFacts(**facts | {name: int(told[name]) for name in counted}, labels=labels)
