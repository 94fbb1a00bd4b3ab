"""Plans, draws and scores stay what they were: a subset drawn last year must be drawn again today.

Draws in `golden/` were recorded with version 0.1, documents with 0.2, whose intervals are others
(those of macro-F1 again when they began to hold its bias).
Draws are compared row for row and bit for bit: the first 40 rows in full, all rows and columns by
their hash. Documents are compared field by field; their sentences may be reworded, their figures
may not change.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest
from blake3 import blake3

from audit.subset.draw import COLUMNS
from tests.audit.subset.golden import cases

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
SENTENCES = {"reasons", "notes", "sentence", "caution", "method"}


@pytest.fixture(scope="module")
def results():
    return cases.make_all()


def recorded(name):
    return json.loads((GOLDEN / name).read_text())


def test_the_same_rows_and_weights(results):
    _, drawn, _ = results
    rows = pl.concat(
        [
            table.head(40).select(draw=pl.lit(name), sample_id="sample_id", weight="weight")
            for name, table in drawn.items()
        ]
    )
    expected = pl.read_csv(GOLDEN / "draws.csv")
    assert rows.rows() == expected.rows()


def test_the_same_columns_bit_for_bit(results):
    _, drawn, _ = results
    hashes = {
        name: blake3(rows.select(COLUMNS).write_csv().encode()).hexdigest()
        for name, rows in drawn.items()
    }
    assert hashes == recorded("hashes.json")


def differences(new, old, where=""):
    """Return the places where two documents differ, sentences apart."""
    if isinstance(old, dict) and isinstance(new, dict):
        if list(new) != list(old):
            return [f"{where}: keys {list(new)}"]
        inside = [key for key in old if key not in SENTENCES]
        return [d for key in inside for d in differences(new[key], old[key], f"{where}/{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(new, old, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{where}/{i}")]
    if isinstance(old, float) and isinstance(new, float):
        # Another libm may round the last digit of a quantile differently.
        return [] if math.isclose(new, old, rel_tol=1e-9, abs_tol=1e-12) else [f"{where}: {new}"]
    return [] if new == old else [f"{where}: {new!r}, not {old!r}"]


@pytest.mark.parametrize(("place", "name"), [(0, "plans.json"), (2, "scores.json")])
def test_the_same_documents(results, place, name):
    new = json.loads(json.dumps(results[place], allow_nan=False))
    assert differences(new, recorded(name)) == []
