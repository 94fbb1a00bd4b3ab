"""Plans, draws and scores stay what they were: a subset drawn last year must be drawn again today.

Draws in `golden/` were recorded with version 0.1, documents with 0.2, whose intervals are others
(those of macro-F1 again when they began to hold its bias).
Draws are compared row for row and bit for bit: the first 40 rows in full, all rows and columns by
their hash. Documents are compared field by field; their sentences may be reworded, their figures
may not change. The set is pure arithmetic and BLAKE3, so it is the same with every version of
every library.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from blake3 import blake3

from audit.subset import Goal, draw_subset, first_units, make_plan, recipe_from, score_subset
from audit.subset.draw import COLUMNS

FILES = 2000
LABELS = ("cat",) * 9 + ("dog",) * 5 + ("owl",) * 3 + ("yak",)


def number(i: int, what: str) -> float:
    """Return a fixed number in [0, 1) for file `i`."""
    return int.from_bytes(blake3(f"{what} {i}".encode()).digest(4), "little") / 2**32


def golden_set() -> pl.DataFrame:
    files = range(FILES)
    pairs = [i // 2 if i % 40 < 2 else None for i in files]
    # both files of a pair have one label
    sources = [i if pair is None else 2 * pair for i, pair in zip(files, pairs, strict=True)]
    patients = [f"p{int(160 * number(i, 'patient') ** 2)}" for i in files]
    return pl.DataFrame({
        "sample_id": [f"f{i:04d}" for i in files],
        "label": [LABELS[int(number(i, "label") * len(LABELS))] for i in sources],
        "content_hash": [blake3(f"file {i}".encode()).hexdigest() for i in files],
        "excluded_reason": ["unreadable file" if i % 251 == 5 else None for i in files],
        "duplicate_group": [None if pair is None else f"pair{pair}" for pair in pairs],
        "suspected_mislabel": [number(i, "suspected") < 0.02 for i in files],
        "camera": ["left" if number(i, "camera") < 0.3 else "right" for i in files],
        "brightness": [round(number(i, "brightness"), 4) for i in files],
        "patient": [None if i % 60 == 7 else patient for i, patient in enumerate(patients)],
    })  # fmt: skip


def model(frame: pl.DataFrame, accuracy: float, name: str) -> pl.DataFrame:
    """Return a model's predictions with its confidence, more confident where it is right."""
    other = {"cat": "dog", "dog": "owl", "owl": "yak", "yak": "cat"}
    rows = []
    for i, label in enumerate(frame["label"].to_list()):
        right, sure = number(i, name) < accuracy, number(i, f"{name} sure")
        confidence = round(0.5 + sure / 2 if right else 0.2 + 0.6 * sure, 6)
        rows.append((f"f{i:04d}", label if right else other[label], confidence))
    return pl.DataFrame(rows, ["sample_id", "prediction", "confidence"], orient="row")


def make_all() -> tuple[dict[str, Any], dict[str, pl.DataFrame], dict[str, Any]]:
    """Return (plan documents, drawn rows, score documents) by name."""
    frame = golden_set()
    a, b = model(frame, 0.8, "A"), model(frame, 0.86, "B")
    plans = {
        "plain": make_plan(frame, Goal(n=90)),
        "strata": make_plan(frame, Goal(half_width=0.08, looks=2), by=["camera", "brightness"]),
        "groups": make_plan(frame, Goal(detect=0.12, estimand="full-set"), group="patient"),
        "recall": make_plan(
            frame, Goal(metric="recall", half_width=0.1), deduplicated=True, label_noise=0.03
        ),
        "merged": make_plan(frame, Goal(n=20), by=["camera", "brightness"], merge_strata=True),
    }
    # plans that were saved: how they are made has changed since, how they are drawn has not
    saved = {name: recipe_from(recorded(f"{name}_plan.json")) for name in ("groups", "neyman")}
    recipes = {name: plans[name].recipe for name in ("plain", "strata")} | saved
    recipes |= {name: plans[name].recipe for name in ("recall", "merged")}
    with_confidence = frame.join(a.select("sample_id", "confidence"), on="sample_id")
    drawn = {
        f"{name} {seed}": draw_subset(
            with_confidence if name == "neyman" else frame, made, seed, n=min(made.n, 110)
        ).rows
        for name, made in recipes.items()
        for seed in (7, -31)
    }
    recipe = plans["plain"].recipe
    drawn["plain 7, n = 60"] = draw_subset(frame, recipe, 7, n=60).rows
    drawn["plain 7, the first 40"] = first_units(drawn["plain 7"], 40)
    drawn["plain 8, fresh"] = draw_subset(frame, recipe, 8, fresh_from=drawn["plain 7"]).rows
    # as drawn before a subset said what it was planned for
    as_of_old = drawn["plain 7"].drop("planned_confidence", "planned_looks")
    scores = {
        "plain 7": score_subset(as_of_old, [a, b], looks=2, label_noise=0.03),
        "groups 7": score_subset(drawn["groups 7"], [a, b], metrics=["macro-f1", "recall:dog"]),
        "neyman 7": score_subset(drawn["neyman 7"], [b], metrics=["accuracy", "precision:owl"]),
        "recall 7": score_subset(drawn["recall 7"], [a]),
    }
    documents = {name: plans[name].document() for name in ("strata", "groups", "recall")}
    return documents, drawn, {name: found.document() for name, found in scores.items()}


pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
SENTENCES = {"reasons", "notes", "sentence", "caution", "method"}


@pytest.fixture(scope="module")
def results():
    return make_all()


def recorded(name):
    return json.loads((GOLDEN / name).read_text())


def test_the_same_rows_and_weights(results):
    columns = {"sample_id": "sample_id", "weight": "weight"}
    tables = [t.head(40).select(draw=pl.lit(name), **columns) for name, t in results[1].items()]
    assert pl.concat(tables).rows() == pl.read_csv(GOLDEN / "draws.csv").rows()


def test_the_same_columns_bit_for_bit(results):
    hashes = {
        name: blake3(rows.select(COLUMNS).write_csv().encode()).hexdigest()
        for name, rows in results[1].items()
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
