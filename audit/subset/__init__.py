"""Evaluation subsets: planning, drawing and scoring with confidence intervals.

In: a polars frame, one row a file (`audit.subset.source` makes it from a run), and a goal.
`make_plan` sizes a subset, `draw_subset` draws it, nested and repeatable, `score_subset` estimates
metrics with intervals, `make_curve` shows precision against n.
"""

from __future__ import annotations

from audit.subset.baseline import Baseline, metric_check
from audit.subset.draw import (
    Recipe,
    Subset,
    census,
    draw_subset,
    first_units,
    load_recipe,
    recipe_from,
)
from audit.subset.goal import Goal
from audit.subset.plan import Curve, Plan, make_curve, make_plan
from audit.subset.predictions import read_predictions
from audit.subset.score import Score, score_subset
from audit.subset.sizes import NoiseRate

__all__ = [
    "Baseline", "Curve", "Goal", "NoiseRate", "Plan", "Recipe", "Score", "Subset", "census",
    "draw_subset", "first_units", "load_recipe", "make_curve", "make_plan", "metric_check",
    "read_predictions", "recipe_from", "score_subset",
]  # fmt: skip
