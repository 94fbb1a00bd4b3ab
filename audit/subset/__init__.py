"""Evaluation subsets that know how precise they are: plan, draw, score, curve.

A full offline evaluation is too slow to run every N steps. Which examples do I evaluate instead,
how far may that number be from the full one, and what is the smallest improvement it can show me?
`plan` turns a target into a number of units and says what it buys; `draw` picks them, nested and
repeatable; `score` estimates, with intervals that respect strata, groups and weights; `curve` shows
precision against n. All four are pure functions of a polars frame (columns in `audit.subset.frame`)
and plain values; `audit.subset.source` makes that frame from a run.
"""

from __future__ import annotations

from audit.subset.curve import Curve, curve
from audit.subset.draw import Subset, census, draw, first
from audit.subset.goal import Goal, NoiseRate
from audit.subset.plan import Plan, Recipe, load_recipe, recipe_from
from audit.subset.planning import plan
from audit.subset.predictions import read_predictions
from audit.subset.represent import BiasCheck, bias_check, metric_check
from audit.subset.score import Score, score

__all__ = [
    "BiasCheck", "Curve", "Goal", "NoiseRate", "Plan", "Recipe", "Score", "Subset", "bias_check",
    "census", "curve", "draw", "first", "load_recipe", "metric_check", "plan", "read_predictions",
    "recipe_from", "score",
]  # fmt: skip
