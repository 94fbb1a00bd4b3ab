"""TRAIN014: a learning rate that starts at zero, never moves, or ends at once."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    passed,
    unclear,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.patience import Patience
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_calls import users_code
from pipeline_profiler.checking.user_training import Training

STEPS = 2000
OWN_STEPS, OWN_SECONDS = 100, 6.0
ZERO = 1e-12


class Schedule(Check):
    """What the learning rate does over the first 2,000 steps.

    ## What it does
    Steps the schedule alone (no training) 2,000 times and reads the learning rates. A schedule that
    only your own train_step knows is watched for 100 of your steps.

    ## Why is this bad
    A warm-up counted in epochs but stepped in batches, or the other way round, leaves the rate at
    zero for a whole run, or takes it there within an epoch.

    ## How it decides
    Fails where the rate is zero in the first ten steps, falls below a hundred-thousandth of its
    largest value within 100 steps and stays there, or is negative. A rate that never moves in
    2,000 steps fails where all that a schedule of torch keeps (its counter, too) is the same after
    as before the last 1,000: what stands still will stand still. Where the counter moves it is
    "cannot tell" (a step size longer than that is right). Exact.

    ## What to do
    Count the steps of an epoch, and print the rate after each of the first ten.

    ## Limits
    Schedules that need a metric (ReduceLROnPlateau) are not stepped.
    """

    code = "TRAIN014"
    name = "schedule"

    def run(self, subject: TrainingSubject) -> Answer:
        """Step it alone."""
        training = subject.fresh()
        rates = [g["lr"] for g in training.optimizer.param_groups]
        if not any(rates) and training.schedule is None:
            return wrong(
                "The learning rate is 0.",
                ["lr=0 in the optimizer"],
                "Give a learning rate.",
                rates=rates,
            )
        if training.schedule is None and training.train_step is not None:
            return _own_steps(subject, training)
        if training.schedule is None:
            return unclear(f"There is no schedule; the learning rate is {rates[0]:g}.")
        if "Plateau" in type(training.schedule).__name__:
            return unclear("The schedule follows a metric, so it cannot be stepped alone.")
        if not isinstance(training.schedule, _torch_schedules()):
            training = subject.fresh(subject.seed)  # a copy would step what a closure holds
        series, stands = _series(training)
        numbers: dict[str, Any] = {
            "first": series[0],
            "largest": max(series),
            "last": series[-1],
            "steps": len(series),
        }
        return _judge(series, numbers, stands)

    def run_keras(self, subject: KerasSubject) -> Answer:
        """The learning rate of each step."""
        training = subject.fresh()
        rate = getattr(training.optimizer, "_learning_rate", training.optimizer.learning_rate)
        if not callable(rate):
            value = float(rate.numpy())
            if value == 0:
                return wrong("The learning rate is 0.", ["learning_rate=0"], "Give one.")
            return unclear(f"There is no schedule; the learning rate is {value:g}.")
        with users_code("The schedule"):
            series = [float(rate(number)) for number in range(STEPS + 1)]
        numbers = {"first": series[0], "largest": max(series), "last": series[-1]}
        return _judge(series, numbers | {"steps": len(series)})

    @staticmethod
    def _lambda(function: Any) -> Any:
        from torch.optim.lr_scheduler import LambdaLR

        return toy_training(schedule=lambda o: LambdaLR(o, function))

    @staticmethod
    def _restarted(place: int | None) -> Any:
        from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

        class Restarts(CosineAnnealingWarmRestarts):
            def step(self, epoch: Any = place) -> None:
                super().step(epoch)

        return toy_training(schedule=lambda o: Restarts(o, 10))

    @staticmethod
    def _hidden(batches: int) -> Any:
        """A schedule in the user's own step, moved on after so many batches."""
        from torch.optim.lr_scheduler import StepLR

        training, done = toy_training(), [0]
        schedule = StepLR(training.optimizer, 3, gamma=0.1)

        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model(batch[0]), batch[1])
            value.backward()
            optimizer.step()
            done[0] += 1
            if done[0] % batches == 0:
                schedule.step()
            return value

        training.train_step = train_step
        return training

    PLANTED = (
        Example("an epoch's stairs by the batch", lambda: Schedule._hidden(1)),
        Example("restarts that stand still", lambda: Schedule._restarted(0)),
        Example("zero for long", lambda: Schedule._lambda(lambda step: max(0, step - 500) / 1000)),
        Example("gone within an epoch", lambda: Schedule._lambda(lambda step: 0.5**step)),
    )
    HEALTHY = (
        Example("a warm-up", lambda: Schedule._lambda(lambda step: min(1, step / 500))),
        Example("an epoch's stairs", lambda: Schedule._hidden(16)),
        Example("restarts", lambda: Schedule._restarted(None)),
        Example("a rate for long", lambda: Schedule._lambda(lambda step: 1.0)),
        Example("a slow decay", lambda: Schedule._lambda(lambda step: 0.999**step)),
        Example("none", toy_training),
    )


