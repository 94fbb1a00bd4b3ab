"""Keeper rules: which copy of an image stays, and why, for all groups of duplicates at once.

A rule prefers sound and labelled files, then its own criterion, then the larger file. A group stays
*open* (`keep` is null, `why` says what is missing) where its labels differ, or where it lies in
several splits and `drop_from_splits` names none. Decisions made before count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from audit.decisions.decisions import content_hashes
from audit.decisions.store import Decision, DecisionStore, Entry
from audit.decisions.waivers import (
    apply_decisions,
    load_findings,
    open_for_deciding,
    snapshot_finding,
)
from audit.errors import UsageError
from audit.records import Action

RULES = ("largest", "sharpest", "least-compressed", "split:NAME")
CODES = ("DUP001", "DUP002", "DUP003", "SPLIT001")
# A rule may drop from these unasked: what is lost is training data, never a test file.
TRAINING = ("train", "training")
NO_SPLIT = "(none)"
# Why a group across splits stays open; each front end says how to name a split there.
SPLIT_NEEDED = "is in several splits, and the split to drop copies from is not named"
_PROPOSED = ("group", "code", "sample_id", "split", "label", "keep", "why", "keeper")
PROPOSAL = pl.Schema(dict.fromkeys(_PROPOSED, pl.String) | {"keep": pl.Boolean})
MEMBERS = """
    WITH picked AS MATERIALIZED (
        SELECT f.fingerprint AS "group", f.code, m.sample_id
        FROM judged.main.findings f JOIN judged.main.finding_samples m USING (fingerprint)
        WHERE f.code = ? AND {chosen}
            AND (starts_with(f.subject, 'group:') OR starts_with(f.subject, 'pair:'))
    )
    SELECT p.*, s.split, s.label, s.n_bytes, f.status = 'ok' AS sound, f.width, f.height,
        CAST(f.width AS BIGINT) * f.height AS pixels, f.sharpness, f.format, f.jpeg_quality,
        s.n_bytes * 8.0 / nullif(CAST(f.width AS BIGINT) * f.height, 0) AS bits,
        CASE WHEN f.format IN ('PNG', 'BMP', 'TIFF', 'PPM', 'TGA') THEN 101 ELSE f.jpeg_quality
        END AS quality
    FROM picked p JOIN measurements.main.samples s ON s.id = p.sample_id
    JOIN measurements.main.features f ON f.sample_id = p.sample_id
