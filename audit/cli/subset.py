"""`audit subset plan | draw | score`: parse, one call into the library, format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from audit.cli.goal_options import (
    MEAN,
    FromOption,
    GroupOption,
    PlanOptions,
    SplitOption,
    UnlabelledOption,
    model_names,
    takes_options,
)
from audit.cli.help import TextTyper
from audit.cli.options import (
    JsonOption,
    SeedOption,
    option,
    print_answer,
    read_config,
    run_argument,
)
from audit.errors import UsageError
from dataset_preflight.foundation.ending import ExitCode

if TYPE_CHECKING:
    import polars as pl

    from audit.subset import Goal, NoiseRate, Plan, Recipe, Subset
    from audit.subset.baseline import MetricCheck
    from audit.subset.detect import Objects

app = TextTyper(
    help="Plan, draw and score an evaluation subset.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


RunArgument = Annotated[
    Path | None, run_argument("Run directory, as made by `audit scan`; or use --from.")
]
BaselineOption = Annotated[
    Path | None, option("--baseline", "Predictions of an earlier model for the whole set.")
]


@app.command("plan")
@takes_options
def plan_command(
    options: PlanOptions,
    run: RunArgument = None,
    source: FromOption = None,
    unlabelled: UnlabelledOption = False,
    baseline: BaselineOption = None,
    output: Annotated[
        Path | None, option("-o", "--output", "Also write the plan as JSON here.")
    ] = None,
    sizes: Annotated[
        str | None,
        option("--sizes", "Table of margins of error: 100,200,400, or auto for 24 sizes."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute how many examples an evaluation needs, or what each number of examples gives.

    Exit code 1: all examples together do not reach the target.
    """
    from audit.subset.text import plan_text

    if sizes is not None:
        _refuse(
            {
                "half-width": options.half_width, "detect": options.detect, "n": options.n,
                "seconds": options.seconds, "throughput": options.throughput,
                "baseline": baseline, "output": output,
            },
            "is for a plan of a single size: leave it out, or --sizes.",
        )  # fmt: skip
        _print_sizes(options, named_set(run, source), unlabelled, sizes, as_json)
        return
    plan, _ = _planned(options, named_set(run, source), unlabelled, baseline)
    if output is not None:
        plan.save(output)
    print_answer(as_json, plan.document, lambda: plan_text(plan).split("\n"))
    if plan.unreachable:
        raise typer.Exit(ExitCode.FINDINGS)


def _print_sizes(
    options: PlanOptions, place: Path, unlabelled: bool, sizes: str, as_json: bool
) -> None:
    from audit.subset import make_curve
    from audit.subset.text import curve_text

    try:
        numbers = None if sizes == "auto" else [int(word) for word in sizes.split(",")]
    except ValueError:
        raise UsageError(f"--sizes is {sizes!r}: write numbers such as 100,200, or auto.") from None
    if is_of_objects([options.metric]):
        raise UsageError("--sizes is for metrics of images: plan a metric of objects with --n.")
    goal = options.open_goal()
    goal.check()
    frame = read_set(place, _part(options.split), options.by, options.group, unlabelled)
    curve = make_curve(
        frame, goal, sizes=numbers, predictions=read_models(options.predictions),
        minimum_gain=options.assumptions.min_gain, **options.set_options,
    )  # fmt: skip
    print_answer(as_json, curve.document, lambda: curve_text(curve).split("\n"))


