"""The history of a run: what each scan and re-check found, a line each in RUN/history.jsonl.

A finding is the same where its fingerprint is. The lock of the run protects the file; damaged lines
are ignored.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audit.errors import AuditError, RunError, UsageError
from audit.run.run_version import RunVersion
from dataset_preflight.foundation.files import read_regular

HISTORY = "history.jsonl"
SCHEMA = "audit-history/1"
MOST_NAMED, MOST_CLASSES = 50, 200
"""Findings that came, and classes, that a line names; all of them are counted."""
_FILES = "SELECT coalesce({0}, ''), count(*) FROM samples GROUP BY ALL ORDER BY count(*) DESC, 1"
_CAME = """
    SELECT f.code, f.fingerprint, f.severity, (SELECT min_by(sample_id, position)
        FROM finding_samples m WHERE m.fingerprint = f.fingerprint) AS sample
    FROM findings f {0}
    ORDER BY position(f.severity IN 'error warning info'), f.code, f.fingerprint
"""
_NEW = "WHERE f.fingerprint NOT IN (SELECT fingerprint FROM earlier.findings)"
_WENT = """
    SELECT code, count(*) FROM earlier.findings
    WHERE fingerprint NOT IN (SELECT fingerprint FROM findings) GROUP BY code ORDER BY code
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """A run as one scan or re-check left it.

    `at`: UTC; `generation`: what was published; `files`, and by `splits` and `classes` ('': none);
    open findings by `severities` (a fault of two checks once) and `codes`; `came` and `went`, by
    code; `named`: code, fingerprint, severity and first sample of the worst that came.
    """

    at: str
    generation: str
    files: int
    splits: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)
    severities: Mapping[str, int] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    came: Mapping[str, int] = field(default_factory=dict)
    went: Mapping[str, int] = field(default_factory=dict)
    named: Sequence[Sequence[str | None]] = ()

    def row(self) -> dict[str, Any]:
        """Return the counts for a table."""
        found = {name: self.severities.get(name, 0) for name in ("error", "warning", "info")}
        came, went = sum(self.came.values()), sum(self.went.values())
        counts = {"files": self.files, **found, "came": came, "went": went}
        return {"at": self.at, **counts, "generation": self.generation}


def note_history(run: Path, before: RunVersion | None, published: RunVersion) -> None:
    """Add what was published to the history; that of a run which cannot be written stays short."""
    with contextlib.suppress(OSError, AuditError):
        line = json.dumps(asdict(_look(run, before, published)), ensure_ascii=False)
        append_line(run / HISTORY, line)


def _look(run: Path, before: RunVersion | None, published: RunVersion) -> Moment:
    from audit.results.finding_index import count_open, index_findings
    from audit.results.grouping import OPEN
    from audit.results.reader import open_reader

    with open_reader(run, published).connection(index_findings) as store:
        known = False
        if before is not None:
            with contextlib.suppress(AuditError):  # damaged or gone: nothing came, nothing went
                store.attach(before.findings, "earlier")
                known = True
        came = store.query(_CAME.format(_NEW if known else ""))
        codes = store.query(f"SELECT code, count(*) FROM {OPEN} GROUP BY code ORDER BY code")
        severities = {str(severity): n for severity, n in count_open(store).items() if n}
        classes = store.query(_FILES.format("label"))
        return Moment(
            datetime.now(UTC).isoformat(timespec="seconds"),
            published.name,
            int(store.scalar("SELECT count(*) FROM samples")),
            dict(store.query(_FILES.format("split")).iter_rows()),
            dict(classes.head(MOST_CLASSES).iter_rows()),
            severities,
            dict(codes.iter_rows()),
            dict(came.group_by("code", maintain_order=True).len().iter_rows()) if known else {},
            dict(store.query(_WENT).iter_rows()) if known else {},
            came.head(MOST_NAMED).rows() if known else (),
        )


def add_moment(run: Path, said: Mapping[str, Any]) -> Moment:
    """Add what a scan elsewhere found to a folder without a run, once; UsageError for no moment."""
    try:
        moment = Moment(**said)
        datetime.fromisoformat(moment.at)
        for counts in (moment.splits, moment.classes, moment.severities, moment.codes,
                       moment.came, moment.went, {"": moment.files}):  # fmt: skip
            if not all(type(n) is int and n >= 0 for n in counts.values()):
                raise ValueError("a count is not a number")
        if not all(isinstance(v, str | None) for row in moment.named for v in row[:4]):
            raise ValueError("named has texts")
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"This is not a line of {HISTORY}: {error}.") from None
    line, *last = (json.dumps(asdict(one)) for one in (moment, *read_history(run)[-1:]))
    if line not in last:
        append_line(run / HISTORY, line)
    return moment


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, which is made where it is absent; raises RunError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error}).") from None


def read_history(run: Path) -> list[Moment]:
    """Return the moments of a run, oldest first; [] of one that was made by an earlier version."""
    found, names = list[Moment](), {f.name for f in fields(Moment)}
    for row in read_lines(run / HISTORY):
        with contextlib.suppress(TypeError):
            found.append(Moment(**{k: v for k, v in row.items() if k in names}))
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file with one JSON document a line; [] without the file."""
    lines, found = b"", list[dict[str, Any]]()
    with contextlib.suppress(OSError):
        lines = read_regular(path)
    for line in lines.split(b"\n"):
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def arrival(history: Sequence[Moment], what: str) -> tuple[Moment, Sequence[str]] | None:
    """Return when findings of a code or fingerprint last came, and the samples named; or None."""
    for moment in reversed(history):
        named = [str(s) for code, mark, _, s in moment.named if what in (code, mark) and s]
        if what in moment.came or named:
            return moment, list(dict.fromkeys(named))
    return None


def last_change(history: Sequence[Moment]) -> str:
    """Return what came and went with the last scan that changed findings; empty without one."""
    for moment in reversed(history):
        said = [
            f"{word} {', '.join(f'{code} {n:,}' for code, n in counts.items())}"
            for word, counts in (("new", moment.came), ("fixed", moment.went))
            if counts
        ]
        if said:
            return f"Scan of {moment.at[:19].replace('T', ' ')} UTC: {'; '.join(said)}."
    return ""
