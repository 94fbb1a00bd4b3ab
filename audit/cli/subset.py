"""`audit subset plan | draw | score | curve`: parse, one call into the library, format.

`plan` and `curve` read a run, `draw` a run and a plan, `score` a drawn subset alone (or a run, to
score the full set). With `--json` exactly one document goes to stdout. Wrong input exits with 2.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli import terminal
from audit.cli.goal_options import (
    FromOption,
    GoalOptions,
    GroupOption,
    KeptConfidenceOption,
    KeptLooksOption,
    PlanOptions,
    PredictionsOption,
    SplitOption,
    UnlabelledOption,
    model_names,
    option,
    takes_options,
)
from audit.cli.subset_files import (
    check_suffix,
    named_set,
    print_result,
    read_baseline,
    read_drawn_from,
    read_models,
    read_rows,
    read_set,
    stated_noise,
    write_rows,
)
from audit.errors import AuditError, MachineError, UsageError
from audit.printable import visible

if TYPE_CHECKING:
    from audit.subset import Goal, Plan

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


RunArgument = Annotated[
    Path | None, typer.Argument(help="Run directory, as made by `audit scan`; or use --from.")
]
BaselineOption = Annotated[
    Path | None,
    option("--baseline", "Predictions of an earlier model for every example of the set."),
]
JsonOption = Annotated[bool, option("--json", "Print one JSON document on stdout.")]

ScoredSetOption = Annotated[
    Path | None, option("--from", "Run or list the subset was drawn from, for --baseline.")
]
ScoredPlanOption = Annotated[
    Path | None, option("--plan", "Its plan, for --baseline, if it has strata or groups.")
]


@app.command("plan")
@_answers
@takes_options
def plan_command(
    options: PlanOptions,
    run: RunArgument = None,
    source: FromOption = None,
    unlabelled: UnlabelledOption = False,
    baseline: BaselineOption = None,
    output: Annotated[Path | None, option("--output", "Also write the plan as JSON here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many examples to evaluate for a target, and what they give."""
    from audit.subset import make_plan, read_predictions
    from audit.subset.baseline import baseline_plan
    from audit.subset.frame import select_eligible
    from audit.subset.text import plan_text

    goal = options.goal()  # a wrong goal is refused before the run is read
    frame = read_set(named_set(run, source), options.split, options.by, options.group, unlabelled)
    tables = read_models(options.predictions)
    if options.deviation is not None:
        goal = options.goal(len(select_eligible(frame, options.set_options["deduplicated"]).files))

    def make(goal: Goal) -> Plan:
        return make_plan(
            frame, goal, predictions=tables, merge_strata=options.merge_strata,
            label_noise=stated_noise(options.label_noise, frame), **options.set_options,
        )  # fmt: skip

    if baseline is None:
        plan = make(goal)
    else:
        plan = baseline_plan(frame, make, goal, read_predictions(baseline), tables)
    if output is not None:
        plan.save(output)
    print_result(as_json, plan.document, lambda: plan_text(plan))


