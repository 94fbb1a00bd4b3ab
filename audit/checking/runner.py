"""Judge: run checks over measurements and write what they say into a findings database."""

from __future__ import annotations

import hashlib
import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from audit.checking.check import Check, make_params, select_checks
from audit.records import CheckRun, Finding
from audit.run.store import Store, findings_table

BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Judge:
    """A check with its thresholds in force."""

    check: Check
    params: Any


def select_judges(
    wanted: Sequence[str] | None, thresholds: Mapping[str, Mapping[str, Any]]
) -> list[Judge]:
    """Return the wanted checks (None: all) with their thresholds; raises UsageError for unknown."""
    return [Judge(c, make_params(c, thresholds.get(c.code, {}))) for c in select_checks(wanted)]


def judge_key(judges: Sequence[Judge]) -> str:
    """Return a hash of the checks' code and thresholds: equal keys judge alike."""
    state = hashlib.blake2b(digest_size=16)
    for judge in judges:
        source = inspect.getsource(inspect.getmodule(type(judge.check)) or type(judge.check))
        state.update(f"{source}\0{judge.params!r}\0".encode())
    return state.hexdigest()


def judge(
    measurements: Store,
    target: Path,
    judges: Sequence[Judge],
    progress: Callable[[int, int], None],
) -> None:
    """Write the findings of every check over `measurements` into a new database at `target`."""
    target.unlink(missing_ok=True)
    with Store.create(target) as store:
        store.create_findings()
        for done, one in enumerate(judges):
            progress(done, len(judges))
            try:
                with store.transaction():
                    _run_check(measurements, store, one)
            except Exception as error:  # noqa: BLE001 - one broken check must not lose the scan
                said = f"This check failed and says nothing: {type(error).__name__}: {error}"
                failed = CheckRun(one.check.code, one.check.name, 0, 0.0, said[:500])
                store.append("check_runs", [_row(failed, one.check)])
        progress(len(judges), len(judges))
        store.checkpoint()


def _run_check(measurements: Store, store: Store, one: Judge) -> None:
    check, started, total = one.check, time.perf_counter(), 0
    for batch in _batched(check.find(measurements, one.params)):
        total += len(batch)
        heads, members = findings_table(batch, {check.code: check.name})
        store.append("findings", heads)
        store.append("finding_samples", members)
    said = check.completeness(measurements, one.params)
    params = asdict(one.params)
    run = CheckRun(check.code, check.name, total, time.perf_counter() - started, said, params)
    store.append("check_runs", [_row(run, check)])


def _row(run: CheckRun, check: Check) -> dict[str, Any]:
    return {
        "code": run.code,
        "name": run.name,
        "severity": check.severity.value,
        "n_findings": run.n_findings,
        "seconds": run.seconds,
        "completeness": run.completeness,
        "params": json.dumps(run.params, default=str),
    }


def _batched(findings: Iterator[Finding]) -> Iterator[list[Finding]]:
    while batch := list(islice(findings, BATCH)):
        yield batch
