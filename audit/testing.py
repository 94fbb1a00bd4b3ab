"""Tests of checks: a case is a tiny dataset in which a check must report the expected findings.

    from audit.testing import Case, run_cases

    def test_too_red():
        clean = Case("a photograph", [{"redness": 0.3}])
        dirty = Case("a failed white balance", [{"id": "a.jpg", "redness": 0.9}], ["a.jpg"])
        run_cases(TooRed, [clean, dirty])

A case gives only the columns that matter; everything else is that of a healthy photograph.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from audit.checking.check import Check, make_params
from audit.picture.features import FEATURE_ROW
from audit.records import Column, Finding, polars_schema
from audit.run.store import Store
from audit.run.tables import OTHER_TABLES, SAMPLES

if TYPE_CHECKING:
    import polars as pl

HEALTHY: Mapping[str, Any] = {
    "source": "", "split": "train", "label": "cat", "group_key": None, "n_bytes": 60_000,
    "mtime_ns": 1, "ctime_ns": 1, "status": "ok", "detected": "JPEG", "format": "JPEG",
    "extension": "jpg", "width": 640, "height": 480, "mode": "RGB", "bit_depth": 8, "frames": 1,
    "animated": False, "orientation": 1, "has_alpha": False, "jpeg_quality": 90,
    "jpeg_subsampling": "4:2:0", "progressive": False, "trailing_bytes": 0, "missing_end": False,
    "brightness": 0.45, "brightness_p1": 0.05, "brightness_p5": 0.10, "brightness_p50": 0.45,
    "brightness_p95": 0.85, "brightness_p99": 0.95, "contrast": 0.22, "saturation": 0.35,
    "channel_spread": 0.45, "red": 0.47, "green": 0.45, "blue": 0.42, "sharpness": 0.45,
    "edge_density": 0.25, "entropy": 7.3, "noise": 0.01, "noise_floor": 0.005, "transparent": 0.0,
    "border_red": 0.47, "border_green": 0.45, "border_blue": 0.42, "border_spread": 0.2,
    "channels_equal": False, "frame": 0.0, "cast_red": 0.0, "cast_blue": 0.0, "grey_tail": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A tiny dataset, and the subjects of the findings that a check must report in it.

    `images` are rows of the view `images`; an absent `id` becomes `0000.jpg`, `0001.jpg` and so
    on, and absent hashes all differ. `expect` lists the subjects in any order; a clean case expects
    none. `tables` gives rows of other tables by name. `params` overrides thresholds.
    """

    name: str
    images: Sequence[Mapping[str, Any]]
    expect: Sequence[str] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseResult:
    """What a check reported in a case."""

    case: Case
    findings: tuple[Finding, ...]
    completeness: str

    @property
    def subjects(self) -> list[str]:
        """The sorted subjects of the findings; the id alone stands for a sample, `id@hash`."""
        return sorted(re.sub(r"@[0-9a-f]{1,16}$", "", found.subject) for found in self.findings)


def run_cases(check: Check | type[Check], cases: Iterable[Case]) -> list[CaseResult]:
    """Run a check on every case in an in-memory store; return the result of each case.

    Raises AssertionError with a sentence for each case whose findings are not the expected ones.
    """
    made = check() if isinstance(check, type) else check
    custom = sorted(set(made.features) - {column.name for column in FEATURE_ROW})
    results, wrong = list[CaseResult](), list[str]()
    for case in cases:
        with case_store(case, custom) as store:
            params = make_params(made, case.params)
            findings = tuple(made.find(store, params))
            result = CaseResult(case, findings, made.completeness(store, params))
        results.append(result)
        if result.subjects != sorted(case.expect):
            expected, found = (", ".join(s) or "none" for s in (case.expect, result.subjects))
            sides = f"expected findings: {expected}; reported findings: {found}"
            wrong.append(f"{made.code} {made.name}, case {case.name!r}: {sides}.")
    if wrong:
        raise AssertionError("\n".join(wrong))
    return results


@contextlib.contextmanager
def case_store(case: Case, custom: Sequence[str] = ()) -> Iterator[Store]:
    """Open an in-memory store that holds the case until the `with` block ends; one at a time.

    `custom` names measured columns of the user's own. Raises AssertionError for an unknown column.
    """
    # one database for all cases, each in a transaction that is undone: making one takes 50 ms
    measured = (*FEATURE_ROW, *(Column(name, "DOUBLE", "") for name in custom))
    unknown = {name for row in case.images for name in row}
    if unknown := unknown - {column.name for column in (*SAMPLES, *measured)}:
        raise AssertionError(f"Case {case.name!r}: images have no column {min(unknown)!r}.")
    store = _empty_store(measured)
    with store.rolled_back():
        rows = [_filled(row, number) for number, row in enumerate(case.images)]
        store.append("samples", _table(rows, SAMPLES))
        store.append("features", _table([{**r, "sample_id": r["id"]} for r in rows], measured))
        for name, extra in case.tables.items():
            if name == "metadata":  # a manifest's columns: whatever the case has
                store.create_from(name, _table(extra))
            else:
                store.append(name, _table(extra, OTHER_TABLES[name]))
        yield store


@lru_cache(maxsize=4)
def _empty_store(measured: Sequence[Column]) -> Store:
    store = Store.memory()
    store.create_measurements(measured)
    return store


def _filled(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    name = f"{number:04d}.jpg"
    seed = hashlib.blake2b(f"{number}".encode(), digest_size=32)
    made_up = {
        "id": name, "uri": f"/dataset/{row.get('id', name)}", "content_hash": seed.hexdigest(),
        "pixel_hash": seed.hexdigest()[:32], "phash256": seed.hexdigest(),
        "phash": int.from_bytes(seed.digest()[:8], "big"),
        "dhash": int.from_bytes(seed.digest()[8:16], "big"),
    }  # fmt: skip
    return {**HEALTHY, **made_up, **row}


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column] = ()) -> pl.DataFrame:
    import polars as pl

    if not columns:
        return pl.from_dicts([dict(row) for row in rows], infer_schema_length=None)
    kinds = polars_schema(columns).items()
    return pl.DataFrame(
        [
            pl.Series(name, [row.get(name) for row in rows], kind, strict=False)
            for name, kind in kinds
        ]
    )
