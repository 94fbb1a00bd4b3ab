"""Which steps of a watched loop have their CPU time read, and what the others are given."""

import pytest

from pipeline_profiler.record.recorder import Recorder
from pipeline_profiler.watching.looks import Looks

STEPS = 2000


class Machine:
    """Clocks of a loop whose thread has the core for a part of the time; reads are counted."""

    def __init__(self) -> None:
        self.now = self.used = self.reads = 0

    def cpu(self) -> int:
        self.reads += 1
        return self.used

    def spend(self, wall: int, share: float) -> int:
        self.now += wall
        self.used += round(wall * share)
        return wall


def run_loop(wait: int, step: int) -> tuple[Machine, float, float]:
    """CPU reads a step, and the sum of the waits' CPU time over the true one."""
    machine = Machine()
    looks = Looks(Recorder(lambda: machine.now, machine.cpu), workers=False)
    told, unseen = 0, list[int]()
    for number in range(STEPS):
        looks.left -= 1
        if looks.left < 0:
            looks.begin(machine.now, number)
        wall = machine.spend(wait * (1 + number % 3), 0.5)
        if looks.looking:
            told += looks.delivered(wall)[0]
        else:
            unseen.append(wall)
        wall = machine.spend(step, 1.0)
        if looks.looking:
            looks.stepped(wall)
    told += sum(looks.waited(wall)[0] for wall in unseen)
    return machine, machine.reads / STEPS, told / (wait * STEPS)


def test_short_steps_are_looked_at_now_and_then_and_their_sum_is_right() -> None:
    _, reads, total = run_loop(100_000, 100_000)  # waits of 0.1, 0.2, 0.3 ms, half of it on a core
    assert reads < 0.5
    assert total == pytest.approx(1.0, rel=0.01)


def test_steps_of_some_milliseconds_are_all_looked_at() -> None:
    _, reads, total = run_loop(2_000_000, 8_000_000)
    assert reads == 3
    assert total == pytest.approx(1.0, rel=0.01)
