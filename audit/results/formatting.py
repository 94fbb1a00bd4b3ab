"""Words shown to people, in one place for all reports and pages: numbers with units, safe names.

`visible` escapes control and direction-changing characters, because names come from strangers.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from audit.annotations.box_statistics import BoxStatistics
from audit.records import Severity
from audit.results.grouping import split_names
from audit.results.report_data import Counts, Dataset, Fold, Report, ReportedFinding
from dataset_preflight.foundation.terminal import visible

# What the card of a file says where the file is no longer as it was scanned.
ON_DISK = {
    "changed": "the file changed after the scan: scan again",
    "absent": "the file no longer exists",
    "remote": "the file is on another machine",
}
# What two files share, by the kind of a pair.
VERDICTS = {
    "bytes": "the same bytes",
    "pixels": "the same pixels in different files",
    "near": "near-duplicates (verified)",
    "different": "no evidence that these are the same image",
}
TITLE = "Audit of "  # how a text report starts
ICONS = {Severity.ERROR: "✖", Severity.WARNING: "▲", Severity.INFO: "●"}


def counted(n: int, noun: str) -> str:
    """Return `1 file`, `2,000 files`, `3 classes`."""
    if n == 1:
        return f"1 {noun}"
    return f"{n:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def bytes_text(n: float) -> str:
    """Return a size in decimal units: `512 bytes`, `13.9 MB`."""
    if n < 1000:
        return counted(int(n), "byte")
    for unit in ("kB", "MB", "GB", "TB"):
        n /= 1000
        if n < 999.5 or unit == "TB":
            break
    return f"{n:.3g} {unit}" if n < 1000 else f"{n:,.0f} {unit}"


def size_text(width: int | None, height: int | None, n_bytes: int) -> str:
    """Return `640 × 427 px · 13.5 kB`, without what is unknown (None, -1)."""
    parts = [f"{width:,} × {height:,} px"] if width and height else []
    parts += [bytes_text(n_bytes)] if n_bytes >= 0 else []
    return " · ".join(parts) or "size unknown"


def size_rows(data: Dataset) -> list[tuple[str, ...]]:
    """Return a row a measure of the files: its name with unit, least, median and greatest value."""
    return [
        (s.name, *(number_text(round(v)) for v in (s.low, s.median, s.high))) for s in data.sizes
    ]


def class_rows(data: Dataset, most: int) -> list[tuple[str, ...]]:
    """Return files by class and split, the largest classes first; [] without classes.

    A row is the class and a number a split; beyond `most`, the last row counts the rest.
    """
    splits, totals = list(data.by_split()), data.by_class()
    if not set(totals) - {None}:
        return []
    cells = {(c.label, c.split): c.n for c in data.classes}
    ordered = sorted(totals, key=lambda label: (-totals[label], label or ""))
    rows = [
        (visible(label or "(no label)"), *(f"{cells.get((label, s), 0):,}" for s in splits))
        for label in ordered[:most]
    ]
    more = len(ordered) - most
    return [*rows, (f"and {more:,} more", *[""] * len(splits))] if more > 0 else rows


OBJECT_HEAD = ("class of objects", "split", "objects", "images", "per image", "small", "medium",
               "large")  # fmt: skip


def object_rows(stats: BoxStatistics, most: int) -> list[tuple[str, ...]]:
    """Return a row a class of objects and split, as `OBJECT_HEAD`; the last counts the rest."""
    order = {label: place for place, label in enumerate(stats.by_class())}
    shown = sorted(
        (c for c in stats.classes if order[c.label] < most), key=lambda c: order[c.label]
    )
    rows: list[tuple[str, ...]] = [
        (
            visible(c.label or "(not in the list)"), visible(c.split or "all"), f"{c.boxes:,}",
            f"{c.pictures:,}", f"{c.boxes / c.pictures:.1f}", f"{c.small:,}", f"{c.medium:,}",
            f"{c.large:,}",
        )
        for c in shown
    ]  # fmt: skip
    more = len(order) - most
    return [*rows, (f"and {more:,} more", *[""] * (len(OBJECT_HEAD) - 1))] if more > 0 else rows


def source_notes(data: Dataset) -> list[str]:
    """Return what was left out and what the reader of the dataset noted, a sentence each."""
    left = [
        f"{s.count:,} left out ({s.reason}{f', .{s.extension}' if s.extension else ''}), such as "
        f"{s.example}"
        for s in data.skipped
    ]
    more = data.n_notes - len(data.notes)
    return [*left, *data.notes, *([f"and {more:,} more notes"] if more > 0 else [])]


def place_text(split: str | None, label: str | None) -> str:
    """Return `train · cat`, without what is missing."""
    return " · ".join(part for part in (split, label) if part)


def as_sentence(text: str) -> str:
    """Return the text with a capital at its start and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def number_text(value: object) -> str:
    """Return a value of an evidence or a measurement: four digits of a real, commas in integers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return visible(str(value))


def severity_counts(counts: Counts) -> str:
    """Return `3 errors, 12 warnings, 7 info`, leaving out zeros; `no findings` without any."""
    return ", ".join(severity_count(s, n) for s, n in counts.items() if n) or "no findings"


def severity_count(severity: Severity, n: int) -> str:
    """Return `1 error`, `2 warnings`, `7 info`: "infos" is no word."""
    return f"{n:,} info" if severity is Severity.INFO else counted(n, severity.value)


def named_ids(ids: Sequence[str], n_samples: int, shown: int = 3) -> str:
    """Return the first ids and how many more there are; `the whole dataset` without any."""
    if not n_samples:
        return "the whole dataset"
    names = ", ".join(visible(sample) for sample in ids[:shown])
    more = n_samples - min(shown, len(ids))
    return f"{names} and {more:,} more" if more else names


def finding_line(found: ReportedFinding) -> str:
    """Return a finding as `path CODE message`, with its other samples at the end."""
    first, others = found.sample_ids[:1], found.sample_ids[1:]
    place = visible(first[0]) if first else "(dataset)"
    also = f" (also {named_ids(others, found.n_samples - 1)})" if others else ""
    return f"{place} {found.code} {visible(found.message)}{also}"


def fold_line(fold: Fold) -> str:
    """Return what a fold counts: `832 findings in 832 of the 50,000 files of train (1.7 %)`."""
    place = split_names(fold.splits)
    share = fold.n_files / max(fold.n_of, 1)
    return (
        f"{counted(fold.n_findings, 'finding')} in {fold.n_files:,} of the {fold.n_of:,} files of "
        f"{visible(place)} ({share:.1%})"
    )


def list_command(report: Report, code: str) -> str:
    """Return the command that lists every finding of a check, or of several with commas."""
    return f"audit report {shlex.quote(report.run)} --list {code}"


def alarm(report: Report) -> str:
    """Return the sentence that stands above everything else; empty where there is none."""
    wrong, said = report.wrong_labels, report.version.notice
    if wrong is not None:
        said += (
            f" About {wrong.share:.0%} of the labels are wrong ({wrong.low:.0%} to "
            f"{wrong.high:.0%}): review them before you train or evaluate (LABEL007)."
        )
    return said.strip()


def headline(report: Report) -> str:
    """Return one sentence: the number of findings and of affected files."""
    counts = severity_counts(report.counts)
    sentence = f"{counts[0].upper()}{counts[1:]} {reach(report)}"
    return " ".join([failures(report), sentence]).strip()


def failures(report: Report) -> str:
    """Return which checks and readers failed, with file and line; empty where none did."""
    if not report.failed:
        return ""
    counts = [
        counted(len(parts), noun)
        for parts, noun in ((report.failed_checks, "check"), (report.failed_readers, "reader"))
        if parts
    ]
    lines = " ".join(part.sentence() for part in report.failed)
    return f"{' and '.join(counts)} failed, so this audit is not complete. {lines}"


def reach(report: Report) -> str:
    """Return by how many checks, and how many files have errors or warnings."""
    ran = f"from {counted(len(report.checks), 'check')}"
    ran += "".join(f", {n:,} {status}" for status, n in report.n_settled.items())
    if report.counts.worst in (None, Severity.INFO):
        return f"{ran}."
    total = counted(report.dataset.n_samples, "file")
    return f"{ran}; {report.n_files_concerned:,} of {total} affected."


def next_commands(report: Report) -> list[tuple[str, str]]:
    """Return (command, what it gives) to run next, fitted to what was found."""
    run = shlex.quote(report.run)
    commands: list[tuple[str, str]] = []
    examples = [example for check in report.checks for example in check.examples]
    first = next((e for e in examples if e.members), None)
    if first is not None:
        gives = f"details of one image of {first.finding.code}"
        commands.append((f"audit show {run} {shlex.quote(first.members[0].id)}", gives))
    if examples:
        finding = (first or examples[0]).finding
        commands.append((f"audit explain {finding.code}", "what the check does, and what to do"))
        decide = f"audit decide {run} {finding.fingerprint} --as false-positive"
        commands.append(
            (decide, f"waive this {finding.code}; `audit decide {run} --undo` undoes it")
        )
    if report.failed:
        commands.append((f"audit report {run} --trace", "the tracebacks of failed checks"))
    if report.not_run:
        commands.append((f"audit recheck {run}", "run every check without reading images"))
    commands.append((f"audit report {run} -o report.html", "this report as a page with images"))
    return commands
