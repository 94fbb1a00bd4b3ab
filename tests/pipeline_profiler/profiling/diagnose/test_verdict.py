"""Verdicts and first causes of hand-made sessions; every schedule is exact."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.profiling.diagnose import loading as loading_table
from pipeline_profiler.profiling.diagnose import verdict as verdicts
from pipeline_profiler.profiling.diagnose.evidence import Labels, gather
from pipeline_profiler.profiling.diagnose.finding import NAMES, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.diagnose.verdict import Conclusion, diagnose_session, verdict_of
from pipeline_profiler.profiling.diagnose.window import LoadingShares
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import MAIN, ProfileError, Session
from tests.pipeline_profiler.fakes import MS, broken_rule, made_run, made_session, schedule


def first_cause(session: Session, code: str, share: Any = None) -> Diagnosis:
    """The first cause, which has this code and may be worth this share of the step."""
    cause = diagnose_session(session).causes[0]
    assert cause.code == code
    assert share in (None, cause.share.value)
    return cause


def codes_of(found: Conclusion) -> list[str]:
    return [cause.code for cause in found.causes]


def session_of(
    cost: Any,
    workers: int = 2,
    prefetch: int = 2,
    step: float | list[float] = 20.0,
    n: int = 120,
    jitter: float = 0.0,
    **more: Any,
) -> Session:
    rows = schedule(n, workers, prefetch, step, cost, **more)
    return made_session(rows, step, jitter=jitter, workers=workers, prefetch=prefetch)


def unseen_loading(measured_step: float = 20.0, **config: Any) -> Session:
    """30 ms of loading in the training process before each step, in code without a hook."""
    rows = schedule(120, 0, 0, measured_step, lambda j: 30.0)
    for row in rows:
        del row["fetch"]
    return made_session(rows, 20.0, **config)


def add_stacks(session: Session, stacks: dict[str, int]) -> None:
    session.runs.append(made_run([], Arm.STACKS))
    session.runs[-1].stacks = stacks


def add_spans(session: Session, name: str, within: str, ms: float, first_batch: int = 0) -> None:
    """Let a span of `ms` begin with each span of the stage `within`, in each warm run."""
    for run in session.arm(Arm.WARM):
        for span in [s for s in run.spans if s.stage == within and s.batch >= first_batch]:
            run.spans.add(name, span.batch, MAIN, span.start_ns, round(ms * MS))


def cause_of(session: Session, code: str) -> Diagnosis:
    return {cause.code: cause for cause in diagnose_session(session).causes}[code]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.21, 0.30, "input-bound high"),
        (0.06, 0.40, "input-bound moderate"),
        (-0.02, 0.04, "not input-bound"),
        (0.01, 0.09, "inconclusive"),
        (-0.5, 0.5, "inconclusive"),
    ],
)
def test_the_verdict_is_read_off_the_interval(low: float, high: float, verdict: str) -> None:
    found, more = verdict_of(Interval((low + high) / 2, low, high, 5))
    assert found == verdict
    assert (more > 0) == (verdict == "inconclusive")


def test_negative_stall_is_reported_as_it_is() -> None:
    session = made_session(schedule(60, 2, 2, 20.0, lambda j: 1.0), 20.5, workers=2, prefetch=2)
    assert diagnose_session(session).stall.value == pytest.approx(-0.025, abs=0.01)


def conditions_of(found: Conclusion) -> dict[str, str]:
    return {row["name"]: row["text"] for row in found.as_results()["conditions"]}


def test_noise_is_inconclusive_with_the_command_that_would_decide() -> None:
    session = session_of(lambda j: 45.0, n=60, jitter=1.2)
    session.plan = replace(session.plan, steps=40, warmup=10, seconds=20.0)
    found = diagnose_session(session)
    assert found.verdict == "inconclusive"
    assert found.more_repeats >= 1
    assert conditions_of(found)["to decide"].startswith("the same command with `--seconds ")
    session.plan = replace(session.plan, seconds=299.0)  # nobody would wait so long
    assert conditions_of(diagnose_session(session))["to decide"].endswith("too close to 5%")


def test_the_verdict_has_at_most_twenty_words() -> None:
    session = session_of(lambda j: 60.0)
    session.environment |= {"others_cpu": 0.4, "steal": 0.05}
    found = diagnose_session(session)
    assert found.sentence.endswith(" on this machine now.")
    assert len(found.sentence.split()) <= 20
    assert conditions_of(found)["other programs"].startswith("45% of the cores")


def irregular(slow: float, fast: float, of: int, every: int) -> Callable[[int], float]:
    """Slow are `of` out of each `every` batches, without a period."""
    return lambda j: slow if (j * 7919) % every < of else fast


SOME_SLOW = irregular(260.0, 8.0, 6, 97)


def every_twentieth(j: int) -> float:
    return 260.0 if j % 20 == 19 else 8.0


def every_tenth_of_each_worker(j: int) -> float:
    """Both workers stop at every tenth batch of their own: batches 18, 19, 38, 39, ..."""
    return 260.0 if (j // 2) % 10 == 9 else 8.0


def now_and_then(j: int) -> float:
    return 260.0 if j in (11, 15, 47, 52, 90, 131, 133, 180) else 8.0


def near(share: float, within: float = 0.01) -> Any:
    return pytest.approx(share, abs=within)


HEAVY = np.random.default_rng(0).normal([60.0, 20.0, 20.0], 2.0, (400, 3)).ravel()
HALF, PER_BATCH = near(0.5, 0.05), {"ms_per_batch": near(54.0), "share": near(1 - 20 / 30)}
OF_REMOTE = {"latency_ms": near(48), "data_ms": near(6), "words": "latency is the larger part"}
CROWD = {"step": 5.0, "workers": 8, "cpu": 16.0, "queued": 34.0, "overhead": 3.0, "receive": 0.2}
GATHERED = {"workers": 1, "step": [5.0, 5.0, 5.0, 45.0], "overhead": 1.5, "receive": 1.4}
REMOTE = {"read:remote latency": 0.8, "read:remote data": 0.1}


@pytest.mark.parametrize(
    ("code", "cost", "settings", "facts"),
    [
        ("PIPE006", 38.0, {"workers": 1}, {"change": {"workers": 2}, "share": near(1 - 20 / 38)}),
        ("PIPE006", 15.0, {"workers": 0, "prefetch": 0}, {"num_workers": 0}),
        ("PIPE007", irregular(70.0, 5.0, 4, 13), {"prefetch": 1}, {"change": {"prefetch": 2}}),
        ("PIPE007", irregular(60.0, 5.0, 8, 32), {}, {"prefetch_factor": 2}),
        ("PIPE008", SOME_SLOW, {"slow": irregular(253.0, 1.0, 6, 97)}, {}),  # a slow sample
        ("PIPE009", SOME_SLOW, {"slow": irregular(33.0, 1.0, 6, 97)}, {}),  # all of its samples
        ("PIPE009", irregular(250.0, 8.0, 10, 101), {"workers": 3, "n": 400}, {}),
        ("PIPE009", every_twentieth, {"workers": 1, "n": 200}, {"every_batches": near(20.0)}),
        ("PIPE009", every_tenth_of_each_worker, {"n": 200}, {"every_batches": near(10.0)}),
        ("PIPE013", 60.0, {"gc": 50.0}, {}),
        ("PIPE005", 5.0, {"overhead": 15.0, "receive": 14.0}, {"share": near(15 / 35)}),
        ("PIPE012", 200.0, {"workers": 8, "cpu": 60.0, "queued": 130.0}, {}),
        ("PIPE001", 60.0, {"stages": {"read": 0.9, "getitem": 0.1}}, PER_BATCH),
        ("PIPE002", 60.0, {"stages": {"decode": 0.9, "getitem": 0.1}}, PER_BATCH),
        ("PIPE003", 60.0, {"stages": {"transform": 0.9, "getitem": 0.1}}, PER_BATCH),
        ("PIPE004", 60.0, {"stages": {"collate": 0.9, "getitem": 0.1}}, PER_BATCH),
        ("PIPE009", now_and_then, {"workers": 1, "n": 200}, {"words": "take many times as long"}),
        # 20 ms a step, 10 without the worker whose shards are heavier
        ("PIPE030", HEAVY.__getitem__, {"step": 10.0, "workers": 3}, {"worker": 0, "share": HALF}),
        # a hand-over is worth no more where gradients are accumulated
        ("PIPE005", 5.0, GATHERED, {"share": near(1.5 / 16.5)}),
        # 16 ms of CPU a batch on two cores: no fewer threads would end it, less work would
        ("PIPE025", 50.0, CROWD, {"share": near(0.35)}),
        ("PIPE024", 60.0, {"stages": REMOTE}, OF_REMOTE),
    ],
)
def test_a_planted_fault_is_the_first_cause(
    code: str, cost: Any, settings: dict[str, Any], facts: dict[str, Any]
) -> None:
    session = session_of(cost if callable(cost) else lambda j: cost, **{"n": 300} | settings)
    cause = diagnose_session(session).causes[0]
    found = {"change": cause.change, "share": cause.share.value, **cause.evidence}
    assert cause.code == code
    assert facts.get("words", "") in cause.cause
    assert {name: found[name] for name in facts if name != "words"} == {
        name: fact for name, fact in facts.items() if name != "words"
    }


@pytest.mark.parametrize("spread", ["even", "long tails"])
def test_workers_that_differ_by_chance_alone_are_not_named(spread: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(4):
        costs = rng.normal(60, 5, 1200) if spread == "even" else 20 * rng.pareto(1.5, 1200) + 20
        found = diagnose_session(session_of(lambda j, c=costs: c[j], step=10.0, workers=3))
        assert "PIPE030" not in codes_of(found)


@pytest.mark.parametrize(("heavy_in", "named"), [((0, 1, 2), True), ((0, 2), False)])
def test_a_slow_worker_is_the_same_one_in_each_of_several_short_runs(
    heavy_in: tuple[int, ...], named: bool
) -> None:
    rng = np.random.default_rng(0)
    session = session_of(lambda j: 20.0, step=10.0, workers=3, n=21)
    session.runs = [run for run in session.runs if run.arm != Arm.WARM]
    for block in range(3):
        slow = 60.0 if block in heavy_in else 20.0
        costs = rng.normal([20.0, slow, 20.0], 1.0, (7, 3)).ravel()
        rows = schedule(21, 3, 2, 10.0, lambda j, c=costs: c[j])
        run = made_run(rows, Arm.WARM, workers=3, prefetch=2)
        run.block = block
        session.runs.append(run)
    codes = codes_of(diagnose_session(session))
    assert ("PIPE030" in codes) == named


def stream_of(delivered: dict[str, int], drawn: int, cost: float, only: int = 2) -> Session:
    """A stream whose windows saw `only` of its two workers, and how it was drawn to its end."""
    rows = schedule(60, only, 2, 16.0, lambda j: cost)
    session = made_session(rows, 16.0, workers=2, prefetch=2, iterable_dataset=True)
    session.runs.append(made_run(schedule(9, 2, 2, 16.0, lambda j: cost), Arm.PILOT))
    session.runs[-1].totals["drawn_steps"] = drawn
    session.probes.delivered = delivered
    return session


def test_a_worker_that_runs_out_after_the_windows_leaves_no_all_clear() -> None:
    found = diagnose_session(stream_of({"0": 240, "1": 120}, 240, 28.0))
    assert found.verdict == "inconclusive"
    assert found.causes[0].code == "PIPE032"
    assert "worker 1 has no batch after step 120 of the 240 steps" in found.causes[0].cause
    # half of the epoch in 28 ms a step, 16 with both workers
    assert found.causes[0].share.value == pytest.approx(1 - 32 / 44, abs=0.03)
    even = diagnose_session(stream_of({"0": 240, "1": 239}, 240, 28.0))
    assert even.verdict == "not input-bound"
    assert "PIPE032" not in [cause.code for cause in even.causes]


def test_a_worker_without_any_shard_is_named_first_and_the_replay_has_one_less() -> None:
    session = stream_of({"0": 240, "1": 0}, 240, 28.0, only=1)
    cause = first_cause(session, "PIPE032", near(1 - 16 / 28, 0.03))
    assert "worker 1 has no batch in the 240 steps" in cause.cause
    found = diagnose_session(session)
    assert (found.verdict, found.evidence.cases[0].workers) == ("input-bound high", 1)
    assert "PIPE006" not in codes_of(found)


def begun_anew(
    rows: list[dict[str, Any]], every: int, wait: float, first_wait: float = 0.0
) -> list[dict[str, Any]]:
    """Let an epoch begin `every` so many steps, each after so many ms more."""
    shift = 0.0
    for i, row in enumerate(rows):
        if i % every == 0:
            late = wait if i else first_wait
            shift += late
            row |= {"first": True, "iter": row["entry"] + shift - late}
        for key in ("entry", "got", "end", "start", "sent", "received"):
            row[key] += shift
    return rows


def test_start_up_of_each_epoch() -> None:
    rows = begun_anew(schedule(90, 2, 2, 20.0, lambda j: 10.0), 15, 200.0)
    session = made_session(rows, 20.0, workers=2, prefetch=2)
    cause = first_cause(session, "PIPE011")
    assert cause.change == {"persistent": True}
    assert cause.share.half_width < 0.02  # timed, so without the error of a replay


@pytest.mark.parametrize(("most", "told"), [(200.0, True), (20.0, False)])
def test_what_an_epoch_begins_with_in_the_training_process_is_named_by_its_line(
    most: float, told: bool
) -> None:
    rows = begun_anew(schedule(96, 0, 0, 20.0, lambda j: 4.0), 16, most)
    session = made_session(rows, 20.0)
    session.runs[0].stacks["wait||words.py:15 length: return len(text) < Sorted.__iter__"] = 100
    cause = cause_of(session, "PIPE011")
    assert ("most of it at words.py:15 length: return len(text)" in cause.cause) == told
    assert ("worker start-up" in cause.cause) != told
    assert cause.share.value == pytest.approx(most / 19 / (24 + most / 19), rel=0.1)
    # (the first of six epochs begins with the run)
    assert cause.share.low > 0  # timed as it is: no model of the other steps, and no error of one


@pytest.mark.parametrize(
    ("place", "said"),
    [("set.py:9 Rows.__getitem__: return self.x[i]", "the sampler"),
     ("words.py:15 length: len(text) < Sorted.__iter__", "words.py:15 length: len(text)")],
)  # fmt: skip
def test_a_sampler_that_draws_an_epoch_at_its_begin_is_named(place: str, said: str) -> None:
    rows = begun_anew(schedule(96, 0, 0, 20.0, lambda j: 4.0), 16, 200.0)
    session = made_session(rows, 20.0)
    session.runs[0].stacks[f"wait||{place}"] = 100
    add_spans(session, "sampler", "iter", 190.0, first_batch=1)
    cause = cause_of(session, "PIPE011")
    assert f"before its first batch, most of it at {said}" in cause.cause


def test_the_loading_of_an_epochs_first_batch_stays() -> None:
    """200 ms until the workers begin, and 160 of loading, which persistent ones do as well."""
    rows = schedule(96, 2, 2, 200.0, lambda j: 160.0)
    # the first batch of all waits for its loading as it is
    rows = begun_anew(rows, 16, 360.0, first_wait=200.0)
    cause = first_cause(made_session(rows, 200.0, workers=2, prefetch=2), "PIPE011")
    assert cause.share.value == pytest.approx(200 / 16 / (200 + 360 / 16), rel=0.05)


def slow_start(start_ms: float, **config: Any) -> Session:
    """A healthy loader whose first batch comes late, and no epoch ends in any window."""
    rows = schedule(40, 2, 2, 20.0, lambda j: 10.0)
    rows[0] |= {"iter": rows[0]["entry"] - start_ms}
    return made_session(rows, 20.0, workers=2, prefetch=2, **config)


def test_a_start_that_no_window_holds_counts_over_the_epoch() -> None:
    found = diagnose_session(slow_start(1000.0, batches=100))
    assert found.verdict == "input-bound high"
    assert found.stall.value == pytest.approx(10 / 30, abs=0.01)
    assert (found.causes[0].code, found.causes[0].change) == ("PIPE011", {"persistent": True})
    text = "Epoch starts take 33.6% of the step (1010 ms before each 100 steps)."
    assert found.as_results()["epoch_sentence"] == text
    unknown = diagnose_session(slow_start(1000.0))  # the end of an epoch is not known
    assert (unknown.verdict, unknown.more_repeats) == ("inconclusive", 0)
    assert "5% of an epoch of 960 steps" in unknown.as_results()["epoch_sentence"]
    # no shorter than the 40 steps that were seen: 1010 ms before each 800 ms
    assert (unknown.causes[0].code, unknown.causes[0].share.low) == ("PIPE011", 0.0)
    assert unknown.causes[0].share.high == near(1010 / 1810)
    assert "PIPE000" not in codes_of(unknown)


@pytest.mark.parametrize(
    ("start_ms", "drawn", "config"),
    [
        (1000.0, 0, {"batches": 100_000}),
        (1000.0, 0, {"batches": 100, "persistent": True}),
        (1000.0, 0, {"batches": 9, "epoch_steps": 10**5}),
        (1000.0, 0, {"endless": True}),
        (1000.0, 2000, {}),
        (10.0, 0, {}),
    ],
)
def test_a_start_that_comes_too_rarely_leaves_the_all_clear(
    start_ms: float, drawn: int, config: dict[str, Any]
) -> None:
    session = slow_start(start_ms, **config)
    session.runs.append(made_run(schedule(9, 2, 2, 20.0, lambda j: 10.0), Arm.PILOT))
    session.runs[-1].totals["drawn_steps"] = drawn
    found = diagnose_session(session)
    assert found.verdict == "not input-bound"
    assert codes_of(found) == ["PIPE000"]
    assert "length of an epoch" not in found.as_results()["epoch_sentence"]


def test_a_stream_measured_in_part_says_which() -> None:
    found = diagnose_session(slow_start(0.0, batches=5000, iterable_dataset=True))
    assert conditions_of(found)["measured steps"] == "9 to 40 of an epoch of 5000"
    by_index = diagnose_session(slow_start(0.0, batches=5000))
    assert "measured steps" not in conditions_of(by_index)
    unknown = diagnose_session(slow_start(0.0, iterable_dataset=True))
    assert conditions_of(unknown)["measured steps"] == "9 to 40 of an epoch"


@pytest.mark.parametrize(("receive", "goes"), [(0.5, True), (8.0, False)])
def test_a_batch_that_waits_for_the_code_of_the_next_one_goes_with_that_code(
    receive: float, goes: bool
) -> None:
    """Planted: Python in the worker holds its senders up. Null: the batch's own weight does."""
    session = session_of(
        lambda j: 30.0, step=10.0, overhead=9.0, receive=receive, stages={"transform": 1.0}
    )
    found = {cause.code: cause.share for cause in diagnose_session(session).causes}
    assert ("PIPE003" in found) == goes  # what is worth nothing is not named
    if goes:
        assert found["PIPE003"].value == pytest.approx(9 / 19, abs=0.03)
        assert found["PIPE003"].low > 0.3


