"""The user's own code, named on the command line as `FILE.py:FUNCTION`.

What it raises is the user's to see: one sentence, and the frames of their own files.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline_profiler.profiling.measure.watchdog import said_by, user_traceback
from pipeline_profiler.profiling.record.session import ProfileError

LONGEST = 400  # characters of what an error says
EXTRAS = {"torch": "[torch]", "tensorflow": "[tf]"}


class UserCodeError(ProfileError):
    """Code of the user raised outside a measurement; `details` is the traceback of it."""

    def __init__(self, text: str, details: str) -> None:
        """A sentence and the trimmed traceback."""
        super().__init__(text)
        self.details = details


def spec_file(text: str | None) -> str:
    """The file of `FILE.py:FUNCTION`."""
    return (text or "").rpartition(":")[0]


def portable_name(text: str) -> str:
    """Return `FILE.py:FUNCTION` relative to the working folder; of a file elsewhere its name."""
    file, colon, name = text.rpartition(":")
    path = os.path.relpath(file) if file else ""
    return f"{os.path.basename(path) if path.startswith(os.pardir) else path}{colon}{name}"


def target(text: str, makes: str) -> Callable[..., Any]:
    """Return the function of `FILE.py:FUNCTION`, its folder on sys.path; `makes`: its result."""
    file, _, name = text.rpartition(":")
    refuse_empty(Path(file), name, makes)
    function = offered(file, name)
    if function is None:
        raise ProfileError(f"{file} has no function {name}.")
    return function


def offered(file: str, name: str) -> Callable[..., Any] | None:
    """Return a function of the user's file; None where the file has none of that name."""
    path = Path(file)
    if "\0" in file or not path.is_file() or path.suffix != ".py":
        text = f"{file}:{name}".lstrip(":")
        raise ProfileError(f"'{text}' is not FILE.py:FUNCTION of an existing file.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    function = getattr(_import_file(path), name, None)
    return function if callable(function) else None


def _import_file(path: Path) -> ModuleType:
    try:
        return importlib.import_module(path.stem)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "", "")
        fix = f", or pip install 'dataset-preflight{extra}'" if extra else ""
        raise ProfileError(
            f"{path} cannot be imported by {sys.executable} ({error}): name the Python of your "
            f"training with --python PATH{fix}."
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code
        raise _told(f"{path} cannot be imported", error) from None


def call_user(function: Callable[..., Any], name: str) -> Any:
    """Call a function of the user; what it raises becomes a sentence with their frames."""
    try:
        return function()
    except ProfileError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code
        raise _told(f"{name} failed", error) from None


def _told(what: str, error: BaseException) -> UserCodeError:
    said = f"{what}: {type(error).__name__}: {said_by(error)[:LONGEST]}"
    return UserCodeError(said, user_traceback(error))


# A script's `main` given for a factory would run the training at each call, so the text is read
# before the import. Only what is sure is refused: classes, lambdas, partials, imports, decorated
# functions and those that return the parts of a training pass.

PARTS = 4  # model, loader, loss and optimizer
UNREADABLE = ("import *", "globals", "setattr", "__getattr__", "exec")  # names that no text shows
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
_Functions = Mapping[str, Sequence[ast.FunctionDef]]


def refuse_empty(path: Path, name: str, makes: str) -> None:
    """Raise ProfileError if a function of a file returns nothing; `makes`: what is expected."""
    found = _functions_of(path).get(name, ())
    if found and all(map(_returns_nothing, found)):
        raise ProfileError(
            f"{path}:{name} returns nothing, so it was not run: name a function that only makes "
            f"and returns {makes}."
        )


def refuse_training(path: Path, name: str, makes: str) -> None:
    """Raise ProfileError where a function returns nothing or runs a whole training."""
    refuse_empty(path, name, makes)
    functions = _functions_of(path)
    reasons = [_why_training(function, functions) for function in functions.get(name, ())]
    if reasons and all(reasons):
        raise ProfileError(
            f"{path}:{name} {reasons[0]}, and the checks call it many times, so it was not run: "
            f"name a function that only makes and returns {makes}."
        )


def returns_training(file: str, name: str) -> bool:
    """Return whether a function returns the parts of a training: by its text, else by a call.

    Raises ProfileError for a function that returns nothing or trains; one that fails counts as a
    loader.
    """
    makes = "the loader, or the parts of a training"
    if any(map(_returns_parts, _functions_of(Path(file)).get(name, ()))):
        return True
    refuse_training(Path(file), name, makes)
    try:
        made = call_user(target(f"{file}:{name}", makes), f"{name}()")
    except UserCodeError:
        return False
    return isinstance(made, Mapping) and "model" in made


def mentioned(path: Path, names: Sequence[str]) -> list[str]:
    """Return those of the names that a file may have, without importing it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return list(names)
    if path.suffix != ".py" or any(word in text for word in UNREADABLE):
        return list(names)
    return [name for name in names if name in text]


def _functions_of(path: Path) -> _Functions:
    """Return the functions of a file by name; a name that is bound to anything else is left out."""
    try:
        with warnings.catch_warnings(action="ignore"):  # the import says them
            nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    others = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    others |= {n.name for n in nodes if isinstance(n, ast.AsyncFunctionDef | ast.ClassDef)}
    others |= {(n.asname or n.name).partition(".")[0] for n in nodes if isinstance(n, ast.alias)}
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name not in others:
            functions.setdefault(node.name, []).append(node)
    return functions


def _own_nodes(scope: ast.AST, in_loop: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield what runs with a scope itself, and whether in a loop; functions in it stay closed."""
    waiting = [(node, in_loop) for node in ast.iter_child_nodes(scope)][::-1]
    while waiting:  # a stack: long sums and chains of calls are deeper than Python calls may be
        node, looped = waiting.pop()
        yield node, looped
        if not isinstance(node, _SCOPES):
            inner = looped or isinstance(node, _LOOPS)
            waiting += [(child, inner) for child in ast.iter_child_nodes(node)][::-1]


def _returns_nothing(function: ast.FunctionDef) -> bool:
    """Return whether None, a truth value or a number is all that comes back."""
    nodes, first = [node for node, _ in _own_nodes(function)], function.body[-1]
    if function.decorator_list or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in nodes):
        return False
    if isinstance(first, ast.Raise) or (len(function.body) == 1 and isinstance(first, ast.Return)):
        return False  # the user's own sentence; it runs nothing
    values = [node.value for node in nodes if isinstance(node, ast.Return) and node.value]
    empty = (type(None), bool, int, float)
    return all(isinstance(getattr(value, "value", value), empty) for value in values)


def _why_training(function: ast.FunctionDef, functions: _Functions) -> str | None:
    """Return what shows that a function is a whole training, None where nothing does."""
    if _returns_parts(function):
        return None
    if function.name == "main":
        return "is the main function of a script"
    if function.decorator_list:
        return None
    for call, in_loop in _calls_of(function, functions, False, set()):
        place = f"(`{_last_word(call)}` in line {call.lineno})"
        if _last_word(call) == "parse_args" and not (call.args or call.keywords):
            return f"reads the command line {place}"
        if _trains(call, in_loop):
            return f"trains {place}"
    return None


def _returns_parts(function: ast.FunctionDef) -> bool:
    nodes = [node for node, _ in _own_nodes(function)]
    assigned: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault(_last_word(target), []).append(node.value)
    returned = [node.value for node in nodes if isinstance(node, ast.Return) and node.value]
    return any(_shows_parts(value, assigned) for value in returned)


def _shows_parts(value: ast.expr, assigned: Mapping[str, Sequence[ast.expr]]) -> bool:
    """Return whether an expression is seen to hold the parts of a training."""
    match value:
        case ast.Dict():
            keys = [getattr(key, "value", "model") for key in value.keys]
            return "model" in keys
        case ast.Tuple() | ast.List():
            return len(value.elts) >= PARTS
        case ast.Call():
            known = [word.arg or "model" for word in value.keywords]
            made = _last_word(value.func)
            return (made == "dict" or made[:1].isupper()) and (
                "model" in known or len(value.args) >= PARTS
            )
        case ast.BinOp(left=first, right=second) | ast.IfExp(body=first, orelse=second):
            return _shows_parts(first, assigned) or _shows_parts(second, assigned)
        case ast.Name():
            return any(_shows_parts(given, {}) for given in assigned.get(value.id, ()))
    return False


def _calls_of(
    function: ast.FunctionDef, functions: _Functions, in_loop: bool, seen: set[tuple[str, bool]]
) -> Iterator[tuple[ast.Call, bool]]:
    """Yield the calls of a function and of those of its file that it calls."""
    for node, looped in _own_nodes(function, in_loop):
        if not isinstance(node, ast.Call):
            continue
        yield node, looped
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if (name, looped) not in seen:
            seen.add((name, looped))
            for called in functions.get(name, ()):
                yield from _calls_of(called, functions, looped, seen)


def _trains(call: ast.Call, in_loop: bool) -> bool:
    """Return whether a call is of a training loop, or of a trainer that has one."""
    if not isinstance(call.func, ast.Attribute):
        return False
    verb, whose = call.func.attr, _last_word(call.func.value).lower()
    return (
        (verb == "backward" and in_loop)
        or (verb in ("fit", "train") and "trainer" in whose)
        or (verb == "fit" and any(word.arg == "epochs" for word in call.keywords))
    )


def _last_word(node: ast.expr) -> str:
    """Return `fit` of `a.fit`, and of `a.fit(...)`."""
    while isinstance(node, ast.Call):
        node = node.func
    return getattr(node, "attr", getattr(node, "id", ""))
