"""Plans, draws and scores of a made-up set, as they were when they were recorded.

The set is pure arithmetic and BLAKE3, so it is the same with every version of every library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from blake3 import blake3

from audit.subset import Goal, draw_subset, first_units, make_plan, recipe_from, score_subset

FILES = 2000
LABELS = ("cat",) * 9 + ("dog",) * 5 + ("owl",) * 3 + ("yak",)


def number(i: int, what: str) -> float:
    """Return a fixed number in [0, 1) for file `i`."""
    return int.from_bytes(blake3(f"{what} {i}".encode()).digest(4), "little") / 2**32


def golden_set() -> pl.DataFrame:
    rows = []
    for i in range(FILES):
        pair = i // 2 if i % 40 < 2 else None
        source = i if pair is None else 2 * pair  # both files of a pair have one label
        rows.append(
            {
                "sample_id": f"f{i:04d}",
                "label": LABELS[int(number(source, "label") * len(LABELS))],
                "content_hash": blake3(f"file {i}".encode()).hexdigest(),
                "excluded_reason": "unreadable file" if i % 251 == 5 else None,
                "duplicate_group": None if pair is None else f"pair{pair}",
                "suspected_mislabel": number(i, "suspected") < 0.02,
                "camera": "left" if number(i, "camera") < 0.3 else "right",
                "brightness": round(number(i, "brightness"), 4),
                "patient": None if i % 60 == 7 else f"p{int(160 * number(i, 'patient') ** 2)}",
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def model(frame: pl.DataFrame, accuracy: float, name: str) -> pl.DataFrame:
    """Return a model's predictions with its confidence, more confident where it is right."""
    rows = []
    for i, label in enumerate(frame["label"].to_list()):
        right = number(i, name) < accuracy
        other = ("dog", "owl", "yak", "cat")[("cat", "dog", "owl", "yak").index(label)]
        sure = number(i, f"{name} sure")
        rows.append(
            {
                "sample_id": f"f{i:04d}",
                "prediction": label if right else other,
                "confidence": round(0.5 + sure / 2 if right else 0.2 + 0.6 * sure, 6),
            }
        )
    return pl.DataFrame(rows)


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
    saved = {
        name: recipe_from(json.loads((Path(__file__).parent / f"{name}_plan.json").read_text()))
        for name in ("groups", "neyman")
    }
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
