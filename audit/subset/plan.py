"""The plan: how many units of which strata, what that buys, what was left out and why.

`Plan` is a record that survives JSON: `draw` needs its recipe (strata, merges, allocation weights),
readers need its figures and reasons. Making one is in `audit.subset.planning`. Document schema:
`subset-plan/1`, where the estimand full-set is called `agreement` (how far the subset's number may
be from the full set's).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import blake3

from audit.errors import UsageError
from audit.subset.estimate import Estimand
from audit.subset.frame import Strata

SCHEMA = "subset-plan/1"
# The document's names for the estimands.
DOCUMENT_NAMES = {"full-set": "agreement", "generalisation": "generalisation"}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides which rows are drawn, besides the set and the seed."""

    n: int
    strata: Strata
    scale: dict[str, float]
    group: str | None = None
    deduplicated: bool = False
    allocation: str = "proportional"

    @property
    def hash(self) -> str:
        """16 hex digits that name the plan: a hash of the recipe without n, as draws nest in n."""
        content = asdict(self)
        del content["n"]
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return str(blake3.blake3(text.encode()).hexdigest()[:16])


@dataclass(frozen=True)
class StratumPlan:
    """One stratum: units in F and drawn, the files they stand for, the allocation weight S_h."""

    name: str
    label: str
    units: int
    files: int
    n: int
    scale: float


@dataclass(frozen=True)
class Figures:
    """What n units buy for one estimand; shares in [0, 1], NaN where nothing can be told.

    `n_for_target` is the size that the target would take under this estimand (None without a
    target), `effective_n` the independent examples that the design is worth.
    """

    n: int
    effective_n: float
    half_width: float
    detectable_difference: float
    n_for_target: int | None = None


@dataclass(frozen=True)
class ClassPlan:
    """One class: units in F, expected in the subset, and what they buy for its recall."""

    label: str
    units: int
    n: int
    step: float
    estimands: dict[Estimand, Figures]


@dataclass(frozen=True)
class Unreachable:
    """A target that the data cannot give, what it gets instead, and how many more would do."""

    what: str
    target: float
    reached: float
    needs: int
    more: int
    sentence: str


@dataclass(frozen=True)
class Plan:
    """A planned subset; see the fields' names, and `reasons` for every automatic choice."""

    recipe: Recipe
    metric: str
    estimand: str
    target: dict[str, Any]
    confidence: float
    alpha: float
    looks: int
    n_all: int
    n_files: int
    n_units: int
    estimands: dict[Estimand, Figures]
    classes: list[ClassPlan]
    strata: list[StratumPlan]
    excluded: list[dict[str, str]]
    unreachable: list[Unreachable]
    design: dict[str, float]
    assumptions: dict[str, float]
    reasons: list[str] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Units to draw."""
        return self.recipe.n

    @property
    def hash(self) -> str:
        """Name of the plan, written into every row drawn from it."""
        return self.recipe.hash

    def document(self) -> dict[str, Any]:
        """Return the plan as plain data under `subset-plan/1`; NaN becomes null."""
        content = asdict(self)
        estimands = {
            DOCUMENT_NAMES[name]: {"estimand": name, **figures}
            for name, figures in content.pop("estimands").items()
        }
        content = {
            "schema": SCHEMA,
            "n": self.n,
            "hash": self.hash,
            "estimands": estimands,
            **content,
        }
        return dict(plain(content))

    def save(self, path: Path) -> None:
        """Write the document as JSON."""
        path.write_text(json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n", "utf-8")


def plain(value: Any) -> Any:
    """Return nested plain data with NaN and infinity as null, for JSON."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def load_recipe(path: Path) -> Recipe:
    """Read the part of a saved plan that a draw needs; raises UsageError if it is not a plan."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: write a plan with `audit subset plan RUN ... --json > {path}`."
        ) from error
    except ValueError as error:
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
        return Recipe(strata=Strata(tuple(strata["by"]), edges, dict(strata["merged"])), **content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{name} is damaged ({error}): plan again.") from error
