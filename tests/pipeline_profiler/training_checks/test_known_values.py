"""Known values of the checks on a training: jitter at planted rates, coins, what a resume loses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.checking.check import Judgement
from pipeline_profiler.checking.runner import run_check
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.training_subject import Training, TrainingSubject
from pipeline_profiler.training_checks import baselines
from pipeline_profiler.training_checks.baselines import Baselines, behind, share_interval
from pipeline_profiler.training_checks.evaluation import reads_answers
from pipeline_profiler.training_checks.prediction_dynamics import (
    PredictionDynamics,
    follow_predictions,
    jitter_of,
)
from pipeline_profiler.training_checks.resume import Resume

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def line(rate: float) -> Any:
    """y = wx with x = +1 and -1: the loss has curvature 2, so a step keeps 1 - 2 rate of w."""

    def make() -> Training:
        inputs = torch.tensor([[1.0], [-1.0]]).repeat(8, 1)
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        return Training(model, [(inputs, inputs)] * 4, torch.nn.MSELoss(), optimizer)

    return make


@pytest.mark.parametrize(
    ("rate", "jitter", "judgement", "said"),
    [
        (1e-6, 0.0, Judgement.FAIL, "too low"),
        (0.05, 0.0, Judgement.PASS, ""),
        (0.75, 1.0, Judgement.PASS, ""),  # it overshoots, and the loss falls all the same
        (0.99999, 1.0, Judgement.FAIL, "too high"),
        (1.5, 1.0, Judgement.FAIL, "too high"),
    ],
)
def test_jitter_at_planted_learning_rates(
    rate: float, jitter: float, judgement: Judgement, said: str
) -> None:
    answer = run_check(PredictionDynamics(), TrainingSubject(line(rate))).answer
    assert answer.evidence["jitter"] == pytest.approx(jitter, abs=0.02)
    assert answer.judgement is judgement, answer.sentence
    assert answer.evidence.get("learning_rate", "") == said


def test_predictions_that_do_not_move_are_another_check_s_matter() -> None:
    answer = run_check(PredictionDynamics(), TrainingSubject(line(0.0))).answer
    assert answer.judgement is Judgement.CANNOT_TELL
    assert "do not move in 40 steps" in answer.sentence


def test_the_series_are_kept_for_the_app() -> None:
    series = follow_predictions(TrainingSubject(toy_training), steps=6)
    assert len(series["losses"]) == 7
    assert len(series["changes"]) == 6
    assert len(series["examples"]) == 8
    assert all(len(row) == 7 for row in series["examples"])
    assert all(0 <= value <= 1 for row in series["examples"] for value in row)


def test_jitter_of_drift_walk_and_swing() -> None:
    assert jitter_of([1.0] * 10) == (0.0, 0.0)
    assert jitter_of([-1.0] * 10) == (1.0, 0.0)
    jitter, error = jitter_of([0.1, -0.1] * 8)
    assert jitter == pytest.approx(0.5)
    assert 0 < error < 0.02


def test_examples_on_which_two_models_differ_are_coins() -> None:
    ours, theirs = np.zeros(10), np.ones(10)
    assert behind(ours, theirs) == pytest.approx(2**-10)
    assert behind(theirs, ours) == 1
    assert behind(ours, ours) == 1
    mean, low, high = share_interval(np.array([1.0] * 8 + [0.0] * 2))
    assert (mean, low, high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-3)  # Wilson


def test_equal_models_are_not_told_apart_by_chance() -> None:
    rng = np.random.default_rng(0)
    tries = [behind(*rng.integers(0, 2, (2, 60)).astype(float)) for _ in range(300)]
    assert min(tries) > 1e-4
    assert (np.array(tries) < 0.05).mean() < 0.08
    errors = [behind(*-(rng.normal(size=(2, 40)) ** 2)) for _ in range(300)]
    assert (np.array(errors) < 0.05).mean() < 0.08


def test_baselines_stand_beside_the_model_with_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "STEPS", 12)
    answer = run_check(Baselines(), TrainingSubject(toy_training)).answer
    table = answer.evidence["baselines"]
    assert list(table) == [
        "the model", "majority", "linear on pixels", "tiny network", "exchanged inputs",
    ]  # fmt: skip
    assert all(low <= mean <= high for low, mean, high in table.values())
    assert table["exchanged inputs"][1] < table["linear on pixels"][1]


def test_what_a_resumed_run_has_lost_is_named() -> None:
    planted = {example.name: example.make for example in Resume.PLANTED}
    beside = run_check(Resume(), TrainingSubject(planted["a value beside the state"])).answer
    assert "model.level" in beside.sentence
    schedule = run_check(Resume(), TrainingSubject(planted["a schedule without state"])).answer
    assert "schedule.number" in schedule.sentence


class Stateful:
    """A loader that knows its place, or (broken) forgets it."""

    def __init__(self, broken: bool) -> None:
        self.broken, self.at = broken, 0
        pixels = torch.linspace(-1, 1, 4 * 16 * 192).reshape(4, 16, 3, 8, 8)
        self.batches = [(p, torch.arange(16) % 4) for p in pixels]

    def __iter__(self) -> Any:
        for number in range(self.at, 4):
            self.at = number + 1
            yield self.batches[number]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = 0 if self.broken else state["at"]


@pytest.mark.parametrize("broken", [False, True])
def test_a_loader_that_knows_its_place_is_resumed(broken: bool) -> None:
    subject = TrainingSubject(lambda: toy_training(loader=Stateful(broken)))
    answer = run_check(Resume(), subject).answer
    assert (answer.judgement is Judgement.FAIL) is broken, answer.sentence
    assert math.isfinite(answer.evidence["apart"])


def test_a_metric_that_reads_the_answers_is_at_its_best_for_perfect_ones() -> None:
    assert reads_answers(1.0, (1.0, 0.5, 0.2))  # one other order may be right by chance
    assert reads_answers(0.0, (0.4, 0.5, 0.2))  # a loss
    assert reads_answers(math.nan, (0.4, 0.5, 0.2))
    assert not reads_answers(0.3, (0.4, 0.5, 0.2))
    assert not reads_answers(0.3, (0.3, 0.3, 0.3))
