"""`audit subset plan | draw | score | curve`: parse, one call into the library, format.

`plan` and `curve` read a run, `draw` a run and a plan, `score` a drawn subset alone (or a run, to
score the full set). With `--json` exactly one document goes to stdout. Wrong input exits with 2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

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
from audit.cli.help import TextTyper
from audit.cli.options import SeedOption
from audit.errors import UsageError
from preflight import terminal

if TYPE_CHECKING:
    import polars as pl

    from audit.subset import Goal, NoiseRate, Plan, Recipe
    from audit.subset.detect import Objects

app = TextTyper(
    help="Plan, draw and score an evaluation subset.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


RunArgument = Annotated[
    Path | None, typer.Argument(help="Run directory, as made by `audit scan`; or use --from.")
]
SubsetArgument = Annotated[Path, typer.Argument(help="Drawn subset (CSV or Parquet).")]
ScoredArgument = Annotated[
    Path | None,
    typer.Argument(help="Drawn subset (CSV or Parquet), or a run; without it, all of --from."),
]
BaselineOption = Annotated[
    Path | None,
    option("--baseline", "Predictions of an earlier model for every example of the set."),
]
JsonOption = Annotated[bool, option("--json", "Print one JSON document on stdout.")]

UnknownOption = Annotated[
    Literal["refuse", "wrong"],
    option("--unknown", "Labels of classes that the set does not have."),
]
ScoredSetOption = Annotated[
    Path | None,
    option(
        "--from", "Set the subset was drawn from; all of it is scored where no subset is named."
    ),
]
ScoredPlanOption = Annotated[
    Path | None, option("--plan", "Its plan, for --baseline, if it has strata or groups.")
]


@app.command("plan")
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
    from audit.subset.text import plan_text

    plan, _ = _planned(options, named_set(run, source), unlabelled, baseline)
    if output is not None:
        plan.save(output)
    print_result(as_json, plan.document, lambda: plan_text(plan))


def _planned(
    options: PlanOptions, place: Path, unlabelled: bool, baseline: Path | None
) -> tuple[Plan, pl.DataFrame]:
    """Return the plan for the options, and the frame of the set."""
    from audit.subset import make_plan
    from audit.subset.baseline import baseline_plan
    from audit.subset.source import select_eligible

    if is_of_objects([options.metric]):
        return _objects_plan(options, place, baseline)
    goal = options.goal()  # a wrong goal is refused before the run is read
    frame = read_set(place, _part(options.split), options.by, options.group, unlabelled)
    tables = read_models(options.predictions)
    earlier = read_models([baseline] if baseline else None)
    if options.deviation is not None:
        goal = options.goal(len(select_eligible(frame, options.set_options["deduplicated"]).files))

    def make(goal: Goal) -> Plan:
        known: dict[str, Any] = {}
        if baseline is not None and not tables:
            known = {"source": f"the baseline {baseline.name}"}
        return make_plan(
            frame, goal, predictions=tables or earlier, merge_strata=options.merge_strata,
            label_noise=stated_noise(options.label_noise, frame), **options.set_options, **known,
        )  # fmt: skip

    plan = baseline_plan(frame, make, goal, earlier[0], tables) if earlier else make(goal)
    return replace(plan, split=options.split or "test"), frame


def _objects_plan(
    options: PlanOptions, source: Path, baseline: Path | None
) -> tuple[Plan, pl.DataFrame]:
    """Return the plan for a metric of objects, which no stated share can size, and the frame."""
    from audit.subset.detect import read_objects
    from audit.subset.plan_objects import make_objects_plan

    stated = ("p", "discordant", "rho", "deviation", "label_noise")
    given = [name for name in stated if getattr(options, name) is not None]
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} is for metrics of images: one of objects is planned "
            "from --predictions, detections of an earlier model or a pilot."
        )
    goal = replace(options, metric="accuracy").goal()
    by = [c for c in options.by or () if c != "rarest_class"]
    by_class = len(by) < len(options.by or ())
    extra = [*by, *([options.group] if options.group else [])]
    objects, frame = read_objects(source, _part(options.split), extra, by_class=by_class)
    plan = make_objects_plan(
        objects, frame, options.metric, goal, options.predictions or (),
        baseline, merge_strata=options.merge_strata,
        **options.set_options | {"by": by, "by_label": by_class},
    )  # fmt: skip
    return replace(plan, split=options.split or "test"), frame


@app.command("draw")
@takes_options
def draw_command(
    options: PlanOptions,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="subset.parquet or subset.csv to write.")
    ],
    run: RunArgument = None,
    source: FromOption = None,
    plan: Annotated[
        Path | None, option("--plan", "Plan, as `audit subset plan --output` wrote it, or a goal.")
    ] = None,
    seed: SeedOption = 0,
    unlabelled: UnlabelledOption = False,
    baseline: BaselineOption = None,
    save_plan: Annotated[
        Path | None, option("--save-plan", "Also write the plan that was made as JSON here.")
    ] = None,
    fresh_from: Annotated[
        Path | None, option("--fresh-from", "Earlier subset whose units are left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan and draw, or draw the examples of a plan: nested, repeatable, with weights."""
    from audit.report.output import write_table
    from audit.subset import draw_subset, load_recipe, metric_check
    from audit.subset.detect import read_objects
    from audit.subset.draw import planned
    from audit.subset.goal import document_of
    from audit.subset.population import known_hits, with_confidence
    from audit.subset.text import draw_text

    made: Plan | None = None
    n = options.n
    if plan is not None:
        _check_plan_alone(options, baseline, save_plan)
        recipe, metric_name = load_recipe(plan), planned(plan, "metric", "accuracy")
    check_suffix(output)
    place = named_set(run, source)
    if plan is None:
        made, frame = _planned(options, place, unlabelled, baseline)
        recipe, metric_name, n = made.recipe, made.metric, None
        if save_plan is not None:
            made.save(save_plan)
    elif is_of_objects([metric_name]):
        extra = [*recipe.strata.by, *([recipe.group] if recipe.group else [])]
        part = _part(options.split, plan)
        _, frame = read_objects(place, part, extra, by_class=recipe.strata.label)
    else:
        part = _part(options.split, plan)
        frame = read_set(place, part, recipe.strata.by, recipe.group, unlabelled)
    tables = read_models(None if is_of_objects([metric_name]) else options.predictions)
    frame = with_confidence(frame, tables, recipe.strata.by)
    earlier = None if fresh_from is None else _read_file(fresh_from, "earlier subset")
    subset = draw_subset(frame, recipe, seed, n=n, fresh_from=earlier)
    metric = None
    if earlier is None:  # a fresh draw is about the rest of the set
        hits = known_hits(frame, tables, recipe.deduplicated)
        metric = None if hits is None else metric_check(frame, recipe, subset, hits)
    write_table(output, subset.rows)
    content = {
        "output": str(output), "n": subset.n_units, "files": len(subset.rows),
        "units": subset.population_units, "seed": seed, "plan": recipe.hash, "notes": subset.notes,
        "metric_check": metric and asdict(metric), "planned": made and made.document(),
    }  # fmt: skip
    document = document_of("subset-draw/1", content)
    then = f"audit subset score {output} --predictions MODEL.csv"
    if unlabelled:
        then = f"audit subset sheet {output} -o sheet.csv"
    elif is_of_objects([metric_name]):
        then += f" --from {place} --metric {metric_name}"
    elif baseline is not None:
        then += f" --from {place} --baseline {baseline}"
    print_result(as_json, lambda: document, lambda: draw_text(subset, metric, made, then))


