"""Measure files: what a worker does with a chunk of paths, from bytes to one Arrow table.

One read and one decode a file; every feature is taken from that picture. Nothing in a file can
raise here: what goes wrong with it becomes columns of its row (`status`, `error_kind`, `error`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import pyarrow as pa

from audit.decode import DecodeError, Limits, Scratch, decode, read_bytes
from audit.executors import Failure
from audit.features import MEASURED, measure
from audit.magic import extension_of
from audit.store import MEASURED_KEYS, arrow_schema

# What a file may say in its own words.
FREE_TEXTS = ("error", "icc_profile", "exif_camera", "decoder_warnings", "extension")
SCHEMA = arrow_schema((*MEASURED_KEYS, *MEASURED))


@dataclass(frozen=True, slots=True)
class Job:
    """One file to measure: its sample id, file key and where its bytes are (None: elsewhere)."""

    sample_id: str
    file_key: str
    path: str | None


@dataclass(frozen=True, slots=True)
class Measurer:
    """The picklable work of a worker: a chunk of jobs in, an Arrow table out."""

    limits: Limits

    def __call__(self, jobs: Sequence[Job]) -> pa.Table:
        """Return one row a job."""
        cv2.setNumThreads(1)  # the processes are the parallelism
        scratch = Scratch()
        return pa.Table.from_pylist([self._row(job, scratch) for job in jobs], schema=SCHEMA)

    def _row(self, job: Job, scratch: Scratch) -> dict[str, Any]:
        keys: dict[str, Any] = {"sample_id": job.sample_id, "file_key": job.file_key}
        if job.path is None:
            text = "the manifest gives a URL, which is not fetched: download it first"
            return keys | unmeasured(job.sample_id, "unsupported", text)
        try:
            data = read_bytes(job.path, self.limits)
        except DecodeError as error:
            return keys | unmeasured(job.sample_id, error.kind, str(error))
        facts, picture = decode(data, job.sample_id, self.limits, scratch)
        return keys | storable(facts) | (measure(picture)[0] if picture else {})


def storable(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with texts that any database takes: no lone surrogates, no NUL."""
    for name in FREE_TEXTS:
        if text := facts.get(name):
            facts[name] = text.encode("utf-8", "backslashreplace").decode().replace("\0", "")
    return facts


def unmeasured(name: str, kind: str, text: str) -> dict[str, Any]:
    """Return the facts of a file from which nothing came out."""
    extension = extension_of(name)
    return {"status": "unreadable", "error_kind": kind, "error": text, "extension": extension}


def failed_rows(jobs: Sequence[Job], failure: Failure) -> pa.Table:
    """Return the rows of files whose worker crashed or hung."""
    rows = [
        {"sample_id": job.sample_id, "file_key": job.file_key}
        | unmeasured(job.sample_id, failure.kind, f"decoding it failed: {failure.text}")
        for job in jobs
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
