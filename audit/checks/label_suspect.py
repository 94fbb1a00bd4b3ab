"""LABEL006, LABEL007: labels that look wrong beside the other pictures, and the list to review."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from audit.checking.check import QueryCheck
from audit.checking.label_facts import (
    LEAST_AGREED,
    LEAST_GAIN,
    JudgedFacts,
    read_label_facts,
    wrong_among,
)
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class SuspectLabel(QueryCheck):
    """Pictures that look like another class than the one they are filed under.

    ## What it does
    Each scan predicts the class of every picture from the other pictures, in two ways: by a linear
    model of the vectors, and by the labels of the nearest neighbours. Neither sees the picture
    itself, its near-duplicates or the frames beside it. What belongs together has one vote.

    A label is reported if the chance that it is wrong is at least `min_chance`. Further labels are
    reported, the most doubtful first, while at most `max_false` of all reported are expected to be
    right.

    Classes that look alike make labels doubtful too. So two tests come first. The predictions must
    agree with these labels better than with labels dealt at random (by 3 standard deviations). And
    wrong labels must explain the doubtful ones better than classes that overlap do (by `min_gain`
    in log likelihood). The chance that is told is cautious: it holds if the share of wrong labels
    is the smallest that fits the data (99 % limit, less strict from 3,000 labels on).

    Two patterns show wrong labels without that model. In the first, a few labels lie far inside
    another class, and hardly any lie between the two classes. In the second, pictures are as
    typical of another class as the pictures of that class, and there are more of them than chance
    explains; this one counts only where the model predicts nine labels of ten.

    ## Why is this bad
    A model learns wrong labels by heart, and a wrong label in a test set counts a right answer as
    an error: above a few per cent the ranking of models changes.

    ## Example
    A clear boat lies in `apple/`: of its 20 nearest neighbours 18 are boats and none is an apple.

    ## What to do
    Look at the pictures in the order of the list and relabel those that are wrong. Whoever looks on
    finds the rest in the order of LABEL007. Where the list is full of pictures that are right,
    vectors from a trained model (`--embeddings`) see more than the built-in ones.

    ## Limits
    Errors that follow the classes (every third husky is called a wolf) look like classes that
    overlap, and are ranked but hardly ever reported. Classes of fewer than 10 pictures, pictures
    with two labels (LABEL005) and classes of which more than half would be reported are left out;
    below 50 pictures nothing is said. A rare subject in its right class may look like another.

    ## References
    Northcutt, Jiang and Chuang (2021), Confident Learning, JAIR 70. Coates, Lee and Ng (2011), An
    Analysis of Single-Layer Networks in Unsupervised Feature Learning, AISTATS.
    """

    code = "LABEL006"
    name = "suspected-wrong-label"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_chance: chance that the label is wrong from which it is reported, 0..1
        max_false: share of right labels expected among the reported up to which more are, 0..1
        min_gain: log likelihood that wrong labels must explain beyond overlap (4: p = 0.002)
        max_class_doubt: a class of which more would be reported is left out, 0..1
        """

        min_chance: float = 0.65
        max_false: float = 0.18
        min_gain: float = LEAST_GAIN
        max_class_doubt: float = 0.5

    sql = """
        WITH doubted AS (
            SELECT s.* REPLACE (s.sure_chance AS error_chance), i.label, i.subject, i.id,
                avg(s.sure_chance) OVER (ORDER BY s.sure_chance DESC, i.id) AS of_those_before
            FROM label_scores s JOIN images i ON i.id = s.sample_id
            WHERE s.class_doubt <= $max_class_doubt AND s.suggested_probability > s.probability
        ), listed AS (
            SELECT * FROM doubted
            WHERE error_chance >= $min_chance OR of_those_before >= 1 - $max_false
        ), near AS (
            SELECT v.sample_id, string_agg(
                v.neighbour_id || ' (' || coalesce(n.label, 'no label') || ')', ', '
                ORDER BY v.position) AS nearest
            FROM vector_neighbours v SEMI JOIN listed l ON l.sample_id = v.sample_id
            JOIN samples n ON n.id = v.neighbour_id GROUP BY v.sample_id
        )
        SELECT l.*, coalesce(near.nearest, '') AS nearest,
            row_number() OVER (ORDER BY l.label_quality, l.sample_id) AS rank
        FROM listed l LEFT JOIN near ON near.sample_id = l.sample_id ORDER BY rank
    """
    evidence = (
        "rank", "suggested_label", "nearest", "label_quality", "error_chance", "probability",
        "suggested_probability", "neighbours", "neighbours_given", "neighbours_suggested",
    )  # fmt: skip
    action = Action.RELABEL

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        facts = read_label_facts(store)
        known = facts.labels if facts else None
        if known and known.gain >= params.min_gain:
            yield from super().find(store, params)

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        asked = ""
        if row["neighbours"]:
            asked = (
                f" Of its {row['neighbours']} nearest neighbours {row['neighbours_suggested']} are "
                f"{row['suggested_label']!r} and {row['neighbours_given']} are {row['label']!r}."
            )
        return (
            f"The label {row['label']!r} of this image is probably wrong "
            f"({row['error_chance']:.0%}): it looks like {row['suggested_label']!r} "
            f"({row['suggested_probability']:.1%}; {row['label']!r} {row['probability']:.1%})."
            + asked
        )

    def completeness(self, store: Store, params: Params) -> str:
        facts = read_label_facts(store)
        if facts is None:
            return "No labels were judged, because this run has no vectors: scan again."
        if facts.labels is None:
            return f"Cannot estimate wrong labels: {facts.reason}."
        if facts.labels.agreed < LEAST_AGREED:
            return (
                f"Cannot estimate wrong labels: {facts.vectors} predict the {facts.judged:,} "
                f"labels of {facts.classes:,} classes no better than chance. Embeddings of a "
                "trained model (--embeddings) are more accurate."
            )
        start = (
            f"{facts.judged:,} labels of {facts.classes:,} classes were judged by "
            f"{facts.vectors}, which name {facts.labels.accuracy:.0%} of them unseen; left out "
            f"were {facts.conflicting:,} images with several labels, {facts.in_small_classes:,} "
            f"in small classes and {facts.atypical:,} that look like no other"
        )
        if facts.not_drawn:
            start += (
                f"; {facts.not_drawn:,} more were not drawn: checking all labels of these "
                "classes needs more memory than a scan may use"
            )
        failed = store.rows(
            "SELECT sample_id, reason FROM vector_failures ORDER BY sample_id LIMIT 3"
        )
        named = (f" {row['sample_id']} has no vector: {row['reason']}." for row in failed)
        return f"{start}.{''.join(named)}"


