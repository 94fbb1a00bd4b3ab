"""`audit subset plan | draw | score | curve`: parse, one call into the library, format.

`plan` and `curve` read a run, `draw` a run and a plan, `score` a drawn subset alone (or a run, to
score the full set). With `--json` exactly one document goes to stdout. Wrong input exits with 2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.errors import AuditError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from audit.subset import NoiseRate

app = typer.Typer(
    help="Choose evaluation examples, and know what their number can tell you.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Estimand(StrEnum):
    """What the target is about."""

    GENERALISATION = "generalisation"
    FULL_SET = "full-set"
    DEDUPLICATED = "deduplicated"


class Allocation(StrEnum):
    """How units go to strata."""

    PROPORTIONAL = "proportional"
    EQUAL = "equal"
    NEYMAN = "neyman"


class Test(StrEnum):
    """The McNemar test that the plan is for."""

    MIDP = "midp"
    EXACT = "exact"


class IntervalKind(StrEnum):
    """The interval that a half-width is about."""

    WILSON = "wilson"
    CLOPPER_PEARSON = "clopper-pearson"


class LooksMethod(StrEnum):
    """How the error rate is shared among comparisons."""

    BONFERRONI = "bonferroni"
    SIDAK = "sidak"


class MissingRule(StrEnum):
    """What to do with examples that have no prediction."""

    REFUSE = "refuse"
    WRONG = "wrong"
    DROP = "drop"


def _answers(command: Callable[..., None]) -> Callable[..., None]:
    """Turn an AuditError into one sentence on stderr and exit code 2."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except AuditError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(2) from None

    return run


def _option(name: str, text: str) -> Any:
    return typer.Option(name, help=text)


RunArgument = Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")]
SplitOption = Annotated[str, _option("--split", "Split to draw from; `all` takes every file.")]
MetricOption = Annotated[
    str, _option("--metric", "accuracy, recall, recall:CLASS, specificity:CLASS, macro-recall, ...")
]
ByOption = Annotated[
    list[str] | None,
    _option("--by", "Column that forms strata with the label; repeatable; `confidence` works too."),
]
GroupOption = Annotated[
    str | None, _option("--group", "Column of units taken whole: patient, video; `group`.")
]
PredictionsOption = Annotated[
    list[Path] | None,
    _option("--predictions", "CSV or Parquet of an earlier model; twice for two models."),
]
ConfidenceOption = Annotated[float, _option("--confidence", "Confidence of the intervals.")]
EstimandOption = Annotated[
    list[Estimand] | None,
    _option("--estimand", "What the target is about; `deduplicated` may be added to either."),
]
AllocationOption = Annotated[
    Allocation | None, _option("--allocation", "How units go to strata (default: by metric).")
]
RhoOption = Annotated[float | None, _option("--rho", "Correlation of two files of one group.")]
ValueOption = Annotated[float | None, _option("--p", "Planning value of the share (default 0.5).")]
PsiOption = Annotated[
    float | None, _option("--discordant", "Share on which exactly one of two models is right.")
]
JsonOption = Annotated[bool, _option("--json", "Print one JSON document on stdout.")]


