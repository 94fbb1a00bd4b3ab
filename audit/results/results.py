"""`Results`: what a run found, with decisions applied, for every report, page, route and frame.

The modules beside this one hold the questions of pages; methods are those of the Python API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from audit.results import findings as finding_queries
from audit.results import frames
from audit.results.filters import Condition
from audit.results.findings import FindingFilter, OpenedFinding, count_open_findings
from audit.results.history import Moment, read_history
from audit.results.images import list_ids
from audit.results.label_review import LabelReview, review_labels
from audit.results.reader import RunReader, open_reader
from audit.results.report_data import Report
from audit.results.run_report import collect_report
from audit.run.run_version import RunVersion


@dataclass(frozen=True, slots=True)
class Results(RunReader):
    """One version of a run: typed rows and polars frames, safe for threads."""

    def findings(self, filters: FindingFilter | None = None) -> pl.DataFrame:
        """Return the findings under a filter, in its order (`frames.finding_frame`)."""
        frame = frames.finding_frame(self)
        if filters is None:
            return frame
        chosen = finding_queries.list_fingerprints(self, filters)
        return chosen.join(frame, on="fingerprint", how="left", maintain_order="left")

    def finding(self, fingerprint: str) -> OpenedFinding | None:
        """Return a finding with its first samples, None where this run has no such finding."""
        return finding_queries.open_finding(self, fingerprint)

    def images(self, conditions: Sequence[Condition] = ()) -> pl.DataFrame:
        """Return the samples under a filter, in order of id (`frames.image_frame`)."""
        frame = frames.image_frame(self)
        return frame.filter(pl.col("id").is_in(list_ids(self, conditions))) if conditions else frame

    def groups(self) -> pl.DataFrame:
        """Return the members of every duplicate group: group, id, path, split, label."""
        return frames.group_frame(self)

    def labels(self, n: int = 100, first: int = 0) -> LabelReview:
        """Return `n` labels in order of doubt, from number `first` on, and what reviews gave."""
        return review_labels(self, n, first)

    def boxes(self) -> pl.DataFrame:
        """Return bounding boxes in px of the displayed image, by sample and annotation file."""
        return frames.box_frame(self)

    def overview(self, worst: int = 5) -> Report:
        """Return counts, costs, priorities and the `worst` examples of each check."""
        return collect_report(self, worst=worst)

    def history(self) -> list[Moment]:
        """Return what each scan and re-check found, oldest first; this version as decided now."""
        moments = read_history(self.run)
        if moments and moments[-1].generation == self.version.name:
            counts = {severity.value: n for severity, n in count_open_findings(self).items() if n}
            moments[-1] = replace(moments[-1], severities=counts)
        return moments


def open_results(run: Path, version: RunVersion | None = None) -> Results:
    """Return a version of a run (default: the published one) with the decisions of now.

    Raises RunError where there is none, or it is damaged; OSError where it vanishes meanwhile.
    """
    found = open_reader(run, version)
    return Results(found.run, found.version, found.key, found.decisions)