class ReviewList(QueryCheck):
    """Labels to look at first, how many of them are wrong, and how many are in all.

    ## What it does
    Puts all judged labels (LABEL006 says how) in the order in which they are worth looking at, and
    lists the first of them: as many as it takes until fewer than half are expected to be wrong. How
    many are wrong, of these and of all, is forecast by the models of LABEL006: errors that fall on
    any class alike, and errors that follow the look of the picture. The interval spans those that
    explain the labels about as well. If none explains them better than classes that overlap do, by
    `min_gain` in log likelihood, it cannot be told how many are wrong: then the first `untold`
    labels for which another class is likelier are listed, for a look, and nothing is said where
    there is none.

    ## Why is this bad
    LABEL006 reports what is nearly certain, and that is a small part of what is wrong. People find
    the rest fastest in this order: a start of it holds many times as many errors as a random one.

    ## Example
    Of 10,000 labels 900 are wrong: 450 of them lie among the first 1,000.

    ## What to do
    Review the list from its top (`label_scores.label_quality`, `audit export --scores`), and stop
    where hardly any is wrong. `audit decide --draw-labels N` draws labels at random. Their review
    estimates the share of wrong labels without a model.

    ## Limits
    The forecast assumes that errors do not come from the class alone: where all trucks of one day
    were called cars, that looks like classes that overlap, and the forecast is too low or is not
    made. Its interval holds for the kinds of error named above. Below 50 labels nothing is listed,
    nor where the vectors tell nothing of the classes.

    ## References
    Northcutt, Jiang and Chuang (2021), Confident Learning, JAIR 70. Wei et al. (2022), Learning
    with Noisy Labels Revisited: A Study Using Real-World Human Annotations, ICLR.
    """

    code = "LABEL007"
    name = "labels-to-review"
    severity = Severity.INFO
    evidence = (
        "listed", "found", "found_low", "found_high", "wrong", "wrong_low", "wrong_high", "judged",
        "draw",
    )  # fmt: skip

    @dataclass(frozen=True)
    class Params:
        """min_gain: log likelihood that wrong labels must explain beyond overlap (4: p = 0.002)
        untold: labels that are listed where it cannot be told how many are wrong
        max_listed: labels that the finding lists, at most
        """

        min_gain: float = LEAST_GAIN
        untold: int = 10
        max_listed: int = 1000

    # one sample of each picture, in the order of the list
    sql = """
        SELECT min(s.sample_id) AS id FROM label_scores s JOIN images i ON i.id = s.sample_id
        WHERE ? OR s.suggested_probability > s.probability
        GROUP BY coalesce(i.pixel_hash, i.id) ORDER BY min(s.label_quality), id LIMIT ?
    """

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        facts = read_label_facts(store)
        if facts is None or facts.labels is None or facts.labels.agreed < LEAST_AGREED:
            return
        known = facts.labels
        listed = known.listed if known.gain >= params.min_gain else 0
        wanted = min(listed or params.untold, params.max_listed)
        ids = store.query(self.sql, [bool(listed), wanted])["id"]
        if ids.is_empty():
            return
        row = {**asdict(known), "judged": facts.judged, "subject": "dataset", "ids": tuple(ids)}
        draw = _labels_to_draw(known, facts.judged) if listed else UNTOLD_DRAW
        row |= {"listed": listed or len(ids), "draw": min(draw, facts.judged)}
        said = _forecast(row) if listed else UNTOLD
        message = said.format(**row, sample=_sample(draw, facts.judged))
        kept = self.kept(row, params)
        if not listed:
            kept = {name: kept[name] for name in ("listed", "judged", "draw")}
        yield self.finding("dataset", message, kept, row["ids"])

    def completeness(self, store: Store, params: Params) -> str:
        facts = read_label_facts(store)
        if facts is None or facts.labels is None:
            return "No labels were judged: LABEL006 says why."
        if facts.labels.agreed < LEAST_AGREED:
            return "No order of labels is better than chance: LABEL006 says why."
        if facts.labels.gain < params.min_gain:
            return (
                "The classes overlap too much to estimate how many of the "
                f"{facts.judged:,} labels are wrong: review {_sample(UNTOLD_DRAW, facts.judged)} "
                "(`audit decide --draw-labels`)."
            )
        return f"All {facts.judged:,} judged labels were put in order."