def _planned(
    options: PlanOptions, place: Path, unlabelled: bool, baseline: Path | None
) -> tuple[Plan, pl.DataFrame]:
    from audit.subset import make_plan
    from audit.subset.baseline import baseline_plan
    from audit.subset.population import marked_noise
    from audit.subset.source import select_eligible
    from audit.subset.strata import Strata, form_units

    if is_of_objects([options.metric]):
        return _objects_plan(options, place, baseline)
    goal = options.goal()  # a wrong goal is refused before the run is read
    frame = read_set(place, _part(options.split), options.by, options.group, unlabelled)
    tables = read_models(options.predictions)
    earlier = read_models([baseline] if baseline else None)
    if options.mean_of is not None:
        files = select_eligible(frame, options.set_options["deduplicated"]).files
        goal = options.goal(len(form_units(files, Strata(), options.group).table))

    noise: float | str | NoiseRate | None = options.assumptions.label_noise
    if isinstance(noise, str):  # `auto`: the estimate of the scan
        noise = marked_noise(select_eligible(frame).files)

    def make(goal: Goal) -> Plan:
        known: dict[str, Any] = {}
        if baseline is not None and not tables:
            known = {"source": f"the baseline {baseline.name}"}
        return make_plan(
            frame, goal, predictions=tables or earlier,
            merge_strata=options.assumptions.merge_strata,
            label_noise=noise,
            **options.set_options, **known,
        )  # fmt: skip

    plan = baseline_plan(frame, make, goal, earlier[0], tables) if earlier else make(goal)
    return replace(plan, split=options.split or "test"), frame


def _objects_plan(
    options: PlanOptions, source: Path, baseline: Path | None
) -> tuple[Plan, pl.DataFrame]:
    """Return the plan for a metric of objects, which no stated share can size, and the frame."""
    from audit.subset.detect import read_objects
    from audit.subset.plan_objects import make_objects_plan

    stated = ("expected", "disagreement", "correlation", "label_noise")
    given = [name for name in stated if getattr(options.assumptions, name) is not None]
    if given:
        raise UsageError(
            f"[plan] {given[0]} is for metrics of images. Plan a metric of objects from "
            "--predictions, the detections of an earlier model or of a pilot."
        )
    goal = replace(options, metric="accuracy").goal()
    by = [c for c in options.by or () if c != "rarest_class"]
    by_class = len(by) < len(options.by or ())
    extra = [*by, *([options.group] if options.group else [])]
    objects, frame = read_objects(source, _part(options.split), extra, by_class=by_class)
    plan = make_objects_plan(
        objects, frame, options.metric, goal, options.predictions or (),
        baseline, merge_strata=options.assumptions.merge_strata,
        **options.set_options | {"by": by, "by_label": by_class},
    )  # fmt: skip
    return replace(plan, split=options.split or "test"), frame


Choose = Literal["coverage", "uncertainty", "rare"]
"""How to choose the next images to label or to evaluate, in place of a random draw."""


