"""LABEL001: samples without a label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
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

    CLEAN = (
        Case("every sample labelled", [{}, {"label": "dog"}]),
        Case("the label 0 is a label", [{"label": "0"}, {"label": "1"}]),
        Case("an empty dataset", []),
    )
    DIRTY = (
        Case("absent and blank", [{}, {"id": "a", "label": None}, {"id": "b", "label": "  "}],
             ["a", "b"]),
        Case("a test split without labels",
             [{}, {"split": "test", "label": None}, {"split": "test", "label": None}],
             ["split:test"]),
        Case("a dataset without labels", [{"split": None, "label": None}] * 3, ["dataset"]),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per sample, or one for a split or dataset without any label."""
        sql = """
            SELECT split, count(*) AS n,
                count(*) FILTER (WHERE trim(coalesce(label, '')) = '') AS missing
            FROM images GROUP BY split ORDER BY split NULLS FIRST
        """
        splits = [row for row in store.rows(sql) if row["missing"]]
        total, missing = store.query(
            "SELECT count(*), count(*) FILTER (WHERE trim(coalesce(label, '')) = '') FROM images"
        ).row(0)
        if total and total == missing:
            yield self._dataset(store, total)
            return
        for row in splits:
            if row["missing"] == row["n"]:
                yield self._split(store, row)
            else:
                yield from self._singles(store, row)

    def _dataset(self, store: Store, total: int) -> Finding:
        return Finding(
            self.code,
            Severity.INFO,
            tuple(store.query("SELECT id FROM images ORDER BY id")["id"]),
            f"None of the {total:,} samples has a label: the checks on labels had nothing to do.",
            {"missing": total, "samples": total},
            Action.KEEP,
            "dataset",
        )

    def _split(self, store: Store, row: Mapping[str, Any]) -> Finding:
        name = row["split"] or "(no split)"
        sql = "SELECT id FROM images WHERE split IS NOT DISTINCT FROM ? ORDER BY id"
        return Finding(
            self.code,
            self.severity,
            tuple(store.query(sql, [row["split"]])["id"]),
            f"None of the {row['n']:,} samples of split {name} has a label; other splits have "
            "labels.",
            {"split": name, "missing": row["missing"], "samples": row["n"]},
            Action.REVIEW,
            f"split:{name}",
        )

    def _singles(self, store: Store, row: Mapping[str, Any]) -> Iterator[Finding]:
        sql = """
            SELECT id, subject FROM images
            WHERE split IS NOT DISTINCT FROM ? AND trim(coalesce(label, '')) = '' ORDER BY id
        """
        where = f"in split {row['split']}" if row["split"] else "in the dataset"
        for sample in store.query(sql, [row["split"]]).iter_rows(named=True):
            yield Finding(
                self.code,
                self.severity,
                (sample["id"],),
                f"This sample has no label, like {row['missing']:,} of {row['n']:,} samples "
                f"{where}.",
                {"split": row["split"] or "", "missing": row["missing"], "samples": row["n"]},
                Action.RELABEL,
                sample["subject"],
            )