def _torch_schedules() -> type:
    from torch.optim.lr_scheduler import LRScheduler

    return LRScheduler


def _state(schedule: Any) -> dict[str, Any]:
    """What torch's schedules keep between steps: this one, or those that its step() closes over."""
    cells = getattr(getattr(type(schedule), "step", None), "__closure__", None) or ()
    parts = [schedule, *(cell.cell_contents for cell in cells)]
    found = [vars(part) for part in parts if isinstance(part, _torch_schedules())]
    return {f"{n}.{k}": v for n, kept in enumerate(found) for k, v in kept.items() if _plain(v)}


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return isinstance(value, int | float | str | bool)


def _series(training: Training) -> tuple[list[float], bool]:
    """(rates, whether the last thousand steps changed nothing that the schedule keeps)."""
    series = [max(g["lr"] for g in training.optimizer.param_groups)]
    training.optimizer.step()  # without gradients nothing moves; torch wants it before the schedule
    middle: dict[str, Any] = {}
    for number in range(STEPS):
        if number == STEPS // 2:
            middle = _state(training.schedule)
        try:
            training.schedule.step()
        except (ValueError, RuntimeError):  # OneCycleLR ends after its own number of steps
            break
        series.append(max(g["lr"] for g in training.optimizer.param_groups))
    return series, bool(middle) and middle == _state(training.schedule)


def _own_steps(subject: TrainingSubject, training: Training) -> Answer:
    """What the learning rate does in the user's own steps, where a schedule may be hidden."""
    patience = Patience(OWN_SECONDS, subject.time_left() / 5)
    series = [max(g["lr"] for g in training.optimizer.param_groups)]
    for number in range(OWN_STEPS):
        subject.step(training, subject.batches[number % len(subject.batches)])
        series.append(max(g["lr"] for g in training.optimizer.param_groups))
        if patience.over:
            break
    steps = len(series) - 1
    if len(set(series)) == 1:
        return unclear(
            f"The learning rate is {series[0]:g}, and {steps} of your own steps leave it there."
        )
    return _judge(series, {"first": series[0], "largest": max(series), "steps": steps})


def _judge(series: list[float], numbers: dict[str, Any], stands: bool = False) -> Answer:
    top = max(series)
    if min(series) < -ZERO:
        return _failed(f"The learning rate becomes negative ({min(series):g}).", numbers)
    if top <= ZERO or max(series[1:11]) <= ZERO:
        first = next((i for i, rate in enumerate(series) if rate > ZERO), len(series))
        return _failed(f"The learning rate is 0 for the first {first} steps.", numbers)
    early = series[:101]
    gone = next(
        (
            i
            for i, rate in enumerate(early)
            if rate < 1e-5 * top and i > 0 and max(series[i:]) < 1e-5 * top
        ),
        None,
    )
    if gone is not None:
        return _failed(
            f"The learning rate is below a hundred-thousandth of {top:g} after {gone} "
            "steps, and stays there.",
            numbers,
        )
    if len(set(series)) == 1 and len(series) > STEPS and stands:
        return wrong(
            f"The learning rate stays at {top:g} for {STEPS} steps, and the schedule counts none "
            "of them.",
            [
                "step() is called with the same epoch each time",
                "step() of a wrapper does not reach the schedule",
            ],
            "Call step() without an argument, and print the learning rate.",
            **numbers,
        )
    if len(set(series)) == 1 and len(series) > STEPS:
        return unclear(
            f"The learning rate stays at {top:g} for {STEPS} steps: right if the "
            "schedule counts epochs, or waits longer.",
            "",
            **numbers,
        )
    return passed(
        f"The learning rate starts at {series[0]:g}, has its largest value {top:g}, and "
        f"is {series[-1]:g} after {len(series) - 1} steps.",
        **numbers,
    )


def _failed(text: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [
            "the schedule counts epochs and is stepped by batch, or the other way round",
            "a warm-up that begins at zero and is not stepped",
            "a wrong number of steps",
        ],
        "Print the learning rate of the first ten steps.",
        **numbers,
    )