"""
# What a rule ranks by, best first, and the figures that its reason quotes.
RANKS: Mapping[str, tuple[str, ...]] = {
    "largest": (),
    "sharpest": ("sharpness",),
    "least-compressed": ("quality", "bits"),
    "split": (),
}
SIZE = pl.format(
    "{} x {} px, {} bytes", pl.col("width").fill_null(0), pl.col("height").fill_null(0), "n_bytes"
)
FACTS: Mapping[str, pl.Expr] = {
    "largest": SIZE,
    "sharpest": pl.format("sharpness {}", pl.col("sharpness").round(3).fill_null(0.0)),
    "least-compressed": pl.when(pl.col("quality") == 101)
    .then(pl.format("{}, lossless", "format"))
    .when(pl.col("quality").is_not_null())
    .then(pl.format("{} of quality {}", "format", "quality"))
    .otherwise(
        pl.format(
            "{} at {} bits a pixel", pl.col("format").fill_null("?"),
            pl.col("bits").round(2).fill_null(0.0),
        )
    ),
    "split": SIZE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summary:
    """A proposal in numbers: groups, samples that stay, drops by split, open groups by reason."""

    groups: int
    stay: int
    drops: Mapping[str, int]
    open: Mapping[str, int]


def propose(
    run: Path,
    code: str = "DUP003",
    rule: str = "largest",
    fingerprints: Sequence[str] | None = None,
    drop_from_splits: Sequence[str] = (),
) -> pl.DataFrame:
    """Return who stays and who goes, one row per sample and group (`PROPOSAL`); records nothing.

    `rule`: largest (pixels, then bytes), sharpest (the `sharpness` feature: favours the smaller of
    two sizes), least-compressed (lossless formats, then JPEG quality, then bits a pixel: a PNG made
    from a JPEG counts as lossless), split:NAME (the largest there; across splits, copies in
    training data are dropped). `drop_from_splits`: splits to drop copies from, the first named
    first, until a group lies in one split. `fingerprints`: these groups (default: all
    that are open). `keep` is null where a group is left open. Raises UsageError for an
    unknown rule, code or split.
    """
    kind, _, name = rule.removeprefix("keep-").partition(":")
    if kind not in RANKS or (kind == "split") != bool(name):
        raise UsageError(f"{rule!r} is not a keeper rule: use {', '.join(RULES)}.")
    if code not in CODES:
        raise UsageError(f"{code} has no duplicate groups: use {', '.join(CODES)}.")
    members = _members(run, code, fingerprints, drop_from_splits)
    if members.is_empty():
        return pl.DataFrame(schema=PROPOSAL)
    # split:NAME says by itself that NAME stays, so training data need not be named to be dropped.
    implied = not drop_from_splits and name != "" and name not in TRAINING
    splits = TRAINING if implied else tuple(drop_from_splits)
    out = _dropped_by_split(members, splits, name if implied else "")
    ranked = _rank(members.with_columns(out.alias("out")), kind)
    return _give_reasons(ranked, kind, name).select(PROPOSAL.names())


def apply_rule(
    run: Path, proposal: pl.DataFrame, note: str = "", by: str | None = None
) -> list[Decision]:
    """Record a proposal as one batch: its drops, each with its keeper, and the groups it decides.

    Keepers get no decision of their own, so that another rule may still choose a better copy.
    """
    drops = proposal.filter(~pl.col("keep")).unique("sample_id", maintain_order=True)
    # Only groups across splits: that one split is decided follows from its drops alone.
    across = proposal.filter(pl.col("code").str.starts_with("SPLIT")).group_by("group").agg(
        pl.col("keep").is_null().any().alias("open"),
        pl.col("split").filter(pl.col("keep")).n_unique().alias("sides"),
        (~pl.col("keep")).any().alias("drops"),
    )  # fmt: skip
    across = across.filter(~pl.col("open") & (pl.col("sides") == 1) & pl.col("drops"))
    with open_for_deciding(run) as store:
        dropped_hashes = content_hashes(store, drops["sample_id"].to_list())["content_hash"]
        keeper_hashes = content_hashes(store, drops["keeper"].to_list())["content_hash"]
        decided = load_findings(store, across["group"].to_list())
    groups = [
        Entry("finding", row["fingerprint"], None, Action.DROP, None,
              note or "copies: a keeper rule", by, snapshot_finding(row))
        for row in decided.iter_rows(named=True)
    ]  # fmt: skip
    samples = [
        Entry("sample", sample, content, Action.DROP, None, f"{why}; {note}" if note else why, by,
              json.dumps({"keeper": [keeper, keeper_hash]}, ensure_ascii=False))
        for sample, content, why, keeper, keeper_hash in zip(
            drops["sample_id"], dropped_hashes, drops["why"], drops["keeper"], keeper_hashes,
            strict=True,
        )
    ]  # fmt: skip
    return DecisionStore(run).record([*groups, *samples])


def summarise(proposal: pl.DataFrame) -> Summary:
    """Return the counts of a proposal: what a person should see before it is applied."""
    drops = proposal.filter(~pl.col("keep")).unique("sample_id")
    left = proposal.filter(pl.col("keep").is_null()).unique("group")
    return Summary(
        groups=proposal["group"].n_unique(),
        stay=proposal.filter("keep")["sample_id"].n_unique(),
        drops=dict(drops.group_by(pl.col("split").fill_null(NO_SPLIT)).len().sort("split").rows()),
        open=dict(left.group_by("why").len().sort("len", "why", descending=[True, False]).rows()),
    )


def _members(
    run: Path, code: str, fingerprints: Sequence[str] | None, drop_from_splits: Sequence[str]
) -> pl.DataFrame:
    """Return the copies that are left of the groups, as the decisions have them."""
    decided = apply_decisions(run)
    with open_for_deciding(run) as store:
        chosen = "true"
        if fingerprints is not None:
            named = pl.DataFrame({"fingerprint": list(fingerprints)}, {"fingerprint": pl.String})
            store.create_from("chosen", named)
            chosen = "f.fingerprint IN (SELECT fingerprint FROM chosen)"
        members = store.query(MEMBERS.format(chosen=chosen), [code])
        splits = set(store.query("SELECT DISTINCT split FROM samples")["split"].fill_null(NO_SPLIT))
    if unknown := [split for split in drop_from_splits if split not in splits]:
        raise UsageError(
            f"The run has no split {unknown[0]!r} to drop from: it has {', '.join(sorted(splits))}."
        )
    if fingerprints is not None:
        if missing := sorted(set(fingerprints) - set(members["group"])):
            raise UsageError(f"{code} has no group with the fingerprint {missing[0]}.")
    else:
        settled = decided.settled.rename({"fingerprint": "group"})
        members = members.join(settled.select("group"), on="group", how="anti")
    effective = decided.effective.select(
        "id", "verb", "dropped", "by", pl.col("label").alias("new_label"),
        pl.col("split").alias("new_split"),
    )  # fmt: skip
    members = members.join(effective, left_on="sample_id", right_on="id", how="left").filter(
        pl.col("dropped").fill_null(False).not_()
    )
    return members.with_columns(
        pl.coalesce("new_label", "label").alias("label"),
        pl.coalesce("new_split", "split", pl.lit(NO_SPLIT)).alias("split"),
        (pl.col("verb") == Action.KEEP.value).fill_null(False).alias("chosen"),
    ).filter(pl.len().over("group") > 1)


def _dropped_by_split(members: pl.DataFrame, splits: Sequence[str], name: str) -> pl.Series:
    """Say which members are dropped for their split: split after split, until one is left."""
    frame = members.with_columns(pl.lit(False).alias("out"))
    there = (pl.col("split") == name).any().over("group") if name else pl.lit(True)
    for split in splits:
        left = pl.col("split").filter(~pl.col("out")).n_unique().over("group")
        # Only while another split is left: naming every split must not drop the last copy.
        goes = (pl.col("split") == split) & (left > 1) & there & ~pl.col("chosen")
        frame = frame.with_columns(pl.col("out") | goes)
    return frame["out"]


def _rank(members: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Sort each group, the best copy first: members dropped for their split last, chosen first."""
    ranks = [*RANKS[kind], "pixels", "n_bytes"]
    return members.with_columns(pl.col("label").is_not_null().alias("labelled")).sort(
        "group", "out", "chosen", "sound", "labelled", *ranks, "sample_id",
        descending=[False, False, True, True, True, *[True] * len(ranks), False],
        nulls_last=True,
    )  # fmt: skip


