"""SPLIT001: pictures that occur in several splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.checking.check import DOUBT, SURE, Check, one_of_each_first, tally
from audit.records import Action, Finding, Severity
from audit.run.store import Store
from audit.statistics.intervals import wilson

KINDS = {
    "bytes": "the same bytes",
    "pixels": "the same pixels in different files",
    "near": "near-duplicates",
}


class SplitOverlap(Check):
    """Images that occur in several splits: the same bytes, the same pixels or near-duplicates.

    ## What it does
    Treats copies and verified near-duplicates as one image and reports each image that is in more
    than one split. The evidence names the kind of copy (bytes, pixels or near). A finding is an
    error. It is a warning if all copies are near-duplicates that score less than `sure_errors`
    standard errors above the threshold (a check at full resolution adds 1), because different
    images can be as similar. States the share of each evaluation split that is also in a training
    split (`train_splits`), with a 95% Wilson interval.

    ## Why is this bad
    A model that was trained on the test image can remember it: the measured accuracy is too high,
    and the ranking of models can change.

    ## Example
    `test/cat/9.jpg` is `train/cat/4.jpg`, mirrored and saved again with lower quality.

    ## What to do
    Keep the test image and drop its copies from training, or move all of them into one split; then
    evaluate again. Report the leaked share together with older results.

    ## Limits
    Only near-duplicates that the scan found are included: see the limits of DUP003. Blank and
    transparent images are left out, because they all look the same. SPLIT002 reports other images
    of one scene or patient.

    ## References
    Barz and Denzler, Do we train on test data? Purging CIFAR of near-duplicates, Journal of
    Imaging 6(6), 2020; Wilson, JASA 22, 209 (1927)."""

    code = "SPLIT001"
    name = "split-overlap"
    severity = Severity.ERROR

    @dataclass(frozen=True)
    class Params:
        """train_splits: names of the splits that models are trained on
        sure_errors: standard errors above the threshold from which a near-duplicate is sure
        """

        train_splits: tuple[str, ...] = ("train", "training")
        sure_errors: float = 2.0

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        for row in store.rows(GROUPS_ACROSS, [params.sure_errors]):
            yield self._group(row)
        for row in store.rows(PAIRS_ACROSS, [params.sure_errors]):
            yield self._group({**row, "same_bytes": False, "same_pixels": False})

    def _group(self, row: Mapping[str, Any]) -> Finding:
        kind = "bytes" if row["same_bytes"] else "pixels" if row["same_pixels"] else "near"
        splits, labels = tally(row["splits"]), tally(row["labels"])
        conflict = len({label for label in row["labels"] if label}) > 1
        evidence: dict[str, float | int | str] = {
            "kind": kind,
            "members": len(row["ids"]),
            "pictures": row["pictures"],
            "splits": splits,
            "labels": labels,
        }
        changed, sure = "", kind != "near" or row["sure"]
        if row["score"] is not None:
            evidence["weakest_log_odds"] = round(row["score"], 3)
        if row["transformation"]:
            evidence["transformation"] = row["transformation"]
            changed = f" ({row['transformation']})" if kind == "near" else ""
        return self.finding(
            f"group:{row['name']}",
            f"One image is in {len(set(row['splits']))} splits ({splits}): {KINDS[kind]}{changed}"
            + (f", with different labels ({labels})." if conflict else ".")
            + DOUBT * (not sure),
            evidence,
            one_of_each_first(row["ids"], row["splits"]),
            action=Action.REVIEW
            if conflict or not sure
            else Action.MOVE
            if kind == "near"
            else Action.DROP,
            severity=self.severity if sure else Severity.WARNING,
        )

    def completeness(self, store: Store, params: Params) -> str:
        splits = store.query(
            "SELECT split, count(*) AS n FROM pictures "
            "WHERE split IS NOT NULL AND pixel_hash IS NOT NULL GROUP BY split ORDER BY split"
        )
        sizes: dict[str, int] = dict(splits.iter_rows())
        if len(sizes) < 2:
            seen = f"One split ({next(iter(sizes))}) was" if sizes else "No splits were"
            return (
                f"{seen} recognised, so none were compared: name them with "
                "`audit scan train=DIR test=DIR`."
            )
        trained = [split for split in sizes if split in params.train_splits]
        sentences = []
        for split, n in sizes.items():
            others = trained or [other for other in sizes if other != split]
            if split not in trained:
                sentences.append(_leak(store, split, n, others))
        if not sentences:
            return f"All {len(sizes)} splits are training splits: no evaluation split can leak."
        return " ".join(sentences)


def _leak(store: Store, split: str, n: int, others: Sequence[str]) -> str:
    (row,) = store.rows(LEAKED, [list(others), split])
    leaked, kinds = row["leaked"], []
    for name, count in (("bytes", row["bytes"]), ("pixels", row["pixels"] - row["bytes"])):
        kinds += [f"{count:,} by {name}"] * bool(count)
    if leaked > row["pixels"]:
        kinds.append(f"{leaked - row['pixels']:,} near")
    low, high = (float(limit) for limit in wilson(leaked, n))
    how = f": {', '.join(kinds)}" if kinds else ""
    return (
        f"Split {split}: {leaked:,} of {n:,} samples ({leaked / n:.1%}, 95% CI {low:.1%} "
        f"to {high:.1%}) are also in {' or '.join(others)}{how}."
    )


# Pictures that can leak: with a split, and not blank.
COMPARABLE = (
    "SELECT * FROM pictures WHERE split IS NOT NULL AND pixel_hash IS NOT NULL AND NOT blank"
)
GROUPS_ACROSS = f"""
    WITH comparable AS ({COMPARABLE}), bound AS (SELECT ({SURE}) AS sure),
    spread AS (SELECT unit FROM comparable GROUP BY unit HAVING count(DISTINCT split) > 1),
    members AS (SELECT p.* FROM comparable p SEMI JOIN spread USING (unit)),
    bytes AS (
        SELECT DISTINCT unit FROM members GROUP BY unit, content_hash
        HAVING count(DISTINCT split) > 1 AND content_hash IS NOT NULL
    ), pixels AS (
        SELECT DISTINCT unit FROM members GROUP BY unit, pixel_hash HAVING count(DISTINCT split) > 1
    ), surely AS (
        SELECT unit FROM members m JOIN groups g USING (pixel_hash), bound
        WHERE g.position = 0 OR g.score >= bound.sure
        GROUP BY unit HAVING count(DISTINCT split) > 1
    ), weakest AS (
        SELECT g.representative AS unit, g.score, p.transformation
        FROM groups g SEMI JOIN members m ON m.pixel_hash = g.pixel_hash
        LEFT JOIN pairs p ON p.a = least(g.representative, g.pixel_hash)
            AND p.b = greatest(g.representative, g.pixel_hash)
        WHERE g.position > 0
        QUALIFY row_number() OVER (PARTITION BY g.representative ORDER BY g.score, g.pixel_hash) = 1
    )
    SELECT left(m.unit, 16) AS name, list(m.id ORDER BY m.id) AS ids,
        list(m.split ORDER BY m.id) AS splits, list(coalesce(m.label, '') ORDER BY m.id) AS labels,
        count(DISTINCT m.pixel_hash) AS pictures, any_value(w.score) AS score,
        any_value(w.transformation) AS transformation,
        bool_or(b.unit IS NOT NULL) AS same_bytes, bool_or(x.unit IS NOT NULL) AS same_pixels,
        bool_or(s.unit IS NOT NULL) AS sure
    FROM members m LEFT JOIN bytes b USING (unit) LEFT JOIN pixels x USING (unit)
    LEFT JOIN weakest w USING (unit) LEFT JOIN surely s USING (unit)
    GROUP BY m.unit ORDER BY min(m.id)
