"""Adapters make a loader watchable; one is picked by the module its type comes from.

The framework is already imported when its loader exists, so nothing is imported to find it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from pipeline_profiler.profiling.record.recorder import Source
from pipeline_profiler.profiling.record.session import ProfileError

MODULES = {"torch": "torch_loader", "tf": "tf_data", "iterable": "iterable"}


def kind_of(loader: Any) -> str:
    """'torch', 'tf' or 'iterable'; ProfileError for an object that cannot be iterated."""
    modules = [f"{base.__module__}.{base.__qualname__}" for base in type(loader).__mro__]
    if "torch.utils.data.dataloader.DataLoader" in modules:
        return "torch"
    if any(name.startswith("tensorflow.") and "Dataset" in name for name in modules):
        return "tf"
    if hasattr(loader, "__iter__") or hasattr(loader, "__getitem__"):
        return "iterable"
    hint = ": call it and hand over what it returns" if callable(loader) else ""
    raise ProfileError(
        f"No adapter can iterate a {type(loader).__module__}.{type(loader).__qualname__}"
        f"{hint or ': give a DataLoader, a tf.data.Dataset or any iterable of batches'}."
    )


def module_for(loader: Any) -> ModuleType:
    """The adapter module for `loader`, imported now and not before."""
    return import_module(f"{__name__}.{MODULES[kind_of(loader)]}")


def attach(loader: Any, recorder: Any) -> Source:
    """Make `loader` watchable by `recorder`."""
    source: Source = module_for(loader).attach(loader, recorder)
    return source
