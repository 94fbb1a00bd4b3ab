"""The Python API: `audit.scan(source)` and `audit.open(run)` return a `Run` with polars frames.

    import audit
    run = audit.scan("images")
    run.findings

A `Run` holds a path only, and reads each table on access. Errors are those of `audit.errors`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from audit.checking.check import select_checks
from audit.checking.config import Config
from audit.compare.diff import RunDiff, compare_runs
from audit.decisions import decisions
from audit.decisions.decisions import tagged_samples
from audit.decisions.store import Decision, DecisionStore
from audit.errors import UsageError
from audit.exports.application import ApplyResult, How, apply_plan
from audit.exports.new_splits import SplitRequest, parse_shares
from audit.exports.planning import DatasetPlan, plan_dataset, read_plan
from audit.report import PICTURED, render, write_card, write_report
from audit.report.card import to_card
from audit.report.file_card import card_text, pair_text
from audit.report.html_page import picture_html, to_fragment
from audit.report.thumbnails import make_thumbnails
from audit.results.export_tables import open_tables
from audit.results.file_details import find_samples, make_file_card
from audit.results.formatting import headline
from audit.results.pair_details import show_pair
from audit.results.report_data import Report
from audit.results.results import Results, find_check, finding_frame, open_results
from audit.results.run_report import collect_facts
from audit.run import run_version
from audit.run.user_query import query_frame
from audit.run.writer_lock import claim_run
from audit.scanning.measuring import PHASE_WORDS, Progress, ProgressCallback, ignore_progress
from audit.scanning.options import RUNS, Place, ScanOptions
from audit.sources.python_objects import (
    GIVEN_AS_OBJECTS,
    Label,
    dataset_name,
    describe_epochs,
    is_dataset,
    remove_unlisted,
    store_dataset,
)
from dataset_preflight.foundation.terminal import visible

if TYPE_CHECKING:
    from audit.results.image_search import Finder
    from audit.results.label_review import LabelReview
    from audit.subset.choice import By, Choice, Doubt

GIVEN = (
    "The images were given by a Python object. Where it had pixels, they are stored as PNG, and "
    "what the FILE checks say is said of these files."
)


def scan_dataset(
    source: Any,
    run: Place | None = None,
    *,
    label: Label = None,
    layout: str | None = None,
    exclude: Sequence[str] = (),
    roots: Mapping[str, str] | None = None,
    checks: Sequence[str] | None = None,
    embeddings: Place | None = None,
    embedder: str | None = None,
    predictions: Place | None = None,
    config: Place | Config | None = None,
    plugins: Sequence[Place] = (),
    jobs: int | None = None,
    verify: bool = False,
    progress: bool | ProgressCallback = True,
) -> Run:
    """Scan a dataset, run the checks, and return the run. A later scan reads only changed files.

    `source`: a folder, a manifest, or {"train": folder, "test": folder}. Or a dataset in memory,
    or one for each split: torch, Hugging Face, tf.data, arrays, lists
    (`audit.sources.python_objects`). `label`: where such a dataset has its labels. `run`: the
    folder for the results (default runs/<dataset name>). `progress`: True for a bar on stderr,
    False, or a function called with each `audit.scanning.measuring.Progress`. The others are the
    options of `audit scan` (`audit.scanning.options.ScanOptions`).

    Raises UsageError for invalid arguments, LockedError while another scan writes the run, and
    MachineError if disk or memory run out. The next call then continues.
    """
    options = ScanOptions(
        layout=layout, exclude=exclude, roots=roots, checks=checks, embeddings=embeddings,
        embedder=embedder, predictions=predictions, config=config, plugins=plugins, jobs=jobs,
        verify=verify,
    )  # fmt: skip
    place = None if run is None else Path(run)
    with _shown(progress) as call:
        if not is_dataset(source):
            request = options.prepare(_source_words(source), place)
            request.carry_out(call)
        else:
            place = place or RUNS / dataset_name(source)
            claim_run(place)
            manifest = store_dataset(
                source, place, label=label, told=lambda *n: call(Progress("take", *n))
            )
            request = options.prepare([str(manifest)], place)
            for said in (GIVEN, *describe_epochs(source, manifest)):
                request.source.remarks.append((GIVEN_AS_OBJECTS, None, said))
            request.carry_out(call)
            remove_unlisted(manifest)
    return Run(request.run)


def _shown(progress: bool | ProgressCallback) -> AbstractContextManager[ProgressCallback]:
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext(ignore_progress)
    from dataset_preflight.foundation.progress import ProgressBar

    return ProgressBar(PHASE_WORDS)


def open_audit(run: Place) -> Run:
    """Return the run in a folder; raises RunError if there is none, or it is damaged."""
    return Run(run)


def _source_words(source: Place | Sequence[Place] | Mapping[str, Place]) -> list[str]:
    if isinstance(source, str | os.PathLike):
        return [os.fspath(source)]
    if isinstance(source, Mapping):
        return [f"{name}={os.fspath(place)}" for name, place in source.items()]
    if isinstance(source, Sequence) and all(isinstance(s, str | os.PathLike) for s in source):
        return [os.fspath(place) for place in source]
    raise UsageError(
        f"A source is a folder, a manifest, {{name: folder}} or a dataset, and this is "
        f"{_article(source)}: give one of them."
    )


def _article(thing: object) -> str:
    name = type(thing).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


class Run:
    """The results of an audit: frames of findings, images, pairs, groups and annotations."""

    def __init__(self, path: Place) -> None:
        self.path = Path(path)
        run_version.require(self.path)
        self._finder: tuple[str, Finder] | None = None

    @property
    def findings(self) -> pl.DataFrame:
        """The findings, in the order of the report: one row for each.

        fingerprint, code, name, severity (error, warning, info), message, action, evidence
        (struct of all numbers; null if a check has no such number), ids and paths of the samples
        (lists), status (open, waived, decided).
        """
        return self._results().findings()

    def found(self, code: str) -> pl.DataFrame:
        """Return the findings of one check, such as DUP003, with its evidence as columns.

        A column is called evidence_NAME if its name is in use. Raises UsageError for an unknown
        code or name.
        """
        results = self._results()
        code = find_check(results, code) or select_checks([code])[0].code
        frame = finding_frame(results, code)
        numbers = frame["evidence"].struct.unnest()
        taken = set(numbers.columns) & set(frame.columns)
        numbers = numbers.rename({name: f"evidence_{name}" for name in taken})
        return frame.drop("evidence").hstack(numbers)

    def _results(self) -> Results:
        return open_results(self.path)

    @property
    def images(self) -> pl.DataFrame:
        """The samples, in order of id: path, split, label, measured features, columns of a
        manifest, and `decision` (null without one).
        """
        return self._results().images()

    @property
    def pairs(self) -> pl.DataFrame:
        """Verified pairs of duplicates: paths, transformation and confidence."""
        return self._exported("pairs")

    @property
    def groups(self) -> pl.DataFrame:
        """The members of every duplicate group: group, id, path, split, label."""
        return self._results().groups()

    @property
    def annotations(self) -> pl.DataFrame:
        """Bounding boxes in px of the displayed image, by sample and annotation file."""
        return self._results().boxes()

    @property
    def decisions(self) -> pl.DataFrame:
        """All decisions, newest first; `undone` marks those that were undone."""
        rows = [
            {name: getattr(d, name) for name in _DECISION} for d in DecisionStore(self.path).log()
        ]
        return pl.DataFrame(rows, schema=_DECISION)

    @property
    def history(self) -> pl.DataFrame:
        """The results of each scan and re-check, oldest first: at (UTC), files, findings by
        severity (error, warning, info), added and removed findings, and the version (`generation`),
        which `diff` accepts while it is stored.
        """
        return pl.DataFrame([moment.row() for moment in self._results().history()])

    @property
    def tags(self) -> pl.DataFrame:
        """The tags of samples: id, tag. `decide(..., "tag:night")` adds a tag, "untag:night"
        removes it.
        """
        return tagged_samples(self.path)

    def kept(self) -> pl.DataFrame:
        """Return the dataset after all decisions: id, path, split, label, ... of kept samples."""
        return self._exported("manifest")

    def _exported(self, table: str) -> pl.DataFrame:
        with open_tables(self._results()) as tables:
            return tables.table(table)

    def sql(self, query: str) -> pl.DataFrame:
        """Return the result of a read-only SELECT over the tables of docs/schema.md."""
        return query_frame(self.path, query)

    def diff(self, earlier: Run | Place) -> RunDiff:
        """Return the changes since another run, or an earlier version of this run, such as
        `run.path / "gen-0003"`: `.files`, `.findings`, `.counts()`.
        """
        return compare_runs(earlier.path if isinstance(earlier, Run) else Path(earlier), self.path)

    def show(self, path: Place, other: Place | None = None) -> Shown:
        """Return all results of one file, or compare two files; a notebook displays the images."""
        if other is not None:
            card = show_pair(self._results(), os.fspath(path), os.fspath(other))
            return Shown(pair_text(card), "")
        found = make_file_card(self._results(), os.fspath(path))
        return Shown(card_text(found), picture_html(found))

    def find(self, picture: Place) -> pl.DataFrame:
        """Return the samples that are copies of an image file, most certain first.

        path, id, split, label, kind (bytes, pixels, near), score (log odds of near-duplicates)
        and transformation. Raises UsageError if the file is not an image.
        """
        from audit.results.image_search import Finder

        now = run_version.require(self.path).name
        if self._finder is None or self._finder[0] != now:
            self._finder = now, Finder(self.path)
        return self._finder[1].find(os.fspath(picture))

    def report(self, path: Place | None = None) -> str | Path:
        """Write a report and return its path; without a path, return the text.

        The extension selects the format: .html, .md, .txt, .json, .sarif or .xml (JUnit). Raises
        UsageError for another extension, and for an existing file that is not a report.
        """
        if path is None:
            return "".join(render(self._report(), "txt"))
        return write_report(self._report(worst=PICTURED), Path(path))

    def card(self, path: Place | None = None, licence: str = "") -> str | Path:
        """Write a data card x.md and x.croissant.json, and return its path; or return the text.

        `licence`: the licence of all files; overrides the manifest. Raises UsageError as `report`.
        """
        if path is None:
            report = self._report()
            return to_card(report, collect_facts(report, licence))
        return write_card(self._report(), Path(path), licence)[0]

    def _report(self, worst: int = 5) -> Report:
        return self._results().overview(worst)

    def decide(
        self,
        things: str | Sequence[str] | None = None,
        verdict: str = "",
        *,
        where: str | None = None,
        note: str = "",
        by: str | None = None,
    ) -> list[Decision]:
        """Record decisions as one batch, and return them; one `undo` reverts the batch.

        `things`: samples (id, path, or its end), fingerprints of findings, or codes (all open
        findings of the check). `where`, instead: an SQL condition on the images, such as
        "width < 64". `verdict`: keep, drop, relabel:NAME, move:SPLIT, false-positive, fix,
        tag:NAME or untag:NAME. Raises UsageError for an unknown name, for a drop of all copies of
        an image, and for a drop of an image because of one bounding box.
        """
        verb, value = decisions.parse_verb(verdict)
        if (things is None) == (where is None):
            raise UsageError("Name findings or samples, or pick samples with where=...")
        if where is not None:
            ids = decisions.select_samples(self.path, where)
            return decisions.decide_samples(
                self.path, ids, verb, value, note or f"where {where}", by
            )
        words = [things] if isinstance(things, str) else list(things or ())
        findings = [word for word in words if _FINDING.match(word)]
        samples = find_samples(self._results(), [word for word in words if word not in findings])
        entries = decisions.named_entries(self.path, findings, samples, verb, value, note, by)
        return DecisionStore(self.path).record(entries)

    def undo(self, n: int = 1, by: str | None = None) -> list[Decision]:
        """Undo your last `n` batches, and return the undone decisions."""
        return DecisionStore(self.path).undo(n, by)

    def plan(
        self, path: Place | None = None, *, splits: str | Mapping[str, float] | None = None,
        seed: int = 0, resplit: bool = False, outside_links: bool = True,
    ) -> DatasetPlan:  # fmt: skip
        """Return the plan of the dataset after all decisions, and write it to `path` if given.

        `splits`: shares of new splits, such as "train=.8,val=.1,test=.1", or a mapping. `resplit`:
        also assign samples that have a split. `outside_links`: include images whose links point
        outside of the dataset. With a path, the plan includes annotations.
        """
        request = None
        if splits is not None:
            shares = parse_shares(splits) if isinstance(splits, str) else dict(splits)
            request = SplitRequest(shares, seed, resplit)
        target = None if path is None else Path(path)
        return plan_dataset(self.path, target, request, outside_links=outside_links)

    def apply(
        self, plan: DatasetPlan | Place, folder: Place, *, how: How = "copy"
    ) -> ApplyResult:  # fmt: skip
        """Create the dataset of a plan in a new folder, by "copy", "hardlink" or "symlink".

        Raises UsageError if the folder is not empty, or the dataset changed after the plan.
        """
        found = plan if isinstance(plan, DatasetPlan) else read_plan(Path(plan))
        return apply_plan(found, Path(folder), how)

    def subset(
        self, *, split: str | None = "test", seed: int = 0, by: Sequence[str] = (),
        group: str | None = None, **goal: Any,
    ) -> pl.DataFrame:  # fmt: skip
        """Return an evaluation subset for `audit subset score`: one row per file, with its weight.

        `goal`: half_width=0.01, detect=0.02 or n=500, and other fields of `audit.subset.Goal`.
        `by`, `group`: columns of `images`, for strata and groups.
        """
        from audit.subset import Goal, draw_subset, make_plan
        from audit.subset.source import frame_from_run

        unknown = [name for name in goal if name not in Goal.__dataclass_fields__]
        if unknown:
            names = ", ".join(Goal.__dataclass_fields__)
            raise UsageError(f"A goal has no {unknown[0]!r}; it has {names}.")
        extra = [*by, *([group] if group else [])]
        frame = frame_from_run(self.path, split, extra)
        plan = make_plan(frame, Goal(**goal), by=by, group=group)
        return draw_subset(frame, plan.recipe, seed).rows

    def select(
        self, n: int, by: By = "coverage", *, split: str | None = None,
        listed: Place | None = None, unlabelled: bool = False, fresh_from: Place | None = None,
        predictions: Place | None = None, doubt: Doubt = "margin", cells: Sequence[str] = (),
        seed: int = 0,
    ) -> Choice:  # fmt: skip
        """Select images to label or to evaluate next: `.rows` is the frame, best first.

        `by`: "coverage" (from embeddings), "uncertainty" or "rare". `listed`: a table of allowed
        files. `unlabelled`: only images without a label. `fresh_from`: an earlier selection, to
        exclude. `.classes` and `.reach` give the expected gain.
        """
        from audit.subset.choice import Wanted, select_pictures

        lists = [None if p is None else Path(p) for p in (listed, fresh_from, predictions)]
        wanted = Wanted(split, lists[0], unlabelled, lists[1], lists[2])
        return select_pictures(self.path, n, by, wanted, seed=seed, doubt=doubt, cells=cells)

    def review_labels(self, n: int = 100, first: int = 0) -> LabelReview:
        """Return the labels to review, most suspicious first: `.rows` is the frame.

        Columns: probability of an error (null without calibration), suggested class, nearest images
        of both classes. `.listed` and `.every` estimate the number of errors in the list of
        LABEL007 and among all labels. Your reviews update both: relabel:NAME (the present class
        confirms a label), and keep for a LABEL006 finding. Raises UsageError without judged labels.
        """
        return self._results().labels(n, first)

    def __repr__(self) -> str:
        report = self._report(worst=0)
        first = "".join(f"\n  {n}. {one.message}" for n, one in enumerate(report.first, 1))
        return f"Run({str(self.path)!r}): {headline(report)}{first}"

    def _repr_html_(self) -> str:
        report = self._report(worst=4)
        return to_fragment(report, make_thumbnails(replace(report, needs=None), limit=32)[0])


_FINDING = re.compile(f"{decisions.FINGERPRINT.pattern}|{decisions.CODE.pattern}")
_DECISION: dict[str, Any] = {
    "id": pl.Int64, "at": pl.String, "by": pl.String, "verb": pl.String, "value": pl.String,
    "subject": pl.String, "kind": pl.String, "note": pl.String, "undone": pl.Boolean,
    "batch": pl.String,
}  # fmt: skip


class Shown:
    """A card of a file or a pair: text where text is printed, with the picture in a notebook."""

    def __init__(self, text: str, picture: str) -> None:
        self.text, self._picture = text, picture

    def __repr__(self) -> str:
        return "\n".join(visible(line) for line in self.text.splitlines())

    def _repr_html_(self) -> str:
        return f"{self._picture}<pre>{escape(repr(self))}</pre>"