@app.command("draw")
@takes_options
def draw_command(
    options: PlanOptions,
    output: Annotated[Path, option("-o", "--output", "subset.parquet or subset.csv to write.")],
    run: RunArgument = None,
    source: FromOption = None,
    plan: Annotated[Path | None, option("--plan", "Plan of `audit subset plan -o`.")] = None,
    seed: SeedOption = 0,
    unlabelled: UnlabelledOption = False,
    baseline: BaselineOption = None,
    exclude_drawn: Annotated[
        Path | None, option("--exclude-drawn", "Earlier subset, whose units are not drawn again.")
    ] = None,
    sheet: Annotated[
        list[Path] | None,
        option("--sheet", "Also write a blind sheet to label, CSV; twice for two people."),
    ] = None,
    choose: Annotated[
        Choose | None,
        option("--choose", "No random draw: most diverse, least certain, or rarest first."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw an evaluation subset at random, or choose the next images to label."""
    for path in (written := [output, *(sheet or ())]):
        if path.suffix.lower() not in {".csv", ".parquet", ".pq"}:
            raise UsageError(f"{path}: name a .parquet or .csv file to write.")
        if not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: {path.parent} is not a folder.")
    if len(set(written)) < len(written):
        raise UsageError("Two files to write have one name: give each --sheet its own.")
    if choose is not None:
        refused = {"plan": plan, "baseline": baseline, "sheet": sheet}
        _choose(choose, options, run, source, output, unlabelled, exclude_drawn, seed, refused,
                as_json)  # fmt: skip
        return
    drawn = _draw(options, named_set(run, source), plan, seed, unlabelled, baseline, exclude_drawn)
    if unlabelled and sheet:
        drawn = replace(drawn, then=drawn.then.replace("SHEET.csv", str(sheet[0])))
    _write_draw(drawn, output, seed, as_json, sheet or ())


@dataclass(frozen=True)
class _Drawn:
    subset: Subset
    recipe: Recipe
    plan: Plan | None
    check: MetricCheck | None
    then: str  # options of the score that comes next


def _draw(
    options: PlanOptions, place: Path, plan: Path | None, seed: int, unlabelled: bool,
    baseline: Path | None, exclude_drawn: Path | None,
) -> _Drawn:  # fmt: skip
    from audit.subset import draw_subset, load_recipe, metric_check
    from audit.subset.detect import read_objects
    from audit.subset.draw import planned
    from audit.subset.population import with_confidence

    made: Plan | None = None
    n = options.n
    if plan is None:
        made, frame = _planned(options, place, unlabelled, baseline)
        recipe, metric, n = made.recipe, made.metric, None
    else:
        _check_plan_alone(options, baseline)
        recipe, metric = load_recipe(plan), planned(plan, "metric", "accuracy")
        part = _part(options.split, plan)
        if is_of_objects([metric]):
            extra = [*recipe.strata.by, *([recipe.group] if recipe.group else [])]
            _, frame = read_objects(place, part, extra, by_class=recipe.strata.label)
        else:
            frame = read_set(place, part, recipe.strata.by, recipe.group, unlabelled)
    tables = read_models(None if is_of_objects([metric]) else options.predictions)
    frame = with_confidence(frame, tables, recipe.strata.by)
    earlier = None if exclude_drawn is None else _read_file(exclude_drawn, "earlier subset")
    subset = draw_subset(frame, recipe, seed, n=n, fresh_from=earlier)
    check = None
    if tables and earlier is None:  # a fresh draw is about the rest of the set
        check = metric_check(frame, recipe, subset, tables[0])
    then = "--predictions MODEL.csv"
    if unlabelled:
        then = "--labels SHEET.csv --predictions MODEL.csv"
    elif is_of_objects([metric]):
        then += f" --from {place} --metric {metric}"
    elif options.mean_of is not None:
        then += f" --metric {options.metric}"
    elif baseline is not None:
        then += f" --from {place} --baseline {baseline}"
    return _Drawn(subset, recipe, made, check, then)


def _write_draw(
    drawn: _Drawn, output: Path, seed: int, as_json: bool, sheets: Sequence[Path]
) -> None:
    from audit.report.output import write_table
    from audit.subset.goal import document_of
    from audit.subset.text import draw_text

    subset, made = drawn.subset, drawn.plan
    notes = [
        line for copy, path in enumerate(sheets, 1)
        for line in _write_sheet(subset.rows, path, copy)
    ]  # fmt: skip
    write_table(output, subset.rows)
    content = {
        "output": str(output), "n": subset.n_units, "files": len(subset.rows),
        "units": subset.population_units, "seed": seed, "plan": drawn.recipe.hash,
        "notes": subset.notes, "metric_check": drawn.check and asdict(drawn.check),
        "planned": made and made.document(), "sheets": [str(path) for path in sheets],
    }  # fmt: skip
    then = f"audit subset score {output} {drawn.then}"
    print_answer(
        as_json,
        lambda: document_of("subset-draw/1", content),
        lambda: [*draw_text(subset, drawn.check, made, then).split("\n"), *notes],
    )


def _write_sheet(rows: pl.DataFrame, output: Path, copy: int) -> list[str]:
    """Write a sheet for a person to label: images under neutral names, no label."""
    from audit.report.output import write_table
    from audit.subset.labelling import blind_sheet

    images = output.with_name(f"{output.stem}_images")
    sheet, key = blind_sheet(rows, images, copy)
    write_table(output, sheet)
    lines = [f"{len(sheet)} examples to label in {output}: fill in the column label."]
    if key is not None:
        originals = output.with_name(f"{output.stem}_key.csv")
        write_table(originals, key)
        lines.append(
            f"Its images are in {images} under neutral names. {originals} names the originals: "
            "do not give it to the person who labels."
        )
    return lines


def _choose(
    by: Choose, options: PlanOptions, run: Path | None, source: Path | None, output: Path,
    unlabelled: bool, chosen: Path | None, seed: int, refused: Mapping[str, Any], as_json: bool,
) -> None:  # fmt: skip
    from audit.report.output import write_table
    from audit.subset.choice import Wanted, select_pictures

    default = PlanOptions()
    of_goal = (
        "metric", "group", "confidence", "target", "half_width", "detect", "seconds", "throughput",
    )  # fmt: skip
    _refuse(
        {name: getattr(options, name) != getattr(default, name) for name in of_goal}
        | dict(refused),
        "is for random draws: leave it out, or --choose.",
    )
    if run is None or options.n is None:
        raise UsageError("--choose takes a run and --n: the number of images to choose.")
    if len(options.predictions or ()) > 1:
        raise UsageError("--choose takes the predictions of one model.")
    split = None if options.split in (None, "all") else options.split
    model = options.predictions[0] if options.predictions else None
    found = select_pictures(
        run, options.n, by, Wanted(split, source, unlabelled, chosen, model), seed=seed,
        doubt="entropy" if options.assumptions.uncertainty == "entropy" else "margin",
        cells=options.by or (),
    )  # fmt: skip
    write_table(output, found.rows)
    print_answer(
        as_json,
        lambda: found.document() | {"output": str(output)},
        lambda: [*found.lines(), f"Written: {output}."],
    )


def _check_plan_alone(options: PlanOptions, baseline: Path | None) -> None:
    """Raise UsageError for options that a plan has fixed; only its size may be changed."""
    fixed = replace(options, split=None, n=None, predictions=None)
    given = {f.name: getattr(fixed, f.name) != f.default for f in fields(fixed)}
    _refuse(given | {"baseline": baseline}, "is part of the plan: leave it out, or --plan.")


def _refuse(options: Mapping[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None and value is not False and value != []:
            raise UsageError(f"--{name.replace('_', '-')} {why}")


@dataclass(frozen=True)
class ScoreOptions:
    """What is scored, how, and against what."""

    predictions: Annotated[
        list[Path] | None,
        option("--predictions", "Predictions of a model; several models are compared."),
    ] = None
    metric: Annotated[
        list[str] | None,
        option("--metric", "Repeatable; mean:COLUMN is the mean of a number per example."),
    ] = None
    answers: Annotated[
        list[Path] | None,
        option("--answers", "Filled labelling sheet of a person; twice for two people."),
    ] = None
    confidence: Annotated[
        float | None, option("--confidence", "Confidence level (default: as planned, 0.95).")
    ] = None
    missing: Annotated[
        Literal["refuse", "wrong", "drop"], option("--missing", "Examples without a prediction.")
    ] = "refuse"
    unknown: Annotated[
        Literal["refuse", "wrong"],
        option("--unknown", "Labels of classes that the set does not have."),
    ] = "refuse"
    first: Annotated[int | None, option("--first", "Score only the first N units drawn.")] = None
    labels: Annotated[
        Path | None, option("--labels", "Filled labelling sheet with the classes of the subset.")
    ] = None
    baseline: BaselineOption = None
    source: Annotated[
        Path | None, option("--from", "Run or list that the subset was drawn from.")
    ] = None
    plan: Annotated[
        Path | None, option("--plan", "Plan of the subset, for --baseline with strata or groups.")
    ] = None
    unlabelled: UnlabelledOption = False
    split: SplitOption = None
    group: GroupOption = None
    by_class: Annotated[bool, option("--by-class", "Also list the classes.")] = False
    slices: Annotated[
        list[str] | None, option("--slice", "Column whose values get an accuracy each; repeatable.")
    ] = None

    @property
    def files(self) -> list[Path]:
        """The prediction files."""
        return self.predictions or []

    @property
    def part(self) -> str | None:
        """The split to score; None for every file."""
        return _part(self.split, self.plan)

    def refuse(self, names: Sequence[str], why: str) -> None:
        """Raise UsageError for the first of these options that differs from its default."""
        default = ScoreOptions()
        shown = {"source": "from", "slices": "slice"}
        _refuse({shown.get(n, n): getattr(self, n) != getattr(default, n) for n in names}, why)


@app.command("score")
@takes_options
def score_command(
    options: ScoreOptions,
    subset: Annotated[
        Path | None,
        typer.Argument(help="Drawn subset (CSV or Parquet), or a run; without it, all of --from."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate metrics with confidence intervals; compare models, or people."""
    metrics = options.metric or []
    if options.answers:
        document, text = _score_people(subset, options)
    elif not options.files:
        raise UsageError("Name what to score: --predictions FILE, or --answers SHEET.")
    elif any(name.startswith(MEAN) for name in metrics):
        document, text = _score_mean(subset, options)
    elif is_of_objects(metrics):
        document, text = _score_objects(subset, options)
    else:
        document, text = _score_images(subset, options)
    print_answer(as_json, lambda: document, lambda: text.split("\n"))


Printed = tuple[dict[str, Any], str]
"""A result as one JSON document, and as text."""


def _score_images(subset: Path | None, options: ScoreOptions) -> Printed:
    from audit.subset import Baseline, first_units, read_predictions, score_subset
    from audit.subset.compare import find_winner, winner_text
    from audit.subset.labelling import sheet_labels
    from audit.subset.text import score_text

    files, labels, metrics = options.files, options.labels, options.metric or ["accuracy"]
    if len(files) > 2:
        options.refuse(
            ("baseline", "by_class", "slices"),
            "is for one model, or two: three or more are ranked by accuracy.",
        )
        if metrics != ["accuracy"]:
            raise UsageError(
                "Three or more models are ranked by accuracy alone: leave out --metric."
            )
    rows = read_rows(subset, options, f"--predictions {files[0]}")
    if labels is not None:
        sheet = _read_file(labels, "labelling sheet")
        rows = rows.with_columns(sheet_labels(rows, sheet, labels.name, options.unknown))
    known = None
    if options.baseline is not None:
        whole, recipe = read_drawn_from(options)
        earlier = read_predictions(options.baseline)
        known = Baseline.of(whole, earlier, recipe, options.baseline.stem)
    if options.first is not None:
        rows = first_units(rows, options.first)
    models, names = read_models(files), model_names(files)
    ranked = None
    if len(models) > 1 and metrics[0] == "accuracy":
        ranked = find_winner(
            rows, models, names=names, confidence=options.confidence, missing=options.missing,
            unknown=options.unknown,
        )  # fmt: skip
    if ranked is not None and len(models) > 2:
        return ranked.document(), winner_text(ranked)
    plan = read_config().plan
    noise = plan.label_noise if isinstance(plan.label_noise, float | int) else None
    score = score_subset(
        rows, models, metrics=metrics, confidence=options.confidence,
        missing=options.missing, unknown=options.unknown, looks=plan.comparisons,
        label_noise=noise, names=names, baseline=known, slices=_sliced_by(rows, subset, options),
    )  # fmt: skip
    text = score_text(score, by_class=options.by_class)
    if ranked is None:
        return score.document(), text
    return score.document() | {"ranking": ranked.document()}, f"{text}\n{winner_text(ranked)}"


def _score_objects(subset: Path | None, options: ScoreOptions) -> Printed:
    from audit.subset import detect, first_units, load_recipe
    from audit.subset.text import score_text

    options.refuse(
        ("slices", "labels", "missing", "unknown", "unlabelled"),
        "is for metrics of images: leave it out.",
    )
    recipe = detect.PLAIN if options.plan is None else load_recipe(options.plan)
    rows, objects, frame = _drawn_objects(subset, options, recipe)
    if options.first is not None:
        rows = first_units(rows, options.first)
    known = None
    if options.baseline is not None:
        answers = objects.match(options.baseline, [])
        known = detect.KnownModel.on(frame, objects, options.baseline.stem, answers, recipe)
    found = detect.score_objects(
        rows, objects, options.files, metrics=options.metric or (), confidence=options.confidence,
        looks=read_config().plan.comparisons, names=model_names(options.files), baseline=known,
    )  # fmt: skip
    return found.document(), score_text(found, by_class=options.by_class)


def _score_mean(subset: Path | None, options: ScoreOptions) -> Printed:
    """Estimate the mean of any number per example: a loss, an IoU, a reward, `brier`."""
    from audit.subset import first_units
    from audit.subset.baseline import whole_set
    from audit.subset.values import measure_subset, measures_text

    metrics = options.metric or []
    if len(metrics) > 1 or len(options.files) > 1:
        raise UsageError(f"--metric {MEAN}COLUMN is scored alone, from one file of --predictions.")
    options.refuse(
        ("missing", "unknown", "labels", "by_class", "slices"),
        f"is for metrics of classes: leave it out for {MEAN}COLUMN.",
    )
    values, number = options.files[0], metrics[0].removeprefix(MEAN)
    known = None
    if options.baseline is not None:
        whole = whole_set(*read_drawn_from(options))
        known = (whole, _read_file(options.baseline, "baseline"))
    rows = read_rows(subset, options, f"--predictions {values} --metric {metrics[0]}")
    if options.first is not None:
        rows = first_units(rows, options.first)
    found = measure_subset(
        rows, _read_file(values, "values"), number, confidence=options.confidence,
        baseline=known, name=values.name,
    )  # fmt: skip
    return found.document(), measures_text(found)


def _score_people(subset: Path | None, options: ScoreOptions) -> Printed:
    """Score what people answered, their agreement, and the models beside them."""
    from audit.subset.labelling import compare_people, human_text

    sheets = options.answers or []
    options.refuse(
        (
            "metric", "missing", "first", "labels", "baseline", "source", "plan", "unlabelled",
            "split", "group", "by_class", "slices",
        ),
        "does not go with --answers: leave it out.",
    )  # fmt: skip
    if subset is None or subset.is_dir():
        raise UsageError("--answers needs the drawn subset that the sheet was written for.")
    found = compare_people(
        read_drawn(subset), [_read_file(path, "labelling sheet") for path in sheets],
        read_models(options.files), names=model_names([*sheets, *options.files]),
        confidence=options.confidence, unknown=options.unknown,
    )  # fmt: skip
    return found.document(), human_text(found)


def _sliced_by(
    rows: pl.DataFrame, subset: Path | None, options: ScoreOptions
) -> pl.DataFrame | None:
    """Return the columns of the set, or of the rows themselves, that a score is sliced by."""
    from audit.subset.slices import slice_columns

    names = options.slices
    if not names:
        return None
    whole = subset if subset is not None and subset.is_dir() else options.source
    if whole is None or set(names) <= set(rows.columns):
        return slice_columns(rows, None, names)
    return slice_columns(rows, read_set(whole, options.part, names, None), names)


def _drawn_objects(
    subset: Path | None, options: ScoreOptions, recipe: Recipe
) -> tuple[pl.DataFrame, Objects, pl.DataFrame]:
    """Return the rows and objects of a subset (or run, COCO file, masks), and the full frame."""
    from audit.subset import census
    from audit.subset.detect import read_objects

    source, group = options.source, options.group
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
    objects, frame = read_objects(place, options.part, extra, by_class=recipe.strata.label)
    rows = census(frame, group=group).rows if whole else _read_file(subset, "subset")
    return rows, objects, frame


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


def read_drawn_from(options: ScoreOptions) -> tuple[pl.DataFrame, Recipe]:
    """Return the set that a subset was drawn from, and the recipe."""
    from audit.subset import load_recipe
    from audit.subset.baseline import PLAIN

    if options.source is None:
        raise UsageError(
            "--baseline needs the classes of the whole set: name the run or list that the subset "
            "was drawn from with --from."
        )
    recipe = PLAIN if options.plan is None else load_recipe(options.plan)
    by, group = recipe.strata.by, recipe.group
    return read_set(options.source, options.part, by, group, options.unlabelled), recipe


def _read_file(path: Path, what: str) -> pl.DataFrame:
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


def read_rows(subset: Path | None, options: ScoreOptions, scored: str) -> pl.DataFrame:
    """Return the rows of a drawn subset, or of a run or list; `scored`: options for those."""
    from audit.subset import census
    from audit.subset.draw import COLUMNS

    if subset is None or subset.is_dir():
        whole = subset or named_set(None, options.source)
        frame = read_set(whole, options.part, None, options.group)
        return census(frame, group=options.group).rows
    rows = read_drawn(subset)
    if not set(rows.columns) & set(COLUMNS[3:-1]):
        raise UsageError(
            f"{subset} has no column of a draw ({', '.join(COLUMNS[3:7])}, ...). To score all of a "
            f"list: `audit subset score --from {subset} {scored}`. To score a part, use `audit "
            "subset draw` first."
        )
    return rows
