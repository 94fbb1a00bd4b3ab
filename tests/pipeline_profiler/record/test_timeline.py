"""The timeline: readings before, inside and after what was left out."""

from pipeline_profiler.record.timeline import Timeline


def test_readings_move_forward_by_what_was_left_out() -> None:
    line = Timeline()
    assert line.at(7) == 7
    line.leave_out(10, 30)
    line.leave_out(50, 60)
    readings = {5: 5, 10: 10, 20: 10, 30: 10, 40: 20, 50: 30, 55: 30, 60: 30, 61: 31}
    assert {reading: line.at(reading) for reading in readings} == readings


def test_a_stretch_that_overlaps_the_one_before_counts_once() -> None:
    line = Timeline()
    line.leave_out(10, 30)
    line.leave_out(20, 40)
    line.leave_out(15, 25)
    assert line.left_out == 30
    assert line.at(45) == 15
