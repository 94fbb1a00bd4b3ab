"""DUP003: pictures of one split that show the same thing with small changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from audit.checking.check import DOUBT, SURE, Check, one_of_each_first, tally
from audit.records import Action, Finding, Severity
from audit.run.store import Store

GROUPS = f"""
    WITH named AS (SELECT pixel_hash, min(id) AS id FROM pictures GROUP BY pixel_hash),
    links AS (
        SELECT g.representative, g.pixel_hash, CASE WHEN g.position > 0 THEN g.score END
            AS score, p.similarity, p.distance, p.transformation, x.id AS first,
            y.id AS second, g.position = 0 OR g.score >= ({SURE}) AS sure
        FROM groups g
        LEFT JOIN pairs p ON g.position > 0 AND p.a = least(g.representative, g.pixel_hash)
            AND p.b = greatest(g.representative, g.pixel_hash)
        LEFT JOIN named x ON x.pixel_hash = p.a LEFT JOIN named y ON y.pixel_hash = p.b
    )
    SELECT l.representative, split, list(id ORDER BY id) AS ids,
        list(coalesce(label, '') ORDER BY id) AS labels,
        count(DISTINCT nullif(label, '')) FILTER (sure) AS sure_labels,
        count(DISTINCT pixel_hash) AS pictures, min(score) AS score,
        -- One member of a group gives the evidence: the one with the lowest score.
        first(l ORDER BY score NULLS LAST, pixel_hash, id) AS weakest
    FROM pictures i JOIN links l USING (pixel_hash) GROUP BY l.representative, split
    HAVING count(DISTINCT pixel_hash) > 1 ORDER BY min(id)
"""


class NearDuplicate(Check):
    """Groups of near-duplicates within one split: edited copies of one image.

    ## What it does
    Reads the groups that the scan verified. Candidates come from perceptual hashes and a dense
    descriptor. Each pair is aligned (shift, scale, small rotation, mirror, crop) and scored, and
    every member of a group is verified against its representative. Reports, per split, each group
    with at least two different images. Different labels in a group are an error if their images
    score `sure_errors` standard errors above the threshold.

    ## Why is this bad
    Copies count several times: in training they get more weight than intended, in a test set they
    make intervals narrower than they should be. If labels differ, at least one is wrong.

    ## Example
    `a.jpg` is a photograph, `b.jpg` is the same one mirrored, `c.png` is a crop with a caption.

    ## What to do
    Resolve different labels first. Look at the pair with the lowest score. Keep the best file of
    each group, or keep all of them in one split and count them once.

    ## Limits
    Crops to less than about two thirds, rotations of more than a few degrees (except quarter turns)
    and large overlays may be missed; flat and transparent images are left out. Consecutive video
    frames that hardly differ are near-duplicates too. If all images are similar (digits, screens of
    one program), only agreement beyond that counts, and copies are missed. So are copies that make
    up over 1 in 20 images. Drawings (charts, dials, letters) are copies only if they differ
    nowhere; mirrored, cropped or relit drawings are uncertain. SPLIT001 reports groups across
    splits.

    ## References
    Barz and Denzler, Do we train on test data? Purging CIFAR of near-duplicates, Journal of
    Imaging 6(6), 2020."""

    code = "DUP003"
    name = "near-duplicate"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """sure_errors: standard errors above the threshold from which a near-duplicate is sure"""

        sure_errors: float = 2.0

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        for row in store.rows(GROUPS, [params.sure_errors]):
            conflict = len({label for label in row["labels"] if label}) > 1
            sure = row["sure_labels"] > 1
            weakest, transformation = row["weakest"], row["weakest"]["transformation"]
            place = "" if row["split"] is None else f" of {row['split']}"
            changed = f" ({transformation})" if transformation else ""
            labels, members = tally(row["labels"]), len(row["ids"])
            evidence: dict[str, Any] = {"members": members, "pictures": row["pictures"]}
            evidence |= {"labels": labels, "weakest_log_odds": round(row["score"], 3)}
            if transformation:
                evidence |= {
                    "weakest_link": f"{weakest['first']} -> {weakest['second']}",
                    "transformation": transformation,
                    "similarity": round(weakest["similarity"], 4),
                    "phash_distance": weakest["distance"],
                }
            split = "" if row["split"] is None else f"/split:{row['split']}"
            yield self.finding(
                f"group:{row['representative'][:16]}{split}",
                f"{members:,} files{place} are {row['pictures']:,} versions of one image{changed}; "
                f"lowest match score {row['score']:+.1f}"
                + (f", and the labels differ ({labels})." if conflict else ".")
                + DOUBT * (conflict and not sure),
                evidence,
                one_of_each_first(row["ids"], row["labels"]),
                action=Action.REVIEW if conflict else Action.DROP,
                severity=Severity.ERROR if sure else self.severity,
            )

    def completeness(self, store: Store, params: Params) -> str:
        related = dict(store.query("SELECT key, value FROM relate_facts").iter_rows())
        sentences = [*json.loads(related.get("completeness", "[]"))]
        sentences += json.loads(related.get("calibration", "[]"))
        return " ".join([*sentences, *_effective_sizes(store)])


def _effective_sizes(store: Store) -> list[str]:
    """Say how many distinct pictures each split contains, and which class loses most."""
    sql = """
        SELECT coalesce(split, 'all') AS split, sum(samples)::BIGINT AS samples,
            sum(effective)::BIGINT AS effective, arg_max(label, 1 - effective / samples) AS label,
            arg_max(samples, 1 - effective / samples) AS of_label,
            arg_max(effective, 1 - effective / samples) AS effective_label
        FROM (FROM effective_sizes ORDER BY label) GROUP BY ALL ORDER BY split
    """
    parts = []
    for row in store.rows(sql):
        smallest = f"{row['effective_label']:,} of {row['of_label']:,} in {row['label']}"
        loses = row["effective_label"] < row["of_label"] and row["label"]
        least = f" (least: {smallest})" if loses else ""
        parts.append(f"{row['split']} {row['effective']:,} of {row['samples']:,}{least}")
    if not parts:
        return []
    return [f"Effective sample size (copies counted once per class): {', '.join(parts)}."]
