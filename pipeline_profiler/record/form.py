"""What a value read from a file must look like: small forms that are put together.

A form is a function of a value and of where it stands; it returns nothing, or raises FormError
with the place and what was expected there. Written out instead of taken from a library, because a
recorder needs the standard library alone. Unknown keys are no error: a later version adds some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Form: TypeAlias = Callable[[Any, str], None]

LARGEST = 2**62  # beyond it sums of int64 columns would wrap around
DEEPEST = 40  # nested lists and objects: readers of a session walk it recursively
QUOTED = 40  # characters of a wrong value that a message repeats


class FormError(ValueError):
    """The text names the place and what was expected there."""


def refuse_form(at: str, expected: str, value: Any) -> FormError:
    """The error for a value that is something else."""
    kind = {dict: "an object", list: "a list", str: "text", type(None): "null"}.get(type(value))
    quoted = repr(value)[:QUOTED] if isinstance(value, (str, int, float)) else ""
    return FormError(f"{at} is {' '.join(filter(None, [kind, quoted]))}, not {expected}")


def number(value: Any, at: str) -> None:
    """A finite number of a size that can be computed with; true and false are none."""
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise refuse_form(at, "a number", value)


def above_zero(value: Any, at: str) -> None:
    """A number that may be divided by."""
    number(value, at)
    if value <= 1e-9:
        raise refuse_form(at, "a number above 0", value)


def text(value: Any, at: str) -> None:
    """A string."""
    if not isinstance(value, str):
        raise refuse_form(at, "text", value)


def flag(value: Any, at: str) -> None:
    """True or false."""
    if type(value) is not bool:
        raise refuse_form(at, "true or false", value)


def name_or_number(value: Any, at: str) -> None:
    """A sample's key: its index or its name."""
    if not isinstance(value, str):
        whole()(value, at)


def whole(least: int = -LARGEST, most: int = LARGEST) -> Form:
    """A whole number between two ends."""

    def check(value: Any, at: str) -> None:
        if type(value) is not int or not least <= value <= most:
            limits = "" if least == -LARGEST else f" from {least} to {most}"
            raise refuse_form(at, f"a whole number{limits}", value)

    return check


def maybe(form: Form) -> Form:
    """Null, or the form."""

    def check(value: Any, at: str) -> None:
        if value is not None:
            form(value, at)

    return check


def several(form: Form, length: int | None = None) -> Form:
    """A list of values of one form, of a fixed length where one is given."""

    def check(value: Any, at: str) -> None:
        if type(value) is not list:
            raise refuse_form(at, "a list", value)
        if length is not None and len(value) != length:
            raise FormError(f"{at} has {len(value)} entries, not {length}")
        for i, entry in enumerate(value):
            form(entry, f"{at}[{i}]")

    return check


def by_name(form: Form) -> Form:
    """An object whose values are all of one form."""

    def check(value: Any, at: str) -> None:
        if type(value) is not dict:
            raise refuse_form(at, "an object", value)
        for key, entry in value.items():
            form(entry, f"{at}.{key[:QUOTED]}")

    return check


def fields_of(needed: Mapping[str, Form], known: Mapping[str, Form] | None = None) -> Form:
    """An object with these keys; those of `known` may be missing, others are only `anything`."""
    forms = {**needed, **(known or {})}

    def check(value: Any, at: str) -> None:
        if type(value) is not dict:
            raise refuse_form(at, "an object", value)
        missing = [key for key in needed if key not in value]
        if missing:
            raise FormError(f"{at} has no {missing[0]}")
        for key, entry in value.items():
            forms.get(key, anything)(entry, f"{at}.{key[:QUOTED]}" if at else key[:QUOTED])

    return check


def anything(value: Any, at: str) -> None:
    """JSON that can be shown: finite numbers of a sane size, not nested too deeply."""
    waiting = [(value, 0)]
    while waiting:
        entry, depth = waiting.pop()
        if depth > DEEPEST:
            raise FormError(f"{at} is nested more than {DEEPEST} deep")
        if type(entry) is dict:
            waiting += [(inner, depth + 1) for inner in entry.values()]
        elif type(entry) is list:
            waiting += [(inner, depth + 1) for inner in entry]
        elif type(entry) in (int, float) and not _is_sane(entry):
            raise refuse_form(at, "a number that can be shown", entry)


def _is_sane(entry: float) -> bool:
    return math.isfinite(entry) and abs(entry) < 2 * LARGEST
