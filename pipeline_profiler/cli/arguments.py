"""Options that several commands share, and the checks of arguments before anything is measured.

A measurement takes minutes, and a wrong option is known at once: each check raises ProfileError
with the fix.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from dataset_preflight.foundation.terminal import nearest_name
from pipeline_profiler.cli.output import check_session_output
from pipeline_profiler.cli.settings import MeasureSettings
from pipeline_profiler.cli.user_code import spec_file
from pipeline_profiler.profiling.record.session import ProfileError

PYTHON_HELP = "Python of your training, or the folder of its environment (default: this Python)"
YES_HELP = "run a script even if not all its writes can be discarded"
MIN_STEPS = 10
FAIL_ON_HELP = 'exit code 1 where the data stall exceeds a bound, such as "stall>20%%"'
TRY_HELP = "settings of the loader to measure: workers, prefetch, batch-size or pin; repeatable"
TRY_KEYS = {  # key of --try -> (setting of the loader, lowest value, highest value)
    "workers": ("workers", 0, 1024),
    "prefetch": ("prefetch", 1, 1024),
    "batch-size": ("batch_size", 1, 2**31),
    "pin": ("pin_memory", 0, 1),
}


def check_measuring(args: argparse.Namespace) -> None:
    """Raise ProfileError for what is wrong with the options and settings of `run`."""
    measure: MeasureSettings = args.settings.measure
    if args.step and args.emulate_step_ms is not None:
        raise ProfileError("Give --step or --emulate-step-ms, not both.")
    if measure.steps is not None and measure.steps < MIN_STEPS:
        raise ProfileError(f"measure.steps is {measure.steps}: run needs at least {MIN_STEPS}.")
    check_amount("--emulate-step-ms", args.emulate_step_ms, zero=True)
    check_amount("--seconds", args.seconds)
    files = [spec_file(args.loader), spec_file(args.step)]
    check_session_output(args.output, [name for name in files if name])
    if args.fail_on and args.trials:
        raise ProfileError("--fail-on needs a data stall, which --try does not measure.")
    if args.fail_on:
        bound(args.fail_on)


def check_amount(option: str, value: float | None, zero: bool = False) -> None:
    """Raise ProfileError unless a value is finite and above 0, or from 0 on with `zero`."""
    if value is None:
        return
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        least = "from 0 on" if zero else "above 0"
        raise ProfileError(f"{option} takes a number {least}, not {value:g}.")


def read_trials(words: Sequence[str]) -> dict[str, Sequence[int]]:
    """Return the values to try of each setting of the loader, from `workers=0,2,4` and the like."""
    trials: dict[str, Sequence[int]] = {}
    for text in words:
        key, _, listed = text.partition("=")
        if key not in TRY_KEYS:
            raise ProfileError(
                f"--try takes {', '.join(TRY_KEYS)}, such as workers=0,2,4, not '{text}'."
                f"{nearest_name(key, TRY_KEYS)}"
            )
        setting, low, high = TRY_KEYS[key]
        values = split_numbers(listed, f"--try {key}")
        if setting in trials:
            raise ProfileError(f"--try {key} is given twice: list its values with commas.")
        if not values or any(not low <= value <= high for value in values):
            raise ProfileError(f"--try {key} takes whole numbers from {low} to {high}.")
        trials[setting] = [bool(v) for v in values] if key == "pin" else values
    return trials


def split_words(text: str | None) -> list[str]:
    """'fp32, bf16' -> ['fp32', 'bf16']."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def split_numbers(text: str | None, option: str) -> list[int]:
    """'0,1,2' -> [0, 1, 2]."""
    try:
        return [int(word) for word in split_words(text)]
    except ValueError:
        raise ProfileError(f"{option} takes whole numbers with commas, not '{text}'.") from None


def bound(text: str) -> float:
    """'stall>20%' -> 0.2."""
    name, sign, value = text.replace(" ", "").partition(">")
    try:
        number = float(value.rstrip("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        number, sign = 0.0, ""
    if name != "stall" or not sign or not math.isfinite(number):
        raise ProfileError(f"--fail-on takes a bound like \"stall>20%\", not '{text}'.")
    return number
