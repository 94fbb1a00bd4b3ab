"""The recipe: what a plan says to the draw: which rows, besides the set and the seed.

It is all that `draw_subset` needs from a saved plan, and its hash is the plan's name: rows that
carry the same hash were drawn by the same rule. The size n is not part of the name, because draws
of different sizes lie inside one another; nor are confidence and looks, which no row depends on and
each row carries to its score.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import blake3

from audit.errors import UsageError
from audit.subset.strata import Strata

# The schema of the plan document that a recipe is read from.
SCHEMA = "subset-plan/1"
# Fields that no row depends on.
PLANNED_FOR = ("confidence", "looks")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides which rows are drawn, besides the set and the seed.

    `confidence`, `looks`: what was planned for, None where a plan does not say.
    """

    n: int
    strata: Strata
    scale: dict[str, float]
    group: str | None = None
    deduplicated: bool = False
    allocation: str = "proportional"
    confidence: float | None = None
    looks: int | None = None

    @property
    def hash(self) -> str:
        """16 hex digits that name the plan: a hash of what decides the rows, but n: draws nest."""
        content = self.content()
        for name in ("n", *PLANNED_FOR):
            content.pop(name, None)
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return str(blake3.blake3(text.encode()).hexdigest()[:16])

    def content(self) -> dict[str, Any]:
        """Return the recipe as plain data; what is usual goes without saying."""
        content = asdict(self)
        if self.strata.label:
            del content["strata"]["label"]
        if not self.strata.whole_above:
            del content["strata"]["whole_above"]
        for name in PLANNED_FOR:
            if content[name] is None:
                del content[name]
        return content


def load_recipe(path: Path) -> Recipe:
    """Read the part of a saved plan that a draw needs; raises UsageError if it is not a plan."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: write a plan with `audit subset plan RUN ... --json > {path}`."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not JSON: write it with `audit subset plan --json`."
        ) from error
    return recipe_from(document, str(path))


def recipe_from(document: Any, name: str = "the plan") -> Recipe:
    """Return the recipe of a plan document."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise UsageError(
            f"{name} is not a {SCHEMA} document (it says {found!r}): make one with "
            "`audit subset plan --json`."
        )
    try:
        content = dict(document["recipe"])
        strata = dict(content.pop("strata"))
        edges = {key: tuple(values) for key, values in strata["edges"].items()}
        merged, by_label = dict(strata["merged"]), bool(strata.get("label", True))
        whole = int(strata.get("whole_above", 0))
        for field, kind in zip(PLANNED_FOR, (float, int), strict=True):
            if field in content:
                content[field] = kind(content[field])
        return Recipe(strata=Strata(tuple(strata["by"]), edges, merged, by_label, whole), **content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{name} is damaged ({error}): plan again.") from error
