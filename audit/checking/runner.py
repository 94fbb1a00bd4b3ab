"""Run checks over measurements and write what they find into a findings database.

A check that raises is stored in `failed_checks`, and the others run. A check is skipped, with the
reason, where a column that it declares was not measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import marshal
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

from audit.checking.check import Check, all_checks, make_params, page, select_checks
from audit.errors import error_place, error_text, error_trace
from audit.picture.hashing import LIBRARY_HASHES
from audit.records import FailedPart, Finding
from audit.run.store import Store, findings_table, identifier
from dataset_preflight.foundation.text import agreed

BATCH = 10_000


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """A check with its thresholds in force."""

    check: Check
    params: Any


def configure_checks(
    wanted: Sequence[str] | None,
    thresholds: Mapping[str, Mapping[str, Any]],
    own: Sequence[Check] = (),
) -> list[CheckConfig]:
    """Return the wanted checks (None: all) and `own`, configured; UsageError for unknown codes."""
    return [
        CheckConfig(check, make_params(check, thresholds.get(check.code, {})))
        for check in select_checks(wanted, own)
    ]


def checks_key(checks: Sequence[CheckConfig]) -> str:
    """Return a hash of the checks' code and thresholds: equal keys give equal findings."""
    state = hashlib.blake2b(digest_size=16)
    for config in checks:
        state.update(f"{_source_of(config.check)}\0{config.params!r}\0".encode())
    return state.hexdigest()


def _source_of(check: Check) -> str:
    """Return the text of a check's file; in a notebook that of the class, or its byte code."""
    for thing in (inspect.getmodule(type(check)), type(check)):
        with contextlib.suppress(OSError, TypeError):
            return inspect.getsource(thing)  # type: ignore[arg-type]  # None is a TypeError
    return repr(marshal.dumps(type(check).find.__code__))


def run_checks(
    measurements: Store,
    target: Path,
    checks: Sequence[CheckConfig],
    progress: Callable[[int, int], None],
    broken: Sequence[FailedPart] = (),
) -> None:
    """Write the findings of every check over `measurements` into a new database at `target`.

    `broken`: failed parts of the user's code. `checked_as` gets the key if no part failed.
    """
    target.unlink(missing_ok=True)
    with Store.create(target) as store, MemoryGauge() as gauge:
        store.create_findings()
        measured = measurements.columns("features").keys()
        waiting = _Waiting(store)
        for done, config in enumerate(sorted(checks, key=lambda c: bool(c.check.left_to))):
            progress(done, len(checks))
            waiting.flush(at_least=1 if config.check.left_to else BATCH)
            if missing := sorted(set(config.check.features) - measured):
                store.append("skipped_checks", [_skipped(config.check, missing)])
                continue
            try:
                with store.transaction():
                    _run_check(measurements, store, config, gauge, waiting)
            except (MemoryError, KeyboardInterrupt):
                raise  # the machine's limit and Ctrl-C say nothing about the check
            except BaseException as error:  # noqa: BLE001 - `sys.exit()` in a check, for example
                store.append("failed_checks", [asdict(_failed(config.check, error))])
        waiting.flush()
        progress(len(checks), len(checks))
        store.append("failed_checks", [asdict(part) for part in broken])
        failed = store.scalar("SELECT count(*) FROM failed_checks")
        key = "" if failed else checks_key(checks)
        store.execute("CREATE TABLE IF NOT EXISTS checked_as AS SELECT ? AS key", [key])
        store.checkpoint()


@dataclass(slots=True)
class _Waiting:
    """What checks that ended found: stored together, because an append takes 3 ms."""

    store: Store
    findings: list[Finding] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def flush(self, at_least: int = 0) -> None:
        """Store it all, where it is so many findings; never within the transaction of a check."""
        if len(self.findings) < at_least:
            return
        _append_findings(self.store, self.findings, self.names)
        self.store.append("check_runs", self.runs)
        self.findings, self.runs = [], []


