"""The tf.data adapter on real graphs; structure only, no times."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pipeline_profiler import ProfileError, Recorder
from pipeline_profiler.precision.data_source import make_sized_loader
from pipeline_profiler.profiling.adapters import kind_of, tf_data, tf_graph
from pipeline_profiler.profiling.diagnose import verdict
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure.arms import NULL_LEAST, Bench, Options, null_run
from pipeline_profiler.profiling.measure.preloaded_batches import Preloaded
from pipeline_profiler.profiling.measure.schedule import measure_arms
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Run, Session
from tests.conftest import import_late
from tests.pipeline_profiler.fakes import MS, FakeClock, LateReadings, made_run, schedule

pytestmark = pytest.mark.slow

tf = import_late("tensorflow")


def graph() -> Any:
    ds = tf.data.Dataset.range(64).map(lambda x: {"x": x, "unused": x * 2})
    ds = ds.shuffle(16).interleave(
        lambda row: tf.data.Dataset.from_tensors(row), cycle_length=2, block_length=1
    )
    return ds.batch(8).prefetch(2)


def names(dataset: Any) -> list[str]:
    return [tf_graph.name_of(p) for p in tf_graph.prefixes(dataset)]


def applied(dataset: Any, name: str) -> Any:
    """The dataset with one of the interventions; None where it does not apply."""
    return next(i.build for i in tf_graph.INTERVENTIONS if i.name == name)(dataset)


def compiled_model() -> Any:
    import keras

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def elements(dataset: Any) -> list[int]:
    return sorted(int(v) for batch in dataset for v in batch["x"])


def test_a_dataset_is_recognised_and_described() -> None:
    ds = graph()
    assert kind_of(ds) == "tf"
    config = tf_data.describe(ds)
    assert config["operations"] == ["Range", "Map", "Shuffle", "Interleave", "Batch", "Prefetch"]
    assert "ram_budget" in config["options"]
    assert make_sized_loader(lambda: ds, 4) is ds  # made without a batch size: as it is


def test_the_empty_loader_of_a_dataset_gives_its_batch_again_beside_the_step() -> None:
    batch = next(iter(graph()))
    empty = list(tf_data.repeated_batch(batch, 5))
    assert len(empty) == 5
    assert all((one["x"].numpy() == batch["x"].numpy()).all() for one in empty)
    seen: list[Any] = []
    # the second reading ends the first hand-out: one late reading decides nothing
    run = null_run(Bench(graph, seen.append, LateReadings(2)), Preloaded([batch]), 2e6)
    assert len(run.spans.columns["batch"])
    assert len(seen) >= NULL_LEAST


def test_a_python_generator_is_known_from_a_function_in_python() -> None:
    spec = tf.TensorSpec((), tf.int64)
    made = tf.data.Dataset.from_generator(lambda: iter(range(8)), output_signature=spec).batch(2)
    called = graph().map(lambda row: tf.py_function(lambda x: x, [row["x"]], tf.int64))
    assert [tf_data.describe(ds)["generator"] for ds in (made, called)] == [True, False]
    assert applied(made, "parallel interleave") is None  # one source


def test_batches_pass_unchanged_and_are_recorded() -> None:
    rec = Recorder()
    seen = sorted(int(v) for batch in rec.watch(graph()) for v in batch["x"])
    assert seen == list(range(64))
    assert len(Window.of(rec.session().runs[0]).steps.batch) == 8


def test_every_prefix_is_timed_and_counted_per_final_element() -> None:
    rows = tf_data.prefix_costs(graph(), seconds=0.05)
    assert [r["operation"] for r in rows] == names(graph())
    assert [r["visits"] for r in rows] == [8, 8, 8, 8, 1, 1]
    for before, row in pairwise(rows):
        assert row["ms"] == pytest.approx(row["total_ms"] - before["total_ms"])


@pytest.mark.parametrize(
    ("name", "gone", "new"),
    [
        ("parallel map", "Map", "ParallelMap"),
        ("parallel interleave", "Interleave", "ParallelInterleave"),
    ],
)
def test_interventions_change_one_operation_and_no_element(name: str, gone: str, new: str) -> None:
    changed = applied(graph(), name)
    assert [n for n in names(changed) if n not in (gone, new)] == [
        n for n in names(graph()) if n != gone
    ]
    assert new in names(changed)
    assert gone not in names(changed)
    assert elements(changed) == list(range(64))
    fewer = tf_graph.drop_fields(("unused",))(graph())
    assert set(fewer.element_spec) == {"x"}
    assert names(fewer)[:3] == ["Range", "Map", "Map"]  # before what follows
    assert elements(fewer) == list(range(64))


def test_an_interleave_is_tried_with_more_sources_than_the_user_has_open() -> None:
    parallel = applied(graph(), "parallel interleave")
    at = names(parallel).index("ParallelInterleave")
    assert int(tf_graph.prefixes(parallel)[at]._cycle_length) == tf_graph.OPEN
    assert applied(parallel, "parallel interleave") is None
    few = tf.data.Dataset.range(8).interleave(
        lambda x: tf.data.Dataset.from_tensors({"x": x}), cycle_length=2, num_parallel_calls=2
    )
    assert elements(applied(few.batch(4), "parallel interleave")) == list(range(8))


def test_prefetch_is_added_where_it_is_missing_only() -> None:
    ds = tf.data.Dataset.range(8).batch(2)
    assert names(applied(ds, "prefetch"))[-1] == "Prefetch"
    assert applied(graph(), "prefetch") is None


def test_a_short_epoch_that_would_not_end_in_time_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()

    def pace(*args: Any) -> float:
        clock.advance(1000.0)
        return 1000.0

    monkeypatch.setattr(tf_graph, "pace", pace)
    long = tf.data.Dataset.range(800).map(lambda x: x).batch(2)
    rows, notes = tf_graph.try_all(long, print, 0.1, clock=clock, limit_s=20.0)
    assert [row["name"] for row in rows] == ["prefetch", "parallel map"]
    assert "cache was not tried: the time is used up" in notes  # 64 batches of a second


def test_an_unknown_operation_is_a_sentence() -> None:
    ds = tf.data.Dataset.range(8).map(lambda x: x).window(2)
    with pytest.raises(ProfileError, match="cannot be rebuilt over a changed input"):
        applied(ds, "parallel map")
    rows, notes = tf_graph.try_all(
        ds.flat_map(lambda w: w.batch(2)), lambda b: None, 0.02, repeats=1
    )
    assert any("Window" in note for note in notes)
    assert rows


def test_autotune_is_waited_out_until_throughput_is_flat() -> None:
    walls = [50.0, 40.0, 30.0, 20.0, 20.0, 20.0, 20.0]
    # windows of 10: flat for the first time over windows 4, 5, 6
    assert tf_data.settled_after([w for w in walls for _ in range(10)]) == 60
    assert tf_data.settled_after([float(w) for w in range(1, 46)]) == 40


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("prefetch", "PIPE019"),
        ("parallel map", "PIPE018"),
        ("smaller shuffle buffer", "PIPE020"),
        ("parallel interleave", "PIPE026"),
        ("cache", "PIPE027"),
    ],
)
def test_the_best_intervention_names_the_cause(name: str, code: str) -> None:
    session = Session(environment={"cores": 2})
    rows = schedule(60, 0, 0, 20.0, lambda j: 20.0)
    for block in range(3):
        for arm, source in (
            (Arm.RESIDENT, schedule(60, 0, 0, 20.0, lambda j: 0.0)),
            (Arm.WARM, rows),
        ):
            run = made_run([{k: r[k] for k in ("entry", "got", "end")} for r in source], arm)
            run.block = block
            run.config = {"kind": "tf"}
            session.runs.append(run)
    trial = {"why": "w", "how": "h", "baseline_ms": 40.0, "repeats": 2, "spread": 0.02}
    session.probes.interventions = [
        trial | {"name": name, "period_ms": 20.5},
        trial | {"name": "cache", "period_ms": 21.0},
    ]
    cause = verdict.diagnose_session(session).causes[0]
    assert cause.code == code
    assert cause.share.value == pytest.approx(1 - 20.5 / 40)


def test_a_whole_measurement_prints_prefixes_and_interventions() -> None:
    clock = FakeClock()
    ds = tf.data.Dataset.range(4000).batch(4)
    made = measure_arms(
        Bench(lambda: ds, lambda batch: clock.advance(5), clock),
        Options(quick=True, steps=30, repeats=3, seconds=2.0),
    )
    assert [r["operation"] for r in made.probes.prefixes] == ["Range", "Batch"]
    assert "prefetch" in {r["name"] for r in made.probes.interventions}
    assert made.plan.arms == (Arm.RESIDENT, Arm.WARM)


def test_keras_fit_is_recorded_by_a_callback() -> None:
    clock = FakeClock()
    rec = Recorder(clock)
    callback = tf_data.keras_callback(rec)
    callback.on_epoch_begin(0)
    for i in range(3):
        clock.advance(4)
        callback.on_train_batch_begin(i)
        clock.advance(6)
        callback.on_train_batch_end(i)
    window = Window.of(rec.session().runs[0]).steps
    assert window.wait.tolist() == [4 * MS] * 3
    assert window.loop.tolist() == [6 * MS] * 3

    real = Recorder()
    x = np.zeros((16, 1), np.float32)
    compiled_model().fit(
        x, x, batch_size=4, epochs=2, verbose=0, callbacks=[tf_data.keras_callback(real)]
    )
    run: Run = real.session().runs[0]
    assert len(Window.of(run).steps.batch) == 8
    assert len(Window.of(run).first_batch_ns) == 2


def test_interventions_end_with_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()

    def pace(dataset: Any, step: Any, seconds: float, clock: Any) -> float:
        clock.advance(3000)  # a buffer fills
        return 40.0

    monkeypatch.setattr(tf_graph, "pace", pace)
    ds = tf.data.Dataset.range(64).map(lambda x: x).shuffle(64).batch(4)
    begun = clock()
    rows, notes = tf_graph.try_all(ds, lambda b: None, 0.5, clock=clock, limit_s=7.0)
    assert (clock() - begun) / 1e9 <= 10.0
    assert [row["name"] for row in rows] == ["prefetch", "smaller shuffle buffer"]
    assert "parallel map was not tried: the time is used up" in notes
    assert {row["spread"] for row in rows} == {tf_graph.ONE_SPREAD}


def test_a_short_epoch_is_paced_by_whole_epochs() -> None:
    """20 steps of 10 ms, and 100 ms before each epoch: 15 ms a step, wherever the clock stops."""
    clock = FakeClock()

    class Epoch:
        def cardinality(self) -> Any:
            return tf.constant(20)

        def __iter__(self) -> Any:
            clock.advance(100)
            yield from range(20)

    paces = [
        tf_graph.pace(Epoch(), lambda batch: clock.advance(10), seconds, clock)
        for seconds in (0.25, 0.33, 0.41)
    ]
    assert paces == [15.0, 15.0, 15.0]


def test_a_watched_dataset_is_one_for_keras_and_gives_every_epoch() -> None:
    rec = Recorder()
    data = tf.data.Dataset.from_tensor_slices((tf.zeros((8, 1)), tf.zeros((8, 1)))).batch(2)
    watched = rec.watch(data)
    assert len(watched) == 4
    assert sum(1 for _ in watched) == 4
    assert rec.steps == 4
    model = compiled_model()
    history = model.fit(watched, epochs=2, verbose=0, shuffle=False)
    assert history.epoch == [0, 1]
    assert int(model.optimizer.iterations.numpy()) == 8