@app.command()
@_answers
def plan(
    run: RunArgument,
    split: SplitOption = "test",
    metric: MetricOption = "accuracy",
    half_width: Annotated[
        float | None, _option("--half-width", "Target half-width of the interval, 0.02 = 2 points.")
    ] = None,
    detect: Annotated[
        float | None, _option("--detect", "Smallest difference between two models to detect.")
    ] = None,
    power: Annotated[float, _option("--power", "Chance to detect it.")] = 0.8,
    n: Annotated[int | None, _option("--n", "Units to draw.")] = None,
    seconds: Annotated[float | None, _option("--seconds", "Time budget, s.")] = None,
    throughput: Annotated[
        str | None, _option("--throughput", "Files per second, or a saved profiler session.")
    ] = None,
    by: ByOption = None,
    group: GroupOption = None,
    looks: Annotated[int, _option("--looks", "Comparisons fixed in advance.")] = 1,
    looks_method: Annotated[
        LooksMethod, _option("--looks-method", "How they share the error rate.")
    ] = LooksMethod.BONFERRONI,
    label_noise: Annotated[
        str | None, _option("--label-noise", "Rate of wrong labels, or `auto` for the audit's.")
    ] = None,
    predictions: PredictionsOption = None,
    confidence: ConfidenceOption = 0.95,
    estimand: EstimandOption = None,
    allocation: AllocationOption = None,
    interval: Annotated[
        IntervalKind, _option("--interval", "Interval that the half-width is about.")
    ] = IntervalKind.WILSON,
    test: Annotated[Test, _option("--test", "McNemar test to plan for.")] = Test.MIDP,
    unpaired: Annotated[
        bool, _option("--unpaired", "The two models see different examples.")
    ] = False,
    p: ValueOption = None,
    discordant: PsiOption = None,
    rho: RhoOption = None,
    merge_strata: Annotated[
        bool, _option("--merge-strata", "Join the smallest strata where n is too small for all.")
    ] = False,
    output: Annotated[Path | None, _option("--output", "Also write the plan as JSON here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many examples to evaluate for a target, and what they buy."""
    from audit.subset import Goal
    from audit.subset import plan as make
    from audit.subset.text import plan_text

    target, deduplicated = _estimands(estimand)
    goal = Goal(
        metric=metric, half_width=half_width, detect=detect, n=n, seconds=seconds,
        throughput=_throughput(throughput), power=power, confidence=confidence, looks=looks,
        looks_method=looks_method.value, estimand=target, interval=interval.value, test=test.value,
        paired=not unpaired, planning_value=p, discordant=discordant, rho=rho,
    )  # fmt: skip
    goal.check()
    frame = _frame(run, split, by, group)
    made = make(
        frame, goal, by=by or (), group=group, deduplicated=deduplicated,
        allocation=None if allocation is None else allocation.value, merge_strata=merge_strata,
        predictions=_tables(predictions), label_noise=_noise(label_noise, frame),
    )  # fmt: skip
    if output is not None:
        made.save(output)
    _show(as_json, made.document, lambda: plan_text(made))


@app.command()
@_answers
def draw(
    run: RunArgument,
    plan: Annotated[Path, _option("--plan", "Plan, as written by `audit subset plan --json`.")],
    seed: Annotated[int, _option("--seed", "Any integer; the same seed draws the same rows.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="subset.parquet or subset.csv to write.")
    ],
    split: SplitOption = "test",
    n: Annotated[int | None, _option("--n", "Units to draw (default: the plan's).")] = None,
    fresh_from: Annotated[
        Path | None, _option("--fresh-from", "Earlier subset whose units are left out.")
    ] = None,
    predictions: PredictionsOption = None,
    redraws: Annotated[int, _option("--redraws", "Redraws for the bias check; 0: none.")] = 999,
    as_json: JsonOption = False,
) -> None:
    """Draw the planned examples: nested, repeatable, with weights."""
    from audit.subset import bias_check, load_recipe, metric_check
    from audit.subset import draw as make
    from audit.subset.predictions import read_table
    from audit.subset.prior import known_hits, with_confidence
    from audit.subset.text import draw_text

    recipe = load_recipe(plan)
    _check_suffix(output)
    frame = _frame(run, split, [c for c in recipe.strata.by if c != "confidence"], recipe.group)
    tables = _tables(predictions)
    frame = with_confidence(frame, tables, recipe.strata.by)
    earlier = None if fresh_from is None else read_table(fresh_from, "earlier subset")
    subset = make(frame, recipe, seed, n=n, fresh_from=earlier)
    check = None
    if redraws and earlier is None:
        check = bias_check(frame, recipe, subset, redraws=redraws, seed=seed)
    hits = known_hits(frame, tables, recipe.deduplicated) if earlier is None else None
    metric = None if hits is None else metric_check(frame, recipe, subset, hits)
    _write(subset.rows, output)
    document = {
        "schema": "subset-draw/1", "output": str(output), "n": subset.n_units,
        "files": len(subset.rows), "units": subset.population_units, "seed": seed,
        "plan": recipe.hash, "notes": subset.notes,
        "bias_check": None if check is None else check.document(),
        "metric_check": None if metric is None else metric.document(),
    }  # fmt: skip
    _show(as_json, lambda: document, lambda: draw_text(subset, check, metric))


@app.command()
@_answers
def score(
    subset: Annotated[
        Path, typer.Argument(help="Drawn subset (CSV or Parquet), or a run: the full set.")
    ],
    predictions: Annotated[
        list[Path], _option("--predictions", "CSV or Parquet of a model; twice to compare two.")
    ],
    metric: Annotated[
        list[str] | None, _option("--metric", "Repeatable; two models are compared on the first.")
    ] = None,
    confidence: ConfidenceOption = 0.95,
    missing: Annotated[
        MissingRule, _option("--missing", "Examples without a prediction.")
    ] = MissingRule.REFUSE,
    looks: Annotated[int, _option("--looks", "Comparisons fixed in advance.")] = 1,
    label_noise: Annotated[float | None, _option("--label-noise", "Rate of wrong labels.")] = None,
    first: Annotated[int | None, _option("--first", "Score only the first N units drawn.")] = None,
    split: SplitOption = "test",
    group: GroupOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate metrics from a subset, with intervals; compare two models."""
    from audit.subset import first as shorten
    from audit.subset import score as make
    from audit.subset.text import score_text

    rows = _rows(subset, split, group)
    if first is not None:
        rows = shorten(rows, first)
    names = _model_names(predictions)
    found = make(
        rows, _tables(predictions), metrics=metric or ["accuracy"], confidence=confidence,
        missing=missing.value, looks=looks, label_noise=label_noise, names=names,
    )  # fmt: skip
    _show(as_json, found.document, lambda: score_text(found))


@app.command()
@_answers
def curve(
    run: RunArgument,
    split: SplitOption = "test",
    metric: MetricOption = "accuracy",
    by: ByOption = None,
    group: GroupOption = None,
    predictions: PredictionsOption = None,
    confidence: ConfidenceOption = 0.95,
    power: Annotated[float, _option("--power", "Chance to detect a difference.")] = 0.8,
    allocation: AllocationOption = None,
    estimand: EstimandOption = None,
    p: ValueOption = None,
    discordant: PsiOption = None,
    rho: RhoOption = None,
    sizes: Annotated[
        list[int] | None, _option("--size", "Sizes to tabulate; repeatable (default: 24).")
    ] = None,
    worth: Annotated[
        float, _option("--worth", "Half-width that a tenth more examples must save, as a share.")
    ] = 0.001,
    as_json: JsonOption = False,
) -> None:
    """Tabulate half-width and detectable difference against n."""
    from audit.subset import Goal
    from audit.subset import curve as make
    from audit.subset.text import curve_text

    _, deduplicated = _estimands(estimand)
    goal = Goal(
        metric=metric, n=2, power=power, confidence=confidence, planning_value=p,
        discordant=discordant, rho=rho,
    )  # fmt: skip
    found = make(
        _frame(run, split, by, group), goal, sizes=sizes, by=by or (), group=group,
        deduplicated=deduplicated, predictions=_tables(predictions), worth=worth,
        allocation=None if allocation is None else allocation.value,
    )  # fmt: skip
    _show(as_json, found.document, lambda: curve_text(found))


# ---- reading and writing ----


def _show(as_json: bool, document: Callable[[], Any], text: Callable[[], str]) -> None:
    typer.echo(json.dumps(document(), indent=1, ensure_ascii=False) if as_json else text())


def _estimands(chosen: Sequence[Estimand] | None) -> tuple[Any, bool]:
    given = set(chosen or [])
    targets = given - {Estimand.DEDUPLICATED}
    if len(targets) > 1:
        raise UsageError("--estimand names two targets: choose generalisation or full-set.")
    target = targets.pop() if targets else Estimand.GENERALISATION
    return target.value, Estimand.DEDUPLICATED in given


def _frame(run: Path, split: str, by: Sequence[str] | None, group: str | None) -> pl.DataFrame:
    from audit.subset.source import frame_from_run

    wanted = [c for c in by or () if c != "confidence"] + ([group] if group else [])
    return frame_from_run(run, None if split == "all" else split, wanted)


def _tables(paths: Sequence[Path] | None) -> list[pl.DataFrame]:
    from audit.subset import read_predictions

    return [read_predictions(path) for path in paths or ()]


def _model_names(paths: Sequence[Path]) -> list[str]:
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def _rows(subset: Path, split: str, group: str | None) -> pl.DataFrame:
    from audit.subset import census
    from audit.subset.predictions import read_table

    if subset.is_dir():
        return census(_frame(subset, split, None, group), group=group).rows
    return read_table(subset, "subset")


def _write(rows: pl.DataFrame, output: Path) -> None:
    try:
        if output.suffix.lower() == ".csv":
            rows.write_csv(output)
        else:
            rows.write_parquet(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written ({error.strerror or error}).") from error


def _check_suffix(output: Path) -> None:
    if output.suffix.lower() not in {".csv", ".parquet", ".pq"}:
        raise UsageError(f"{output}: name a .parquet or .csv file to write.")


def _noise(text: str | None, frame: pl.DataFrame) -> float | NoiseRate | None:
    from audit.subset.frame import eligible
    from audit.subset.prior import marked_noise

    if text is None:
        return None
    if text == "auto":
        return marked_noise(eligible(frame).files)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--label-noise is {text!r}: give a rate such as 0.03, or auto.") from None


def _throughput(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return _session_throughput(Path(text))


def _session_throughput(path: Path) -> float:
    from audit.subset.throughput import from_session

    return from_session(path)
