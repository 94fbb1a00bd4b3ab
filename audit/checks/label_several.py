"""LABEL008: pictures with several labels of which one is wrong, or lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audit.checking.check import QueryCheck
from audit.records import Action, Severity
from audit.run.store import Store


class SuspectSeveral(QueryCheck):
    """Images with several labels that probably lack a label, or have a wrong one.

    ## What it does
    Uses the probabilities of each class in `--predictions`, from models that were not trained on
    the image. Each class is checked separately. A label, or its absence, is reported if its error
    probability is at least `min_chance`. Wrong labels must also explain the class better than
    uncertain predictions do, by `min_gain` in log likelihood (as for LABEL006).

    ## Why is this bad
    A missing label trains the model against the correct prediction. With several classes per image,
    annotators omit labels far more often than they confuse them.

    ## Example
    An image of a dog on a beach is labelled `beach` only; the model predicts `dog` with 0.99.

    ## What to do
    Review the listed images in order of their error probability. Correct the named labels.

    ## Limits
    Skipped without `--predictions`. Classes that fewer than 10 images have, or lack, are not
    checked, nor datasets below 50 images. If annotators omit a class in half of its images, the
    model learns to omit it too.

    ## References
    Northcutt, Jiang and Chuang (2021), Confident Learning, JAIR 70. Thyagarajan et al. (2022),
    Identifying Incorrect Annotations in Multi-Label Classification Data, arXiv:2211.13895.
    """

    code = "LABEL008"
    embeddings = True
    name = "suspected-wrong-labels"
    severity = Severity.WARNING
    tables = ("several_labels",)
    action = Action.RELABEL

    @dataclass(frozen=True)
    class Params:
        """min_chance: smallest error probability of a reported label or absence, 0..1
        min_gain: log likelihood by which wrong labels must beat class overlap (4: p = 0.002)
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
            return "Skipped for images with several labels: needs `audit scan --predictions FILE`."
        return f"{n:,} classes were checked separately."
