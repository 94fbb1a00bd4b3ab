"""What a scan knows of its vectors and labels as a whole: the table `label_facts`, typed.

The table holds JSON by key, so that new facts need no other schema.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from audit.run.store import Store

LEAST_AGREED = 3.0
"""Standard deviations from which a witness knows something of labels: of two witnesses that know
nothing, one passes in 0.3 % of datasets. Without it no label is doubted."""

LEAST_GAIN = 4.0
"""Log likelihood that wrong labels must explain beyond overlap (p = 0.002): below it no chance of
a single label is calibrated, and nothing is forecast."""

CALIBRATED_SCORES = f"""(
    WITH facts AS (
        SELECT coalesce(bool_and(
            CAST(value ->> 'agreed' AS DOUBLE) >= {LEAST_AGREED}
            AND CAST(value ->> 'gain' AS DOUBLE) >= {LEAST_GAIN}
            AND CAST(value ->> 'listed' AS BIGINT) > 0
        ), false) AS calibrated FROM label_facts WHERE key = 'labels'
    )
    SELECT s.* REPLACE (
        CASE WHEN calibrated THEN error_chance END AS error_chance,
        CASE WHEN calibrated THEN sure_chance END AS sure_chance
    ) FROM label_scores s, facts
)"""
"""The table `label_scores` with the chances of being wrong only where they are calibrated."""

WIDE = 4.0
"""Times the lower limit that the upper one is from which no figure between them is said."""


def wrong_among(n: int, wrong: float, low: float, high: float) -> str:
    """Return in words how many of n labels are wrong, a number only where it is known closely."""
    if high > WIDE * max(low, 1):
        return f"between {low:,.0f} and {high:,.0f} are wrong ({low / n:.1%} to {high / n:.1%})"
    return f"an estimated {wrong:,.0f} are wrong ({wrong / n:.1%}; {low:,.0f} to {high:,.0f})"


@dataclass(frozen=True, slots=True)
class JudgedFacts:
    """What is known of all judged labels together.

    `gain`: of log likelihood, by wrong labels over overlap. `accuracy`: of the classifier on unseen
    images; `agreed`: its distance from chance in standard deviations. `found` of the first `listed`
    labels are expected to be wrong, from `found_low` to `found_high`; `wrong` likewise of all.
    """

    gain: float
    accuracy: float
    agreed: float
    listed: int
    found: float
    found_low: float
    found_high: float
    wrong: float
    wrong_low: float
    wrong_high: float


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """What is known of the vectors and labels of a run; `labels` is None where none is judged.

    `vectors` and `map`: how they were made. `reason`: why no label is judged, else empty. Counts of
    pictures: `judged`, with several labels (`conflicting`), of small classes, unlike all others
    (`atypical`), not drawn; each image is compared with `references` others.
    """

    vectors: str
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
        return [{"key": key, "value": json.dumps(fact)} for key, fact in asdict(self).items()]


def read_label_facts(store: Store) -> LabelFacts | None:
    """Return the facts of the last scan; None without any, or of a version with other facts."""
    told = store.query("SELECT key, value FROM label_facts").iter_rows()
    try:
        facts = {key: json.loads(fact) for key, fact in told}
        labels = facts.pop("labels")
        return LabelFacts(**facts, labels=JudgedFacts(**labels) if labels else None)
    except (ValueError, KeyError, TypeError):
        return None
