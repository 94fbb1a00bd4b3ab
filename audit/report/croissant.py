"""The dataset as Croissant 1.0, the JSON-LD by which search engines and loaders know datasets.

A file set of the pictures, a record a file with what its path says (split and class, where the
folders are these), and the splits and classes as records of their own. Source: MLCommons,
Croissant Format Specification 1.0. A manifest's splits and classes are in no path, so its records
have the pictures alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from audit.report.card import CardFacts
from audit.report.contents import SCHEMA, Report
from audit.report.wording import bytes_text, counted

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
# Where the layout's folders say it: what of a path is the split, and what the class. Readers match
# from the start of the path, of which they know more or less.
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
    document["distribution"] = [_file_set(report, facts)]
    document["recordSet"] = [*records, _pictures({k: patterns[k] for k in patterns if names[k]})]
    return document


def _file_set(report: Report, facts: CardFacts) -> dict[str, Any]:
    formats = [name for name in report.dataset.formats if name != "none"]
    return {
        "@type": "cr:FileSet",
        "@id": "pictures",
        "name": "pictures",
        "description": "The files of the dataset.",
        "encodingFormat": [f"image/{name.lower()}" for name in formats] or ["image/*"],
        "includes": [f"**/*{ending}" for ending in facts.endings] or ["**/*"],
    }


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


def _pictures(patterns: dict[str, str]) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": "samples",
        "name": "samples",
        "description": "A record a file.",
        "field": list(_picture_fields(patterns)),
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