@pytest.mark.parametrize(
    ("machine", "held", "said"),
    [
        ({"cores": 2, "cores_of_machine": 2}, 1, "the 2 workers are bound to 1 of 2 cores"),
        ({"cores": 1, "cores_of_machine": 4}, 1, "2 workers may use 1 of the machine's 4 cores"),
    ],
)
def test_workers_that_are_bound_to_few_cores(machine: dict[str, int], held: int, said: str) -> None:
    session = session_of(lambda j: 60.0, cpu=30.0, queued=29.0, stages={"read": 1.0})
    session.environment = machine
    for run in session.arm(Arm.WARM):
        run.totals["workers_cores"] = held
    cause = diagnose_session(session).causes[0]
    assert cause.code == "PIPE012"
    assert cause.cause.startswith(said)
    assert cause.share.value == pytest.approx(1 - 20 / 30, abs=0.02)


def test_a_lock_that_all_workers_wait_for_is_told() -> None:
    session = session_of(lambda j: 60.0)
    add_stacks(session, {"worker||data.py:9 D.__getitem__: with LOCK:": 900_000})
    assert "at one lock" in cause_of(session, "PIPE025").next
    # another setting is named with the line that takes the time
    session.runs = [*session_of(lambda j: 38.0, workers=1).runs, session.runs[-1]]
    cause = first_cause(session, "PIPE006")
    assert "100% of loading is sample code (data.py:9 D.__getitem__: with LOCK:)" in cause.cause


