"""Datasets that are Python objects: their pictures become files of the run, listed in a manifest.

In: a torch `Dataset` or `DataLoader`, a Hugging Face `Dataset`, a `tf.data.Dataset`, an array (n,
height, width[, channels]), or any iterable of pictures, (picture, label, ...) or {column: value};
or several by the name of their split. A picture is a PIL image, an array or tensor, encoded bytes,
or the path of a file. Out: a manifest of one row an item, whose id is the index.

Pixels are written as PNG, once for each content; encoded bytes and paths stay as they are. An item
that raises, or is no image, is a file that says so. A loader gives what comes after augmentation,
in the order of its sampler.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from audit.errors import UsageError, error_text, find_machine_error

FOLDER = "pictures"
GIVEN_AS_OBJECTS = "given-as-objects"  # the kind of the notes that say so
PICTURES = ("image", "img", "picture", "pixel_values", "x")
LABELS = ("label", "labels", "class", "target", "y", "fine_label")
CHANNELS = (1, 3, 4)
TOLD = 1000  # items
MOST_ODD = 8  # items without a picture at the start, after which nothing else is expected
Label = str | int | Sequence[Any] | Callable[[Any], Any] | None
Told = Callable[[int, int], None]
Row = tuple[str, str, str | None, str | None]  # id, path, label, split


class _NoPictureError(UsageError):
    """One item is no picture."""


def is_dataset(thing: object) -> bool:
    """Whether a thing is a dataset of pictures rather than the path of one, or several paths."""
    if isinstance(thing, str | bytes | os.PathLike):
        return False
    if isinstance(thing, Mapping):
        return bool(thing) and all(is_dataset(value) for value in thing.values())
    if isinstance(thing, list | tuple):
        return bool(thing) and not isinstance(thing[0], str | os.PathLike)
    return hasattr(thing, "__getitem__") or hasattr(thing, "__iter__")


def store_dataset(
    dataset: Any, run: Path, *, label: Label = None, told: Told | None = None
) -> Path:
    """Write the images of a dataset below `run` and return the manifest that lists them.

    `label`: the column or position of the label, its values, or a function of the item (default:
    the second of a tuple, or a column that is called so); `told` is called with items done and all
    (0: unknown). Raises UsageError where the first items, or most, have no image.
    """
    folder, new = run / FOLDER, not any(run.glob("[!.]*"))
    folder.mkdir(parents=True, exist_ok=True)
    parts = dataset.items() if isinstance(dataset, Mapping) else [(None, dataset)]
    rows: list[Row] = []
    try:
        for split, part in parts:
            _store_part(part, split, folder, label, rows, told or (lambda done, total: None))
        if not rows:
            raise UsageError("The dataset has no items: give one with at least one image.")
    except UsageError:
        if new:  # nothing half done: there is no such run
            shutil.rmtree(run)
        raise
    manifest = folder / f"{dataset_name(dataset)}.parquet"
    _write_table(rows, manifest)
    return manifest


def dataset_name(dataset: object) -> str:
    """Return a name for a dataset: that of its class, or of its parts' class."""
    if isinstance(dataset, Mapping):
        dataset = next(iter(dataset.values()))
    if type(dataset).__module__ in ("builtins", "numpy"):
        return "pictures_in_memory"
    return type(_loaded(dataset)).__name__.strip("_")


def _loaded(part: Any) -> Any:
    """Return the dataset that a loader loads; anything else as it is."""
    inner = getattr(part, "dataset", None)
    return part if inner is None else inner


def remove_unlisted(manifest: Path) -> None:
    """Remove the stored pictures that a manifest does not list any more."""
    import polars as pl

    listed = set(pl.read_parquet(manifest, columns=["path"])["path"])
    for path in manifest.parent.glob("*/*"):
        stored = _STORED.fullmatch(f"{path.parent.name}/{path.name}")
        if stored and str(path.resolve()) not in listed and not path.parent.is_symlink():
            path.unlink(missing_ok=True)


