"""DIST012: classes and splits whose pictures were turned, or are negatives.

Each scan compares them (`audit.embeddings.turns`); the check reads what it found. One query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.turned import LEAST

EVIDENCE = "version", "pictures", "share", "others", "groups", "sure"
_BACK = {
    "turned to the right": "turned to the left", "turned to the left": "turned to the right",
    "upside down": "turned by half", "negatives": "inverted",
}  # fmt: skip


def _turned(sure: float = 8.0, **more: Any) -> dict[str, list[dict[str, Any]]]:
    row = {"kind": "label", "name": "owl", "version": "turned to the right", "pictures": 90,
           "share": 0.8, "others": 0.3, "groups": 9, "sure": sure, **more}  # fmt: skip
    return {"turned_parts": [{**row, "sample_id": f"{n:04d}.jpg"} for n in range(3)]}


class TurnedPart(Check):
    """Classes or splits whose pictures are turned or negatives while the others are not.

    ## What it does
    A linear model learns from the stored signatures of all other classes how pictures look beside
    the same pictures turned by a quarter, upside down, or inverted. Asked of a class that it has
    not seen, it finds most of its pictures to look right only when they are changed back: then the
    class is reported, with the pictures that show it most clearly. Splits are compared likewise.
    This must hold by `min_sure` standard errors, the other classes must agree on what is up, and
    the class must lie further from them than they lie from one another. Where fewer than
    `few_groups` classes agree it is an info: 1 in 100 choices of three to five classes of CIFAR-10
    has one that lies otherwise by its nature.

    ## Why is this bad
    A class that lies on its side is told by that, whatever it shows: a perfect score here, and none
    on pictures that are upright. It is how a reader that ignores the EXIF orientation, or one
    export with other settings, looks.

    ## Example
    83 % of the pictures of `owl` look more like the others when they are turned to the left; of the
    others 31 % do.

    ## What to do
    Look at the pictures. Turn or invert them back at the source, and find the step that did it; if
    they are meant to lie so, waive the finding.

    ## Limits
    Needs three classes (or two splits) with 20 pictures; of up to 1,000 pictures, or 30 of each
    class. In photographs of all kinds a quarter turn shows from about 100 pictures of a class on, a
    half turn from some hundreds, negatives from about 40; in pictures that are composed alike
    (scans, faces, roads) sooner. Single pictures are not found: scenes differ in the same things.
    Pictures without a side that is up (from above, textures) say nothing.

    ## References
    Gidaris, Singh and Komodakis (2018), Unsupervised Representation Learning by Predicting Image
    Rotations, ICLR. DerSimonian and Laird (1986), Controlled Clinical Trials 7:177: the spread.
    """

    code = "DIST012"
    name = "turned-part"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_sure: standard errors by which the pictures look better changed, from 4.5 on
        few_groups: classes that agree, of which fewer make the finding an info
        """

        min_sure: float = 4.5
        few_groups: int = 5

    @staticmethod
    def cases() -> Iterator[Case]:
        images = [{"label": name} for name in ("owl", "cat", "dog") for _ in range(3)]
        yield Case("all lie alike", images)
        yield Case("less sure than asked", images, params={"min_sure": 9.0}, tables=_turned())
        yield Case("a class on its side", images, ["class:owl"], tables=_turned())
        yield Case(
            "a split of negatives", images, ["split:test"],
            tables=_turned(kind="split", name="test", version="negatives"),
        )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        rows = store.rows(
            "FROM turned_parts WHERE sure >= ? ORDER BY kind, name, sample_id", [params.min_sure]
        )
        for (kind, name), each in groupby(rows, lambda row: (row["kind"], row["name"])):
            clearest = list(each)
            one = clearest[0]
            word = "class" if kind == "label" else "split"
            back = (
                f"{one['share']:.0%} of {one['pictures']:,} compared look more like the others when"
            )
            yield self.finding(
                f"{word}:{name}",
                f"The pictures of {word} {name} seem to be {one['version']}: {back} "
                f"{_BACK[one['version']]}, of the others {one['others']:.0%}. The "
                f"{len(clearest)} listed show it most clearly.",
                {word: name} | {key: one[key] for key in EVIDENCE},
                [row["sample_id"] for row in clearest],
                severity=Severity.INFO if one["groups"] < params.few_groups else self.severity,
            )

    def completeness(self, store: Store, params: Params) -> str:
        sql = f"""
            SELECT count(*) FILTER (WHERE n >= {LEAST}) FROM (SELECT count(DISTINCT p.unit) AS n
            FROM images i JOIN pictures p USING (id)
            WHERE i.status = 'ok' AND NOT p.blank AND trim(coalesce(i.{{0}}, '')) <> ''
            GROUP BY i.{{0}})
        """
        classes, splits = (int(store.scalar(sql.format(by))) for by in ("label", "split"))
        if classes < 3 and splits < 2:
            return f"Not compared: it takes three classes, or two splits, of {LEAST} pictures."
        return f"{classes:,} classes and {splits:,} splits were asked which way their pictures lie."
