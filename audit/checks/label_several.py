"""LABEL008: pictures with several labels of which one is wrong, or lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audit.checking.check import QueryCheck
from audit.records import Action, Severity
from audit.run.store import Store


class SuspectSeveral(QueryCheck):
    """Pictures with several labels that probably lack one, or have one that is wrong.

    ## What it does
    Where pictures have several labels and `--predictions` gives a probability of each class (from
    models that did not see the picture), each class is judged as a question of its own: has the
    picture this label or not? A label, or its absence, is reported when the chance that it is wrong
    is at least `min_chance`; and only if wrong labels explain the class better than uncertain
    predictions do, by `min_gain` in log likelihood, as for LABEL006.

    ## Why is this bad
    A label that was forgotten teaches a model to deny what it sees. People who label several
    classes at once forget far more than they mix up.

    ## Example
    A picture is labelled `beach`; the model gives `dog` 0.99, and a dog lies there.

    ## What to do
    Look at the pictures listed, in the order of their chances, and correct the labels named.

    ## Limits
    Without `--predictions` nothing is said. Classes that fewer than 10 pictures have, or lack, are
    left out, and below 50 pictures all. Where annotators forget a class in every second picture,
    the model learned to forget it as well.

    ## References
    Northcutt, Jiang and Chuang (2021), Confident Learning, JAIR 70. Thyagarajan et al. (2022),
    Identifying Incorrect Annotations in Multi-Label Classification Data, arXiv:2211.13895.
    """

    code = "LABEL008"
    name = "suspected-wrong-labels"
    severity = Severity.WARNING
    tables = ("several_labels",)
    action = Action.RELABEL

    @dataclass(frozen=True)
    class Params:
        """min_chance: chance that a label, or its absence, is wrong from which it is said, 0..1
        min_gain: log likelihood that wrong labels must explain beyond overlap (4: p = 0.002)
        """

        min_chance: float = 0.65
        min_gain: float = 4.0

    sql = """
        SELECT i.id, i.subject, max(s.error_chance) AS error_chance,
            coalesce(string_agg(s.label, ', ' ORDER BY s.label) FILTER (WHERE NOT s.given), '')
                AS lacking,
            coalesce(string_agg(s.label, ', ' ORDER BY s.label) FILTER (WHERE s.given), '')
                AS wrong,
            string_agg(format('{} {:.2f}', s.label, s.probability), ', ' ORDER BY s.label)
                AS predicted
        FROM several_scores s JOIN images i ON i.id = s.sample_id
        WHERE s.error_chance >= $min_chance AND s.gain >= $min_gain
        GROUP BY ALL ORDER BY error_chance DESC, i.id
    """
    evidence = ("error_chance", "lacking", "wrong", "predicted")

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        parts = [
            f"{what} {row[key]}" for key, what in (("lacking", "lacks"), ("wrong", "is not"))
            if row[key]
        ]  # fmt: skip
        chance = row["error_chance"]
        shown = "over 99%" if chance > 0.99 else f"{chance:.0%}"
        return (
            f"This image probably {' and '.join(parts)} (highest error probability {shown}; "
            f"predicted probability: {row['predicted']})."
        )

    def completeness(self, store: Store, params: Params) -> str:
        n = store.scalar("SELECT count(DISTINCT label) FROM several_scores")
        if not n:
            return "No labels of images with several were judged: that needs --predictions."
        return f"{n:,} classes were judged, each as a question of its own."
