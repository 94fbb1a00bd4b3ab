"""The configurations: one loop with different data paths, and the helper runs beside them.

A value is the letter in session files (`profile/1`); reports show `label`.
"""

from __future__ import annotations

from enum import StrEnum


class Arm(StrEnum):
    """What feeds the step in one run; `label` is the arm in words, for reports and tables."""

    label: str

    RESIDENT = "D", "resident batches"  # they already lie on the device, cycled: the ceiling
    HOST = "H", "host batches"  # the same batches from host memory, with CUDA
    SHADOW = "X", "shadow loader"  # batches in hand, the real loader beside, its batches dropped
    WARM = "W", "warm loader"  # the real loader, files in the page cache
    TRIAL = "Z", "trial setting"  # the real loader with one changed setting
    NULL = "N", "empty loader"  # a loader with nothing to do: the floor of what can be measured
    PILOT = "P", "first pass"  # which learns the pace
    STACKS = "S", "stack samples"  # a short run with them, its times disturbed
    SETTING = "T", "tested setting"  # `--try`: one run of one setting
    ALONE = "L", "loader alone"  # no step between its batches

    def __new__(cls, letter: str, label: str = "") -> Arm:
        """Make a member that is its letter."""
        arm = str.__new__(cls, letter)
        arm._value_, arm.label = letter, label
        return arm


# each arm adds one cost to the one before it, so neighbours' differences split the stall
SPLIT_ORDER = (Arm.RESIDENT, Arm.HOST, Arm.SHADOW, Arm.WARM)
PRELOADED = 8  # in hand, for the arms without a loader
REPORTED = (*SPLIT_ORDER, Arm.TRIAL)
IN_HAND = frozenset({Arm.RESIDENT, Arm.HOST})  # no loader runs
WITH_LOADER = frozenset({Arm.SHADOW, Arm.ALONE, Arm.WARM, Arm.TRIAL})  # with buffers
TRAINED_FROM_LOADER = frozenset(Arm) - IN_HAND - {Arm.SHADOW, Arm.ALONE, Arm.NULL}

EXPOSED = "training exposed"  # the span of a step that says what its device waited, by its events
