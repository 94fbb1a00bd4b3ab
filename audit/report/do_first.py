"""What to do first: at most five things, ranked by what they cost times how sure they are.

A check says what it found; a person asks what hurts most. Codes that one step mends are a *family*:
a leak between splits, labels that contradict each other, damaged files. A family costs

    harm x share x sureness   (points of a measured accuracy)

`share`: of the files of the split that it concerns most, in percent; a finding without files, which
is about a class, counts as one class of all. `harm`: points lost for each percent of these files (a
leaked or missing picture costs its own answer, a wrong label one in training and one in evaluation,
a faulty box part of one; a rare class is measured badly, not lost; a copy costs hardly any).
`sureness`: the mean of the chances that the findings state, else 1 for an error and 0.5 for a
warning; notes cost nothing. A file that a loader cannot read ends a training whatever its share:
5 points more.

A fault that two checks see counts once: copies that are leaked or contradict each other in their
labels (SPLIT001, LABEL005) are not also faults of DUP001 to DUP003 (`SAME_FAULTS`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.records import Severity
from audit.report.contents import FirstThing
from audit.report.cost import Cost
from audit.report.wording import as_sentence, counted
from audit.run.store import Store

MOST = 5
STOPPED = 5.0  # points for a training that ends at a file
SURE_OF_WARNING = 0.5
SAME_FAULTS = "memory.main.same_faults"
_SAME_FAULTS = f"""
    CREATE OR REPLACE TABLE {SAME_FAULTS} AS
    WITH said AS (
        SELECT f.fingerprint AS said_by, f.place, m.sample_id
        FROM {{findings}} f JOIN finding_samples m USING (fingerprint)
        WHERE f.code IN ('SPLIT001', 'LABEL005')
    ), again AS (
        SELECT f.fingerprint, f.n_samples, m.sample_id
        FROM {{findings}} f JOIN finding_samples m USING (fingerprint)
        WHERE f.code IN ('DUP001', 'DUP002', 'DUP003')
    )
    SELECT a.fingerprint, s.said_by FROM again a JOIN said s USING (sample_id)
    GROUP BY a.fingerprint, s.said_by, a.n_samples HAVING count(*) = a.n_samples
    QUALIFY row_number() OVER (PARTITION BY a.fingerprint ORDER BY min(s.place)) = 1
"""


@dataclass(frozen=True, slots=True)
class Family:
    """Codes that one step mends, a prefix of a code for all of its kind; `says` what they found.

    `says` has {findings} and {files} with their nouns, and {names} of checks; where it is empty,
    the worst finding says it.
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
    Family(
        "decoders", ("FILE004", "FILE006"), 0.1,
        "{files} have names or contents that decoders treat differently",
    ),
)  # fmt: skip
SINGULAR = (
    ("the labels of ", "the label of "), (" are ", " is "), (" show ", " shows "),
    (" repeat ", " repeats "), (" belong ", " belongs "), (" have ", " has "),
    ("not images", "not an image"), ("on them", "on it"),
)  # fmt: skip
_REST = 0.1  # harm of every code that no family names; a user's own check is one
# One row a family: what it found, the share of the split it concerns most, how sure, the worst.
_COUNTED = f"""
    WITH families AS (SELECT unnest(?) AS code, unnest(?) AS family),
    counted AS (
        SELECT f.*, g.family FROM {{findings}} f JOIN families g USING (code)
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
_WORST = """
    SELECT f.fingerprint, f.message, coalesce(list(m.sample_id ORDER BY m.position)
        FILTER (WHERE m.position < 2), []) AS ids
    FROM {findings} f LEFT JOIN finding_samples m USING (fingerprint)
    WHERE list_contains(?, f.fingerprint) GROUP BY f.fingerprint, f.message
"""


def mark_same_faults(store: Store, findings: str) -> None:
    """Make the table `SAME_FAULTS`: fingerprint, and `said_by`, the finding that says it too.

    `findings`: the table or view of those that count, with their `place`.
    """
    store.execute(_SAME_FAULTS.format(findings=findings))


def rank_first(store: Store, findings: str, costs: Sequence[Cost] = ()) -> tuple[FirstThing, ...]:
    """Return what to do first, at most `MOST`, the most expensive first; () where all is well.

    `findings` as for `mark_same_faults`, which comes before; `costs` put the points of a leak, with
    their interval, into its sentence.
    """
    codes = store.query(f"SELECT DISTINCT code, name FROM {findings} ORDER BY code").rows()
    families = {code: _family(code, name) for code, name in codes}
    if not families:
        return ()
    mapped = [list(families), [family.name for family in families.values()]]
    named = {family.name: family for family in families.values()}
    classes = max(1, int(store.scalar("SELECT count(DISTINCT label) FROM labels") or 0))
    rows = [
        row | {"points": _points(named[row["family"]], row, classes)}
        for row in store.rows(_COUNTED.format(findings=findings), mapped)
    ]
    rows = sorted(rows, key=lambda row: (-row["points"], row["codes"]))[:MOST]
    worst = {
        fingerprint: (message, ids)
        for fingerprint, message, ids in store.query(
            _WORST.format(findings=findings), [[row["worst"] for row in rows]]
        ).rows()
    }
    more = {"suspected labels": _review_said(store, findings)}
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


def _family(code: str, name: str) -> Family:
    for family in FAMILIES:
        if code in family.codes or code.rstrip("0123456789") in family.codes:
            return family
    return Family(name, (code,), _REST)


def _points(family: Family, row: Mapping[str, Any], classes: int) -> float:
    share = max(row["share"], min(row["classes"] / classes, 1.0))
    stopped = STOPPED if family.stops and row["grave"] else 0.0
    return float(100 * family.harm * share * row["sure"] + stopped)


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
    """Return how many evaluation images are leaked, and the largest cost; "" without a cost."""
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


def _review_said(store: Store, findings: str) -> str:
    """Return the forecast of the review list, behind the labels that are surely wrong."""
    sql = f"""
        SELECT TRY_CAST(json_extract_string(evidence, '$.listed') AS DOUBLE),
            TRY_CAST(json_extract_string(evidence, '$.found') AS DOUBLE)
        FROM {findings} WHERE code = 'LABEL007'
    """
    for listed, found in store.query(sql).rows():
        if listed and found:
            return f"; about {found:,.0f} of the first {listed:,.0f} labels of LABEL007 are wrong"
    return ""