UNTOLD_DRAW = 300
"""Labels that are reviewed for an answer where there is no forecast: if none is wrong, fewer than
1 % of all are (95 %)."""
UNTOLD = (
    "Look at these {listed:,} labels first. No reliable estimate of wrong labels: similar "
    "classes explain the scores as well. If most are wrong, continue in this order (`audit export "
    "RUN --scores`, label_quality). To estimate the share of wrong labels among all "
    "{judged:,}, review {sample} (`audit decide --draw-labels`)."
)


def _forecast(row: Mapping[str, Any]) -> str:
    return (
        "Look at these {listed:,} labels in this order: about "
        f"{row['found'] / row['listed']:.0%} of them are wrong ({{found:,.0f}}; "
        "{found_low:,.0f} to {found_high:,.0f}). Among all {judged:,} labels "
        + wrong_among(*(row[name] for name in ("judged", "wrong", "wrong_low", "wrong_high")))
        + ". To estimate that share within a third, review {sample} (`audit decide --draw-labels`)."
    )


def _sample(draw: int, judged: int) -> str:
    """Return the words for so many labels to review."""
    return "every one of them" if draw >= judged else f"{draw:,} drawn at random"


def _labels_to_draw(known: JudgedFacts, judged: int) -> int:
    """Return how many labels, drawn at random, tell the share of wrong ones within a third."""
    share = min(max(known.wrong / max(judged, 1), 0.005), 0.95)
    return math.ceil((1.96 * 3) ** 2 * (1 - share) / share)
