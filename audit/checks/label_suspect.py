"""LABEL006: labels that look wrong beside the other pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import QueryCheck
from audit.checking.label_facts import JudgedFacts, LabelFacts, read_label_facts
from audit.records import Action, Finding, Severity
from audit.run.store import Store

SCORE: Mapping[str, Any] = {
    "label_quality": 0.01, "suggested_label": "dog", "probability": 0.001,
    "suggested_probability": 0.98, "error_chance": 0.96, "neighbours": 20, "neighbours_given": 0,
    "neighbours_suggested": 19, "class_doubt": 0.02,
}  # fmt: skip
LABELS = JudgedFacts(
    share=0.05, share_limit=0.23, gain=40.0, accuracy=0.8, largest_class=0.1, expected={50: 0.8}
)
FACTS = LabelFacts(
    "built-in vectors", compared=500, least_compared=50, judged=500, classes=10, conflicting=2,
    in_small_classes=3, atypical=1, labels=LABELS,
)  # fmt: skip
IMAGES = [{"id": "a.jpg", "label": "cat"}, {"id": "b.jpg", "label": "dog"}]


def _tables(score: Mapping[str, Any], facts: LabelFacts = FACTS) -> Mapping[str, Any]:
    near = {"sample_id": "a.jpg", "position": 0, "neighbour_id": "b.jpg", "similarity": 0.9}
    return {
        "label_scores": [{**SCORE, "sample_id": "a.jpg", **score}],
        "vector_neighbours": [near],
        "label_facts": facts.rows(),
    }


class SuspectLabel(QueryCheck):
    """Pictures that look like another class than the one they are filed under.

    ## What it does
    Every scan gives each picture a vector (built in, or the user's own) and predicts its class from
    the others, with its near-duplicates left out, and from the labels of its nearest neighbours. A
    label is reported when the chance that it is wrong is at least `min_chance`, where that chance
    comes from a model in which a share of all labels was set at random; and only if that share
    explains the labels better than classes that overlap do, by `min_gain` in log likelihood. The
    same is asked of labels that lie deep in another class with hardly any on the way there: a tail
    of the class would have eight on the way for each that is so far out.

    ## Why is this bad
    A model learns wrong labels by heart, and a wrong label in a test set counts a right answer as
    an error: above a few per cent the ranking of models changes.

    ## Example
    A clear boat lies in `apple/`: of its 20 nearest neighbours 18 are boats and none is an apple.

    ## What to do
    Look at the pictures in the order of the list and relabel those that are wrong. Whoever looks on
    finds the rest in the order of `label_quality` (`audit export --scores`). Where the list is
    full of pictures that are right, vectors from a trained model (`--embeddings`)
    see more than the built-in ones.

    ## Limits
    Errors that follow the classes (every third husky is called a wolf) look like classes that
    overlap, and are ranked but hardly ever reported. Classes of fewer than 10 pictures, pictures
    with two labels (LABEL005) and classes of which more than half would be reported are left out;
    below 50 pictures nothing is said. A rare subject in its right class may look like another. How
    many labels are wrong in all cannot be measured without looking: the share is right if errors do
    not follow the classes, and its limit if the model, unseen, names a wrong label by chance alone.
    An interval that needs neither comes from pictures drawn at random and reviewed
    (`audit labels`).

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
        min_gain: log likelihood that wrong labels must explain beyond overlap (4: p = 0.002)
        max_class_doubt: a class of which more would be reported is left out, 0..1
        """

        min_chance: float = 0.5
        min_gain: float = 4.0
        max_class_doubt: float = 0.5

    @staticmethod
    def cases() -> Iterator[Case]:
        yield Case("never scanned for labels", IMAGES)
        yield Case("a label that is probably right", IMAGES, tables=_tables({"error_chance": 0.3}))
        yield Case(
            "overlap explains the labels as well",
            IMAGES,
            tables=_tables({}, replace(FACTS, labels=replace(LABELS, gain=0.4))),
        )
        yield Case(
            "half of the class: a matter of its name", IMAGES, tables=_tables({"class_doubt": 0.7})
        )
        few = replace(FACTS, labels=None, reason="12 pictures, but 50 are needed")
        yield Case("too few pictures", IMAGES, tables=_tables({}, few))
        yield Case("a dog filed under cat", IMAGES, ["a.jpg"], tables=_tables({}))
        yield Case(
            "a lower threshold", IMAGES, ["a.jpg"], {"min_chance": 0.25},
            _tables({"error_chance": 0.3}),
        )  # fmt: skip

    sql = """
        WITH listed AS (
            SELECT s.*, i.label, i.subject, i.id
            FROM label_scores s JOIN images i ON i.id = s.sample_id
            WHERE s.error_chance >= $min_chance AND s.class_doubt <= $max_class_doubt
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
        if facts and facts.labels and facts.labels.gain >= params.min_gain:
            yield from super().find(store, params)

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        asked = ""
        if row["neighbours"]:
            asked = (
                f" Of its {row['neighbours']} nearest neighbours {row['neighbours_suggested']} are "
                f"{row['suggested_label']!r} and {row['neighbours_given']} are {row['label']!r}."
            )
        return (
            f"The label {row['label']!r} of this picture is probably wrong "
            f"({row['error_chance']:.0%}): it looks like {row['suggested_label']!r} "
            f"({row['suggested_probability']:.1%}; {row['label']!r} {row['probability']:.1%})."
            + asked
        )

    def completeness(self, store: Store, params: Params) -> str:
        facts = read_label_facts(store)
        if facts is None:
            return "No labels were judged, because this run has no vectors: scan again."
        if facts.labels is None:
            return f"Whether labels are wrong cannot be told: {facts.reason}."
        start = (
            f"{facts.judged:,} labels of {facts.classes:,} classes were judged by "
            f"{facts.vectors}, which name {facts.labels.accuracy:.0%} of them unseen; left out "
            f"were {facts.conflicting:,} pictures with several labels, {facts.in_small_classes:,} "
            f"in small classes and {facts.atypical:,} that look like no other. "
        )
        if facts.not_drawn:
            start += (
                f"{facts.not_drawn:,} more were not drawn: to judge all labels of so many classes "
                "takes more memory than a scan may use. "
            )
        return start + _share_sentence(facts.labels, params.min_gain)


def _share_sentence(known: JudgedFacts, min_gain: float) -> str:
    limit = f"at most {known.share_limit:.1%} if a wrong label is named unseen by chance alone"
    if known.accuracy <= known.largest_class:
        return (
            "The share of wrong labels cannot be estimated: the classifier is no better than "
            "always answering the largest class."
        )
    if known.gain < min_gain:
        return (
            "The share of wrong labels cannot be told from that of classes that overlap: it is "
            f"{limit}."
        )
    shares = ", ".join(f"{share:.0%} of the first {n:,}" for n, share in known.expected.items())
    return (
        f"If errors do not follow the classes, {known.share:.1%} of the labels are wrong; {limit}"
        + (f". In the order of this list, {shares} are expected to be wrong." if shares else ".")
    )
