"""A data card, what a dataset is and what is known to be wrong with it: Markdown and Croissant.

Markdown follows Gebru et al. (2021), Datasheets for Datasets, Communications of the ACM 64(12);
Croissant 1.0 (MLCommons) is JSON-LD. Roots are named by their last folder: no machine path is
published.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from audit.records import Action
from audit.report.markdown import (
    MARK,
    bullet_list,
    check_table,
    class_count_table,
    code_span,
    escaped,
    object_count_table,
    pipe_table,
)
from audit.results.formatting import bytes_text, counted
from audit.results.report_data import SCHEMA, Report
from audit.results.run_report import CardFacts

LICENCES = 10  # named; the rest is counted
NO_LICENCE = "not stated: give --licence, or a column `licence` in the manifest"


def to_card(report: Report, facts: CardFacts, croissant: str = "") -> str:
    """Return the card; `croissant` is the name of the file beside it, if there is one."""
    blocks = [MARK, f"# Data card of {escaped(report.dataset.name)}", *_composition(report, facts)]
    blocks += [*_issues(report), *_decisions(facts), *_expected(report)]
    blocks += ["## How to reproduce", bullet_list(_reproduction(report, facts))]
    if croissant:
        blocks.append(f"The same as Croissant 1.0 (JSON-LD): {code_span(croissant)}.")
    return "\n\n".join(block for block in blocks if block) + "\n"


def _composition(report: Report, facts: CardFacts) -> Iterator[str]:
    data = report.dataset
    splits = [(escaped(name or "(no split)"), f"{n:,}") for name, n in data.by_split().items()]
    named = [f"{escaped(name)} ({n:,})" for name, n in facts.licences.items()]
    more = len(named) - LICENCES
    licences = ", ".join(named[:LICENCES]) + (f" and {more:,} more" if more > 0 else "")
    formats = ", ".join(f"{escaped(name)} {n:,}" for name, n in data.formats.items())
    yield bullet_list(
        (
            f"Files: {data.n_samples:,}, {bytes_text(data.n_bytes)}",
            f"Classes: {len(set(data.by_class()) - {None}):,}",
            f"Formats: {formats or 'none'}",
            f"Licence: {licences or NO_LICENCE}",
            f"Audited: {report.created} by {escaped(report.tool)}",
        )
    )
    yield "## Splits and classes"
    if set(data.by_split()) - {None}:
        yield pipe_table(("Split", "Files"), splits, numbers=1)
    yield class_count_table(data)
    if report.boxes is not None and report.boxes.boxes:
        yield "## Objects"
        yield object_count_table(report.boxes)


def _issues(report: Report) -> Iterator[str]:
    checks = [check for check in report.checks if check.counts.total]
    yield "## Known issues"
    ran = f"{counted(len(report.checks), 'check')} ran"
    yield check_table(checks) if checks else f"{ran} without findings."
    missing = [f"Failed: {escaped(p.sentence())}" for p in report.failed]
    if report.not_run:
        missing.append(f"Skipped: {escaped(', '.join(report.not_run))}.")
    yield bullet_list(missing)
    if report.costs:
        yield "## Impact on the evaluation"
        # Commands name the run, not its folder.
        place, name = (shlex.quote(text) for text in (report.run, Path(report.run).name))
        yield bullet_list(escaped(cost.message.replace(place, name)) for cost in report.costs)


def _decisions(facts: CardFacts) -> Iterator[str]:
    yield "## Decisions"
    lines = [
        f"{escaped(verb)}: {counted(n, 'finding' if verb == Action.FALSE_POSITIVE else 'sample')}"
        for verb, n in facts.decisions.items()
    ]
    if facts.n_stale:
        lines.append(f"stale, because the files changed: {facts.n_stale:,}")
    yield bullet_list(lines) or "None yet."
    if lines:
        yield "The counts above are from the scan, before these decisions."


def _expected(report: Report) -> Iterator[str]:
    if report.expected:
        said = {True: "met", False: "NOT MET", None: "inconclusive"}
        yield "## Expectations"
        yield bullet_list(
            f"{escaped(one.name)}: {said[one.met]} ({escaped(one.message)})"
            for one in report.expected
        )


def _reproduction(report: Report, facts: CardFacts) -> Iterator[str]:
    words = ["audit", "scan"]
    for name, root in report.dataset.roots.items():
        folder = Path(root).name or root
        words.append(f"{name}={folder}" if name else folder)
    command = " ".join([*map(shlex.quote, words), "--out", shlex.quote(Path(report.run).name)])
    yield f"{code_span(command)}, next to the folder"
    yield f"Version: {escaped(report.tool)}"
    yield (
        "Hash of the file list (BLAKE3 of one JSON line per file: id, content hash, split, "
        f"class): {code_span(facts.list_hash)}"
    )


VERSION = "http://mlcommons.org/croissant/1.0"
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
} | {
    name: f"cr:{name}"
    for name in (
        "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject",
        "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField",
        "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate",
        "separator", "source", "subField", "transform",
    )
}  # fmt: skip
# What of a path is the split, and what the class, where folders say it.
_FOLDER, _OUTER = r"(?:.*/)?([^/]+)/[^/]+$", r"(?:.*/)?([^/]+)/[^/]+/[^/]+$"
PATHS = {
    "split/class/file": {"split": _OUTER, "class": _FOLDER},
    "class/file": {"class": _FOLDER},
    "split/file": {"split": _FOLDER},
}
# A property each: the library changes the column of one in place, and would read the class there.
PROPERTIES = {"split": "fullpath", "class": "filepath"}


def to_croissant(report: Report, facts: CardFacts) -> dict[str, Any]:
    """Return the JSON-LD document."""
    data = report.dataset
    splits = [split for split in data.by_split() if split]
    classes = sorted(label for label in data.by_class() if label)
    document: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": data.name or "dataset",
        "description": (
            f"{counted(data.n_samples, 'file')}, {bytes_text(data.n_bytes)}, "
            f"{counted(len(classes), 'class')}. Audited by {report.tool} ({SCHEMA})."
        ),
        "conformsTo": VERSION,
        "version": "1.0.0",
        "identifier": f"blake3:{facts.list_hash}",
    }
    if report.created:
        document["datePublished"] = report.created[:10]
    if facts.licences:
        document["license"] = list(facts.licences)
    names = {"split": splits, "class": classes}
    patterns = PATHS.get(data.layout.name, {}) if not any(data.roots) else {}
    records = [_named_records(kind, names[kind]) for kind in patterns if names[kind]]
    formats = [f"image/{name.lower()}" for name in data.formats if name != "none"]
    document["distribution"] = [
        {
            "@type": "cr:FileSet",
            "@id": "pictures",
            "name": "pictures",
            "description": "The files of the dataset.",
            "encodingFormat": formats or ["image/*"],
            "includes": [f"**/*{ending}" for ending in facts.endings] or ["**/*"],
        }
    ]
    samples = {
        "@type": "cr:RecordSet",
        "@id": "samples",
        "name": "samples",
        "description": "One record per file.",
        "field": list(_picture_fields({k: patterns[k] for k in patterns if names[k]})),
    }
    document["recordSet"] = [*records, samples]
    return document


def _named_records(kind: str, names: Sequence[str]) -> dict[str, Any]:
    place = f"{kind}_names"
    return {
        "@type": "cr:RecordSet",
        "@id": place,
        "name": place,
        "dataType": "cr:Split" if kind == "split" else "sc:Enumeration",
        "key": {"@id": f"{place}/name"},
        "field": [_field(f"{place}/name", "sc:Text")],
        "data": [{f"{place}/name": name} for name in names],
    }


def _picture_fields(patterns: dict[str, str]) -> Iterator[dict[str, Any]]:
    yield _field("samples/image", "sc:ImageObject", source=_source("content"))
    for kind, pattern in patterns.items():
        source = _source(PROPERTIES[kind]) | {"transform": {"regex": pattern}}
        references = {"field": {"@id": f"{kind}_names/name"}}
        yield _field(f"samples/{kind}", "sc:Text", source=source, references=references)


def _field(place: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"@type": "cr:Field", "@id": place, "name": place, "dataType": kind, **more}


def _source(file_property: str) -> dict[str, Any]:
    return {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": file_property}}