def _store_part(
    part: Any, split: str | None, folder: Path, label: Label, rows: list[Row], told: Told
) -> None:
    names, total = _class_names(part), count_items(part)
    given = None if label is None or isinstance(label, str | int) or callable(label) else label
    if given is not None and total not in (0, len(given)):
        raise UsageError(
            f"label has {len(given):,} values and the dataset {total:,} items: give one for each."
        )
    first, odd, n = None, 0, 0
    for index, (item, error) in enumerate(_items(part)):
        identity, value, n = str(index) if split is None else f"{split}/{index}", None, index + 1
        if not error:
            try:
                path = _stored_picture(item, index, folder, identity)
                value = given[index] if given is not None else _label_of(item, label, index)
            except _NoPictureError as no_picture:
                error, first, odd = f"{no_picture}\n", first or no_picture, odd + 1
                if odd == n == MOST_ODD:
                    break
        if error:
            path = _store(folder, error.encode("utf-8", "replace"), ".txt")
        rows.append((identity, path, _label_text(value, names), split))
        if n % TOLD == 0:
            told(n, total)
    if first is not None and 2 * odd > n:
        raise UsageError(str(first))
    told(len(rows), max(total, len(rows)))


def _items(part: Any) -> Iterator[tuple[Any, str]]:
    """Yield every item, or why there is none."""
    files = getattr(part, "samples", None)
    if isinstance(files, list) and files and isinstance(files[0], tuple):
        yield from ((item, "") for item in files)  # files by class, as torchvision's folders
        return
    part, batched = _undecoded(part), _is_batched(part)
    if hasattr(part, "as_numpy_iterator"):
        part = part.as_numpy_iterator()
    if batched:
        yield from ((item, "") for batch in take_all(part) for item in _unbatched(batch))
    elif hasattr(part, "__len__") and hasattr(part, "__getitem__"):
        for index in range(_length(part)):
            yield _item_at(part, index)
    else:
        yield from ((item, "") for item in take_all(part))


def _item_at(part: Any, index: int) -> tuple[Any, str]:
    try:
        return part[index], ""
    except (MemoryError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a dataset raises anything
        return None, f"item {index} raised {type(error).__name__}: {error}\n"


def _undecoded(part: Any) -> Any:
    """Return a Hugging Face dataset whose pictures stay encoded; anything else as it is."""
    features = getattr(part, "features", None)
    if not isinstance(features, Mapping) or not hasattr(part, "cast_column"):
        return part
    for name, feature in features.items():
        if getattr(feature, "decode", None) is True:
            part = part.cast_column(name, type(feature)(decode=False))
    return part


def _is_batched(part: Any) -> bool:
    if is_loader(part):
        return part.batch_sampler is not None
    return _has_batch_shape(getattr(part, "element_spec", None))


def _has_batch_shape(spec: Any) -> bool:
    parts = spec.values() if isinstance(spec, Mapping) else spec
    if isinstance(spec, Mapping | tuple | list):
        return any(map(_has_batch_shape, parts))
    return len(getattr(spec, "shape", None) or ()) == 4


def _unbatched(batch: Any) -> Iterator[Any]:
    """Yield the items of a batch: of a table, of a tuple of columns, or of pictures alone."""
    if isinstance(batch, Mapping):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))
    elif isinstance(batch, tuple | list):
        yield from zip(*batch, strict=True)
    else:
        yield from batch


def _class_names(part: Any) -> Sequence[str]:
    """Return the names that the numbers of the classes stand for, where the dataset knows them."""
    part = _loaded(part)
    names, features = getattr(part, "classes", None), getattr(part, "features", None)
    if names is None and isinstance(features, Mapping):
        inner: list[Any] = [getattr(f, "feature", f) for f in features.values()]
        names = next((f.names for f in inner if hasattr(f, "names")), None)
    return [str(name) for name in names] if isinstance(names, Iterable) else []


def _picture_of(item: Any, index: int) -> Any:
    if isinstance(item, Mapping):
        if "bytes" in item or "path" in item:
            return item
        found = next((item[name] for name in PICTURES if name in item), None)
        if found is None:
            columns = ", ".join(map(str, islice(item, 8)))
            raise _NoPictureError(
                f"Item {index} has no image among its columns ({columns}): name it image."
            )
        return found
    return item[0] if isinstance(item, tuple | list) and len(item) else item


