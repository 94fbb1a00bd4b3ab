"""What a report says, as plain frozen data: `collect_report` fills a `Report` for every renderer.

All findings are streamed, because a large dataset has too many to hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.annotations.box_statistics import BoxStatistics, sum_by_key
from audit.checking.check import all_checks, page
from audit.checking.label_facts import LabelFacts
from audit.records import FailedPart, Layout, Severity, SkippedFiles
from audit.results.costs import Cost
from audit.run.run_version import RunVersion
from dataset_preflight.foundation.terminal import visible

SCHEMA = "audit-report/1"
KEPT_NEEDS = "needs.json"  # in a run: the answer of `audit input-study`
LISTED = 1000  # files of a fold that a page names
LOCATED = 101  # samples of a finding whose files are named: one, and a hundred related
FINDING_COLUMNS = (
    "code", "name", "severity", "message", "evidence", "action", "fingerprint", "n_samples",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counts:
    """Findings by severity."""

    error: int = 0
    warning: int = 0
    info: int = 0

    @property
    def total(self) -> int:
        """Findings of any severity."""
        return self.error + self.warning + self.info

    @property
    def worst(self) -> Severity | None:
        """The worst severity there is; None without findings."""
        return next((severity for severity, count in self.items() if count), None)

    def items(self) -> list[tuple[Severity, int]]:
        """Return (severity, findings), worst first."""
        return [(s, getattr(self, s.value)) for s in Severity]


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """A finding in a report; `sample_ids` may be cut short where `n_samples` says so.

    `uris`: of the first `LOCATED` samples; empty without a file. `fold`: its name, or empty;
    `same_as`: fingerprint of the finding that reports the same fault, or empty.
    """

    code: str
    name: str
    severity: Severity
    sample_ids: tuple[str, ...]
    message: str
    evidence: Mapping[str, Any]
    action: str
    fingerprint: str
    n_samples: int
    uris: tuple[str, ...] = ()
    fold: str = ""
    same_as: str = ""

    @classmethod
    def from_row(
        cls,
        row: Mapping[str, Any] | Sequence[Any],
        sample_ids: Iterable[str] | None,
        uris: Iterable[str] | None = None,
        fold: str | None = None,
        same_as: str | None = None,
    ) -> ReportedFinding:
        """Return the finding of a row of table `findings`: `FINDING_COLUMNS` first, or by name."""
        values = [row[c] for c in FINDING_COLUMNS] if isinstance(row, Mapping) else row
        code, name, severity, message, evidence, action, fingerprint, n_samples, *_ = values
        return cls(
            code, name, Severity(severity), tuple(sample_ids or ()), message,
            json.loads(evidence or "{}"), action, fingerprint, n_samples, tuple(uris or ()),
            fold or "", same_as or "",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Card:
    """What a page or a report shows of a sample, and what is needed to open its image."""

    id: str
    uri: str = ""
    split: str | None = None
    label: str | None = None
    n_bytes: int = -1
    width: int | None = None
    height: int | None = None
    format: str | None = None
    jpeg_quality: int | None = None
    sharpness: float | None = None
    status: str | None = None
    error_kind: str | None = None
    error: str | None = None
    content_hash: str | None = None
    pixel_hash: str | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class Example:
    """A finding chosen to be shown, with its first members."""

    finding: ReportedFinding
    members: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """Many findings of one kind, shown as one line (`audit.results.grouping`).

    `n_files` distinct files of `n_of` in the splits; `examples`: worst findings; `sample_ids`:
    `LISTED` files at most.
    """

    name: str
    severity: Severity
    splits: tuple[str, ...]
    n_findings: int
    n_files: int
    n_of: int
    examples: tuple[Example, ...] = ()
    sample_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckSummary:
    """The result of one check: `n_files` are distinct files.

    `worst`: examples outside `folds`; `repeats`: findings that another check reports too;
    `memory_growth`: bytes or None; `own_page`: documentation of a user's check.
    """

    code: str
    name: str
    counts: Counts
    n_files: int
    seconds: float
    completeness: str
    params: Mapping[str, Any]
    own_page: str
    memory_growth: int | None = None
    repeats: Counts = Counts()
    worst: tuple[Example, ...] = ()
    folds: tuple[Fold, ...] = ()

    @property
    def examples(self) -> tuple[Example, ...]:
        """Every example, folded or not, the more severe first."""
        folded = [example for fold in self.folds for example in fold.examples]
        return tuple(sorted([*self.worst, *folded], key=lambda e: e.finding.severity.rank))

    @property
    def page(self) -> str:
        """The documentation of the check (Markdown)."""
        known = all_checks().get(self.code)
        return self.own_page if known is None else page(known)

    @property
    def n_single(self) -> int:
        """Findings that stand on their own."""
        return self.counts.total - sum(fold.n_findings for fold in self.folds)


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Files of one class in one split; zero where the class is declared but has none."""

    split: str | None
    label: str | None
    n: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, middle and greatest value of a measure; the unit is part of `name`."""

    name: str
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Dataset:
    """What the source listed; `several`: files with several labels; `label_reading`: how read."""

    name: str
    roots: Mapping[str, str]
    layout: Layout
    n_samples: int
    n_bytes: int
    classes: tuple[ClassCount, ...]
    formats: Mapping[str, int]
    status: Mapping[str, int]
    sizes: tuple[Spread, ...]
    skipped: tuple[SkippedFiles, ...]
    notes: tuple[str, ...]
    n_notes: int
    several: int = 0
    label_reading: str = ""
    splits: Mapping[str | None, int] | None = None

    def by_split(self) -> dict[str | None, int]:
        """Return files by split, in the order of the classes table."""
        if self.splits is not None:  # a file with several labels is in several classes
            return dict(self.splits)
        return sum_by_key((c.split, c.n) for c in self.classes)

    def by_class(self) -> dict[str | None, int]:
        """Return files by class, by name."""
        return sum_by_key((c.label, c.n) for c in self.classes)


@dataclass(frozen=True, slots=True)
class FirstThing:
    """What to do first: what was found, an example, and the codes, the worst first.

    `example`: first samples of the worst finding, `fingerprint`: its name. `points` only rank.
    """

    name: str
    codes: tuple[str, ...]
    severity: Severity
    findings: int
    files: int
    points: float
    message: str
    example: tuple[str, ...]
    fingerprint: str

    @property
    def example_text(self) -> str:
        """The samples of the example on one line; of those that show one picture, `a = b`."""
        same = self.name in ("leaked", "contradicting labels", "copies")
        return visible((" = " if same else ", ").join(self.example))


@dataclass(frozen=True, slots=True)
class WrongLabels:
    """The share of wrong labels among all that were judged, by LABEL007, with its limits; 0..1."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Needs:
    """The result of `audit input-study` in this version of the run, in words.

    `rows`: version, accuracy, loss, limits, verdict; `ends`: by class what varies most, with
    samples at both ends; `more` classes are left out.
    """

    sentence: str
    rows: tuple[tuple[str, str, str, str], ...]
    ends: tuple[tuple[str, tuple[Card, ...]], ...]
    more: int


