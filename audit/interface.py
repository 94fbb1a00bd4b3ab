"""An audit from Python: `audit.scan(source)` and `audit.open(run)` give a `Run`, its tables frames.

    import audit
    run = audit.scan("images")
    run.findings

Errors are those of `audit.errors`, in one sentence. Cost: a scan as on the command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from audit.checking.config import Config
from audit.errors import UsageError
from audit.measuring import Progress, ProgressCallback, ignore_progress
from audit.results import Place, Run
from audit.scan_request import RUNS, prepare_request
from audit.sources.python_objects import (
    GIVEN_AS_OBJECTS,
    Label,
    dataset_name,
    is_dataset,
    remove_unlisted,
    store_dataset,
)
from audit.sources.streams import describe_epochs

GIVEN = (
    "The pictures were given by a Python object. Where it had pixels, they are stored as PNG, and "
    "what the FILE checks say is said of these files."
)


def scan_dataset(
    source: Any,
    run: Place | None = None,
    *,
    label: Label = None,
    layout: str | None = None,
    exclude: Sequence[str] = (),
    roots: Mapping[str, str] | None = None,
    checks: Sequence[str] | None = None,
    embeddings: Place | None = None,
    embedder: str | None = None,
    predictions: Place | None = None,
    config: Place | Config | None = None,
    jobs: int | None = None,
    executor: str = "processes",
    address: str = "auto",
    parts: Place | None = None,
    lock: bool = True,
    verify: bool = False,
    progress: bool | ProgressCallback = True,
) -> Run:
    """Index a dataset, run the checks, and return the run; a later call reads only what changed.

    `source`: a folder, a manifest, or several by name, {"train": folder, "test": folder}; or a
    dataset as a Python object, or several by split: torch, Hugging Face, tf.data, arrays, lists
    (`audit.sources.python_objects`), whose labels `label` names. `run`: where the results go
    (default runs/<dataset name>). The others are the options of `audit scan`. `progress`: a bar on
    stderr, nothing, or a function called with each `audit.measuring.Progress`.

    Raises UsageError for words that cannot be, LockedError while another scan writes the run,
    MachineError where disk or memory ran out: the next call goes on from there.
    """
    if isinstance(config, str | os.PathLike):
        config = Path(config)
    options: dict[str, Any] = {
        "layout": layout,
        "exclude": exclude,
        "roots": roots,
        "embeddings": None if embeddings is None else Path(embeddings),
        "embedder": embedder,
        "predictions": None if predictions is None else Path(predictions),
        "config": config,
        "checks": [checks] if isinstance(checks, str) else checks,
        "jobs": jobs,
        "executor": executor,
        "address": address,
        "parts": None if parts is None else os.fspath(parts),
        "lock": lock,
        "verify": verify,
    }
    place = None if run is None else Path(run)
    with _shown(progress) as call:
        if not is_dataset(source):
            request = prepare_request(_source_words(source), place, **options)
            request.carry_out(call)
        else:
            place = place or RUNS / dataset_name(source)
            manifest = store_dataset(
                source, place, label=label, told=lambda *n: call(Progress("take", *n))
            )
            request = prepare_request([str(manifest)], place, **options)
            for said in (GIVEN, *describe_epochs(source, manifest)):
                request.source.remarks.append((GIVEN_AS_OBJECTS, None, said))
            request.carry_out(call)
            remove_unlisted(manifest)
    return Run(request.run)


def _shown(progress: bool | ProgressCallback) -> AbstractContextManager[ProgressCallback]:
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext(ignore_progress)
    from audit.progress import ProgressBar

    return ProgressBar()


def open_audit(run: Place) -> Run:
    """Return a run that a scan has made; raises RunError where there is none, or a damaged one."""
    return Run(run)


def _source_words(source: Place | Sequence[Place] | Mapping[str, Place]) -> list[str]:
    if isinstance(source, str | os.PathLike):
        return [os.fspath(source)]
    if isinstance(source, Mapping):
        return [f"{name}={os.fspath(place)}" for name, place in source.items()]
    if isinstance(source, Sequence) and all(isinstance(s, str | os.PathLike) for s in source):
        return [os.fspath(place) for place in source]
    raise UsageError(
        f"A source is a folder, a manifest, {{name: folder}} or a dataset, and this is "
        f"{_article(source)}: give one of them."
    )


def _article(thing: object) -> str:
    name = type(thing).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