def _give_reasons(ranked: pl.DataFrame, kind: str, name: str) -> pl.DataFrame:
    """Add `keep`, `why` and `keeper` to ranked members."""
    over = "group"
    frame = ranked.with_columns(
        pl.first("sample_id").over(over).alias("keeper"),
        pl.int_range(pl.len()).over(over).alias("place"),
        pl.len().over(over).alias("copies"),
        pl.col("label").drop_nulls().n_unique().over(over).alias("labels"),
        pl.col("split").n_unique().over(over).alias("splits"),
        pl.col("split").filter(~pl.col("out")).n_unique().over(over).alias("left"),
        pl.col("chosen").any().over(over).alias("has_chosen"),
        pl.first("split").over(over).alias("side"),
        FACTS[kind].alias("fact"),
    ).with_columns(pl.first("fact").over(over).alias("best"))
    across, one = pl.col("splits") > 1, pl.col("splits") == 1
    elsewhere = one & (pl.col("split") != name) if name else pl.lit(False)
    rule = "largest" if kind == "split" else kind.replace("-", " ")
    cases = [
        (pl.col("labels") > 1, None, pl.lit("labels differ: relabel first")),
        (across & pl.col("out"), False,
         pl.format("{}: {} in {} stays, copies in {} are dropped", "code", "keeper", "side",
                   "split")),
        (across & (pl.col("left") > 1), None, pl.lit(SPLIT_NEEDED)),
        (across, True, pl.format("stays in {}: copies in other splits are dropped", "split")),
        (elsewhere, None, pl.lit(f"no copy lies in {name}")),
        (pl.col("chosen"), True, pl.format("{} chose to keep it", "by")),
        (pl.col("has_chosen"), False,
         pl.format("{}: {} stays, which {} chose to keep", "code", "keeper",
                   pl.first("by").over(over))),
        (pl.col("place") == 0, True,
         pl.format(f"{rule} of {{}} copies: {{}}", "copies", "fact")),
        (pl.lit(True), False,
         pl.format(f"{{}}: {{}} stays, the {rule} of {{}} copies ({{}}; this one {{}})", "code",
                   "keeper", "copies", "best", "fact")),
    ]  # fmt: skip
    keep, why = pl.lit(None, pl.Boolean), pl.lit(None, pl.String)
    # Built from the last case to the first, so that the first that holds is the outermost `when`.
    for condition, stays, reason in reversed(cases):
        keep = pl.when(condition).then(pl.lit(stays, pl.Boolean)).otherwise(keep)
        why = pl.when(condition).then(reason).otherwise(why)
    split = pl.when(pl.col("split") != NO_SPLIT).then(pl.col("split"))
    return frame.with_columns(keep.alias("keep"), why.alias("why"), split.alias("split"))
