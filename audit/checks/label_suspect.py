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
    """Images that look like another class than their label.

    ## What it does
    Each scan predicts the class of every image from the other images, in two ways: by a linear
    model of the embeddings, and by the labels of the nearest neighbours. The image itself, its
    near-duplicates and adjacent frames are left out. Images that belong together count once.

    A label is reported if its error probability is at least `min_chance`. Further labels are
    reported, most suspicious first, while at most `max_false` of all reported labels are expected
    to be right.

    Similar classes make labels suspicious too, so two tests come first. The predictions must agree
    with these labels better than with shuffled labels (by 3 standard deviations). Wrong labels must
    explain the suspicious labels better than overlapping classes do (by `min_gain` in log
    likelihood). The reported probability is conservative: it assumes the smallest share of wrong
    labels that fits the data (99% limit, less strict from 3,000 labels).

    Two patterns indicate wrong labels without that model. In the first, a few images lie far inside
    another class, and hardly any lie between the two classes. In the second, more images than
    chance explains are as typical of another class as its own images. The second pattern counts
    only if the model predicts 90% of the labels.

    ## Why is this bad
    A model memorises wrong labels, and a wrong label in a test set counts a correct prediction as
    an error. Above a few percent, the ranking of models changes.

    ## Example
    A clear boat lies in `apple/`: of its 20 nearest neighbours 18 are boats and none is an apple.

    ## What to do
    Review the images in the order of the list and correct wrong labels. Continue in the order of
    LABEL007. If most listed labels are right, use embeddings of a trained model (`--embeddings`),
    which are more accurate than the built-in features.

    ## Limits
    Systematic errors (every third husky labelled wolf) look like overlapping classes; they are
    ranked but rarely reported. Classes of fewer than 10 images, images with two labels (LABEL005)
    and classes of which more than half would be reported are left out. Not applicable below 50
    images. A rare subject may look like another class.

    ## References
    Northcutt, Jiang and Chuang (2021), Confident Learning, JAIR 70. Coates, Lee and Ng (2011), An
    Analysis of Single-Layer Networks in Unsupervised Feature Learning, AISTATS.
    """

    code = "LABEL006"
    embeddings = True
    name = "suspected-wrong-label"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_chance: smallest error probability of a reported label, 0..1
        max_false: largest expected share of right labels among the reported labels, 0..1
        min_gain: log likelihood by which wrong labels must beat class overlap (4: p = 0.002)
        max_class_doubt: classes with a larger share of reported labels are left out, 0..1
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
            return "Labels were not checked, because this run has no embeddings: scan again."
        if facts.labels is None:
            return f"Cannot estimate wrong labels: {facts.reason}."
        if facts.labels.agreed < LEAST_AGREED:
            return (
                f"Cannot estimate wrong labels: {facts.vectors} predict the {facts.judged:,} "
                f"labels of {facts.classes:,} classes no better than chance. Embeddings of a "
                "trained model (--embeddings) are more accurate."
            )
        start = (
            f"{facts.judged:,} labels of {facts.classes:,} classes were checked with "
            f"{facts.vectors} (cross-validated accuracy {facts.labels.accuracy:.0%}); left out: "
            f"{facts.conflicting:,} images with several labels, {facts.in_small_classes:,} in "
            f"small classes, {facts.atypical:,} unlike all others"
        )
        if facts.not_drawn:
            start += f"; {facts.not_drawn:,} more were not sampled, to stay within the memory limit"
        failed = store.rows(
            "SELECT sample_id, reason FROM vector_failures ORDER BY sample_id LIMIT 3"
        )
        named = (f" {row['sample_id']} has no embedding: {row['reason']}." for row in failed)
        return f"{start}.{''.join(named)}"


