"""What to do first: at most five things, ranked by what they cost times how sure they are.

Codes that one step mends are a *family*, which costs harm x share x sureness. `share`: percent of
files of the split concerned most; `harm`: points of accuracy lost per percent; `sureness`: mean
chance of the findings, else 1 for an error, 0.5 for a warning, 0 for a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.records import Severity
from audit.results.costs import Cost
from audit.results.formatting import as_sentence, counted
from audit.results.grouping import OPEN, SAME_FAULTS
from audit.results.report_data import FirstThing
from audit.run.store import Store

MOST = 5
STOPPED = 5.0  # points for a training that ends at a file
SURE_OF_WARNING = 0.5


@dataclass(frozen=True, slots=True)
class Family:
    """Codes, or prefixes of codes, that one step mends.

    `says` has {findings} and {files} with nouns, and {names} of checks; empty: the worst finding.
    """

    name: str
    codes: tuple[str, ...]
    harm: float
    says: str = ""
    stops: bool = False


FAMILIES = (
    Family(
        "leaked", ("SPLIT001",), 1.0,
        "{files} show images that are in several splits",
    ),
    Family(
        "related", ("SPLIT002",), 0.5,
        "{files} belong to sequences or groups that are in both training and evaluation splits",
    ),
    Family(
        "contradicting labels", ("LABEL005",), 2.0,
        "{files} show the same images with different labels, so at least one label is wrong",
    ),
    Family("suspected labels", ("LABEL006",), 2.0, "the labels of {files} are probably wrong"),
    Family(
        "damaged files", ("FILE001", "FILE002", "FILE003", "FILE005"), 1.0,
        "{files} are corrupt or not images: a loader fails on them, or trains on noise",
        stops=True,
    ),
    Family("objects", ("BOX",), 0.5, "{findings} in the annotations of {files}: {names}"),
    Family("classes", ("DIST002", "DIST003", "LABEL001", "LABEL002", "LABEL003", "LABEL004"), 0.3),
    Family("shortcuts", ("DIST004", "DIST007"), 0.5),
    Family("copies", ("DUP",), 0.1, "{files} repeat another image of their split"),
    Family("decoders", ("FILE004", "FILE006"), 0.1),
)  # fmt: skip
SINGULAR = (
    ("the labels of ", "the label of "), (" are ", " is "), (" show ", " shows "),
    (" repeat ", " repeats "), (" belong ", " belongs "),
    ("not images", "not an image"), ("on them", "on it"),
)  # fmt: skip
_REST = 0.1  # harm of every code that no family names; a user's own check is one
# One row a family: what it found, the share of the split it concerns most, how sure, the worst.
_COUNTED = f"""
    WITH families AS (SELECT unnest(?) AS code, unnest(?) AS family),
    counted AS (
        SELECT f.*, g.family FROM {OPEN} f JOIN families g USING (code)
        ANTI JOIN {SAME_FAULTS} USING (fingerprint) WHERE f.severity <> 'info'
    ), placed AS (
        SELECT f.family, coalesce(s.split, '') AS split, count(DISTINCT m.sample_id) AS n
        FROM counted f JOIN finding_samples m USING (fingerprint)
        JOIN samples s ON s.id = m.sample_id GROUP BY ALL
    ), sizes AS (SELECT coalesce(split, '') AS split, count(*) AS n FROM samples GROUP BY ALL),
    shares AS (
        SELECT family, max(p.n / z.n) AS share, sum(p.n)::BIGINT AS files
        FROM placed p JOIN sizes z USING (split) GROUP BY family
    )
    SELECT f.family, list(DISTINCT f.code ORDER BY f.code) AS codes,
        list(DISTINCT f.name ORDER BY f.name) AS names, count(*) AS findings,
        count(DISTINCT f.message) AS messages, coalesce(any_value(s.files), 0) AS files,
        coalesce(any_value(s.share), 0) AS share,
        count(DISTINCT coalesce(json_extract_string(f.evidence, '$.class'), f.fingerprint))
            FILTER (WHERE f.n_samples = 0) AS classes,
        avg(coalesce(TRY_CAST(json_extract_string(f.evidence, '$.error_chance') AS DOUBLE),
            CASE f.severity WHEN 'error' THEN 1 ELSE {SURE_OF_WARNING} END)) AS sure,
        bool_or(f.severity = 'error') AS grave,
        arg_min(f.code, (f.severity <> 'error', -f.n_samples, f.place)) AS worst_code,
        arg_min(f.fingerprint, (f.severity <> 'error', -f.n_samples, f.place)) AS worst
    FROM counted f LEFT JOIN shares s USING (family) GROUP BY f.family
"""
_WORST = f"""
    SELECT f.fingerprint, f.message, coalesce(list(m.sample_id ORDER BY m.position)
        FILTER (WHERE m.position < 2), []) AS ids
    FROM {OPEN} f LEFT JOIN finding_samples m USING (fingerprint)
    WHERE list_contains(?, f.fingerprint) GROUP BY f.fingerprint, f.message