@pytest.mark.parametrize(
    ("line", "named"), [("os.fsync(file)", True), ("log.write(row)", False), ("a @ b", False)]
)
def test_a_write_that_waits_for_the_disk_is_named_below_a_twentieth_of_the_step(
    line: str, named: bool
) -> None:
    places = {f"|train.py:5 step: {line}": 35_000, "|train.py:4 step: loss()": 965_000}
    places = {place: 20 * us for place, us in places.items()}  # 4,000 samples
    codes = [cause.code for cause in diagnose_session(with_step_stacks(**places)).causes]
    assert ("PIPE014" in codes) == named


@pytest.mark.parametrize(("python", "named"), [(40, True), (5, False)])
def test_python_that_a_graph_calls_is_named_where_the_graph_waits_for_it(
    python: int, named: bool
) -> None:
    session = unseen_loading(kind="tf")
    session.runs[0].stacks = {
        "wait||map.py:16 featurise: out[k] += 1": python,
        "wait||": 100 - python,
    }
    for run in session.arm(Arm.WARM):
        run.totals["hidden_cpu_ns"] = int(120 * 30 * MS)  # a thread that computes while one waits
    cause = cause_of(session, "PIPE028")
    assert ("map.py:16 featurise" in cause.cause) == named
    assert ("take turns for one interpreter lock" in cause.next) == named