def _label_of(item: Any, label: Label, index: int) -> Any:
    if callable(label):
        return label(item)
    position = 1 if label is None else label
    if isinstance(item, Mapping):
        names = [name for name in (LABELS if label is None else (label,)) if name in item]
        if names:
            return item[names[0]]
        problem = f"no column {label!r}; it has {', '.join(map(str, islice(item, 8)))}"
    elif not isinstance(item, tuple | list) or not isinstance(position, int):
        problem = f"no {label!r}: it is a {type(item).__name__}"
    elif -len(item) <= position < len(item):
        return item[position]
    else:
        problem = f"{len(item)} parts, and no label at {position}"
    if label is None:
        return None
    raise UsageError(f"Item {index} has {problem}.")


def _label_text(value: Any, names: Sequence[str]) -> str | None:
    """Return a class by name, several of a list of words or known numbers; None for an array."""
    if isinstance(value, list) and value:
        words = all(isinstance(label, str) for label in value)
        if words or all(type(label) is int and 0 <= label < len(names) for label in value):
            return json.dumps([_label_text(label, names) for label in value], ensure_ascii=False)
    if hasattr(value, "item"):
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # several numbers: boxes, masks, one-hot rows
            return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else str(value)
    return value if isinstance(value, str) else None


def _stored_picture(item: Any, index: int, folder: Path, identity: str) -> str:
    """Return the path of an item's picture, stored where it is none yet; raises _NoPictureError."""
    picture = _picture_of(item, index)
    if isinstance(picture, Mapping):  # Hugging Face: bytes, or the path of a file
        picture = picture.get("bytes") or picture.get("path")
    if isinstance(picture, str | os.PathLike):
        path = os.path.abspath(os.path.expanduser(os.fspath(picture)))
        if path.encode("utf-8", "replace").decode() != path:
            raise _NoPictureError(f"Item {identity} is a path that is not valid UTF-8: {path!a}")
        return path
    if isinstance(picture, bytes | bytearray | memoryview):
        return _store(folder, bytes(picture), ".img")
    try:
        content = encode_picture(picture, identity)
    except UsageError as error:
        raise _NoPictureError(str(error)) from error
    except (Exception, SystemExit) as error:
        if machine := find_machine_error(error):
            raise machine from None
        raise _NoPictureError(
            f"Item {identity} is a {type(picture).__name__} that cannot be read as an image: "
            f"{error_text(error)}"
        ) from error
    return _store(folder, content, ".png")


def _store(folder: Path, content: bytes, suffix: str) -> str:
    """Write content under its hash, whole or not at all, and return the path."""
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    path = folder / digest[:2] / f"{digest[2:]}{suffix}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(content)
        part.replace(path)
    return str(path.resolve())


def encode_picture(picture: Any, identity: str) -> bytes:
    """Return a picture as a PNG without loss."""
    if hasattr(picture, "save") and hasattr(picture, "mode"):  # PIL
        buffer = io.BytesIO()
        image = picture if picture.mode in _PNG_MODES else picture.convert("RGB")
        image.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()
    import cv2

    pixels = _pixels(picture, identity)
    if pixels.shape[-1] > 1:
        codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
        pixels = cv2.cvtColor(pixels, codes[pixels.shape[-1]])
    done, data = cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 1])
    if not done:
        raise UsageError(
            f"Item {identity} could not be written as PNG: its shape is {pixels.shape}."
        )
    return data.tobytes()


_STORED = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}\.(\w+|\d+\.part)")
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")


def _pixels(picture: Any, identity: str) -> Any:
    """Return an array or tensor as (height, width, 1, 3 or 4), uint8 or uint16."""
    import numpy as np

    if hasattr(picture, "detach"):
        picture = picture.detach().cpu()
    try:
        array = np.asarray(picture)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"Item {identity} is a {type(picture).__name__}, not an image: give PIL images, "
            "arrays, tensors, encoded bytes or paths."
        ) from error
    if array.ndim == 3 and array.shape[0] in CHANNELS and array.shape[2] not in CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in CHANNELS or not array.size:
        raise UsageError(
            f"Item {identity} has the shape {np.shape(picture)}, but an image has height, width "
            "and 1, 3 or 4 channels: give the items before stacking or cropping."
        )
    return np.ascontiguousarray(_as_levels(array, identity))


