"""Which hooks a framework gets, when the hook on PYTHONPATH sees it loaded."""

from __future__ import annotations

from typing import Any


def hook_framework(kind: str, module: Any) -> None:
    """Put the hooks of a framework in, now that its module is there."""
    if kind == "torch":
        from pipeline_profiler.watching.torch_hooks import hook_loaders

        hook_loaders(module)
        return
    from pipeline_profiler.watching import keras_hooks

    hook = keras_hooks.hook_datasets if kind == "tf" else keras_hooks.hook_fit
    hook(module)