"""
# A verified pair whose pictures belong to different groups crosses splits without a group.
PAIRS_ACROSS = f"""
    WITH comparable AS ({COMPARABLE}), bound AS (SELECT ({SURE}) AS sure),
    crossing AS (
        SELECT DISTINCT p.a, p.b, p.score, p.transformation, x.unit AS first, y.unit AS second,
            p.score >= bound.sure AS sure
        FROM bound, pairs p JOIN comparable x ON x.pixel_hash = p.a
        JOIN comparable y ON y.pixel_hash = p.b
        WHERE x.unit <> y.unit AND x.split <> y.split
    ), ends AS (
        SELECT least(first, second) AS first, greatest(first, second) AS second, score,
            transformation, sure, unnest([a, b]) AS pixel_hash
        FROM crossing
    ), members AS (
        SELECT e.first, e.second, p.id, any_value(p.split) AS split, any_value(p.label) AS label,
            any_value(p.pixel_hash) AS pixel_hash, min(e.score) AS score,
            arg_min(e.transformation, e.score) AS transformation, bool_or(e.sure) AS sure
        FROM ends e JOIN comparable p USING (pixel_hash) GROUP BY e.first, e.second, p.id
    )
    SELECT concat(left(first, 16), '|', left(second, 16)) AS name, list(id ORDER BY id) AS ids,
        list(split ORDER BY id) AS splits, list(coalesce(label, '') ORDER BY id) AS labels,
        count(DISTINCT pixel_hash) AS pictures, min(score) AS score,
        arg_min(transformation, (score, id)) AS transformation, bool_or(sure) AS sure
    FROM members GROUP BY first, second ORDER BY min(id), name
"""
LEAKED = f"""
    WITH comparable AS ({COMPARABLE}),
    trained AS (SELECT * FROM comparable WHERE list_contains(?, split)),
    near AS (
        SELECT b AS pixel_hash FROM pairs SEMI JOIN trained ON trained.pixel_hash = pairs.a
        UNION SELECT a FROM pairs SEMI JOIN trained ON trained.pixel_hash = pairs.b
    )
    SELECT count(*) FILTER (WHERE content_hash IN (SELECT content_hash FROM trained)) AS bytes,
        count(*) FILTER (WHERE pixel_hash IN (SELECT pixel_hash FROM trained)) AS pixels,
        count(*) FILTER (
            WHERE unit IN (SELECT unit FROM trained) OR pixel_hash IN (SELECT pixel_hash FROM near)
        ) AS leaked
    FROM comparable WHERE split = ?
"""
