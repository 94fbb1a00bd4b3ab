"""Run by Python itself before a watched script: waits for a framework, then records.

This folder leaves sys.path again, and a hidden `sitecustomize` runs. An error here is one line on
stderr, never the end of a training.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

OLDEST = (3, 11)  # Python that runs our packages
OPENED = "pipeline_profiler.profiling.record.opened_files"
WANTED = {
    "torch.utils.data.dataloader": "torch",
    "tensorflow.python.data.ops.dataset_ops": "tf",
    "keras.src.models.model": "keras",
    "cv2": f"{OPENED}:hook_cv2",
    "keras.src.utils.image_dataset_utils": f"{OPENED}:hook_keras_images",
}


class _Finder(MetaPathFinder):
    """Tells when a module of a framework has been loaded; finds nothing by itself."""

    def __init__(self, wanted: dict[str, str]) -> None:
        self.wanted = wanted

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in self.wanted:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                _follow(spec, self.wanted[name])
                return spec
        return None


def _follow(spec: ModuleSpec, kind: str) -> None:
    loader: Any = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def then(module: Any) -> None:
        execute(module)
        del loader.exec_module  # the loader is as it was, for whoever looks at it
        _loaded(kind, module)

    loader.exec_module = then


def _loaded(kind: str, module: Any) -> None:
    if sys.version_info < OLDEST:
        needed = "this process is not watched: it needs Python {}.{} or newer".format(*OLDEST)
        sys.stderr.write(
            "pipeline-profiler: {}, and runs {}.{}.\n".format(needed, *sys.version_info)
        )
        return
    try:
        home = _order()["home"]
        if home not in sys.path:
            sys.path.append(home)  # last: nothing of the script's is hidden by it
        _hook_of(kind)(module)
    except Exception as error:  # noqa: BLE001 - the training goes on, unwatched
        sys.stderr.write(f"pipeline-profiler: this process is not watched ({error!r}).\n")


def _hook_of(kind: str) -> Callable[[Any], None]:
    """What hooks a framework, now that its module is there; `module:function` names another."""
    if ":" in kind:
        name, _, function = kind.partition(":")
        return getattr(importlib.import_module(name), function)  # type: ignore[no-any-return]
    if kind == "torch":
        from pipeline_profiler.profiling.monitor.torch_hooks import hook_loaders

        return hook_loaders
    from pipeline_profiler.profiling.monitor.keras_hooks import hook_datasets, hook_fit

    return hook_datasets if kind == "tf" else hook_fit


def _order() -> dict[str, Any]:
    return json.loads(os.environ["PIPELINE_PROFILER_WATCH"])  # type: ignore[no-any-return]


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    if "PIPELINE_PROFILER_WATCH" in os.environ:
        order = _order()
        sys.meta_path.insert(0, _Finder(order.get("hooks") or WANTED))
        if order.get("hold") or order.get("opened"):
            sys.path.append(order["home"])
        if order.get("opened"):
            importlib.import_module(OPENED).start_log(order["opened"])
        if order.get("hold"):  # before the script has a name of what is replaced
            importlib.import_module("pipeline_profiler.checks.held_by_copy").hold(*order["hold"])
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")  # the one that this file hides
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


if __name__ == "sitecustomize":
    _begin()