def _skipped(check: Check, missing: Sequence[str]) -> dict[str, str]:
    columns = ", ".join(missing)
    reason = f"did not run: this scan did not measure {columns}. Scan again."
    if set(missing) <= {column.name for column in LIBRARY_HASHES}:
        reason = (
            f"did not run, because this scan did not measure {columns}: name it under "
            "`[measure] hashes` in audit.toml and scan again."
        )
    return {"code": check.code, "name": check.name, "reason": reason}


def _failed(check: Check, error: BaseException) -> FailedPart:
    module = inspect.getmodule(type(check))
    place = error_place(error, module.__file__ if module else None)
    text, trace = error_text(error), error_trace(error)
    return FailedPart("check", check.code, check.name, text, place, trace)


def _append_findings(store: Store, findings: Sequence[Finding], names: Mapping[str, str]) -> None:
    if findings:
        heads, members = findings_table(findings, names)
        store.append("findings", heads)
        store.append("finding_samples", members)


def _run_check(
    measurements: Store,
    store: Store,
    config: CheckConfig,
    gauge: MemoryGauge,
    waiting: _Waiting,
) -> None:
    gauge.start()
    check, start, n_findings, n_left = config.check, time.perf_counter(), 0, 0
    named = _named_files(store, check.left_to)
    empty = [table for table in check.tables if not measurements.share(_has_rows, table)]
    last: list[Finding] = []
    findings = iter(()) if empty else check.find(measurements, config.params)
    while found := list(islice(findings, BATCH)):
        batch = [f for f in found if not (f.sample_ids and named.issuperset(f.sample_ids))]
        n_left += len(found) - len(batch)
        n_findings += len(batch)
        _append_findings(store, last, {check.code: check.name})
        last = batch
    left = f" {', '.join(check.left_to)} reports {n_left:,} more." if n_left else ""
    row = {
        "code": check.code,
        "name": check.name,
        "severity": check.severity.value,
        "n_findings": n_findings,
        "seconds": time.perf_counter() - start,
        "memory_growth": gauge.growth(),
        "completeness": (
            f"Not applicable: no {empty[0].replace('_', ' ')}."
            if empty
            else agreed(check.completeness(measurements, config.params) + left)
        ),
        "params": json.dumps(asdict(config.params), default=str),
        "page": "" if check.code in all_checks() else page(check),
    }
    waiting.runs.append(row)
    waiting.names[check.code] = check.name
    waiting.findings += last


def _has_rows(store: Store, table: str) -> bool:
    return store.scalar(f"SELECT 1 FROM {identifier(table)} LIMIT 1") is not None


def _named_files(store: Store, codes: Sequence[str]) -> frozenset[str]:
    if not codes:
        return frozenset()
    sql = """
        SELECT DISTINCT m.sample_id AS id FROM findings f
        JOIN finding_samples m USING (fingerprint) WHERE list_contains(?, f.code)
    """
    return frozenset(store.query(sql, [list(codes)])["id"])


# The growth of memory by a check is a lower bound: samples of the resident size every 10 ms.

EVERY_S = 0.01
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of one unit of ru_maxrss


class MemoryGauge:
    """The peak of the resident memory since the last `start`; use it in a `with` block."""

    def __init__(self) -> None:
        self._stopped = Event()
        self._thread = Thread(target=self._watch, name="memory gauge", daemon=True)
        self._first = self._peak = self._highest = 0

    def __enter__(self) -> MemoryGauge:
        self.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def start(self) -> None:
        """Forget what was; growth counts from here."""
        self._highest = _highest_ever()
        self._first = self._peak = _resident() or self._highest

    def growth(self) -> int:
        """Return by how many bytes the peak since `start` lies above the size at `start`."""
        highest = _highest_ever()
        risen = highest if highest > self._highest else 0
        return max(self._peak, _resident(), risen) - self._first

    def _watch(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self._peak = max(self._peak, _resident())


def _resident() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _highest_ever() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT
