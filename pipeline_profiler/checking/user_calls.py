"""Calls into the user's code: what goes wrong there becomes a sentence with its fix.

An error of the user's code is an answer ("cannot tell: ..."), an error of ours is a broken check.
Whatever a check asks of the user goes through `users_code`, which keeps the two apart.
"""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline_profiler.measure.failure import is_own_code
from pipeline_profiler.record.errors import ProfileError

LONGEST = 200  # characters of a foreign message
KNOWN = (  # (part of the message, the fix)
    ("not compiled with CUDA", "it asks for a GPU: choose the device by torch.cuda.is_available()"),
    ("No CUDA GPUs", "it asks for a GPU: choose the device by torch.cuda.is_available()"),
    ("Found no NVIDIA driver", "it asks for a GPU: choose it by torch.cuda.is_available()"),
    ("map_location", "load the checkpoint with map_location='cpu'"),
    ("out of memory", "the memory is too small: take a smaller batch"),
    ("can't allocate memory", "the memory is too small: take a smaller batch"),
    ("Expected more than 1 value per channel", "batch norm needs batches of more than one example"),
    ("mat1 and mat2 shapes", "the shape of the input does not fit the model's first linear layer"),
    ("Given groups=", "the channels of the input do not fit the first convolution: is it CHW?"),
    ("outside the valid range", "a label lies outside [0, K): K is the number of outputs"),
    ("incompatible with the layer", "the shape of the input does not fit the model"),
    ("out of bounds", "a label lies outside [0, K): K is the number of the model's outputs"),
    ("expected scalar type", "the types of input, target and weights differ: convert the input"),
    ("should be the same", "the types of input and weights differ: convert the input to float"),
)


class UsersError(ProfileError):
    """Code of the user failed while a check asked it; `details` says where."""

    def __init__(self, text: str, details: str = "") -> None:
        """A sentence, and the frames of the user's own files."""
        super().__init__(text)
        self.details = details


@contextlib.contextmanager
def users_code(what: str) -> Iterator[None]:
    """Turn what is raised inside into UsersError: `what` names the call, such as `make_model()`."""
    try:
        yield
    except UsersError:
        raise
    except TimeoutError:
        raise
    except (Exception, SystemExit) as error:
        raise UsersError(explain_error(what, error), _place(error)) from error


def explain_error(what: str, error: BaseException) -> str:
    """One sentence: what failed, how, and the fix where the error is a known one."""
    said = " ".join(str(error).split()) or "no message"
    part, fix = next(((p, f) for p, f in KNOWN if p.lower() in said.lower()), ("", ""))
    known = said.lower().find(part.lower())
    if known > LONGEST // 2:  # messages of a graph are long: show what is known of them
        said = f"... {said[known - LONGEST // 4 :]}"
    if isinstance(error, MemoryError):
        fix = "the memory is too small: take a smaller batch"
    at = _place(error)
    where = f" ({at})" if at else ""
    tail = f": {fix}." if fix else "."
    return f"{what} failed with {type(error).__name__}: {said[:LONGEST].rstrip('.')}{where}{tail}"


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own_code(frame.filename)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def call_with(function: Callable[..., Any], offers: Mapping[str, Any], what: str) -> Any:
    """Call with those of `offers` that the function has parameters for, by name or by position.

    A single parameter of another name gets the first offer. Raises UsersError for a parameter
    that nothing is offered for, and for what the function raises.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [p for p in parameters if p.kind not in kinds]
    needed = [p for p in parameters if p.default is inspect.Parameter.empty]
    unknown = [p.name for p in needed if p.name not in offers]
    if unknown and len(needed) == 1 and offers:
        first = next(iter(offers.values()))
        with users_code(what):
            return function(first)
    if unknown:
        known = f" (known: {', '.join(offers)})" if offers else ""
        raise UsersError(
            f"{what} takes the argument {', '.join(unknown)}, for which there is no value{known}: "
            "give it a default, or wrap it in a function without arguments."
        )
    values = {p.name: offers[p.name] for p in parameters if p.name in offers}
    positional = [values[p.name] for p in needed if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    named = {k: v for k, v in values.items() if not _positional_only(parameters, k)}
    with users_code(what):
        return function(*positional, **named)


def plain_augmentation(factory: Callable[..., Any]) -> dict[str, bool]:
    """`augment=False` for a factory that takes it."""
    try:
        return {"augment": False} if "augment" in inspect.signature(factory).parameters else {}
    except (TypeError, ValueError):
        return {}


def _positional_only(parameters: list[inspect.Parameter], name: str) -> bool:
    only = inspect.Parameter.POSITIONAL_ONLY
    return any(p.name == name and p.kind is only for p in parameters)
