"""The keeper rule of the page Duplicates: which copy stays, the preview, and applying it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import polars as pl
import streamlit as st

from audit.browse.findings import open_finding
from audit.errors import UsageError
from audit.review import keeper_rules
from audit.ui import html, link
from audit.ui.deciding import about, button, leave_trail
from audit.ui.opened import Opened, cached, say

RULES = {
    "largest": "the largest: most pixels, then most bytes",
    "sharpest": "the sharpest",
    "least-compressed": "the least compressed",
}


def rule() -> tuple[str, tuple[str, ...]]:
    """Return the keeper rule of the link, and the splits to drop copies from."""
    chosen = link.get("rule", "largest")
    split = link.get("from")
    return chosen, (split,) if split else ()


def proposed(run: Opened, code: str, fingerprints: tuple[str, ...] | None) -> pl.DataFrame | None:
    """Return what the chosen rule would do to these groups (None: to all); None for nothing."""
    # A link may name any code; only these have groups of copies.
    if code not in keeper_rules.CODES:
        return None
    chosen, splits = rule()
    proposed: pl.DataFrame = _propose(
        run.key, run.ledger.revision, code, chosen, fingerprints, splits, run
    )
    return None if proposed.is_empty() else proposed


@cached
def _propose(
    key: str,
    revision: str,
    code: str,
    chosen: str,
    fingerprints: tuple[str, ...] | None,
    splits: tuple[str, ...],
    _run: Opened,
) -> pl.DataFrame:
    return keeper_rules.propose(_run.run, code, chosen, fingerprints, splits)


def choose_rule(run: Opened) -> None:
    """Ask, once for all groups, which copy K keeps and which split gives way."""
    splits = [s for s in run.report().dataset.by_split() if s]
    left, right, key = st.columns([6, 5, 2], vertical_alignment="bottom")
    with left:
        link.choose(
            "K keeps",
            "rule",
            [*RULES, *(f"split:{s}" for s in splits)],
            any_=None,
            shown=lambda r: RULES.get(r, f"the largest in {r.removeprefix('split:')}"),
            help="A group whose labels differ, or that lies in several splits while no split "
            "gives way, is left open.",
        )
    if len(splits) > 1:
        with right:
            link.choose("Which split gives way?", "from", splits, any_="none: leave groups open")
        with key:
            turn = partial(_turn_split, splits)
            said = "The next split gives way; after the last, none."
            button("Next split", "next split", turn, shortcut="S", help_=said)


def _turn_split(splits: Sequence[str]) -> None:
    """Let the next split of the list give way, after the last none."""
    turns = ["", *splits]
    at = turns.index(link.chosen_option("from", turns))
    link.put(**{"from": turns[(at + 1) % len(turns)]})


def rule_for_all(run: Opened, code: str) -> None:
    """Draw what the rule would do to all open groups of a code, and the button that does it."""
    with st.container(border=True):
        proposal = proposed(run, code, None)
        if proposal is None:
            html.paragraph(f"No open group of {code} for a rule.", "quiet small")
            return
        _summary(code, proposal)
        button(
            f"Apply to all of {code}",
            "apply all",
            partial(record_rule, run, proposal),
            disabled=not would_drop(proposal),
        )


def _summary(code: str, proposal: pl.DataFrame) -> None:
    summary = keeper_rules.summarise(proposal)
    drops = ", ".join(f"{n:,} from {split}" for split, n in summary.drops.items()) or "nothing"
    rows = [
        ("groups", f"{summary.groups:,} of {code}"),
        ("stay", f"{summary.stay:,}"),
        ("drops", drops),
    ]
    rows += [("left open", f"{n:,}: {explained(why)}") for why, n in summary.open.items()]
    html.write_html(html.value_table(rows))


def explained(why: str) -> str:
    """Return a rule's reason, and where on this page a missing split is chosen."""
    return (
        f"{why}: choose one above, at Which split gives way"
        if why == keeper_rules.SPLIT_NEEDED
        else why
    )


def marks(proposal: pl.DataFrame | None) -> dict[str, str]:
    """Return what the rule would do, as marks of cards; nothing where it leaves a group open."""
    if proposal is None:
        return {}
    known = {True: "keep (rule)", False: "drop (rule)"}
    rows = proposal.select("sample_id", "keep").iter_rows()
    return {name: known[keep] for name, keep in rows if keep is not None}


def would_drop(proposal: pl.DataFrame | None) -> bool:
    """Return whether there is anything to apply."""
    return proposal is not None and bool(proposal["keep"].not_().any())


def record_rule(
    run: Opened, proposal: pl.DataFrame | None, then: Callable[[], None] | None = None
) -> None:
    """Drop what the rule drops, say so, and go on."""
    if proposal is None:
        return
    done = keeper_rules.apply_rule(run.run, proposal)
    say(f"Keeper rule applied: {about(done)} dropped. U takes it back.")
    leave_trail()
    if then is not None:
        then()


def decide_by_rule(
    run: Opened, fingerprint: str, chosen: tuple[str, str], then: Callable[[], None]
) -> None:
    """Let a rule (its name, the split to drop from) decide a group; then go on.

    Raises UsageError where the rule leaves the group open.
    """
    with run.store() as store:
        found = open_finding(store, fingerprint)
    if found is None or found.finding.code not in keeper_rules.CODES:
        raise UsageError("This is no group of copies that a rule can decide.")
    code = found.finding.code
    splits = [chosen[1]] if chosen[1] else []
    proposal = keeper_rules.propose(run.run, code, chosen[0], [fingerprint], splits)
    if not would_drop(proposal):
        why = proposal["why"].drop_nulls()
        said = explained(why[0]) if why.len() else "nothing is left to drop"
        raise UsageError(f"The rule leaves this group open: {said}.")
    record_rule(run, proposal, then)
