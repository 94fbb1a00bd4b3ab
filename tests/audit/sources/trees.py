"""Small trees on disk for the tests of the sources: a path ending in `/` is an empty folder."""

import os
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from audit.records import Sample
from audit.sources import Source, open_source

PNG = b"\x89PNG\r\n\x1a\n" + bytes(24)
TEXT = b"nothing to see here, only text\n"


def grow(root: Path, *paths: str, content: bytes = PNG) -> Path:
    for path in paths:
        full = os.path.join(root, path)
        os.makedirs(full if path.endswith("/") else os.path.dirname(full), exist_ok=True)
        if not path.endswith("/"):
            with open(full, "wb") as file:
                file.write(content)
    return root


def read(source: Source, size: int = 5000) -> list[Sample]:
    return [sample for batch in source.batches(size) for sample in batch]


def metadata(source: Source) -> pl.DataFrame:
    """The columns of a source that has some besides the roles."""
    assert source.metadata is not None
    return source.metadata


def places(root: Path | str, **options: object) -> dict[str, tuple[str | None, str | None]]:
    """{id: (split, label)} of everything in a source."""
    source = open_source([str(root)], **options)  # type: ignore[arg-type]
    return {sample.id: (sample.split, sample.label) for sample in read(source)}


def skipped(source: Source) -> dict[tuple[str, str], int]:
    return {(row.reason, row.extension): row.count for row in source.log.skipped}


def kinds(source: Source) -> list[str]:
    return [kind for kind, _, _ in source.notes]


def ids(samples: Iterable[Sample]) -> list[str]:
    return [sample.id for sample in samples]
