"""The saved form of a table: the keys of version 0.1, and reading undoes writing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from pipeline_profiler.precision.summary import as_results, summarise
from pipeline_profiler.precision.table import (
    LargestBatch,
    Visit,
    measurement_from_dict,
    table_as_dict,
    table_from_dict,
)
from pipeline_profiler.profiling.record.session import plain
from tests.conftest import ROOT
from tests.pipeline_profiler.precision.test_rows import amdahl, probed

SAVED = ROOT / "sample_data" / "sessions" / "precision-cpu.json"
UNUSED = ("loss_apart", "loss_apart_most", "loss_floor", "reference", "floor")
"""Keys that stored documents may have and that are ignored."""


@pytest.fixture
def saved() -> dict[str, Any]:
    """The document of a sweep on a CPU, as version 0.1 wrote it."""
    document: dict[str, Any] = json.loads(SAVED.read_text())["precision"]
    return document


def as_saved(now: Any, then: Any) -> Any:
    """What was written now, cut to the keys that the document of then has, in their order."""
    if isinstance(then, dict):
        return {key: as_saved(now[key], p) for key, p in then.items() if key not in UNUSED}
    if isinstance(then, list):
        return [as_saved(a, b) for a, b in zip(now, then, strict=True)]
    return now


def test_a_document_of_version_01_is_read_and_written_letter_by_letter(saved: Any) -> None:
    again = as_saved(table_as_dict(table_from_dict(saved)), saved)
    assert json.dumps(again) == json.dumps(as_saved(saved, saved))


def without_ends(value: Any) -> Any:
    """The same without the ends of intervals, whose method is that of the version that wrote it."""
    if isinstance(value, dict):
        ends = ("low", "high", "low_ms", "high_ms")
        return {key: without_ends(part) for key, part in value.items() if key not in ends}
    return [without_ends(part) for part in value] if isinstance(value, list) else value


def test_a_saved_measurement_gives_its_rows_and_comparisons_again(saved: Any) -> None:
    again = table_as_dict(summarise(measurement_from_dict(saved)))
    for key in ("rows", "loaders", "speedups", "growths"):
        assert without_ends(as_saved(again[key], saved[key])) == without_ends(
            as_saved(saved[key], saved[key])
        ), key
    for now, then in zip(again["rows"], saved["rows"], strict=True):
        step, old = now["step"], then["step"]
        assert (step is None) == (old is None)
        if step is not None and step["repeats"] >= 5:
            assert step["low_ms"] < old["mean_ms"] < step["high_ms"]
            assert step["low_ms"] < old["high_ms"]


def test_keys_of_a_later_version_are_ignored(saved: Any) -> None:
    saved["rows"][0]["colour"] = saved["visits"][-1]["mood"] = "later"
    assert table_from_dict(saved).rows[0].cell.model == "resnet18"


def test_what_was_not_measured_survives_as_null() -> None:
    failed = probed("fp32", status="oom", sentence="out of memory.", losses=[], peak_bytes=None)
    data = replace(amdahl(), largest=[LargestBatch("net", "fp16", 7, False, [1, 2, 7])])
    table = summarise(replace(data, cells=[failed], visits=[]))
    document = json.loads(json.dumps(plain(as_results(table)["precision"])))
    assert document["rows"][0]["step"] is None
    assert document["largest"][0]["trials"] == [1, 2, 7]
    assert plain(table_as_dict(table_from_dict(document))) == document


def test_one_repeat_has_an_infinite_interval_that_json_calls_null() -> None:
    data = amdahl()
    first = [v for v in data.visits if not isinstance(v, Visit) or v.block == 0]
    table = summarise(replace(data, visits=first))
    document = json.loads(json.dumps(plain(table_as_dict(table))))
    assert document["speedups"][0]["run"]["high"] is None
    assert table_from_dict(document).speedups[0].run.high == math.inf


def test_a_loss_that_was_not_a_number_can_be_read_again() -> None:
    broken = probed("bf16", losses=[2.0, math.nan])
    document = plain(table_as_dict(summarise(replace(amdahl(), cells=[broken]))))
    losses = measurement_from_dict(document).cells[0].probe.losses
    assert losses[0] == 2.0
    assert math.isnan(losses[1])
