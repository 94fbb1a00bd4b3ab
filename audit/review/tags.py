"""Tags: words of a reviewer's own on samples, such as `night` or `ask Ana`; any number on each.

They lie in the ledger beside the decisions, as rows of `tag` and `untag`, so undo, proof against
damage and the way they follow a file that moved are the same. A tag decides nothing: what is kept,
what is open and what is exported stay as they are. 100,000 take a second.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from audit.errors import UsageError
from audit.review.ledger import Ledger
from audit.review.status import open_for_deciding
from audit.review.waivers import resolve
from audit.run import generations

LONGEST_TAG = 80
SEPARATOR = "; "  # between the tags of a sample, where one text holds them all


def tagged_samples(run: Path, generation: generations.Generation | None = None) -> pl.DataFrame:
    """Return (id, tag), sorted: what holds for a generation of the run (default: the current)."""
    last = _last_said(_resolved_tags(run, generation), "sample_id")
    return last.filter("given").select(id="sample_id", tag="tag").sort("id", "tag")


def stale_tags(run: Path, generation: generations.Generation | None = None) -> pl.DataFrame:
    """Return (decision, reason): tags whose content is in the run no more, and why not."""
    said = _resolved_tags(run, generation)
    lost = _last_said(said.filter(pl.col("sample_id").is_null()), "subject", "content_hash")
    # what was said again of the same name with its present content needs no reminder of the old
    again = said.filter(pl.col("sample_id") == pl.col("subject")).select("subject", "tag")
    stale = lost.filter("given").join(again, on=["subject", "tag"], how="anti")
    return stale.select("decision", "reason").sort("decision")


def _resolved_tags(run: Path, generation: generations.Generation | None) -> pl.DataFrame:
    """Return what was tagged and untagged, oldest first, with the sample that each is about now."""
    given = Ledger(run).tags()
    if given.is_empty():
        nothing = {"sample_id": pl.String, "reason": pl.String}
        return pl.DataFrame(schema={**given.schema, **nothing})
    with open_for_deciding(run, generation) as store:
        return resolve(store, given).sort("decision")


def _last_said(said: pl.DataFrame, *subject: str) -> pl.DataFrame:
    """Return the last row of each tag of each subject."""
    # by the sample that each is about now: a file may have been moved between tag and untag
    here = said.filter(pl.col(subject[0]).is_not_null())
    return here.group_by(*subject, "tag", maintain_order=True).last()


def check_tag(name: str) -> None:
    """Refuse what a list of tags could not hold."""
    if len(name) > LONGEST_TAG or SEPARATOR.strip() in name or not name.isprintable():
        raise UsageError(
            f"{name[:LONGEST_TAG]!r} is no tag: use up to {LONGEST_TAG} printable characters and "
            "no semicolon."
        )


def count_tags(run: Path) -> pl.DataFrame:
    """Return (tag, samples), the most frequent first."""
    counted = tagged_samples(run).group_by("tag").agg(samples=pl.len())
    return counted.sort("samples", "tag", descending=[True, False])
