"""LABEL003: classes that are declared but have no usable picture."""

from __future__ import annotations

from collections.abc import Iterator

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

BROKEN = {"status": "unreadable", "error_kind": "empty", "label": "owl"}


class EmptyClass(Check):
    """Class folders or declared classes without a single picture.

    ## What it does
    Compares the classes that the source declares (class folders, a class list) with the pictures of
    all splits together. A class is also empty if none of its files can be decoded.

    ## Why is this bad
    Class indices usually number the existing folders: an empty one gets an output unit that is
    never trained, shifts the numbers of all classes after it, and makes macro averages include a
    class that cannot be scored.

    ## Example
    `train/owl/` exists but is empty; its pictures were moved to `train/barn-owl/`.

    ## What to do
    Delete the folder or the entry, or find the missing pictures.

    ## Limits
    DIST003 reports classes that are missing from one split. Sources that declare no classes (a
    manifest) cannot have an empty one.

    ## References
    torchvision.datasets.ImageFolder numbers classes by sorted folder name; Keras likewise.
    """

    code = "LABEL003"
    name = "empty-class"
    severity = Severity.WARNING

    CLEAN = (
        Case(
            "declared and present",
            [{"label": "cat"}],
            tables={"declared_classes": [{"split": "train", "label": "cat"}]},
        ),
        Case(
            "empty in one split only: DIST003",
            [{"label": "cat"}],
            tables={"declared_classes": [{"split": s, "label": "cat"} for s in ("train", "test")]},
        ),
    )
    DIRTY = (
        Case(
            "an empty folder in both splits is one class",
            [{"label": "cat"}],
            ["class:owl"],
            tables={"declared_classes": [{"split": s, "label": "owl"} for s in ("train", "test")]},
        ),
        Case("a class whose only file is broken", [{"label": "cat"}, BROKEN], ["class:owl"]),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per class."""
        sql = """
            WITH files AS (
                SELECT label, list(id ORDER BY id) AS ids, count(*) AS n,
                    count(*) FILTER (WHERE status <> 'unreadable') AS usable
                FROM images WHERE label IS NOT NULL GROUP BY label
            ), declared AS (
                SELECT label, string_agg(DISTINCT split, ', ' ORDER BY split) AS splits
                FROM declared_classes WHERE label IS NOT NULL GROUP BY label
            )
            SELECT coalesce(d.label, f.label) AS label, coalesce(f.n, 0) AS n, f.ids,
                coalesce(d.splits, '') AS splits
            FROM declared d FULL JOIN files f ON f.label = d.label
            WHERE coalesce(f.usable, 0) = 0 ORDER BY 1
        """
        for row in store.query(sql).iter_rows(named=True):
            what = (
                f"has {row['n']:,} files, of which 0 can be decoded" if row["n"] else "has 0 files"
            )
            where = f" (declared in {row['splits']})" if row["splits"] else ""
            yield Finding(
                self.code,
                self.severity,
                tuple(row["ids"] or ()),
                f"Class {row['label']}{where} {what}.",
                {"class": row["label"], "files": row["n"], "usable": 0, "splits": row["splits"]},
                Action.REVIEW,
                f"class:{row['label']}",
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many classes were declared."""
        n = store.scalar("SELECT count(DISTINCT label) FROM declared_classes")
        return f"The source declares {int(n):,} classes; the pictures of each were counted."
