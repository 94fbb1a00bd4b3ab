"""Deciding: the verbs, on samples by id or by SQL, and on findings by fingerprint or code.

Every decision stores what it is about (the content hash of a sample, the members of a finding),
because it holds only while that stays true (`audit.decisions.waivers`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import polars as pl

from audit.decisions.box_fixes import FIXABLE, ProposedFix, fix_entries, propose_fixes
from audit.decisions.store import LABEL_RIGHT, Decision, DecisionStore, Entry
from audit.decisions.waivers import (
    LookedUp,
    apply_decisions,
    load_findings,
    open_findings,
    open_for_deciding,
    snapshot_finding,
)
from audit.errors import UsageError
from audit.records import DECISIONS, TAGGING, Action
from audit.run import run_version
from audit.run.store import Store
from audit.run.user_query import LIMIT_S, query_frame
from dataset_preflight.foundation.terminal import nearest_name

FINGERPRINT = re.compile(r"^[0-9a-f]{16}$")
CODE = re.compile(r"^[A-Za-z]{3,5}\d{3}$")
# In these families every sample but one may be fine: dropping all of them loses the picture.
COPIES = ("DUP", "SPLIT")
LABEL_REVIEW = "LABEL006"  # a keep of its finding says that the label is right
# Of the family BOX, these are about a picture or a whole file; the others about boxes in a picture.
NOT_OF_BOXES = (
    "BOX005", "BOX008", "BOX011", "BOX012", "BOX013", "BOX014", "BOX015", "BOX022", "BOX026",
)  # fmt: skip


_FINDINGS_OF = """
    SELECT f.code, f.fingerprint FROM judged.main.findings f
    JOIN judged.main.finding_samples m USING (fingerprint) WHERE m.sample_id = ?
    ORDER BY f.code LIMIT 5