@app.command("draw")
@_answers
def draw_command(
    plan: Annotated[Path, option("--plan", "Plan, as written by `audit subset plan --json`.")],
    seed: Annotated[int, option("--seed", "Any integer; the same seed draws the same rows.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="subset.parquet or subset.csv to write.")
    ],
    run: RunArgument = None,
    source: FromOption = None,
    unlabelled: UnlabelledOption = False,
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
    check_suffix(output)
    frame = read_set(named_set(run, source), split, recipe.strata.by, recipe.group, unlabelled)
    tables = read_models(predictions)
    frame = with_confidence(frame, tables, recipe.strata.by)
    earlier = None if fresh_from is None else read_table(fresh_from, "earlier subset")
    subset = draw_subset(frame, recipe, seed, n=n, fresh_from=earlier)
    metric = None
    if earlier is None:  # a fresh draw is about the rest of the set
        hits = known_hits(frame, tables, recipe.deduplicated)
        metric = None if hits is None else metric_check(frame, recipe, subset, hits)
    write_rows(subset.rows, output)
    document = {
        "schema": "subset-draw/1", "output": str(output), "n": subset.n_units,
        "files": len(subset.rows), "units": subset.population_units, "seed": seed,
        "plan": recipe.hash, "notes": subset.notes,
        "metric_check": metric and metric.document(),
    }  # fmt: skip
    print_result(as_json, lambda: document, lambda: draw_text(subset, metric))


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
    confidence: KeptConfidenceOption = None,
    missing: Annotated[
        MissingRule, option("--missing", "Examples without a prediction.")
    ] = MissingRule.REFUSE,
    unknown: Annotated[
        UnknownRule, option("--unknown", "Predicted classes that the examples do not have.")
    ] = UnknownRule.REFUSE,
    looks: KeptLooksOption = None,
    label_noise: Annotated[float | None, option("--label-noise", "Rate of wrong labels.")] = None,
    first: Annotated[int | None, option("--first", "Score only the first N units drawn.")] = None,
    labels: Annotated[
        Path | None, option("--labels", "Filled labelling sheet with the classes of the subset.")
    ] = None,
    anytime: Annotated[
        bool, option("--anytime", "One model or pair, looked at while the draw grows.")
    ] = False,
    baseline: BaselineOption = None,
    source: ScoredSetOption = None,
    plan: ScoredPlanOption = None,
    unlabelled: UnlabelledOption = False,
    split: SplitOption = "test",
    group: GroupOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate metrics from a subset, with intervals; compare two models."""
    from audit.subset import first_units, score_subset
    from audit.subset.anytime import anytime_text, score_anytime
    from audit.subset.labelling import with_sheet
    from audit.subset.predictions import read_table
    from audit.subset.text import score_text

    if anytime:
        _refuse_with_anytime(metric, looks, baseline)
    rows = read_rows(subset, split, group)
    if labels is not None:
        rows = with_sheet(rows, read_table(labels, "labelling sheet"), labels.name)
    known = None
    if baseline is not None:
        known = read_baseline(baseline, source, plan, split, unlabelled)
    if first is not None:
        rows = first_units(rows, first)
    if anytime:
        growing = score_anytime(
            rows, read_models(predictions), names=model_names(predictions), confidence=confidence
        )
        print_result(as_json, growing.document, lambda: anytime_text(growing))
        return
    score = score_subset(
        rows, read_models(predictions), metrics=metric or ["accuracy"], confidence=confidence,
        missing=missing.value, unknown=unknown.value, looks=looks, label_noise=label_noise,
        names=model_names(predictions),
        baseline=known,
    )  # fmt: skip
    print_result(as_json, score.document, lambda: score_text(score))


@app.command("measure")
@_answers
def measure_command(
    subset: Annotated[
        Path, typer.Argument(help="Drawn subset (CSV or Parquet), or a run: the full set.")
    ],
    values: Annotated[
        Path, option("--values", "CSV, Parquet, JSON lines or .npz: an id and numbers a row.")
    ],
    number: Annotated[
        str, option("--number", "Column to measure; `brier` and `ece` come from probabilities.")
    ],
    quantile: Annotated[
        list[float] | None, option("--quantile", "Quantile besides the mean; repeatable.")
    ] = None,
    confidence: KeptConfidenceOption = None,
    baseline: BaselineOption = None,
    source: ScoredSetOption = None,
    plan: ScoredPlanOption = None,
    split: SplitOption = "test",
    group: GroupOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the mean and quantiles of any number per example: a loss, an IoU, a reward."""
    from audit.subset.baseline import WholeSet
    from audit.subset.predictions import read_table
    from audit.subset.values import measure_subset, measures_text

    known = None
    if baseline is not None:
        whole = WholeSet.of(*read_drawn_from(source, plan, split))
        known = (whole, read_table(baseline, "baseline"))
    found = measure_subset(
        read_rows(subset, split, group), read_table(values, "values"), number,
        quantiles=tuple(quantile or ()), confidence=confidence, baseline=known, name=values.name,
    )  # fmt: skip
    print_result(as_json, found.document, lambda: measures_text(found))


@app.command("winner")
@_answers
def winner_command(
    subset: Annotated[Path, typer.Argument(help="Drawn subset (CSV or Parquet).")],
    predictions: Annotated[
        list[Path], option("--predictions", "One file a checkpoint; two or more.")
    ],
    confidence: KeptConfidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank checkpoints on one subset, and say what selection alone gives the best."""
    from audit.subset.predictions import read_table
    from audit.subset.selection import find_winner, winner_text

    found = find_winner(
        read_table(subset, "subset"), read_models(predictions), names=model_names(predictions),
        confidence=confidence,
    )  # fmt: skip
    print_result(as_json, found.document, lambda: winner_text(found))


@app.command("sheet")
@_answers
def sheet_command(
    subset: Annotated[Path, typer.Argument(help="Drawn subset (CSV or Parquet).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Sheet to write, CSV.")],
    copy: Annotated[
        int, option("--copy", "1 for the first person, 2 for the second: another order.")
    ] = 1,
) -> None:
    """Write a blind sheet for a person to label: ids and paths, no label, no prediction."""
    from audit.subset.labelling import labelling_sheet
    from audit.subset.predictions import read_table

    check_suffix(output)
    sheet = labelling_sheet(read_table(subset, "subset"), copy)
    write_rows(sheet, output)
    terminal.write_text(f"{len(sheet)} examples to label in {output}: fill in the column label.")


@app.command("human")
@_answers
def human_command(
    subset: Annotated[Path, typer.Argument(help="Drawn subset (CSV or Parquet).")],
    sheet: Annotated[list[Path], option("--sheet", "Filled labelling sheet; twice for two.")],
    predictions: PredictionsOption = None,
    confidence: KeptConfidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how well people do on the subset, how far two agree, and the model beside them."""
    from audit.subset.labelling import compare_people, human_text
    from audit.subset.predictions import read_table

    found = compare_people(
        read_table(subset, "subset"), [read_table(path, "labelling sheet") for path in sheet],
        read_models(predictions), names=model_names([*sheet, *(predictions or ())]),
        confidence=confidence,
    )  # fmt: skip
    print_result(as_json, found.document, lambda: human_text(found))


@app.command("curve")
@_answers
@takes_options
def curve_command(
    options: GoalOptions,
    run: RunArgument = None,
    source: FromOption = None,
    unlabelled: UnlabelledOption = False,
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
        read_set(named_set(run, source), options.split, options.by, options.group, unlabelled),
        options.goal(), sizes=sizes, predictions=read_models(options.predictions),
        minimum_gain=minimum_gain, **options.set_options,
    )  # fmt: skip
    print_result(as_json, curve.document, lambda: curve_text(curve))


def _refuse_with_anytime(
    metric: list[str] | None, looks: int | None, baseline: Path | None
) -> None:
    if (metric or ["accuracy"]) != ["accuracy"] or (looks or 1) != 1 or baseline is not None:
        raise UsageError(
            "--anytime is for accuracy, of one model or one fixed pair, at any number of looks: "
            "leave out --metric, --looks and --baseline."
        )