"""


# The forecast of the review list, behind the labels that are surely wrong.
_REVIEW = f"""
    SELECT TRY_CAST(json_extract_string(evidence, '$.listed') AS DOUBLE),
        TRY_CAST(json_extract_string(evidence, '$.found') AS DOUBLE)
    FROM {OPEN} WHERE code = 'LABEL007'
"""


def rank_codes(store: Store) -> dict[str, float]:
    """Return the points of each code with open findings: those of its family."""
    rows, families = _rank_families(store)
    points = {row["family"]: row["points"] for row in rows}
    return {code: points.get(family.name, 0.0) for code, family in families.items()}


def rank_first(store: Store, costs: Sequence[Cost] = ()) -> tuple[FirstThing, ...]:
    """Return what to do first about open findings, at most `MOST`, the most expensive first.

    `costs`: the points of a leak.
    """
    rows, families = _rank_families(store)
    rows = rows[:MOST]
    named = {family.name: family for family in families.values()}
    found = store.query(_WORST, [[row["worst"] for row in rows]])
    worst = {fingerprint: (message, ids) for fingerprint, message, ids in found.rows()}
    more = {"suspected labels": ""}
    for listed, wrong in store.query(_REVIEW).rows():
        if listed and wrong:
            forecast = f"about {wrong:,.0f} of the first {listed:,.0f} labels of LABEL007 are wrong"
            more["suspected labels"] = f"; {forecast}"
    return tuple(
        FirstThing(
            row["family"], tuple(dict.fromkeys([row["worst_code"], *row["codes"]])),
            Severity.ERROR if row["grave"] else Severity.WARNING,
            row["findings"], row["files"], row["points"],
            (row["family"] == "leaked" and _leak_sentence(costs, row["findings"]))
            or _sentence(named[row["family"]], row, worst[row["worst"]][0], more),
            tuple(worst[row["worst"]][1]), row["worst"],
        )
        for row in rows
    )  # fmt: skip


def _rank_families(store: Store) -> tuple[list[dict[str, Any]], dict[str, Family]]:
    """Return a row of each family with findings, the most expensive first, and families by code."""
    codes = store.query(f"SELECT DISTINCT code, name FROM {OPEN} ORDER BY code").rows()
    known = {code: family for family in FAMILIES for code in family.codes}
    families = dict[str, Family]()
    for code, name in codes:
        prefix = code.rstrip("0123456789")
        families[code] = known.get(code) or known.get(prefix) or Family(name, (code,), _REST)
    if not families:
        return [], {}
    named = {family.name: family for family in families.values()}
    classes = max(1, int(store.scalar("SELECT count(DISTINCT label) FROM labels") or 0))
    mapped = [list(families), [family.name for family in families.values()]]
    rows = store.rows(_COUNTED, mapped)
    for row in rows:
        family = named[row["family"]]
        share = max(row["share"], min(row["classes"] / classes, 1.0))
        stopped = STOPPED if family.stops and row["grave"] else 0.0
        row["points"] = float(100 * family.harm * share * row["sure"] + stopped)
    return sorted(rows, key=lambda row: (-row["points"], row["codes"])), families


def _sentence(
    family: Family, row: Mapping[str, Any], worst: str, more_said: Mapping[str, str]
) -> str:
    if not family.says:
        more = row["findings"] - 1
        return worst.rstrip(".") + (f" (and {counted(more, 'similar finding')})." if more else ".")
    if family.stops and row["messages"] == 1 < row["findings"]:
        return f"{counted(row['files'], 'file')}: {worst}"
    said = family.says.format(
        findings=counted(row["findings"], "fault"), files=counted(row["files"], "file"),
        names=", ".join(row["names"][:3]) + (", ..." if len(row["names"]) > 3 else ""),
    )  # fmt: skip
    if row["files"] == 1:
        for plural, singular in SINGULAR:
            said = said.replace(plural, singular)
    return as_sentence(said + more_said.get(family.name, ""))


def _leak_sentence(costs: Sequence[Cost], groups: int) -> str:
    leaks = [cost for cost in costs if cost.kind == "leaked"]
    if not leaks:
        return ""
    leaked = sum(int(cost.numbers["leaked"] or 0) for cost in leaks)
    worst = max(leaks, key=lambda cost: cost.numbers["share"] or 0)
    share, low, high = (100 * (worst.numbers[key] or 0) for key in ("share", "low", "high"))
    splits = " and ".join(cost.split for cost in leaks)
    are = "are" if leaked > 1 else "is"
    return (
        f"{counted(leaked, 'image')} of {splits} {are} also in training data "
        f"({counted(groups, 'duplicate group')}): {worst.metric} on {worst.split} is up to "
        f"{'about ' if worst.metric == 'mAP' else ''}{share:.1f} points too high "
        f"(95% CI {low:.1f} to {high:.1f})."
    )
