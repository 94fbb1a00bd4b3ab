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

from audit.cli import terminal
from audit.cli.goal_options import (
    ConfidenceOption,
    GoalOptions,
    GroupOption,
    LooksOption,
    PlanOptions,
    PredictionsOption,
    SplitOption,
    model_names,
    option,
    takes_options,
)
from audit.errors import AuditError, MachineError, UsageError
from audit.printable import visible

if TYPE_CHECKING:
    import polars as pl

    from audit.subset import NoiseRate

app = typer.Typer(
    help="Choose evaluation examples, and know what their number can tell you.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class MissingRule(StrEnum):
    """What to do with examples that have no prediction."""

    REFUSE = "refuse"
    WRONG = "wrong"
    DROP = "drop"


class UnknownRule(StrEnum):
    """What to do with predicted classes that the examples do not have."""

    REFUSE = "refuse"
    WRONG = "wrong"


def _answers(command: Callable[..., None]) -> Callable[..., None]:
    """Turn an AuditError into one sentence on stderr and exit code 2."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except MachineError:
            raise
        except AuditError as error:
            terminal.write_message(f"audit: {visible(str(error))}")
            raise typer.Exit(2) from None

    return run


RunArgument = Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")]
JsonOption = Annotated[bool, option("--json", "Print one JSON document on stdout.")]


@app.command("plan")
@_answers
@takes_options
def plan_command(
    run: RunArgument,
    options: PlanOptions,
    output: Annotated[Path | None, option("--output", "Also write the plan as JSON here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many examples to evaluate for a target, and what they give."""
    from audit.subset import make_plan
    from audit.subset.text import plan_text

    goal = options.goal()  # a wrong goal is refused before the run is read
    frame = _frame(run, options.split, options.by, options.group)
    plan = make_plan(
        frame, goal, predictions=_tables(options.predictions), merge_strata=options.merge_strata,
        label_noise=_noise(options.label_noise, frame), **options.set_options,
    )  # fmt: skip
    if output is not None:
        plan.save(output)
    _show(as_json, plan.document, lambda: plan_text(plan))


@app.command("draw")
@_answers
def draw_command(
    run: RunArgument,
    plan: Annotated[Path, option("--plan", "Plan, as written by `audit subset plan --json`.")],
    seed: Annotated[int, option("--seed", "Any integer; the same seed draws the same rows.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="subset.parquet or subset.csv to write.")
    ],
    split: SplitOption = "test",
    n: Annotated[int | None, option("--n", "Units to draw (default: the plan's).")] = None,
    fresh_from: Annotated[
        Path | None, option("--fresh-from", "Earlier subset whose units are left out.")
    ] = None,
    predictions: PredictionsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the planned examples: nested, repeatable, with weights."""
    from audit.subset import draw_subset, load_recipe, metric_check
    from audit.subset.predictions import read_table
    from audit.subset.prior import known_hits, with_confidence
    from audit.subset.text import draw_text

    recipe = load_recipe(plan)
    _check_suffix(output)
    frame = _frame(run, split, recipe.strata.by, recipe.group)
    tables = _tables(predictions)
    frame = with_confidence(frame, tables, recipe.strata.by)
    earlier = None if fresh_from is None else read_table(fresh_from, "earlier subset")
    subset = draw_subset(frame, recipe, seed, n=n, fresh_from=earlier)
    metric = None
    if earlier is None:  # a fresh draw is about the rest of the set
        hits = known_hits(frame, tables, recipe.deduplicated)
        metric = None if hits is None else metric_check(frame, recipe, subset, hits)
    _write(subset.rows, output)
    document = {
        "schema": "subset-draw/1", "output": str(output), "n": subset.n_units,
        "files": len(subset.rows), "units": subset.population_units, "seed": seed,
        "plan": recipe.hash, "notes": subset.notes,
        "metric_check": metric and metric.document(),
    }  # fmt: skip
    _show(as_json, lambda: document, lambda: draw_text(subset, metric))


@app.command("score")
@_answers
def score_command(
    subset: Annotated[
        Path, typer.Argument(help="Drawn subset (CSV or Parquet), or a run: the full set.")
    ],
    predictions: Annotated[
        list[Path], option("--predictions", "CSV or Parquet of a model; twice to compare two.")
    ],
    metric: Annotated[
        list[str] | None, option("--metric", "Repeatable; two models are compared on the first.")
    ] = None,
    confidence: ConfidenceOption = 0.95,
    missing: Annotated[
        MissingRule, option("--missing", "Examples without a prediction.")
    ] = MissingRule.REFUSE,
    unknown: Annotated[
        UnknownRule, option("--unknown", "Predicted classes that the examples do not have.")
    ] = UnknownRule.REFUSE,
    looks: LooksOption = 1,
    label_noise: Annotated[float | None, option("--label-noise", "Rate of wrong labels.")] = None,
    first: Annotated[int | None, option("--first", "Score only the first N units drawn.")] = None,
    split: SplitOption = "test",
    group: GroupOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate metrics from a subset, with intervals; compare two models."""
    from audit.subset import first_units, score_subset
    from audit.subset.text import score_text

    rows = _rows(subset, split, group)
    if first is not None:
        rows = first_units(rows, first)
    score = score_subset(
        rows, _tables(predictions), metrics=metric or ["accuracy"], confidence=confidence,
        missing=missing.value, unknown=unknown.value, looks=looks, label_noise=label_noise,
        names=model_names(predictions),
    )  # fmt: skip
    _show(as_json, score.document, lambda: score_text(score))


@app.command("curve")
@_answers
@takes_options
def curve_command(
    run: RunArgument,
    options: GoalOptions,
    sizes: Annotated[
        list[int] | None, option("--size", "Sizes to tabulate; repeatable (default: 24).")
    ] = None,
    minimum_gain: Annotated[
        float, option("--worth", "Half-width that a tenth more examples must save, as a share.")
    ] = 0.001,
    as_json: JsonOption = False,
) -> None:
    """Tabulate half-width and detectable difference against n."""
    from audit.subset import make_curve
    from audit.subset.text import curve_text

    curve = make_curve(
        _frame(run, options.split, options.by, options.group), options.goal(), sizes=sizes,
        predictions=_tables(options.predictions), minimum_gain=minimum_gain, **options.set_options,
    )  # fmt: skip
    _show(as_json, curve.document, lambda: curve_text(curve))


# ---- reading and writing ----


def _show(as_json: bool, document: Callable[[], Any], text: Callable[[], str]) -> None:
    if as_json:
        terminal.write_parts([json.dumps(document(), indent=1, ensure_ascii=False), "\n"])
    else:
        terminal.write_text(text())


def _frame(run: Path, split: str, by: Sequence[str] | None, group: str | None) -> pl.DataFrame:
    from audit.subset.source import frame_from_run

    wanted = [c for c in by or () if c != "confidence"] + ([group] if group else [])
    return frame_from_run(run, None if split == "all" else split, wanted)


def _tables(paths: Sequence[Path] | None) -> list[pl.DataFrame]:
    from audit.subset import read_predictions

    return [read_predictions(path) for path in paths or ()]


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
    from audit.subset.frame import select_eligible
    from audit.subset.prior import marked_noise

    if text is None:
        return None
    if text == "auto":
        return marked_noise(select_eligible(frame).files)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--label-noise is {text!r}: give a rate such as 0.03, or auto.") from None