@pytest.mark.parametrize(
    ("generator", "elements", "words"),
    [
        (True, 64.0, "let the generator give whole batches"),
        (False, 1024.0, "each of the 1024 elements of a batch pays for a call of its own"),
        (False, 64.0, "name its parts"),  # half a millisecond of each element is work
    ],
)
def test_a_graph_that_pays_for_calls_is_told_to_make_fewer(
    generator: bool, elements: float, words: str
) -> None:
    session = unseen_loading(kind="tf", generator=generator)
    row = {"operation": "Map", "ms": 9.0, "total_ms": 9.0, "first_ms": 1.0, "visits": elements}
    session.probes.prefixes = [row]  # type: ignore[list-item]
    cause = cause_of(session, "PIPE028")
    assert words in cause.next


@pytest.mark.parametrize(
    ("line", "words"),
    [("pd.read_csv(path, nrows=1)", "parse it once"), ("Image.open(path)", "decode at a reduced")],
)
def test_text_that_is_parsed_for_each_sample_is_told_to_be_kept_as_arrays(
    line: str, words: str
) -> None:
    session = session_of(lambda j: 60.0)
    session.runs[0].stacks[f"worker|decode|rows.py:7 Rows.__getitem__: {line}"] = 100
    cause = first_cause(session, "PIPE002")
    assert words in cause.next