@dataclass(frozen=True, slots=True)
class ExpectationOutcome:
    """Whether something that is expected of the dataset is so (None: cannot be told), and why."""

    name: str
    met: bool | None
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a rendered report says, but for the full list of findings.

    `checks` by cost, then code; `n_files_concerned`: distinct files in errors and warnings;
    `timing`: s. `settled`: findings by status and code, not in `counts`. `failed`: checks and
    readers that raised. `wrong_labels`: None where few or inconclusive; `labels`: embeddings.
    `counts` have each fault once. `expected` is filled by whoever has expectations.
    """

    run: str
    version: RunVersion
    dataset: Dataset
    counts: Counts
    checks: tuple[CheckSummary, ...]
    not_run: tuple[str, ...]
    n_files_concerned: int
    completeness: tuple[str, ...]
    tool: str
    machine: str
    created: str
    timing: Mapping[str, Any] = field(default_factory=dict)
    settled: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failed: tuple[FailedPart, ...] = ()
    boxes: BoxStatistics | None = None
    costs: tuple[Cost, ...] = ()
    expected: tuple[ExpectationOutcome, ...] = ()
    first: tuple[FirstThing, ...] = ()
    wrong_labels: WrongLabels | None = None
    labels: LabelFacts | None = None
    needs: Needs | None = None

    @property
    def n_settled(self) -> dict[str, int]:
        """Findings that do not count, by status: waived, decided, retired."""
        return {status: sum(by_code.values()) for status, by_code in self.settled.items()}

    @property
    def summary(self) -> dict[str, int]:
        """Findings by the severity's name (error, warning, info), and how many checks failed."""
        counts = {severity.value: count for severity, count in self.counts.items()}
        return counts | {"failed_checks": len(self.failed_checks)}

    @property
    def failed_checks(self) -> tuple[FailedPart, ...]:
        """Checks that raised."""
        return tuple(part for part in self.failed if part.kind == "check")

    @property
    def failed_readers(self) -> tuple[FailedPart, ...]:
        """Source readers that raised."""
        return tuple(part for part in self.failed if part.kind == "reader")
