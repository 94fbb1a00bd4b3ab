"""Mean and deviation that a pretrained checkpoint declares for its inputs, wherever it does so.

Known forms: the configuration of a model of timm (`pretrained_cfg`, `default_cfg`), torchvision's
weights (`weights.transforms()`), an image processor of transformers, their files
(`preprocessor_config.json`, `config.json`, open_clip's `preprocess_cfg`), and a folder with such a
file. Libraries are not imported: what is looked at is attributes and keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_profiler.record.errors import ProfileError

FILES = ("preprocessor_config.json", "config.json", "open_clip_config.json")
INSIDE = ("pretrained_cfg", "default_cfg", "preprocess_cfg", "image_processor")
MOST_BYTES = 10_000_000
BYTE = 255.0


class DeclaredNumbers(NamedTuple):
    """Per channel, for pixels in 0..1; `source` says where they stand."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    source: str


def declared_by(thing: Any) -> DeclaredNumbers | None:
    """What a model, weights, a processor, a mapping or a file declares; None where nothing."""
    if isinstance(thing, str | Path):
        return _of_path(Path(thing))
    if isinstance(thing, Mapping):
        return _of_mapping(thing)
    for name in INSIDE:
        part = getattr(thing, name, None)
        held = part if isinstance(part, Mapping) else getattr(part, "__dict__", None)
        if held and (found := _of_mapping(held)):
            return found._replace(source=name)
    if hasattr(thing, "image_mean"):
        return _of_mapping(vars(thing))
    transforms = getattr(thing, "transforms", None)
    if callable(transforms) and (found := _numbers(vars(transforms()), "mean", "std")):
        return found._replace(source="weights.transforms()")
    return _of_folder(thing)


def read_declaration(path: str) -> DeclaredNumbers:
    """What a file or a folder declares; ProfileError where it declares nothing."""
    found = declared_by(path)
    if found is None:
        raise ProfileError(
            f"{path} declares no mean and deviation: name a preprocessor_config.json, a "
            "config.json of timm, or FILE.py:FUNCTION that returns model, weights or processor."
        )
    return found


def _of_path(path: Path) -> DeclaredNumbers | None:
    if path.is_dir():
        found = (_of_path(path / name) for name in FILES if (path / name).is_file())
        return next((numbers for numbers in found if numbers), None)
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        held = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    found_here = _of_mapping(held) if isinstance(held, dict) else None
    return found_here and found_here._replace(source=path.name)


def _of_folder(model: Any) -> DeclaredNumbers | None:
    """The processor's file beside a model of transformers that was read from a folder."""
    name = getattr(getattr(model, "config", None), "_name_or_path", "")
    return _of_path(Path(name)) if isinstance(name, str) and name and Path(name).is_dir() else None


def _of_mapping(held: Mapping[str, Any]) -> DeclaredNumbers | None:
    for name in INSIDE:
        if isinstance(held.get(name), Mapping) and (found := _of_mapping(held[name])):
            return found
    if "image_mean" in held:
        return _of_processor(held)
    return _numbers(held, "mean", "std")


def _of_processor(held: Mapping[str, Any]) -> DeclaredNumbers | None:
    """transformers: pixels times rescale_factor, minus the mean, over the deviation."""
    found = _numbers(held, "image_mean", "image_std")
    if found is None:
        return None
    if held.get("do_normalize") is False:
        found = found._replace(mean=(0.0,) * len(found.mean), deviation=(1.0,) * len(found.mean))
    factor = held.get("rescale_factor", 1 / BYTE) if held.get("do_rescale", True) else 1.0
    scale = 1 / (BYTE * float(factor))  # numbers for pixels of 0..255 times factor, told for 0..1
    return found._replace(
        mean=tuple(m * scale for m in found.mean),
        deviation=tuple(d * scale for d in found.deviation),
    )


def _numbers(held: Mapping[str, Any], mean: str, deviation: str) -> DeclaredNumbers | None:
    try:
        first, second = (tuple(float(v) for v in held.get(n) or ()) for n in (mean, deviation))
    except (TypeError, ValueError):
        return None
    sound = len(first) == len(second) and all(map(math.isfinite, (*first, *second)))
    return DeclaredNumbers(first, second, f"{mean}, {deviation}") if sound and first else None


def declaration_of(make: Callable[[], Any] | None) -> DeclaredNumbers | None:
    """What the user's function returns declares; None without one, or where it raises."""
    if make is None:
        return None
    try:
        return declared_by(make())
    except Exception:  # noqa: BLE001 - a model that cannot be made here declares nothing here
        return None