def test_what_a_loader_in_the_process_costs_the_step_goes_with_its_work() -> None:
    """30 ms of loading, and a step of 20 ms that takes 35 beside it."""
    session = unseen_loading(measured_step=35.0, kind="iterable")
    session.runs[0].stacks["wait|transform|text.py:3 tokenise: ids.append(word)"] = 100
    found = diagnose_session(session)
    assert found.causes[0].code == "PIPE003"
    assert found.causes[0].share.value == pytest.approx(1 - 20 / 65, abs=0.01)


@pytest.mark.parametrize(
    ("helped", "words"),
    [
        (None, "let more of its calls wait at a time"),
        (True, "let more of its calls wait at a time"),
        (False, "its calls share, as more calls at a time were tried and did not help"),
    ],
)
def test_a_python_function_of_a_graph_that_only_waits_is_told_from_one_that_computes(
    helped: bool | None, words: str
) -> None:
    session = unseen_loading(kind="tf")
    session.runs[0].stacks = {"wait||map.py:16 fetch: session.get(url)": 100}
    if helped is not None:
        row = {"name": "parallel map", "why": "", "how": "", "baseline_ms": 50.0, "spread": 0.03}
        session.probes.interventions = [row | {"period_ms": 40.0 if helped else 49.0}]  # type: ignore[list-item]
    cause = cause_of(session, "PIPE028")
    assert "mostly blocked" in cause.cause
    assert words in cause.next
    assert "interpreter lock" not in cause.next


@pytest.mark.parametrize(("own", "holds"), [(21, True), (38, False)])
def test_a_thread_that_holds_the_lock_is_told_from_threads_that_lack_cores(
    own: int, holds: bool
) -> None:
    rows = schedule(120, 0, 0, 30.0, lambda j: 0.1)
    session = made_session(rows, 20.0, kind="iterable")
    session.plan = replace(session.plan, arms=(Arm.RESIDENT, Arm.SHADOW, Arm.WARM))
    for run in session.arm(Arm.WARM):
        run.totals |= {"window_ns": 20 * MS, "own_cpu_ns": own * MS, "main_cpu_ns": 15 * MS}
        shadow = made_run(rows, Arm.SHADOW)
        shadow.block, shadow.warmup = run.block, run.warmup
        session.runs.append(shadow)
    cause = diagnose_session(session).causes[0]
    assert (cause.code, cause.share.value) == ("PIPE012", pytest.approx(1 / 3, abs=0.01))
    assert ("holds the interpreter lock" in cause.cause) == holds
    assert ("worker processes" in cause.next) == holds


def test_work_beside_the_step_that_the_user_marked() -> None:
    session = session_of(lambda j: 5.0)
    add_spans(session, "step", "loop", 12.0)
    # with arms it was this program that marked it, and the rest is what it costs itself
    first_cause(session, "PIPE000")
    session.runs = session.arm(Arm.WARM)[:1]
    first_cause(session, "PIPE014", near(8 / 20, 0.02))


def with_step_stacks(**microseconds: int) -> Session:
    """A healthy session whose step was sampled at places given as stage__place."""
    session = session_of(lambda j: 5.0, n=30)
    add_stacks(session, {f"step|{k}": v for k, v in microseconds.items()})
    return session


FSYNC = "train.py:9 keep: os.fsync(f.fileno()) < step"


def test_a_stage_is_as_sure_as_the_stacks_that_could_name_it() -> None:
    """Nine of ten stacks lie in a stage that its hook has timed, and more in the trainer's wait."""
    session = session_of(lambda j: 60.0, stages={"transform": 0.9, "getitem": 0.1})
    at = {"transform|a.py:1": 900, "decode|a.py:2": 50, "read|a.py:3": 50}
    stacks = {f"worker|{place}": 5000 * n for place, n in at.items()}
    add_stacks(session, stacks | {"wait||train.py:9": 5000 * 1000})
    labels = gather(session).labels
    assert labels.by_stage == {"decode": 0.5, "read": 0.5}
    assert labels.samples == pytest.approx(100)
    assert Labels({"read": 1.0000000000000002}, samples=300).error("read") == 0.0


def test_an_interval_holds_what_another_session_would_show() -> None:
    rows = schedule(120, 0, 0, 20.0, lambda j: 20.0)
    for row in rows:
        row["stages"] = {"transform": row["fetch"]}
    for jitter, least in ((0.0, 0.004), (0.5, 0.015)):
        session = made_session(rows, 20.0, jitter=jitter, kind="iterable")
        (cause,) = diagnose_session(session).causes
        # 2 % from run to run: the mean of five more differs from that of these five
        assert least < cause.share.half_width < 4 * least