def _as_levels(array: Any, identity: str) -> Any:
    import numpy as np

    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype in (np.uint8, np.uint16):
        return array
    low, high = float(array.min()), float(array.max())  # not-a-number, where there is one
    if not (low >= 0 and high <= 255):
        raise UsageError(
            f"Item {identity} has values from {low:.3g} to {high:.3g}, but images have 0 to 1 or "
            "0 to 255: give the dataset before it is normalised."
        )
    whole = np.issubdtype(array.dtype, np.integer)
    scale = 1.0 if whole or high > 1 else 255.0
    return np.rint(array.astype(np.float64) * scale).astype(np.uint8)


def _write_table(rows: list[Row], path: Path) -> None:
    import polars as pl

    columns = ("id", "path", "label", "split")
    frame = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")
    empty = [name for name in ("label", "split") if frame[name].null_count() == len(frame)]
    part = path.with_suffix(".part")
    frame.drop(empty).write_parquet(part)
    part.replace(path)


def is_loader(part: Any) -> bool:
    """Whether a part is a torch DataLoader, or does all that is asked of one here."""
    names = ("dataset", "collate_fn", "sampler", "batch_sampler")
    return all(hasattr(part, name) for name in names)


def count_items(part: Any) -> int:
    """Return how many items a part has, 0 where it does not tell."""
    try:
        # a loader's length is in batches
        return _length(part.dataset if is_loader(part) else part, told=False)
    except TypeError:
        return 0


def _length(part: Any, *, told: bool = True) -> int:
    """Return `len(part)`; raises UsageError for what the user's own code raises there."""
    try:
        return len(part)
    except (Exception, SystemExit) as error:
        if isinstance(error, TypeError) and not told:
            raise  # it has none
        raise UsageError(
            f"The {type(part).__name__} raised {error_text(error)} in `__len__`: fix its `__len__`."
        ) from error


def take_all(part: Any) -> Iterator[Any]:
    """Yield what a stream gives; where it raises, nothing more can come of it."""
    iterator, n = None, 0
    while True:
        try:
            iterator = iter(part) if iterator is None else iterator
            item = next(iterator)
        except StopIteration:
            return
        except (MemoryError, UsageError):
            raise
        except (Exception, SystemExit) as error:
            last = str(error).strip().splitlines()[-1:] or [""]
            raise UsageError(
                f"The {type(part).__name__} raised {type(error).__name__} after {n:,} batches or "
                f"items ({last[0][:200]}): fix it, or give its dataset, which is read item by "
                "item."
            ) from error
        n += 1
        yield item


def describe_epochs(dataset: Any, manifest: Path) -> list[str]:
    """Return a sentence for each loader among the parts of a stored dataset: what came of it."""
    import polars as pl

    parts = dataset.items() if isinstance(dataset, Mapping) else [(None, dataset)]
    table = pl.read_parquet(manifest)
    sentences = []
    for split, part in parts:
        if is_loader(part):
            rows = table if split is None else table.filter(pl.col("split") == split)
            sentences.append(_epoch_sentence(part, split, len(rows)))
    return sentences


def _epoch_sentence(loader: Any, split: str | None, n: int) -> str:
    where = "" if split is None else f" of {split}"
    of = count_items(loader)
    came = f"{n:,} of the {of:,} items of its dataset" if of else f"{n:,} items"
    # A batch sampler of one's own leaves a default `sampler` beside it, which is not used.
    in_order = (
        type(loader.sampler).__name__ == "SequentialSampler"
        and type(loader.batch_sampler).__name__ == "BatchSampler"
    )
    number = (
        "its sampler is sequential, so the number of an image is its index in the dataset"
        if in_order
        else "its sampler has no fixed order, so the number of an image is its position in that "
        "epoch. It is not an index of the dataset, and changes from epoch to epoch"
    )
    return f"The images{where} are one epoch of a loader, after its transforms: {came}; {number}."