class ReviewList(QueryCheck):
    """Labels to review first, with an estimate of the wrong labels among them and in total.

    ## What it does
    Sorts all checked labels (see LABEL006), most suspicious first, and lists the first labels until
    fewer than half are expected to be wrong. The models of LABEL006 estimate the number of wrong
    labels among these and in total: errors that fall on all classes alike, and errors towards
    similar classes. The interval covers the models that explain the labels about equally well. If
    no model explains them better than overlapping classes do, by `min_gain` in log likelihood, the
    number is inconclusive. Then the first `untold` labels for which another class is more likely
    are listed.

    ## Why is this bad
    LABEL006 reports nearly certain errors, a small part of all wrong labels. A review in this order
    finds the rest fastest: the top has many times the errors of a random sample.

    ## Example
    Of 10,000 labels 900 are wrong: 450 of them lie among the first 1,000.

    ## What to do
    Review the list from the top (`label_scores.label_quality`, scores.csv of `audit export`), and
    stop when hardly any label is wrong. `audit decide --draw-labels N` draws labels at random.
    Their review estimates the share of wrong labels without a model.

    ## Limits
    The estimate assumes that errors do not depend on the class alone. If all trucks of one day were
    labelled car, the classes seem to overlap, and the estimate is too low or missing. The interval
    holds for the kinds of error named above. Not applicable below 50 labels. Inconclusive if the
    embeddings predict the classes no better than chance.

    ## References
    Northcutt, Jiang and Chuang (2021), Confident Learning, JAIR 70. Wei et al. (2022), Learning
    with Noisy Labels Revisited: A Study Using Real-World Human Annotations, ICLR.
    """

    code = "LABEL007"
    embeddings = True
    name = "labels-to-review"
    severity = Severity.INFO
    evidence = (
        "listed", "found", "found_low", "found_high", "wrong", "wrong_low", "wrong_high", "judged",
        "draw",
    )  # fmt: skip

    @dataclass(frozen=True)
    class Params:
        """min_gain: log likelihood by which wrong labels must beat class overlap (4: p = 0.002)
        untold: number of listed labels if the number of wrong labels is inconclusive
        max_listed: largest number of labels that the finding lists
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
            return "Labels were not checked: see LABEL006 for the reason."
        if facts.labels.agreed < LEAST_AGREED:
            return "No order of labels is better than chance: see LABEL006 for the reason."
        if facts.labels.gain < params.min_gain:
            return (
                "The classes overlap too much to estimate how many of the "
                f"{facts.judged:,} labels are wrong: review {_sample(UNTOLD_DRAW, facts.judged)} "
                "(`audit decide --draw-labels`)."
            )
        return f"All {facts.judged:,} checked labels were ranked."


UNTOLD_DRAW = 300
"""Labels that are reviewed for an answer where there is no forecast: if none is wrong, fewer than
1 % of all are (95 %)."""
UNTOLD = (
    "Review these {listed:,} labels first. No reliable estimate of wrong labels: similar classes "
    "explain the scores equally well. If most are wrong, continue in this order (`audit export "
    "RUN --out FOLDER`: scores.csv, label_quality). To estimate the share of wrong labels among "
    "all {judged:,}, review {sample} (`audit decide --draw-labels`)."
)


def _forecast(row: Mapping[str, Any]) -> str:
    return (
        "Review these {listed:,} labels in this order: about "
        f"{row['found'] / row['listed']:.0%} of them are wrong ({{found:,.0f}}; "
        "{found_low:,.0f} to {found_high:,.0f}). Among all {judged:,} labels "
        + wrong_among(*(row[name] for name in ("judged", "wrong", "wrong_low", "wrong_high")))
        + ". To estimate that share within a third, review {sample} (`audit decide --draw-labels`)."
    )


def _sample(draw: int, judged: int) -> str:
    return "every one of them" if draw >= judged else f"{draw:,} drawn at random"


def _labels_to_draw(known: JudgedFacts, judged: int) -> int:
    """Return how many labels, drawn at random, tell the share of wrong ones within a third."""
    share = min(max(known.wrong / max(judged, 1), 0.005), 0.95)
    return math.ceil((1.96 * 3) ** 2 * (1 - share) / share)