def test_side_work_counts_under_every_label_that_its_line_got() -> None:
    places = {f"read|{FSYNC}": 990_000, f"|{FSYNC}": 18_000, "|train.py:4 step: a @ b": 2_000_000}
    cause = diagnose_session(with_step_stacks(**places)).causes[0]
    assert (cause.code, cause.evidence["at"]) == ("PIPE014", FSYNC)
    assert cause.share.value == pytest.approx(0.335, abs=0.01)
    # 600 samples: a third is known to about 4 %
    assert cause.share.low == pytest.approx(0.335 - 0.038 - 0.007, abs=0.01)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("train.py:5 augment: x = x[:, ::-1] < step", "preparing data"),
        ("train.py:5 Jitter.__call__: x *= 1.1 < step", "preparing data"),
        ("train.py:5 step: x = self.transform(x)", "preparing data"),
        ("train.py:5 step: np.save(path, weights)", "side work"),
        ("train.py:5 after: os.fsync(file.fileno()) < step", "side work"),
    ],
)
def test_preparation_in_the_training_process_is_named_with_its_line(place: str, said: str) -> None:
    places = {f"transform|{place}": 300_000, "|train.py:4 step: a @ b": 700_000}
    cause = first_cause(with_step_stacks(**places), "PIPE014")
    assert f"on {said}: {place}" in cause.cause


@pytest.mark.parametrize(
    "place",
    [
        "model.py:5 crop_features: x = x[:, 1:] < Net.forward < step",
        "model.py:5 Net.forward: x = self.transform(x)",
        "train.py:7 step: loss.backward()",
        "train.py:7 AugmentedTrainer.__call__: y = a @ b",
    ],
)
def test_what_a_model_does_is_no_side_work(place: str) -> None:
    found = diagnose_session(with_step_stacks(**{f"transform|{place}": 900_000}))
    assert codes_of(found) == ["PIPE000"]
    assert "100% of it at" in found.causes[0].cause


def with_first_pass(cost: Any, later: Any = lambda j: 5.0, **totals: int) -> Session:
    """A session whose first pass had these costs (ms a batch); `totals` of its machine."""
    session = session_of(later)
    first_pass = session_of(cost).arm(Arm.WARM)[0]
    first_pass.arm, first_pass.warmup = Arm.PILOT, 0
    first_pass.totals |= totals
    session.runs.append(first_pass)
    return session


@pytest.mark.parametrize(
    ("read_bytes", "totals", "code"),
    [
        (2_000_000, {"device_bytes": 0}, "PIPE016"),
        (0, {"device_bytes": 0, "major_faults": 3 * 120}, "PIPE016"),
        (0, {"device_bytes": 0}, "PIPE031"),
        (20_000, {"device_bytes": 0}, "PIPE031"),
        (0, {"device_bytes": 0, "others_ns": 120 * 1 * MS}, "PIPE031"),
        (0, {"device_bytes": 0, "others_ns": 120 * 9 * MS}, "PIPE000"),  # may be theirs
        (-1, {}, "PIPE000"),  # nobody knows what was read
    ],
)
def test_a_longer_first_pass_is_the_files_doing_only_where_the_device_was_read(
    read_bytes: int, totals: dict[str, int], code: str
) -> None:
    session = with_first_pass(lambda j: 60.0, **totals)
    column = session.arm(Arm.PILOT)[0].batches["read_bytes"]
    column[:] = type(column)("q", [read_bytes] * len(column))
    found = diagnose_session(session)
    assert found.verdict == "not input-bound"
    assert found.causes[0].code == code


def test_first_use_has_its_line_and_the_same_steps_later() -> None:
    session = with_first_pass(lambda j: 60.0, device_bytes=0)
    pilot = session.arm(Arm.PILOT)[0]
    pilot.stacks = {"worker||": 900, "worker|decode|data.py:9 fill: x": 80, "worker||data.py:3": 9}
    cause = diagnose_session(session).causes[0]
    assert cause.evidence["at"] == "data.py:9 fill: x"
    assert (cause.evidence["first_ms"], cause.evidence["warm_ms"]) == pytest.approx((10, 0), abs=1)


def half(j: int) -> float:
    return 400.0 if j < 55 else 5.0


@pytest.mark.parametrize(
    ("cost", "later", "config"),
    [
        (half, lambda j: 5.0, {}),  # a begin that is slow costs a training nothing
        (lambda j: 60.0, lambda j: 60.0 if j < 8 else 5.0, {"one_shot": True}),
        (lambda j: 60.0 - j / 3, lambda j: 60.0 - j / 3, {}),  # heavy at its begin, each time
    ],
)
def test_a_slow_begin_is_no_first_use(cost: Any, later: Any, config: dict[str, Any]) -> None:
    session = with_first_pass(cost, later, device_bytes=0)
    for run in session.arm(Arm.WARM):
        run.config |= config
    assert "PIPE031" not in codes_of(diagnose_session(session))


def test_each_stage_of_the_loading_is_a_row_and_the_largest_a_cause() -> None:
    stages = {"transform": 0.5, "decode": 0.4, "read": 0.09, "collate": 0.01}
    session = session_of(lambda j: 60.0, stages=stages, workers=0, prefetch=0)
    for run in session.runs:
        run.config["kind"] = "iterable"  # which has no workers to be advised
    found = diagnose_session(session)
    assert codes_of(found) == ["PIPE003"]
    loading = found.as_results()["loading"]
    assert [row["stage"] for row in loading["rows"]] == ["transform", "decode", "read"]
    assert sum(row["share"] for row in loading["rows"]) == near(0.99)
    assert sum(row["ms"] for row in loading["rows"]) == pytest.approx(0.99 * 60, abs=0.1)
    assert loading["sentence"] == "Loading a batch takes 60 ms: 50% is transform (blocked)."


def test_the_stall_is_exact_and_results_follow_the_contract() -> None:
    found = diagnose_session(session_of(lambda j: 60.0))
    assert found.stall.value == pytest.approx(1 - 20 / 30, abs=0.01)
    assert found.verdict == "input-bound high"
    results = found.as_results()
    assert {"verdict", "stall", "causes", "arms"} <= set(results)
    assert {"share", "low", "high"} <= set(results["stall"])
    assert {"code", "cause", "share", "evidence", "next"} <= set(results["causes"][0])
    assert results["arms"]["H"] is None  # not measured is not 0
    # a recorded loop without arms is judged by what it waited
    session = session_of(lambda j: 60.0)
    session.runs = session.arm(Arm.WARM)[:1]
    loop = diagnose_session(session)
    assert loop.evidence.observed
    assert loop.stall.value == near(1 / 3)
    assert "input wait 33.3%" in loop.sentence
    with pytest.raises(ProfileError, match="record more"):
        diagnose_session(Session())


