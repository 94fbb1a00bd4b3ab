"""Draw the first n units of a fixed order, with everything that a later score needs in each row.

Within a stratum, units are ordered by permanent random numbers (Ohlsson 1995, in Business Survey
Methods); across strata by `audit.subset.strata.order_units`. So S(n) is a part of S(n+1), and new
data displace only their share. The number of a unit is ``u = (splitmix64(h XOR splitmix64(seed)) >>
11) * 2**-53`` with h the first 8 bytes, little-endian, of the BLAKE3 hash of the key's UTF-8 bytes;
the key of a duplicate group is its smallest member hash.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import blake3
import numpy as np
import polars as pl
from numpy.typing import NDArray

from audit.errors import UsageError
from audit.statistics.intervals import Floats, Ints, check_level
from audit.subset.predictions import SET_CLASSES
from audit.subset.source import EligibleSet, select_eligible
from audit.subset.strata import FIRST_UNITS, Strata, Units, evaluated_files, form_units, order_units
from dataset_preflight.foundation.files import read_regular

U64 = NDArray[np.uint64]
SLICE_ROWS = 1_000_000
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def splitmix64(x: U64) -> U64:
    """Return the splitmix64 output for each state: Steele, Lea and Flood (2014), OOPSLA."""
    z = np.asarray(x, np.uint64) + _GAMMA
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return np.asarray(z ^ (z >> np.uint64(31)))


def uniforms(codes: U64, seed: int) -> Floats:
    """Return one number in [0, 1) for each code, in order; `seed` is any integer."""
    salt = splitmix64(np.array([seed % 2**64], np.uint64))
    return (splitmix64(codes ^ salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permanent_numbers(keys: pl.Series, seed: int) -> Floats:
    """Return one number in [0, 1) for each key, in order; `seed` is any integer."""
    return uniforms(hash_keys(keys), seed)


def counted_uniforms(count: int, seed: int) -> Floats:
    """Return `count` numbers in [0, 1) that depend on `seed` and their position alone."""
    return uniforms(splitmix64(np.arange(count, dtype=np.uint64)), seed)


def hash_keys(keys: pl.Series) -> U64:
    """Return the first 8 bytes of BLAKE3 of each key as little-endian integers."""
    digests = bytearray()
    for start in range(0, len(keys), SLICE_ROWS):
        for key in keys.slice(start, SLICE_ROWS).to_list():
            digests += blake3.blake3(key.encode()).digest(8)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


PLAN_SCHEMA = "subset-plan/1"
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
    return recipe_from(_document(path), str(path))


def planned(path: Path, name: str, usual: str) -> str:
    """Return the `metric` or the `split` of a saved plan, `usual` where it does not say."""
    document = _document(path)
    return str((isinstance(document, dict) and document.get(name)) or usual)


def _document(path: Path) -> Any:
    try:
        return json.loads(read_regular(path))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: write a plan with `audit subset plan RUN ... --json > {path}`."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not JSON: write it with `audit subset plan --json`."
        ) from error


def recipe_from(document: Any, name: str = "the plan") -> Recipe:
    """Return the recipe of a plan document."""
    if not isinstance(document, dict) or document.get("schema") != PLAN_SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise UsageError(
            f"{name} is not a {PLAN_SCHEMA} document (it says {found!r}): make one with "
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


COLUMNS = (
    "sample_id", "path", "label", "stratum", "unit_id", "unit_size", "n_h", "N_h",
    "inclusion_probability", "weight", "rank", "seed", "plan_hash", "suspected_mislabel",
)  # fmt: skip
# What was planned for, where the plan says it: `score` keeps to it. The classes of the set, which
# a prediction may name though no drawn row has them, are in the row of rank 1 alone.
PLANNED = ("planned_confidence", "planned_looks")
# The n_h smallest numbers lie below n_h/N_h plus this many standard deviations, nearly always.
SLACK_DEVIATIONS = 6.0


@dataclass(frozen=True)
class Subset:
    """A drawn subset: `rows` (`COLUMNS`, `PLANNED`, `SET_CLASSES`), and `notes` on the draw."""

    rows: pl.DataFrame
    n_units: int
    population_units: int
    notes: list[str] = field(default_factory=list)


def draw_subset(
    frame: pl.DataFrame,
    recipe: Recipe,
    seed: int,
    *,
    n: int | None = None,
    fresh_from: pl.DataFrame | None = None,
) -> Subset:
    """Draw `n` units (default: the plan's) of `frame` under a plan's recipe.

    `fresh_from`: rows of an earlier subset, whose units are taken out first; the target is then the
    metric on what is left. A recipe stratified by confidence needs that column in `frame`.
    """
    columns = [*recipe.strata.by, *([recipe.group] if recipe.group else [])]
    eligible = select_eligible(frame, recipe.deduplicated, columns)
    units = form_units(eligible.files, recipe.strata, recipe.group)
    notes = _changed_strata(recipe, units)
    codes, strata = units.codes, units.strata
    if fresh_from is not None:
        # Units of the earlier subset get a code behind the last stratum, which is never drawn from.
        codes = np.where(_drawn_before(units, fresh_from, recipe, notes), len(strata), codes)
    N = np.bincount(codes, minlength=len(strata) + 1)[: len(strata)].astype(np.int64)
    size = recipe.n if n is None else n
    _check_size(size, N)
    # A stratum that the plan did not know gets the median weight: neither starved nor favoured.
    known = [recipe.scale[name] for name in strata if name in recipe.scale]
    typical = float(np.median(known or [1.0]))
    scale = np.array([recipe.scale.get(name, typical) for name in strata])
    order, number = order_units(N, scale, size)
    n_h = np.bincount(order, minlength=len(strata)).astype(np.int64)
    taken = _smallest_numbers(units, codes, n_h, N, seed)
    # The k-th smallest number of stratum h stands where the order gives h its k-th unit.
    position = np.lexsort((number, order))
    taken = taken.with_columns(rank=pl.Series(position + 1, dtype=pl.Int64))
    rows = _rows(eligible, units, taken, n_h, N, seed, recipe)
    return Subset(rows, size, int(N.sum()), notes)


def census(
    frame: pl.DataFrame,
    *,
    group: str | None = None,
    deduplicated: bool = False,
    strata: Strata | None = None,
) -> Subset:
    """Return the whole eligible set as a subset: the full set scores like any other."""
    recipe = Recipe(0, strata or Strata(), {}, group, deduplicated)
    eligible = select_eligible(frame, deduplicated)
    units = form_units(eligible.files, recipe.strata, group)
    every = np.arange(len(units.table))
    taken = pl.DataFrame({"unit": every, "rank": every + 1})
    N = np.bincount(units.codes, minlength=len(units.strata)).astype(np.int64)
    rows = _rows(eligible, units, taken, N, N, 0, recipe)
    return Subset(rows, len(every), len(every))


def _check_size(n: int, N: Ints) -> None:
    total, strata = int(N.sum()), int((N > 0).sum())
    if n > total:
        raise UsageError(
            f"{n} units are more than the {total} of the set: give --n {total} or less."
        )
    floor = int(np.minimum(N, FIRST_UNITS).sum())
    if n < floor:
        raise UsageError(
            f"{n} units cannot give two to each of {strata} strata: ask for at least {floor}, or "
            "plan again with --set plan.merge_strata=true or fewer --by columns."
        )


def _changed_strata(recipe: Recipe, units: Units) -> list[str]:
    if not recipe.scale:
        return []
    new = [name for name in units.strata if name not in recipe.scale]
    gone = [name for name in recipe.scale if name not in set(units.strata)]
    notes = []
    if new:
        notes.append(
            f"{len(new)} strata are not in the plan ({', '.join(new[:5])}): the set has changed. "
            "They got the plan's median allocation weight; plan again to size them."
        )
    if gone:
        notes.append(
            f"{len(gone)} strata of the plan are empty now ({', '.join(gone[:5])}): plan again."
        )
    return notes


def _drawn_before(
    units: Units, earlier: pl.DataFrame, recipe: Recipe, notes: list[str]
) -> np.ndarray:
    if "unit_id" not in earlier.columns:
        raise UsageError("--exclude-drawn needs a subset that `audit subset draw` wrote.")
    if "plan_hash" in earlier.columns and (earlier["plan_hash"] != recipe.hash).any():
        notes.append("The earlier subset was drawn under another plan; its units are left out.")
    before = units.table["unit_id"].is_in(earlier["unit_id"].cast(pl.String).implode()).to_numpy()
    notes.append(
        f"{int(before.sum())} units of the earlier subset were left out: this is a fresh draw. "
        f"Results for this set are about the {int((~before).sum())} remaining units."
    )
    return before


def _smallest_numbers(
    units: Units, codes: np.ndarray, n_h: Ints, N: Ints, seed: int
) -> pl.DataFrame:
    numbers = permanent_numbers(units.table["unit_key"], seed)
    # Sorting all units would cost more than hashing them. The n_h smallest of N_h uniform numbers
    # lie, but for six standard deviations, below n_h/N_h: only those candidates are sorted.
    slack = SLACK_DEVIATIONS
    while True:
        share = (n_h + slack * np.sqrt(n_h + 1.0)) / np.maximum(N, 1)
        share = np.append(np.where(n_h == 0, -1.0, share), -1.0)  # the last: units left out
        rows = np.flatnonzero(numbers < share[codes])
        if np.all(np.bincount(codes[rows], minlength=n_h.size + 1)[:-1] >= n_h):
            break
        slack *= 2  # a stratum came up short by chance; at worst the threshold reaches 1
    candidates = pl.DataFrame(
        {
            "unit": rows,
            "code": codes[rows],
            "number": numbers[rows],
            "unit_id": units.table["unit_id"].gather(pl.Series(rows)),
        }
    )
    ordered = candidates.sort("code", "number", "unit_id")
    place = pl.int_range(pl.len()).over("code")
    ranked = ordered.with_columns(place=place, limit=pl.Series(n_h)[ordered["code"]])
    return ranked.filter(pl.col("place") < pl.col("limit")).select("unit")


def _rows(
    eligible: EligibleSet,
    units: Units,
    taken: pl.DataFrame,
    n_h: Ints,
    N: Ints,
    seed: int,
    recipe: Recipe,
) -> pl.DataFrame:
    files = evaluated_files(eligible.files, units, taken["unit"])
    table = taken.join(files, on="unit", how="inner", maintain_order="left")
    chosen = units.table[table["unit"]]
    code = chosen["stratum"].to_physical().to_numpy()
    size = chosen["size"].to_numpy()
    chance = n_h[code] / N[code]
    # Every file of a group is a row of its own; one row stands for all files of a duplicate group.
    stands_for = np.ones(size.size) if units.whole else size
    picked = eligible.files.select("sample_id", "path", "label", "suspected_mislabel")[
        table["file"]
    ]
    classes = eligible.files["label"].cast(pl.String).unique().sort().to_list()
    listed = pl.lit(json.dumps(classes, ensure_ascii=False))
    return picked.with_columns(
        stratum=chosen["stratum"].cast(pl.String),
        unit_id=chosen["unit_id"],
        unit_size=chosen["size"],
        n_h=pl.Series(n_h[code], dtype=pl.Int64),
        N_h=pl.Series(N[code], dtype=pl.Int64),
        inclusion_probability=pl.Series(chance),
        weight=pl.Series(stands_for / chance),
        rank=table["rank"],
        seed=pl.lit(seed if -(2**63) <= seed < 2**63 else str(seed)),
        plan_hash=pl.lit(recipe.hash),
        planned_confidence=pl.lit(recipe.confidence, pl.Float64),
        planned_looks=pl.lit(recipe.looks, pl.Int64),
    ).with_columns(pl.when(pl.col("rank") == 1).then(listed).alias(SET_CLASSES)).select(
        *COLUMNS, *(PLANNED if recipe.confidence is not None else ()), SET_CLASSES
    ).sort("rank", "sample_id")  # fmt: skip


def planned_level(
    rows: pl.DataFrame, confidence: float | None = None, looks: int | None = None
) -> tuple[float, int]:
    """Return the confidence and the looks that drawn rows were planned for, or those given.

    Raises UsageError where both are there and differ: intervals would not keep the plan's word.
    """
    kept = [pl.col(n).cast(pl.Float64, strict=False).max() for n in PLANNED if n in rows]
    level, times = rows.select(kept).row(0) if len(kept) == len(PLANNED) else (None, None)
    for option, given, meant in (
        ("--confidence", confidence, level),
        ("[plan] comparisons", looks, times),
    ):
        if given is not None and meant is not None and given != meant:
            raise UsageError(
                f"{option} is {given:g}, and this subset was planned for {meant:g}: leave out "
                f"{option}, or plan again with it and draw."
            )
    chosen = next(float(v) for v in (confidence, level, 0.95) if v is not None)
    check_level(chosen, "--confidence")
    return chosen, next(int(v) for v in (looks, times, 1) if v is not None)


def first_units(rows: pl.DataFrame, n: int) -> pl.DataFrame:
    """Return the first `n` units of a drawn subset, weights recomputed: S(n) of the same draw."""
    total = rows["rank"].n_unique()
    if not 2 <= n <= total:
        raise UsageError(f"--first is {n}: the subset has {total} units; give 2 to {total}.")
    drawn = pl.col("rank").n_unique().over("stratum").cast(pl.Int64)
    head = reweighted(rows.filter(pl.col("rank") <= n), n_h=drawn)
    lost = rows["stratum"].n_unique() - head["stratum"].n_unique()
    few = head.filter((pl.col("n_h") < FIRST_UNITS) & (pl.col("N_h") > 1))["stratum"].n_unique()
    if lost or few:
        raise UsageError(
            f"The first {n} units give fewer than two to {lost + few} strata: use more, or plan "
            "with fewer strata."
        )
    return head


def reweighted(rows: pl.DataFrame, **sizes: pl.Expr) -> pl.DataFrame:
    """Return drawn rows under other `n_h` or `N_h`, with probabilities and weights to match."""
    files = (pl.col("weight") * pl.col("inclusion_probability")).round()
    chance = pl.col("n_h") / pl.col("N_h")
    resized = rows.with_columns(weight=files, **sizes)
    return resized.with_columns(inclusion_probability=chance, weight=pl.col("weight") / chance)
