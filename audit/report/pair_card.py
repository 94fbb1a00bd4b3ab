"""The evidence between two files (`audit.results.pair_details`) as text for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from audit.report.text import fact_table, heading, rendered
from audit.results.formatting import VERDICTS
from audit.results.pair_details import PairCard
from dataset_preflight.foundation.terminal import visible


def pair_text(card: PairCard, width: int = 100, color: bool = False) -> str:
    """Return the evidence for a terminal of `width` columns, with ANSI colours if `color`."""
    names = Text(f"{visible(card.first)}\n{visible(card.second)}", style="bold")
    table = fact_table(evidence_lines(card))
    return rendered(Group(names, heading("Evidence"), table), width, color)


def evidence_lines(card: PairCard) -> list[tuple[str, str]]:
    """Return the evidence as (name, value), the verdict first."""
    lines = [("verdict", VERDICTS[card.kind])]
    if card.distance is not None:
        lines.append(("hashes", f"{card.distance} of 64 bits differ (phash)"))
    if card.score is None:
        lines.append(("match score", "none: a thumbnail is missing or blank"))
    else:
        bound = "" if card.threshold is None else f" (threshold {card.threshold:+.2f})"
        source = "stored by the scan, decides" if card.stored else "of the thumbnails, computed now"
        lines.append(("match score", f"{card.score:+.2f}{bound}, {source}"))
        if card.stored and card.thumbnail_score is not None:
            rest = card.score - card.thumbnail_score
            lines.append(
                ("its parts", f"thumbnails {card.thumbnail_score:+.2f}, other checks {rest:+.2f}")
            )
        lines.append(("similarity", f"{card.similarity:.3f} (correlation of gradients, -1..1)"))
        lines.append(("overlap", f"{card.overlap:.0%} of one image"))
        if card.kind != "different":
            lines.append(("change", f"{card.transformation} (first to second)"))
    if card.looked:
        lines.append(("verified", "at full resolution"))
    elif card.rechecked:
        decides = "" if card.stored else ", decides"
        lines.append(("full-resolution check", f"{card.rechecked}{decides}"))
    if card.group_scores and not card.stored:
        scores = " and ".join(f"{score:+.2f}" for score in card.group_scores)
        lines.append(("decided by", f"the scores against {card.representative}: {scores}"))
    if card.grouped:
        lines.append(("duplicate group", f"of {card.representative}"))
    return lines