def test_work_that_is_the_same_every_epoch_is_priced() -> None:
    session = session_of(lambda j: 60.0, stages={"decode": 0.9, "getitem": 0.1})
    session.probes.repeatable = {"same": True, "bytes": 150_000.0, "samples": 100_000}
    advice = {row.stage: row.advice for row in diagnose_session(session).loading.rows}
    assert "(15.00 GB as np.save" in advice["repeated preprocessing"]
    session.probes.repeatable["same"] = False
    rows = diagnose_session(session).loading.rows
    assert "repeated preprocessing" not in [row.stage for row in rows]


def test_batches_that_wait_for_an_earlier_one_are_a_row_of_the_loading() -> None:
    session = session_of(irregular(250.0, 8.0, 10, 101), workers=3, n=400)
    assert "in-order delivery" in [row.stage for row in diagnose_session(session).loading.rows]
    for run in session.arm(Arm.WARM):
        run.config["in_order"] = False
    assert "in-order delivery" not in [row.stage for row in diagnose_session(session).loading.rows]


def test_a_hook_that_timed_little_of_a_stage_does_not_tell_where_it_goes() -> None:
    batches = SimpleNamespace(stage_cpu={"read": np.ones(1)}, stages={"read": np.ones(1)})
    case = SimpleNamespace(batches=batches, stages={"read": np.full(1, 50.0)})
    shares = LoadingShares(0.1, 0.0, 0.9, 1.0, known=True)
    evidence: Any = SimpleNamespace(cases=[case], loading_shares=lambda: shares)
    assert loading_table._how(evidence, "read") == "blocked"
    case.stages["read"] = np.full(1, 1.5)
    assert loading_table._how(evidence, "read") == "CPU"


def test_all_changes_together_are_one_replay() -> None:
    stages = {"transform": 0.9, "getitem": 0.1}
    session = session_of(lambda j: 38.0, workers=1, stages=stages)
    found = diagnose_session(session)
    assert codes_of(found) == ["PIPE003", "PIPE006"]
    together = found.together
    assert together.before == near(18 / 38)
    assert together.left.value == near(0.0)
    assert together.sentence == "Both changes together: data stall 47% -> 0% of the step (replay)."


def test_a_setting_that_was_tried_is_worth_what_was_measured() -> None:
    session = session_of(lambda j: 38.0, workers=1)
    session.probes.promised = {"workers": 21.5}
    for run in session_of(lambda j: 1.0, step=25.0).arm(Arm.WARM):
        run.arm = Arm.TRIAL
        session.runs.append(run)
    cause = first_cause(session, "PIPE006", near(1 - 25 / 38))
    assert "tried: 38.00 ms a step became 25.00, predicted 21.50" in cause.cause
    assert cause.tried
    session = session_of(lambda j: 20.0, workers=0)  # a setting that made it slower is no cause
    for run in session_of(lambda j: 1.0, workers=1, step=60.0).arm(Arm.WARM)[:1]:
        run.arm = Arm.TRIAL
        session.runs.append(run)
    assert "PIPE006" not in codes_of(diagnose_session(session))


def test_an_advice_that_was_not_tried_says_so() -> None:
    session = session_of(lambda j: 38.0, workers=1)
    session.plan = replace(session.plan, steps=40, warmup=10)
    found = {c.code: c for c in diagnose_session(session).causes}
    assert "num_workers=2 (predicted, not tried: 2 more seconds)" in found["PIPE006"].next
    assert not found["PIPE006"].tried


def test_a_first_worker_is_predicted_with_what_its_hand_over_costs() -> None:
    """2 ms of loading beside a step of 3 ms: a hand-over of 5 ms makes it slower, not faster."""
    cheap, dear = (session_of(lambda j: 2.0, workers=0, step=3.0) for _ in range(2))
    for run in dear.arm(Arm.WARM):
        run.totals |= {"hand_over_ns": 5 * MS, "pickling_ns": 0}
    codes = [[cause.code for cause in diagnose_session(s).causes] for s in (cheap, dear)]
    assert ["PIPE006" in found for found in codes] == [True, False]
    cause = cause_of(session_of(lambda j: 200.0, workers=1, cpu=200.0), "PIPE006")
    assert "would leave 80% of the step waiting" in cause.cause  # more workers are not enough


def with_empty_loader(session: Session, wait: float) -> Session:
    rows = [{"entry": 20.0 * i, "got": 20.0 * i + wait, "end": 20.0 * i + 20} for i in range(40)]
    session.runs.append(made_run(rows, Arm.NULL))
    return session


def test_what_is_beyond_an_empty_loader_decides_near_the_threshold_and_of_a_short_step() -> None:
    unsure = session_of(lambda j: 5.0, jitter=0.1, overhead=1.0)
    assert diagnose_session(unsure).verdict == "inconclusive"
    found = diagnose_session(with_empty_loader(unsure, 0.95))
    assert found.verdict == "not input-bound"
    assert found.stall.value == pytest.approx(1 / 21, abs=0.01)  # as it was measured
    assert conditions_of(found)["empty loader"] == "4.5% of the step by itself"
    short = session_of(lambda j: 5.0, step=10.0, overhead=1.0)
    plain = diagnose_session(short)
    assert plain.verdict == "input-bound moderate"
    assert plain.as_results()["stall_with_null"] is None
    found = diagnose_session(with_empty_loader(short, 1.0))
    assert found.verdict == "not input-bound"
    assert found.stall.value == near(0.0)
    assert conditions_of(found)["empty loader"].endswith("(9.1% with it)")
    assert found.as_results()["stall_with_null"]["share"] == near(1 / 11, 0.002)


