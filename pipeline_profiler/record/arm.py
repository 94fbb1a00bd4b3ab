"""The arms: one loop, run with different data paths, and the helper runs beside them.

A member's value is the letter that session files hold. Files keep the letter because 0.1 reads and
writes it: both versions load each other's files without a translation, and a run costs one byte.
Readers of reports see `label`, never the letter.
"""

from __future__ import annotations

from enum import StrEnum


class Arm(StrEnum):
    """What feeds the step in one run."""

    RESIDENT = "D"  # batches that already lie on the device, cycled: the ceiling
    HOST = "H"  # the same batches from host memory, with CUDA
    SHADOW = "X"  # batches in hand while the real loader runs beside, its batches dropped
    WARM = "W"  # the real loader, files in the page cache
    COLD = "C"  # the real loader after its files left the page cache
    TRIAL = "Z"  # the real loader with one setting changed; in `tune`: the setting on trial
    BARE = "B"  # the warm loop without a recorder: what recording costs
    NULL = "N"  # a loader with nothing to do: the floor of what can be measured
    PILOT = "P"  # the first pass, which learns the pace
    STACKS = "S"  # a short run with stack samples, its times disturbed
    CURRENT = "A"  # `tune`: the setting kept so far
    SETTING = "T"  # `sweep` and `tune`: one run of one setting
    CALIBRATION = "K"  # `sweep`: costs without a crowd, for the prediction

    @property
    def label(self) -> str:
        """The arm in words, for reports and tables."""
        return _LABELS[self]


_LABELS = {
    Arm.RESIDENT: "resident batches",
    Arm.HOST: "host batches",
    Arm.SHADOW: "shadow loader",
    Arm.WARM: "warm loader",
    Arm.COLD: "cold loader",
    Arm.TRIAL: "trial setting",
    Arm.BARE: "bare loop",
    Arm.NULL: "empty loader",
    Arm.PILOT: "first pass",
    Arm.STACKS: "stack samples",
    Arm.CURRENT: "current setting",
    Arm.SETTING: "tested setting",
    Arm.CALIBRATION: "calibration",
}

# each arm adds one cost to the one before it, so neighbours' differences split the stall
SPLIT_ORDER = (Arm.RESIDENT, Arm.HOST, Arm.SHADOW, Arm.WARM, Arm.COLD)
KEPT_BATCHES = 8  # in hand, for the arms without a loader
REPORTED = (*SPLIT_ORDER, Arm.TRIAL)
IN_HAND = frozenset({Arm.RESIDENT, Arm.HOST})  # no loader runs
WITH_LOADER = frozenset({Arm.SHADOW, Arm.WARM, Arm.COLD, Arm.TRIAL})  # buffers fill up first
TRAINED_FROM_LOADER = frozenset(Arm) - IN_HAND - {Arm.SHADOW, Arm.NULL}
