"""LABEL001, LABEL003, LABEL004: samples without a label, classes with no picture or only one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import polars as pl

from audit.checking.check import Check, NoParams, QueryCheck
from audit.records import ONE_HOT, Action, Finding, Severity
from audit.run.store import Store


class MissingLabel(Check):
    """Samples, or whole splits, that have no label.

    ## What it does
    Reports each sample whose label is absent or blank in a split in which other samples have one. A
    split without any label is reported once, and so is a dataset without any label (as information:
    it may be intended).

    ## Why is this bad
    Loaders drop such samples, fail, or create an extra class for them, named "" or "nan".

    ## Example
    Row 812 of the manifest has an empty `label` field.

    ## What to do
    Label the sample, or leave it out. For a split without labels, check whether its labels are in a
    separate file, and pass that file as the manifest.

    ## Limits
    Words such as "unknown", "none" or "todo" count as labels.

    ## References
    Gebru et al. (2021), Datasheets for Datasets, CACM 64(12): "Is there a label or target
    associated with each instance?" """

    code = "LABEL001"
    name = "missing-label"
    severity = Severity.WARNING

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        sql = """
            WITH marked AS (
                SELECT i.id, i.split, i.subject,
                    trim(coalesce(i.label, '')) = '' AND l.sample_id IS NULL
                        AND c.source IS NULL AS bare
                FROM images i LEFT JOIN (SELECT DISTINCT sample_id FROM several_labels) l
                    ON l.sample_id = i.id
                LEFT JOIN label_columns c ON c.source = i.source AND c.reading = $1
            )
            SELECT split, count(*) AS n, list(id ORDER BY id) FILTER (WHERE bare) AS ids,
                list(subject ORDER BY id) FILTER (WHERE bare) AS subjects
            FROM marked GROUP BY split ORDER BY split NULLS FIRST
        """
        splits = store.rows(sql, [ONE_HOT])
        total = sum(row["n"] for row in splits)
        if total and all(len(row["ids"] or ()) == row["n"] for row in splits):
            yield self.finding(
                "dataset",
                f"None of the {total:,} samples has a label: label checks are not applicable.",
                {"missing": total, "samples": total},
                sorted(chain.from_iterable(row["ids"] for row in splits)),
                action=Action.KEEP,
                severity=Severity.INFO,
            )
            return
        for row in splits:
            missing, n = len(row["ids"] or ()), row["n"]
            name = row["split"] or "(no split)"
            if missing == n:
                yield self.finding(
                    f"split:{name}",
                    f"None of the {n:,} samples of split {name} has a label; other splits have "
                    "labels.",
                    {"split": name, "missing": n, "samples": n},
                    row["ids"],
                )
                continue
            where = f"in split {row['split']}" if row["split"] else "in the dataset"
            for sample, subject in zip(row["ids"] or (), row["subjects"] or (), strict=True):
                yield self.finding(
                    subject,
                    f"This sample has no label, like {missing:,} of {n:,} samples {where}.",
                    {"split": row["split"] or "", "missing": missing, "samples": n},
                    (sample,),
                    action=Action.RELABEL,
                )


class EmptyClass(QueryCheck):
    """Class folders or declared classes without a single image.

    ## What it does
    Compares the classes that the source declares (class folders, a class list) with the images of
    all splits together. A class is also empty if none of its files can be decoded.

    ## Why is this bad
    Class indices usually number the existing folders: an empty one gets an output unit that is
    never trained, shifts the numbers of all classes after it, and makes macro averages include a
    class that cannot be scored.

    ## Example
    `train/owl/` exists but is empty; its images were moved to `train/barn-owl/`.

    ## What to do
    Delete the folder or the entry, or find the missing images.

    ## Limits
    DIST003 reports classes that are missing from one split. Sources that declare no classes (a
    manifest) cannot have an empty one.
    """

    code = "LABEL003"
    name = "empty-class"
    severity = Severity.WARNING

    sql = """
        WITH files AS (
            SELECT l.label, list(id ORDER BY id) AS ids, count(*) AS n,
                count(*) FILTER (WHERE status <> 'unreadable') AS usable
            FROM images JOIN picture_labels l USING (id) WHERE l.label IS NOT NULL
            GROUP BY l.label
        ), declared AS (
            SELECT label, string_agg(DISTINCT split, ', ' ORDER BY split) AS splits
            FROM declared_classes WHERE label IS NOT NULL GROUP BY label
        )
        SELECT coalesce(d.label, f.label) AS class, concat('class:', class) AS subject,
            coalesce(f.n, 0) AS files, 0 AS usable, coalesce(f.ids, []) AS ids,
            coalesce(d.splits, '') AS splits,
            coalesce(' (declared in ' || nullif(d.splits, '') || ')', '') AS place,
            CASE WHEN files > 0 THEN ', of which 0 can be decoded' ELSE '' END AS broken
        FROM declared d FULL JOIN files f ON f.label = d.label
        WHERE coalesce(f.usable, 0) = 0 ORDER BY class
    """
    message = "Class {class}{place} has {files:,} files{broken}."
    evidence = ("class", "files", "usable", "splits")
    counts = "SELECT count(DISTINCT label) AS n FROM declared_classes"
    examined = "The source declares {n:,} classes; the images of each were counted."


class SingleSampleClass(Check):
    """Classes with a single sample in the whole dataset.

    ## What it does
    Counts the samples of each class over all splits and reports classes with one. If these are more
    than `max_share` of the classes, they are reported once, with all of them listed.

    ## Why is this bad
    Such a class can be trained or tested, but not both. Stratified splitting fails, and its recall
    is either 0% or 100%, decided by one image. Often it is not a class at all but a typing error or
    a misplaced folder.

    ## Example
    `bridge` has 40 images, `bridgee` has one.

    ## What to do
    Merge it into the intended class (LABEL002 names candidates), collect more images, or drop it.

    ## Limits
    Copies count: a class with two copies of one image has two samples here, and DUP001 reports the
    copies.
    """

    code = "LABEL004"
    name = "single-sample-class"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """max_share: reported once for the dataset above this share of the classes, 0..1
        min_common: and only from this many single-sample classes
        """

        max_share: float = 0.5
        min_common: int = 20

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = """
            SELECT label, count(*) AS n, min(id) AS id, min(coalesce(split, '')) AS split
            FROM picture_labels WHERE trim(coalesce(label, '')) <> '' GROUP BY label ORDER BY label
        """
        counts = store.query(sql)
        single = counts.filter(pl.col("n") == 1)
        if len(single) >= params.min_common and len(single) > params.max_share * len(counts):
            yield self.finding(
                "dataset",
                f"{len(single):,} of {len(counts):,} classes have 1 sample each.",
                {"single_sample_classes": len(single), "classes": len(counts)},
                tuple(single["id"].sort()),
            )
            return
        for row in single.iter_rows(named=True):
            where = f" (in {row['split']})" if row["split"] else ""
            yield self.finding(
                f"class:{row['label']}",
                f"Class {row['label']} has 1 sample in the whole dataset{where}.",
                {"class": row["label"], "samples": 1, "split": row["split"]},
                (row["id"],),
            )