def test_a_hand_over_that_is_surely_above_the_threshold_is_no_fault_of_the_loader() -> None:
    session = session_of(lambda j: 5.0, overhead=1.1)
    assert diagnose_session(session).verdict == "input-bound moderate"
    found = diagnose_session(with_empty_loader(session, 0.98))
    assert not found.evidence.floor_ns
    assert found.verdict == "not input-bound"
    assert conditions_of(found)["empty loader"] == "4.6% of the step by itself"
    slow = diagnose_session(with_empty_loader(session_of(lambda j: 45.0), 0.98))
    assert slow.verdict == "input-bound moderate"  # the loader's own 11 %


def test_bytes_in_the_pipe_are_a_heavy_batch() -> None:
    session = session_of(lambda j: 5.0, overhead=40.0, receive=2.0)
    assert "late hand-over" in [row.stage for row in diagnose_session(session).loading.rows]
    session.probes.piped_bytes = 25e6
    first_cause(session, "PIPE005")


def test_the_nth_sample_of_a_nameless_stream_is_no_straggler() -> None:
    def cost(j: int) -> float:
        return 260.0 if j % 12 == 5 else 4.0

    rows = schedule(120, 1, 2, 20.0, cost, slow=lambda j: cost(j) - 3.0)
    known = made_session(rows, 20.0, workers=1, prefetch=2)
    stream = made_session(rows, 20.0, workers=1, prefetch=2, iterable_dataset=True)
    first_cause(known, "PIPE008")
    first_cause(stream, "PIPE009")


def test_a_cause_whose_interval_holds_nothing_is_never_the_first() -> None:
    def cause(code: str, value: float, low: float, high: float) -> Diagnosis:
        return Diagnosis(code, "", Interval(value, low, high, 3), {}, "")

    wide, sure, most = (
        cause("PIPE009", 0.72, -0.91, 2.35),
        cause("PIPE003", 0.2, 0.1, 0.3),
        cause("PIPE002", 0.25, 0.05, 0.6),
    )
    rows = list(enumerate([wide, sure, most]))
    found = verdicts.ranked(rows, Interval(0.6, 0.3, 0.9, 3))
    assert [c.code for c in found] == ["PIPE003", "PIPE002", "PIPE009"]


def test_other_programs_change_no_verdict() -> None:
    session = session_of(lambda j: 23.0, workers=1, cpu=4.0, queued=18.0)
    assert diagnose_session(session).verdict == "input-bound moderate"
    session.environment |= {"others_cpu": 0.4, "steal": 0.05}
    assert diagnose_session(session).verdict == "input-bound moderate"


def test_what_recording_costs_is_no_stall() -> None:
    """A loader in the trainer, 0.2 ms steps, 0.02 ms of recorder around each of them."""
    rows = schedule(80, 0, 0, 0.2, lambda j: 0.06)
    session = made_session(rows, 0.22, workers=0, prefetch=0)
    assert diagnose_session(session).stall.value == pytest.approx(0.154, abs=0.01)
    session.probes.recording_ns = 20_000.0
    found = diagnose_session(session)
    assert found.stall.value == pytest.approx(1 - 0.2 / 0.24, abs=0.01)
    assert found.as_results()["recording_share"] == pytest.approx(0.02 / 0.26, abs=0.005)


def test_where_no_stall_is_sure_no_unsure_cause_comes_first() -> None:
    found = diagnose_session(session_of(lambda j: 45.0, n=60, jitter=4.0))
    assert found.verdict == "inconclusive"
    lows = [cause.share.low for cause in found.causes]
    assert lows == sorted(lows, key=lambda low: low <= 0)
    wild = diagnose_session(session_of(lambda j: 300.0, n=60, jitter=40.0))
    assert all(cause.share.high <= 1 for cause in wild.causes)  # none is worth more than the step


def test_the_loader_keeps_up_only_where_no_stall_can_be() -> None:
    found = diagnose_session(session_of(lambda j: 10.0, n=60, jitter=1.2))
    assert found.verdict == "inconclusive"
    assert "PIPE000" not in codes_of(found)
    healthy = diagnose_session(session_of(lambda j: 10.0))
    assert (healthy.verdict, codes_of(healthy)) == ("not input-bound", ["PIPE000"])
    assert "the loader keeps up" in healthy.causes[0].cause


def test_a_rule_that_raises_is_a_value_and_the_others_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_of(lambda j: 60.0, stages={"decode": 0.9, "getitem": 0.1})
    whole = diagnose_session(session).as_results()
    assert whole["failed_rules"] == []
    for rules in ("INPUT_RULES", "COMPUTE_RULES"):
        monkeypatch.setattr(verdicts, rules, (broken_rule, *getattr(verdicts, rules)))
    results = diagnose_session(session).as_results()
    assert [c["code"] for c in results["causes"]] == [c["code"] for c in whole["causes"]]
    assert results["verdict"] == whole["verdict"]
    failed = results["failed_rules"]
    assert [f["rule"] for f in failed] == ["broken_rule", "broken_rule"]
    assert (failed[0]["error"], failed[0]["text"]) == ("ZeroDivisionError", "no batch at all")
    assert failed[0]["at"].startswith("fakes.py:")
    monkeypatch.setattr(verdicts.rare, "main_gc", None)  # what a rule of ours calls is broken
    failed = diagnose_session(session).as_results()["failed_rules"]
    (ours,) = (row for row in failed if row["rule"] == "collector_pauses")
    assert ours["at"].startswith("profiling/diagnose/rules/rare.py:")
    assert len(set(NAMES.values())) == len(NAMES)  # codes are unique by name