def _check_plan_alone(options: PlanOptions, baseline: Path | None, save_plan: Path | None) -> None:
    """Raise UsageError for options that a plan has settled: only its size may be overruled."""
    settled = replace(options, split=None, n=None, predictions=None)
    given = [f.name for f in fields(settled) if getattr(settled, f.name) != f.default]
    given += [n for n, v in (("baseline", baseline), ("save_plan", save_plan)) if v is not None]
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} is a matter of the plan, and --plan names one: leave "
            "out either."
        )


@app.command("score")
def score_command(
    predictions: Annotated[
        list[Path],
        option("--predictions", "Table, or COCO results, of a model; twice to compare two."),
    ],
    subset: ScoredArgument = None,
    metric: Annotated[
        list[str] | None, option("--metric", "Repeatable; two models are compared on the first.")
    ] = None,
    confidence: KeptConfidenceOption = None,
    missing: Annotated[
        Literal["refuse", "wrong", "drop"], option("--missing", "Examples without a prediction.")
    ] = "refuse",
    unknown: UnknownOption = "refuse",
    looks: KeptLooksOption = None,
    label_noise: Annotated[float | None, option("--label-noise", "Rate of wrong labels.")] = None,
    first: Annotated[int | None, option("--first", "Score only the first N units drawn.")] = None,
    labels: Annotated[
        Path | None, option("--labels", "Filled labelling sheet with the classes of the subset.")
    ] = None,
    baseline: BaselineOption = None,
    source: ScoredSetOption = None,
    plan: ScoredPlanOption = None,
    unlabelled: UnlabelledOption = False,
    split: SplitOption = None,
    group: GroupOption = None,
    by_class: Annotated[bool, option("--by-class", "Also list the classes.")] = False,
    slices: Annotated[
        list[str] | None,
        option("--slice", "Column of the run or list: right answers by its values; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate metrics from a subset or a whole set, with intervals; compare two models."""
    from audit.subset import (
        Baseline,
        detect,
        first_units,
        load_recipe,
        read_predictions,
        score_subset,
    )
    from audit.subset.labelling import with_sheet
    from audit.subset.text import score_text

    if slices and is_of_objects(metric or ()):
        raise UsageError("--slice is for scores of images: leave out --metric.")
    part = _part(split, plan)
    if is_of_objects(metric or ()):
        if labels or label_noise is not None:
            raise UsageError("--labels and --label-noise are for images: leave them out.")
        recipe = detect.PLAIN if plan is None else load_recipe(plan)
        rows, objects, frame = _drawn_objects(subset, source, part, group, recipe)
        if first is not None:
            rows = first_units(rows, first)
        earlier = None
        if baseline is not None:
            earlier = detect.KnownModel.of(frame, objects, baseline, recipe)
        found = detect.score_objects(
            rows, objects, predictions, metrics=metric or (), confidence=confidence, looks=looks,
            names=model_names(predictions), baseline=earlier,
        )  # fmt: skip
        print_result(as_json, found.document, lambda: score_text(found, by_class=by_class))
        return
    rows = read_rows(subset, source, part, group, ("score", "--predictions", predictions[0]))
    if labels is not None:
        rows = with_sheet(rows, _read_file(labels, "labelling sheet"), labels.name, unknown)
    known = None
    if baseline is not None:
        whole, recipe = read_drawn_from(source, plan, part, unlabelled)
        known = Baseline.of(whole, read_predictions(baseline), recipe, baseline.stem)
    if first is not None:
        rows = first_units(rows, first)
    score = score_subset(
        rows, read_models(predictions), metrics=metric or ["accuracy"], confidence=confidence,
        missing=missing, unknown=unknown, looks=looks, label_noise=label_noise,
        names=model_names(predictions),
        baseline=known, slices=_sliced_by(slices, rows, subset, source, part),
    )  # fmt: skip
    print_result(as_json, score.document, lambda: score_text(score, by_class=by_class))


def _sliced_by(
    names: list[str] | None,
    rows: pl.DataFrame,
    subset: Path | None,
    source: Path | None,
    split: str | None,
) -> pl.DataFrame | None:
    """Return the columns of the set, or of the rows themselves, that a score is sliced by."""
    from audit.subset.slices import slice_columns

    if not names:
        return None
    whole = subset if subset is not None and subset.is_dir() else source
    if whole is None or set(names) <= set(rows.columns):
        return slice_columns(rows, None, names)
    return slice_columns(rows, read_set(whole, split, names, None), names)


def _drawn_objects(
    subset: Path | None, source: Path | None, split: str | None, group: str | None, recipe: Recipe
) -> tuple[pl.DataFrame, Objects, pl.DataFrame]:
    """Return the rows of a subset (or of a whole run, COCO file or folder of masks), the objects of
    the set that it was drawn from, and the frame of that set."""
    from audit.subset import census
    from audit.subset.detect import read_objects

    subset = subset or named_set(None, source)
    whole = subset.is_dir() or subset.suffix.lower() == ".json"
    if not whole and source is None:
        raise UsageError(
            "A metric of objects needs the objects: name the run or COCO file that the subset was "
            "drawn from with --from."
        )
    place = subset if whole or source is None else source
    extra = [*recipe.strata.by, *([group] if whole and group else [])]
    extra += [recipe.group] if recipe.group else []
    objects, frame = read_objects(place, split, extra, by_class=recipe.strata.label)
    rows = census(frame, group=group).rows if whole else _read_file(subset, "subset")
    return rows, objects, frame


@app.command("measure")
def measure_command(
    values: Annotated[
        Path, option("--values", "CSV, Parquet, JSON lines or .npz: an id and numbers a row.")
    ],
    number: Annotated[
        str, option("--number", "Column to measure; `brier` comes from probabilities.")
    ],
    subset: ScoredArgument = None,
    confidence: KeptConfidenceOption = None,
    baseline: BaselineOption = None,
    source: ScoredSetOption = None,
    plan: ScoredPlanOption = None,
    split: SplitOption = None,
    group: GroupOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the mean of any number per example: a loss, an IoU, a reward."""
    from audit.subset.baseline import whole_set
    from audit.subset.values import measure_subset, measures_text

    known, part = None, _part(split, plan)
    if baseline is not None:
        whole = whole_set(*read_drawn_from(source, plan, part))
        known = (whole, _read_file(baseline, "baseline"))
    found = measure_subset(
        read_rows(subset, source, part, group, ("measure", "--values", values)),
        _read_file(values, "values"), number,
        confidence=confidence, baseline=known, name=values.name,
    )  # fmt: skip
    print_result(as_json, found.document, lambda: measures_text(found))


@app.command("winner")
def winner_command(
    subset: SubsetArgument,
    predictions: Annotated[
        list[Path], option("--predictions", "One file a checkpoint; two or more.")
    ],
    confidence: KeptConfidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank checkpoints on one subset, and say what selection alone gives the best."""
    from audit.subset.compare import find_winner, winner_text

    found = find_winner(
        read_drawn(subset), read_models(predictions), names=model_names(predictions),
        confidence=confidence,
    )  # fmt: skip
    print_result(as_json, found.document, lambda: winner_text(found))


@app.command("sheet")
def sheet_command(
    subset: SubsetArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="Sheet to write, CSV.")],
    copy: Annotated[
        int, option("--copy", "1 for the first person, 2 for the second: another order.")
    ] = 1,
) -> None:
    """Write a blind sheet for a person to label: images under neutral names, no label."""
    from audit.report.output import write_table
    from audit.subset.labelling import blind_sheet

    check_suffix(output)
    images = output.with_name(f"{output.stem}_images")
    sheet, key = blind_sheet(_read_file(subset, "subset"), images, copy)
    write_table(output, sheet)
    text = f"{len(sheet)} examples to label in {output}: fill in the column label."
    if key is not None:
        originals = output.with_name(f"{output.stem}_key.csv")
        write_table(originals, key)
        text += (
            f"\nIts images are in {images} under neutral names. {originals} names the originals: "
            "do not pass it on with the sheet."
        )
    terminal.write_text(text)


@app.command("human")
def human_command(
    subset: SubsetArgument,
    sheet: Annotated[list[Path], option("--sheet", "Filled labelling sheet; twice for two.")],
    predictions: PredictionsOption = None,
    confidence: KeptConfidenceOption = None,
    unknown: UnknownOption = "refuse",
    as_json: JsonOption = False,
) -> None:
    """Say how well people do on the subset, how far two agree, and the model beside them."""
    from audit.subset.labelling import compare_people, human_text

    found = compare_people(
        read_drawn(subset), [_read_file(path, "labelling sheet") for path in sheet],
        read_models(predictions), names=model_names([*sheet, *(predictions or ())]),
        confidence=confidence, unknown=unknown,
    )  # fmt: skip
    print_result(as_json, found.document, lambda: human_text(found))


@app.command("curve")
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
        read_set(
            named_set(run, source), _part(options.split), options.by, options.group, unlabelled
        ),
        options.goal(), sizes=sizes, predictions=read_models(options.predictions),
        minimum_gain=minimum_gain, **options.set_options,
    )  # fmt: skip
    print_result(as_json, curve.document, lambda: curve_text(curve))


# ---- what the commands read and write ----


def is_of_objects(metrics: Sequence[str]) -> bool:
    """Return whether metrics are of objects; raises UsageError for some of each kind."""
    from audit.subset.precision import parse_object_metric

    kinds = {parse_object_metric(name) is not None for name in metrics}
    if len(kinds) > 1:
        raise UsageError("Metrics of objects and of images are scored apart: give one kind.")
    return kinds == {True}


def _part(split: str | None, plan: Path | None = None) -> str | None:
    """Return the split that was named, that of the plan, or `test`; None for every file."""
    from audit.subset.draw import planned

    named = split or ("test" if plan is None else planned(plan, "split", "test"))
    return None if named == "all" else named


def print_result(as_json: bool, document: Callable[[], Any], text: Callable[[], str]) -> None:
    """Print one JSON document, or text."""
    if as_json:
        terminal.write_parts([json.dumps(document(), indent=1, ensure_ascii=False), "\n"])
    else:
        terminal.write_text(text())


def named_set(run: Path | None, source: Path | None) -> Path:
    """Return where the set is; raises UsageError unless it is named once."""
    if (run is None) == (source is None):
        raise UsageError("Name the set once: a run or drawn subset, or --from a list of examples.")
    return run or source or Path()


def read_set(
    source: Path,
    split: str | None,
    by: Sequence[str] | None,
    group: str | None,
    unlabelled: bool = False,
) -> pl.DataFrame:
    """Return the frame of a run or of a list (split None: all of it)."""
    from audit.subset.source import frame_from_list, frame_from_run

    wanted = [c for c in by or () if c != "confidence"] + ([group] if group else [])
    if source.is_file():
        return frame_from_list(source, split, wanted, unlabelled=unlabelled)
    return frame_from_run(source, split, wanted)


def read_drawn_from(
    source: Path | None, plan: Path | None, split: str | None, unlabelled: bool = False
) -> tuple[pl.DataFrame, Recipe]:
    """Return the set that a subset was drawn from, and the recipe."""
    from audit.subset import load_recipe
    from audit.subset.baseline import PLAIN

    if source is None:
        raise UsageError(
            "--baseline needs the classes of the whole set: name the run or list that the subset "
            "was drawn from with --from."
        )
    recipe = PLAIN if plan is None else load_recipe(plan)
    return read_set(source, split, recipe.strata.by, recipe.group, unlabelled), recipe


def _read_file(path: Path, what: str) -> pl.DataFrame:
    """Return a file as a table; `what` names it in an error."""
    from audit.subset.predictions import read_table

    return read_table(path, what)


def read_drawn(path: Path) -> pl.DataFrame:
    """Return a drawn subset; raises UsageError for images with several labels."""
    import polars as pl

    from audit.subset.source import check_single_labels

    rows = _read_file(path, "subset")
    if "sample_id" in rows.columns and rows.schema.get("label") == pl.String:
        labels = rows["label"].drop_nulls().unique().to_list()
        # a run admits classes with a comma in their names, as those of folders
        check_single_labels(rows, [name for name in labels if "," not in name or name[0] == "["])
    return rows


def read_models(paths: Sequence[Path] | None) -> list[pl.DataFrame]:
    """Return prediction files as tables."""
    from audit.subset import read_predictions

    return [read_predictions(path) for path in paths or ()]


def read_rows(
    subset: Path | None,
    source: Path | None,
    split: str | None,
    group: str | None,
    command: tuple[str, str, Path],
) -> pl.DataFrame:
    """Return the rows of a drawn subset, or all those of a run or list.

    `command`: what was called, and its file of answers, for the sentence that says how to score all
    of a list which was given in place of a subset.
    """
    from audit.subset import census
    from audit.subset.draw import COLUMNS

    if subset is None or subset.is_dir():
        whole = subset or named_set(None, source)
        return census(read_set(whole, split, None, group), group=group).rows
    rows = read_drawn(subset)
    if not set(rows.columns) & set(COLUMNS[3:-1]):
        verb, name, answers = command
        raise UsageError(
            f"{subset} has no column of a draw ({', '.join(COLUMNS[3:7])}, ...). All of a list: "
            f"`audit subset {verb} --from {subset} {name} {answers}`. A part of it: `audit subset "
            "draw` first."
        )
    return rows


def check_suffix(output: Path) -> None:
    """Raise UsageError for a file that is neither CSV nor Parquet, or lies in no folder."""
    if output.suffix.lower() not in {".csv", ".parquet", ".pq"}:
        raise UsageError(f"{output}: name a .parquet or .csv file to write.")
    if not output.parent.is_dir():
        raise UsageError(f"{output} cannot be written: {output.parent} is not a folder.")


def stated_noise(text: str | None, frame: pl.DataFrame) -> float | NoiseRate | None:
    """Return the rate of wrong labels that was stated, or the audit's."""
    from audit.subset.population import marked_noise
    from audit.subset.source import select_eligible

    if text is None:
        return None
    if text == "auto":
        return marked_noise(select_eligible(frame).files)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--label-noise is {text!r}: give a rate such as 0.03, or auto.") from None
