"""Typed rows of an audit: Sample, Finding, Action, Severity, Column. Standard library only.

Everything that passes between sources, engine, checks, reports and the app is one of these or a
table. They carry no behaviour beyond their own identity, so any of them can be re-made from a row.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

ONE_HOT = "columns of 0 and 1"
"""How labels were read where each class is a column: a row without any was labelled as well."""


class Severity(StrEnum):
    """How bad a finding is: an error breaks training or evaluation, a warning may."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for error, 1 for warning, 2 for info: sorts the worst first."""
        return list(Severity).index(self)


class Action(StrEnum):
    """What to do about a finding or a sample: what a check suggests and what a reviewer decides.

    One enum for both, so that a suggestion can be recorded as it is; each side leaves one out. A
    check never suggests FALSE_POSITIVE: it would not have reported the finding. A reviewer never
    decides REVIEW, which means that nothing is decided yet (`DECISIONS`). FIX is decided only: of
    the annotations of a finding, where the error itself says what is right. TAG and UNTAG are
    recorded like decisions and decide nothing.
    """

    KEEP = "keep"
    DROP = "drop"
    RELABEL = "relabel"
    MOVE = "move"
    REVIEW = "review"
    FALSE_POSITIVE = "false-positive"
    FIX = "fix"
    TAG = "tag"
    UNTAG = "untag"


# What a reviewer records, in the order in which an error message lists it.
DECISIONS = (
    Action.KEEP, Action.DROP, Action.RELABEL, Action.MOVE, Action.FALSE_POSITIVE, Action.FIX,
)  # fmt: skip
TAGGING = (Action.TAG, Action.UNTAG)


@dataclass(frozen=True, slots=True)
class Sample:
    """One training example: a file and what the dataset says about it.

    `id` is the POSIX path relative to the source's root (prefixed `source:` with several roots),
    NFC, undecodable bytes as %XX: the same on every machine. `uri` is where the bytes are: an
    absolute path. `n_bytes` and `mtime_ns`/`ctime_ns` come from the directory listing; -1 where
    the file could not be listed (a manifest row without a file).
    """

    id: str
    uri: str
    source: str = ""
    split: str | None = None
    label: str | None = None
    group: str | None = None
    n_bytes: int = -1
    mtime_ns: int = -1
    ctime_ns: int = -1


Evidence = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect, about one or more samples or about the whole dataset (then `sample_ids` is
    empty).

    `message` is a full sentence with the numbers in it; `evidence` is what a reader needs to agree
    or disagree; `subject` is the stable key that the check chooses (`id@hash`, `class:Cat|cat`,
    `split:test/class:x`), never a list of members.
    """

    code: str
    severity: Severity
    sample_ids: tuple[str, ...]
    message: str
    evidence: Evidence
    action: Action
    subject: str

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for what no run can store, in the check that made it."""
        texts = (self.message, self.subject, *self.sample_ids)
        kinds = (self.severity, Severity), (self.action, Action), (self.sample_ids, tuple)
        for value, kind in (*kinds, *((text, str) for text in texts)):
            if not isinstance(value, kind):
                raise TypeError(f"a finding holds {value!r} where a {kind.__name__} belongs")
        "".join((*texts, self.evidence_json())).encode()  # no half of a surrogate

    @property
    def fingerprint(self) -> str:
        """16 hex digits that name this finding across runs: a hash of code and subject."""
        return hashlib.blake2b(f"{self.code}\0{self.subject}".encode(), digest_size=8).hexdigest()

    def evidence_json(self) -> str:
        """Return the evidence as JSON with stable key order as the check gave it."""
        return json.dumps(finite(dict(self.evidence)), ensure_ascii=False, default=_scalar)


def _scalar(value: Any) -> Any:
    if not hasattr(value, "item"):  # as numpy's scalars have
        raise TypeError(f"the evidence of a finding holds {value!r}, which is not JSON")
    return finite(value.item())


@dataclass(frozen=True, slots=True)
class Layout:
    """How paths become splits and labels: inferred from a tree or given, with the reason kept.

    `name` is one of `split/class/file`, `class/file`, `split/file`, `class/split/file`, `flat`,
    `manifest`; of several roots with different layouts, all of them.
    """

    name: str
    reason: str
    annotations: str | None = None


@dataclass(frozen=True, slots=True)
class SkippedFiles:
    """Files in the source that are not samples, counted: hidden, excluded, not an image, ..."""

    reason: str
    extension: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class FailedPart:
    """A check or a source reader that raised: it says nothing, and the rest of the scan ran.

    `kind` is `check` or `reader`; `code` is that of a check, empty for a reader; `name` is the
    check's name or the reader's root. `place` is `file:line` of the innermost line of its own.
    """

    kind: str
    code: str
    name: str
    error: str
    place: str
    trace: str

    def sentence(self) -> str:
        """Return what failed, how and where, as one sentence."""
        title = " ".join(word for word in (self.code, self.name) if word)
        lost = "found nothing" if self.kind == "check" else "listed nothing more"
        return f"The {self.kind} {title} failed and {lost}: {self.error} ({self.place})."


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its DuckDB type, what it holds (with unit) and the version of its
    maker.

    A column whose version differs from the stored one is measured again: an index never mixes two.
    """

    name: str
    type: str
    doc: str
    version: int = 1


# DuckDB type of a column -> name of its type in polars.
POLARS_TYPES = {
    "VARCHAR": "String", "JSON": "String", "BOOLEAN": "Boolean", "DOUBLE": "Float64",
    "FLOAT": "Float32", "TINYINT": "Int8", "SMALLINT": "Int16", "INTEGER": "Int32",
    "BIGINT": "Int64", "UTINYINT": "UInt8", "USMALLINT": "UInt16", "UINTEGER": "UInt32",
    "UBIGINT": "UInt64", "BLOB": "Binary", "DATE": "Date", "TIMESTAMP": "Datetime",
    '"NULL"': "Null",
}  # fmt: skip


@cache
def polars_type(name: str) -> pl.DataType | None:
    """Return the type of polars that holds what a type of DuckDB does, None for nested types."""
    import polars as pl

    if name.endswith("[]"):
        inner = polars_type(name.removesuffix("[]"))
        return None if inner is None else pl.List(inner)
    known = POLARS_TYPES.get(name)
    return None if known is None else getattr(pl, known)()


def polars_schema(columns: Sequence[Column]) -> pl.Schema:
    """Return the schema of a frame that is appended to a table of these columns."""
    import polars as pl

    return pl.Schema({c.name: polars_type(c.type) or pl.Null() for c in columns})


def rows_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> pl.DataFrame:
    """Return rows as a frame with these columns; absent ones are null."""
    import polars as pl

    return pl.DataFrame(rows, schema=polars_schema(columns), orient="row")


def finite(value: Any) -> Any:
    """Return nested data as JSON can hold it: lists for tuples, null for NaN and infinity."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_value(value: object) -> object:
    """Return a value that JSON lacks as a number, hex digits or text: a `default` of `json`."""
    if isinstance(value, Decimal):
        return float(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def sample_id(relative_path: str, source: str = "") -> str:
    """Return the machine-independent id of a path: NFC, POSIX separators, odd bytes as %XX."""
    raw = relative_path
    if not raw.isascii():
        raw = "".join(_escape(c) for c in unicodedata.normalize("NFC", raw))
    return f"{source}:{raw}" if source else raw


def _escape(char: str) -> str:
    # os.fsdecode maps an undecodable byte 0xNN to the lone surrogate U+DCNN.
    code = ord(char)
    return f"%{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else char
