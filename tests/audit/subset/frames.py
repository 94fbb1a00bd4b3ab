"""Made-up sets for the subset tests: plain frames with the documented columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from blake3 import blake3

from audit.subset import Goal, draw_subset, make_plan


def made_set(
    n: int,
    classes: int = 5,
    *,
    seed: int = 0,
    groups: int = 0,
    duplicates: int = 0,
    excluded: int = 0,
    shares: list[float] | None = None,
) -> pl.DataFrame:
    """Return `n` files; the first are pairs, the last are unreadable."""
    rng = np.random.default_rng(seed)
    label = rng.choice(classes, n, p=shares)
    label[: 2 * duplicates] = np.repeat(label[:duplicates], 2)
    ids = [f"test/{i:06d}.png" for i in range(n)]
    columns = {
        "sample_id": ids,
        "path": [f"/data/{i}" for i in ids],
        "label": [f"class{k}" for k in label],
        "content_hash": [blake3(f"{seed} {i}".encode()).hexdigest() for i in ids],
        "excluded_reason": [None if i < n - excluded else "unreadable file" for i in range(n)],
        "duplicate_group": [f"pair{i // 2}" if i < 2 * duplicates else None for i in range(n)],
        "suspected_mislabel": rng.uniform(size=n) < 0.02,
        "camera": rng.choice(["left", "right"], n),
        "brightness": rng.uniform(size=n),
    }
    if groups:
        columns["patient"] = [f"p{g}" for g in rng.integers(0, groups, n)]
    return pl.DataFrame(columns, schema_overrides={
        "excluded_reason": pl.String, "duplicate_group": pl.String})  # fmt: skip


def predicted(frame: pl.DataFrame, accuracy: float, seed: int) -> pl.DataFrame:
    """Return a model's predictions: right with chance `accuracy`, more confident where right."""
    rng = np.random.default_rng(seed)
    label = frame["label"].to_numpy()
    names = sorted(set(label.tolist()))
    right = rng.uniform(size=len(label)) < accuracy
    wrong = np.array(names) if len(names) > 1 else np.array(["other"])
    other = wrong[(np.searchsorted(names, label) + 1) % len(wrong)]
    confidence = np.where(right, rng.uniform(0.5, 1, len(label)), rng.uniform(0.2, 0.8, len(label)))
    return pl.DataFrame(
        {
            "sample_id": frame["sample_id"],
            "prediction": np.where(right, label, other),
            "confidence": confidence,
        }
    )


def drawn(frame: pl.DataFrame, n: int = 300, seed: int = 1, looks: int = 1, **options: Any):
    """Return the rows of a subset of `n` units; `options` as of `make_plan`."""
    return draw_subset(frame, make_plan(frame, Goal(n=n, looks=looks), **options).recipe, seed).rows