"""


def is_of_box(code: str) -> bool:
    """Say whether the findings of a check that name a picture are about one of its boxes."""
    return code.startswith("BOX") and code not in NOT_OF_BOXES


def parse_verb(text: str) -> tuple[Action, str | None]:
    """Return the verb and value of `keep`, `drop`, `relabel:NAME`, `move:SPLIT`, `false-positive`,
    `fix`, `fix:NAME`, `tag:NAME` or `untag:NAME`.

    Raises UsageError for anything else.
    """
    word, colon, value = text.partition(":")
    if word.replace("_", "-") not in (*DECISIONS, *TAGGING):
        raise UsageError(
            f"{str(text)!r} is not a decision: use keep, drop, relabel:NAME, move:SPLIT, "
            "false-positive, fix, tag:NAME or untag:NAME."
        )
    verb = Action(word.replace("_", "-"))
    wants = verb in (Action.RELABEL, Action.MOVE, *TAGGING)
    if (wants != bool(value.strip()) and verb is not Action.FIX) or (colon and not value.strip()):
        raise UsageError(
            f"{str(text)!r} is incomplete: relabel:NAME, move:SPLIT, tag:NAME and untag:NAME take "
            "a name; other decisions take none."
        )
    name = value.strip()
    is_tag = len(name) <= LONGEST_TAG and SEPARATOR.strip() not in name and name.isprintable()
    if verb in TAGGING and not is_tag:
        raise UsageError(
            f"{name[:LONGEST_TAG]!r} is not a tag: use up to {LONGEST_TAG} printable characters "
            "and no semicolon."
        )
    return verb, name or None


def decide_samples(
    run: Path, ids: Sequence[str], verb: Action, value: str | None = None, note: str = "",
    by: str | None = None, evidence: str | None = None,
) -> list[Decision]:  # fmt: skip
    """Decide about samples by id, as one batch; raises UsageError for an id the run lacks."""
    entries = sample_entries(run, ids, verb, value, note, by)
    return DecisionStore(run).record([replace(entry, evidence=evidence) for entry in entries])


def decide_findings(
    run: Path, fingerprints_or_codes: Sequence[str], verb: Action, value: str | None = None,
    note: str = "", by: str | None = None,
) -> list[Decision]:  # fmt: skip
    """Decide about findings, as one batch: waive them, or apply the verb to their samples.

    Raises UsageError for an unknown finding or code, and for a drop of every copy of a picture, or
    of a picture for one of its boxes.
    """
    return DecisionStore(run).record(
        finding_entries(run, fingerprints_or_codes, verb, value, note, by)
    )


def select_samples(run: Path, predicate: str) -> list[str]:
    """Return the ids of the samples that an SQL predicate over the `images` view picks, sorted.

    The predicate reads the run only: it can neither write nor open a file; the table `tags` (id,
    tag) is there as well. Raises UsageError with DuckDB's first line, and for a predicate that
    takes more time or memory than the query of a service.
    """
    # The line break ends a trailing comment.
    sql = f"SELECT id FROM images WHERE (\n{predicate}\n) ORDER BY id"
    frame = query_frame(run, sql, tagged_samples(run), LIMIT_S)
    if frame.columns != ["id"]:
        raise UsageError(f'{predicate!r} is not a filter: write SQL such as "width < 64".')
    return [str(sample) for sample in frame["id"]]


def sample_entries(
    run: Path, ids: Iterable[str], verb: Action, value: str | None = None, note: str = "",
    by: str | None = None,
) -> list[Entry]:  # fmt: skip
    """Return the entries that a decision about these samples would record."""
    parse_verb(verb if value is None else f"{verb}:{value}")
    with open_for_deciding(run) as store:
        known = content_hashes(store, list(dict.fromkeys(ids)))
        if verb in (Action.FALSE_POSITIVE, Action.FIX) and known.height:
            sample = known["id"][0]
            names = [" ".join(row) for row in store.query(_FINDINGS_OF, [sample]).iter_rows()]
            raise UsageError(
                f"{verb} applies to a finding, not to a sample: give a fingerprint. "
                f"The findings of {sample} are: {', '.join(names) or 'none'}."
            )
    return [Entry("sample", i, h, verb, value, note, by) for i, h in known.iter_rows()]


def finding_entries(
    run: Path, fingerprints_or_codes: Sequence[str], verb: Action, value: str | None = None,
    note: str = "", by: str | None = None, named: Sequence[str] = (),
) -> list[Entry]:  # fmt: skip
    """Return the entries that a decision about these findings would record: theirs, then samples'.

    A code stands for all its findings that are still open. `named`: samples that the decision names
    itself.
    """
    parse_verb(verb if value is None else f"{verb}:{value}")
    if verb is Action.FIX:
        proposed = plan_fixes(run, fingerprints_or_codes, value)
        return fix_entries(run, proposed, value, note, by)
    with open_for_deciding(run) as store:
        findings = _named_findings(run, store, fingerprints_or_codes)
    entries = []
    samples: dict[str, str | None] = {}
    reviewed = set[str]()
    for row in findings.iter_rows(named=True):
        _refuse(row, verb, named)
        if verb not in TAGGING:  # a tag is of samples: it settles no finding
            shot = snapshot_finding(row)
            if verb is Action.KEEP and row["code"] == LABEL_REVIEW:
                reviewed.update(row["ids"] or ())
            entries.append(Entry("finding", row["fingerprint"], None, verb, value, note, by, shot))
        samples.update(zip(row["ids"] or (), row["hashes"] or (), strict=True))
    if verb is Action.FALSE_POSITIVE:
        return entries
    return entries + [
        Entry("sample", i, h, verb, value, note, by, LABEL_RIGHT if i in reviewed else None)
        for i, h in samples.items()
    ]


def named_entries(
    run: Path, findings: Sequence[str], samples: Sequence[str], verb: Action,
    value: str | None = None, note: str = "", by: str | None = None,
) -> list[Entry]:  # fmt: skip
    """Return the entries of a decision about findings and samples: each subject has one."""
    entries = finding_entries(run, findings, verb, value, note, by, samples) if findings else []
    known = {entry.subject for entry in entries}
    more = sample_entries(run, samples, verb, value, note, by) if samples else []
    return entries + [entry for entry in more if entry.subject not in known]


def plan_fixes(
    run: Path, fingerprints_or_codes: Sequence[str], name: str | None = None
) -> list[ProposedFix]:
    """Return what `fix` would change of these findings; a code stands for all that are open."""
    with open_for_deciding(run) as store:
        findings = _named_findings(run, store, fingerprints_or_codes)
    return propose_fixes(run, findings["fingerprint"].to_list(), name)


def _named_findings(run: Path, store: Store, words: Sequence[str]) -> pl.DataFrame:
    """Return the findings of fingerprints, and of codes those that nothing has settled yet.

    Raises UsageError for an unknown one.
    """
    prints = [word for word in words if FINGERPRINT.match(word)]
    codes = [word.upper() for word in words if not FINGERPRINT.match(word)]
    if codes:
        ran = set(store.query("SELECT code FROM judged.main.check_runs")["code"])
        if unknown := [code for code in codes if code not in ran]:
            raise UsageError(
                f"This run has no finding or check {unknown[0]!r}: give a fingerprint (16 hex "
                "digits) or a code such as DUP003 (`audit explain` lists "
                f"them).{nearest_name(unknown[0], ran)}"
            )
        prints += open_findings(run, store, codes)["fingerprint"].to_list()
    findings = load_findings(store, prints)
    if missing := sorted(set(prints) - set(findings["fingerprint"])):
        raise UsageError(
            f"The run has no finding {missing[0]}: `audit report RUN -o report.json` lists the "
            "fingerprints. A finding that no longer exists needs no decision."
        )
    return findings


def count_by_split(run: Path, ids: Sequence[str]) -> dict[str, int]:
    """Return the number of these samples in each split, `(none)` without one, by name."""
    with open_for_deciding(run) as store:
        store.create_from("chosen", pl.DataFrame({"id": list(ids)}, {"id": pl.String}))
        counts = store.query(
            "SELECT coalesce(split, '(none)') AS split, count(*) FROM samples SEMI JOIN chosen "
            "USING (id) GROUP BY 1 ORDER BY 1"
        )
    return dict(counts.iter_rows())


def known_names(run: Path, verb: Action, name: str | None = None) -> set[str]:
    """Return the classes, or for a move the splits, of the run: as scanned and as decided.

    For a fix: the classes of the annotation files. Where `name` is one of the scan's, what was
    decided is not read.
    """
    column = "label" if verb is Action.RELABEL else "split"
    with open_for_deciding(run) as store:
        if verb is Action.FIX:
            listed = "SELECT label FROM categories UNION SELECT label FROM boxes"
            return set(store.query(listed)["label"]) - {None}
        names = set(store.query(f"SELECT DISTINCT {column} FROM samples")[column])
    return (names if name in names else {*names, *apply_decisions(run).effective[column]}) - {None}


def find_new_name(run: Path, entries: Iterable[Entry]) -> str | None:
    """Return a sentence about a class or split of the entries that the run does not have."""
    verbs = (Action.RELABEL, Action.MOVE, Action.FIX)
    named = {(e.verb, e.value) for e in entries if e.verb in verbs and e.value is not None}
    for verb, name in sorted(named):
        known = known_names(run, verb, name)
        if name not in known:
            near = get_close_matches(str(name), sorted(known), 1, 0.0)
            noun = "split" if verb is Action.MOVE else "class"
            what = "annotation file" if verb is Action.FIX else "sample"
            hint = f" (the nearest is {near[0]!r})" if near else ""
            return f"No {what} of this run has the {noun} {name!r}{hint}."
    return None


def content_hashes(store: Store, ids: Sequence[str]) -> pl.DataFrame:
    """Return (id, content_hash) of samples in the given order; raises UsageError for an unknown."""
    store.create_from(
        "wanted_samples", pl.DataFrame({"id": ids}, {"id": pl.String}).with_row_index()
    )
    samples = store.query(
        "SELECT w.id, f.content_hash, s.id IS NULL AS unknown FROM wanted_samples w "
        "LEFT JOIN measurements.main.samples s ON s.id = w.id "
        "LEFT JOIN measurements.main.features f ON f.sample_id = w.id ORDER BY w.index"
    )
    unknown = samples.filter("unknown")["id"]
    if len(unknown):
        raise UsageError(
            f"The run has no sample {unknown[0]!r}"
            + (f" (and {len(unknown) - 1:,} more)" if len(unknown) > 1 else "")
            + ": `audit show RUN NAME` finds the nearest."
        )
    return samples.select("id", "content_hash")


def _refuse(finding: Mapping[str, Any], verb: Action, named: Sequence[str]) -> None:
    """Refuse what would lose a picture, or would mean nothing."""
    code, ids = finding["code"], finding["ids"]
    if verb is Action.DROP and ids and is_of_box(code) and not set(ids) <= set(named):
        fix = "fix, " if code in FIXABLE else ""
        raise UsageError(
            f"{code} {finding['fingerprint']} concerns one box of {ids[0]}, but a drop removes "
            "the image with all of its boxes. Name the image itself to drop it, or decide "
            f"{fix}keep or false-positive."
        )
    if verb is Action.DROP and code.startswith(COPIES):
        raise UsageError(
            f"Dropping {code} {finding['fingerprint']} would drop every copy of the image: choose "
            f"the copy to keep with `--code {code} --rule largest`, or name the samples."
        )
    if not ids and verb not in (Action.FALSE_POSITIVE, Action.KEEP):
        raise UsageError(
            f"{code} {finding['fingerprint']} concerns the whole dataset and has no sample to "
            f"{verb}: use --as keep to accept it, or false-positive to waive it."
        )


# Tags are rows of the store of decisions (`tag`, `untag`), but decide nothing.

LONGEST_TAG = 80
SEPARATOR = "; "  # between the tags of a sample, where one text holds them all


def tagged_samples(
    run: Path, version: run_version.RunVersion | None = None, known: LookedUp | None = None
) -> pl.DataFrame:
    """Return (id, tag), sorted: what holds for a version of the run (default: the current).

    `known`: what was looked up for these decisions and this version before.
    """
    last = _last_said(_resolved_tags(run, version, known or LookedUp()), "sample_id")
    return last.filter("given").select(id="sample_id", tag="tag").sort("id", "tag")


def stale_tags(run: Path, version: run_version.RunVersion | None = None) -> pl.DataFrame:
    """Return (decision, reason): tags whose content is in the run no more, and why not."""
    said = _resolved_tags(run, version, LookedUp())
    lost = _last_said(said.filter(pl.col("sample_id").is_null()), "subject", "content_hash")
    # what was said again of the same name with its present content needs no reminder of the old
    again = said.filter(pl.col("sample_id") == pl.col("subject")).select("subject", "tag")
    stale = lost.filter("given").join(again, on=["subject", "tag"], how="anti")
    return stale.select("decision", "reason").sort("decision")


def _resolved_tags(
    run: Path, version: run_version.RunVersion | None, known: LookedUp
) -> pl.DataFrame:
    """Return what was tagged and untagged, oldest first, with the sample that each is about now."""
    given = DecisionStore(run).tags()
    if given.is_empty():
        nothing = {"sample_id": pl.String, "reason": pl.String}
        return pl.DataFrame(schema={**given.schema, **nothing})
    with open_for_deciding(run, version) as store:
        return known.resolve(store, given)


def _last_said(said: pl.DataFrame, *subject: str) -> pl.DataFrame:
    # by the sample that each is about now: a file may have been moved between tag and untag
    here = said.filter(pl.col(subject[0]).is_not_null())
    return here.group_by(*subject, "tag", maintain_order=True).last()


def count_tags(run: Path) -> pl.DataFrame:
    """Return (tag, samples), the most frequent first."""
    counted = tagged_samples(run).group_by("tag").agg(samples=pl.len())
    return counted.sort("samples", "tag", descending=[True, False])
