"""The loader under examination: made by the user's factory, watched, its batches kept."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import itertools
import json
import operator
import os
import pickle
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline_profiler.checks.batches import (
    Array,
    Split,
    arrays_in,
    as_array,
    batch_size,
    cut_batch,
    digest_of,
    inputs_and_targets,
    same_bytes,
)
from pipeline_profiler.checks.check import Answer, Judgement
from pipeline_profiler.checks.lazy import torch
from pipeline_profiler.checks.user_code import (
    UsersError,
    batches_of,
    call_with,
    seed_everything,
    users_code,
)
from pipeline_profiler.profiling.adapters import kind_of
from pipeline_profiler.profiling.adapters.tf_graph import prefixes
from pipeline_profiler.profiling.record.errors import ProfileError

FILES = ("preprocessor_config.json", "config.json", "open_clip_config.json")
INSIDE = ("pretrained_cfg", "default_cfg", "preprocess_cfg", "image_processor")
DECLARING = (*INSIDE, "image_mean", "image_std", "do_normalize", "do_rescale", "rescale_factor")
MAX_BYTES, BYTE = 10_000_000, 255.0


class DeclaredNumbers(NamedTuple):
    """Per channel, for pixels in 0..1; `source` says where they stand."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    source: str


def declared_by(source: Any) -> DeclaredNumbers | None:
    """Return what a model, weights, a processor, a mapping or a file declares, or None.

    Models of timm, weights of torchvision, image processors of transformers, their files, and a
    folder with such a file. Libraries are not imported.
    """
    return next(filter(None, (_numbers_in(*content) for content in _contents(source))), None)


def read_declaration(path: str) -> DeclaredNumbers:
    """What a file or a folder declares; ProfileError where it declares nothing."""
    if (found := declared_by(path)) is None:
        raise ProfileError(
            f"{path} declares no mean and deviation: name a preprocessor_config.json, a "
            "config.json of timm, or FILE.py:FUNCTION that returns model, weights or processor."
        )
    return found


def _contents(source: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Every mapping in which a source may declare numbers, and the name of its origin."""
    if isinstance(source, str | Path):
        path = Path(source)
        for file in [path / name for name in FILES] if path.is_dir() else [path]:
            with contextlib.suppress(OSError, ValueError):
                small = file.stat().st_size < MAX_BYTES
                parts = _contents(json.loads(file.read_text("utf-8") if small else "{}"))
                yield from ((content, file.name) for content, _ in parts)
        return
    attributes = {name: getattr(source, name) for name in DECLARING if hasattr(source, name)}
    content = source if isinstance(source, Mapping) else attributes
    for part, name in ((content.get(name), name) for name in INSIDE):
        yield part if isinstance(part, Mapping) else getattr(part, "__dict__", {}), name
    yield content, ""
    if callable(transforms := getattr(source, "transforms", None)):
        yield vars(transforms()), ""
    # a model of transformers that was read from a folder has its processor's file there
    folder = getattr(getattr(source, "config", None), "_name_or_path", "")
    if isinstance(folder, str) and folder and Path(folder).is_dir():
        yield from _contents(folder)


def _numbers_in(content: Mapping[str, Any], origin: str) -> DeclaredNumbers | None:
    names = ("image_mean", "image_std") if "image_mean" in content else ("mean", "std")
    try:
        mean, deviation = (np.array(content.get(name) or (), float) for name in names)
    except (TypeError, ValueError):
        return None
    if not len(mean) or mean.shape != deviation.shape:
        return None
    if "image_mean" in content:  # of transformers: for pixels of 0..255 times rescale_factor
        rescales = content.get("do_rescale", True)
        factor = BYTE * (content.get("rescale_factor", 1 / BYTE) if rescales else 1)
        if content.get("do_normalize") is False:
            mean, deviation = 0 * mean, 0 * deviation + factor
        mean, deviation = mean / factor, deviation / factor
    return DeclaredNumbers(
        tuple(mean.tolist()), tuple(deviation.tolist()), origin or ", ".join(names)
    )


# A shallow copy of the loader gets a dataset that returns each sample with a record. Equal states
# of a generator mean equal random numbers: no statistics is needed. Nothing of the user's changes.

MAX_OBJECTS, MAX_PARTS, MAX_DEPTH = 400, 50, 5
PLAIN = (int, float, str, bytes, bool, type(None), np.ndarray)


@dataclass(frozen=True)
class SampleRecord:
    """How one sample was made; `before` and `after` are digests of generator states by name."""

    index: Any
    worker: int
    before: Mapping[str, str]
    after: Mapping[str, str]
    digest: str
    label: Any

    def used(self) -> list[str]:
        """The generators that this sample drew from."""
        return [name for name, state in self.before.items() if self.after.get(name) != state]


Recorded = tuple[SampleRecord, Any]  # with the sample


def held_objects(holder: Any, wanted: Callable[[Any], Any]) -> dict[str, Any]:
    """Objects of a kind, held by an object or its parts, by the path of attributes to them."""
    found, seen = dict[str, Any](), set[int]()
    waiting: list[tuple[str, Any, int]] = [("dataset", holder, 0)]
    while waiting and len(seen) < MAX_OBJECTS:
        name, value, depth = waiting.pop(0)
        if id(value) in seen or isinstance(value, PLAIN):
            continue
        seen.add(id(value))
        if wanted(value):
            found[name] = value
        elif depth < MAX_DEPTH:
            waiting += [(f"{name}{key}", part, depth + 1) for key, part in _parts(value)]
    return found


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        value = dict(enumerate(value[:MAX_PARTS]))
    if isinstance(value, dict):
        return [(f"[{key!r}]", part) for key, part in list(value.items())[:MAX_PARTS]]
    return [(f".{key}", part) for key, part in getattr(value, "__dict__", {}).items()]


def _state_of(value: Any) -> Any:
    """The state of a random generator; None of all else."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    return value.get_state().numpy().tobytes() if isinstance(value, torch.Generator) else None


def stream_states(dataset: Any) -> dict[str, str]:
    """The digest of the state of every generator in reach of this process, by name."""
    generators: dict[str, Any] = {
        "random": random.getstate.__self__,  # type: ignore[attr-defined]
        "numpy.random": np.random.get_state.__self__,  # type: ignore[attr-defined]
        "torch": torch.default_generator,
    }
    states = {k: _state_of(v) for k, v in (generators | held_objects(dataset, _state_of)).items()}
    return {name: hashlib.blake2b(pickle.dumps(s)).hexdigest() for name, s in states.items()}


def _record(index: Any, before: dict[str, str], dataset: Any, sample: Any) -> Recorded:
    targets = list(arrays_in(inputs_and_targets(sample)[1])) if sample is not None else []
    label = targets[0].item() if len(targets) == 1 and targets[0].size == 1 else None
    worker = getattr(torch.utils.data.get_worker_info(), "id", -1)
    after = stream_states(dataset)
    return SampleRecord(index, worker, before, after, digest_of(sample), label), sample


class ProbedDataset:
    """A dataset whose samples come with their record; everything else is its own."""

    def __init__(self, dataset: Any) -> None:
        self.__dict__["_probed"] = dataset

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # __getitems__ as well: samples are recorded one by one
            raise AttributeError(name)
        return getattr(self.__dict__["_probed"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._probed, name, value)  # as worker_init_fn does

    def __len__(self) -> int:
        return len(self._probed)

    def __getitem__(self, index: Any) -> Recorded:
        # one draw of each global generator: a sample that seeds it ends where others end, else not
        _ = random.random(), np.random.random(), torch.rand(1)
        before = stream_states(self._probed)
        return _record(index, before, self._probed, self._probed[index])

    def __iter__(self) -> Iterator[Recorded]:
        before = stream_states(self._probed)
        for number, sample in enumerate(iter(self._probed)):
            yield _record(number, before, self._probed, sample)
            before = stream_states(self._probed)


def _collate(collate: Any, samples: Any) -> tuple[list[SampleRecord], Any]:
    """(records, the batch that the user's collate function makes)."""
    if isinstance(samples, tuple):  # batch_size=None: one sample is the batch
        return [samples[0]], collate(samples[1])
    return [record for record, _ in samples], collate([sample for _, sample in samples])


def probed_loader(loader: Any) -> Any:
    """A shallow copy of a DataLoader whose batches are (records, batch)."""
    clone, collate = copy.copy(loader), partial(_collate, loader.collate_fn)
    parts = {"dataset": ProbedDataset(loader.dataset), "collate_fn": collate, "_iterator": None}
    clone.__dict__.update(parts)
    return clone


def decisive(answers: list[Answer]) -> Answer:
    """Return the failures as one answer; else those that do not decide; else those that passed."""
    known = [a for a in answers if not {"absent", "skipped"} & a.evidence.keys()] or answers[:1]
    for judgement in (Judgement.FAIL, Judgement.INCONCLUSIVE, Judgement.PASS):
        if found := [a for a in known if a.judgement is judgement]:
            break
    return Answer(
        judgement,
        " ".join(dict.fromkeys(a.sentence for a in found)),
        tuple(cause for a in found for cause in a.causes),
        found[0].next,
        {key: value for a in found for key, value in a.evidence.items()},
    )


ENOUGH_SAMPLES, MAX_BATCHES = 512, 64
MAX_COUNTED = 20_000  # samples of a stream
MAX_INDICES, PASSES = 2_000_000, 8  # after which a sampler is cut, as it may have no end


@dataclass(frozen=True)
class SeenBatch:
    """One batch: as it came, its parts as arrays, and the records of its samples if there are."""

    raw: Any
    inputs: Array | None
    targets: Array | None
    records: tuple[SampleRecord, ...] = ()

    @property
    def size(self) -> int:
        """Examples in it."""
        part = self.inputs if self.inputs is not None else self.targets
        return len(part) if part is not None and part.ndim else len(self.records)


@dataclass
class LoaderSubject:
    """What the checks on a loader examine.

    evaluation: its order is not judged. split: batch -> (inputs, targets). mean, deviation: per
    channel, else declared by what make_model returns. deadline: of time.monotonic(). made_anew:
    fresh() makes another loader. scaled_later: a layer of the model that scales. entered: (batch,
    inputs, targets) as they enter the model. evaluations: loaders that a script evaluates. pairs:
    of a view at the model, (as loaded, as entered). unseeded: a sentence without a seed.
    """

    make_loader: Callable[..., Any]
    make_eval: Callable[..., Any] | None = None
    evaluation: bool = False
    classes: int | None = None
    split: Split | None = None
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    make_model: Callable[..., Any] | None = None
    seed: int = 0
    deadline: float = field(default=float("inf"))
    made_anew: bool = True
    scaled_later: str = ""
    entered: Callable[[], tuple[list[Any], list[Any]]] | None = None
    evaluations: int = 1
    pairs: list[tuple[SeenBatch, SeenBatch]] | None = None
    unseeded: str = ""

    def fresh(self, seed: int | None = None) -> Any:
        """A new loader, made after seeding everything."""
        seed_everything(self.seed if seed is None else seed)
        return _make(self.make_loader, "make_loader()")

    @cached_property
    def loader(self) -> Any:
        """The loader that is looked at."""
        return self.fresh()

    @cached_property
    def declared(self) -> DeclaredNumbers | None:
        """The mean and deviation that inputs should be normalised with; None where unknown."""
        if self.mean and self.deviation:
            return DeclaredNumbers(self.mean, self.deviation, "check.mean and check.std")
        with contextlib.suppress(Exception, SystemExit):  # then it declares nothing
            return None if self.make_model is None else declared_by(self.make_model())
        return None

    @cached_property
    def is_torch(self) -> bool:
        """Whether it is torch's DataLoader."""
        return kind_of(self.loader) == "torch"

    @cached_property
    def has_indices(self) -> bool:
        """Whether samples have indices: a DataLoader over a map-style dataset."""
        return self.is_torch and self.loader._dataset_kind == 0

    @property
    def workers(self) -> int:
        """Worker processes; 0: the samples are made in this process."""
        return int(self.loader.num_workers) if self.is_torch else 0

    def time_is_short(self) -> bool:
        """Whether the budget is over."""
        return time.monotonic() > self.deadline

    @cached_property
    def epochs(self) -> list[list[SeenBatch]]:
        """The beginnings of two epochs of one fresh loader, seen batch by batch."""
        loader = self.fresh()
        watched = probed_loader(loader) if self.is_torch else loader
        return [self.beginning(watched, epoch) for epoch in range(2)]

    def beginning(self, loader: Any, epoch: int) -> list[SeenBatch]:
        """The first batches of an epoch."""
        set_epoch(loader, epoch)
        seen, samples = list[SeenBatch](), 0
        for batch in batches_of(loader):
            records, raw = batch if self.is_torch else ((), batch)
            seen.append(self.seen(raw, tuple(records)))
            samples += max(1, seen[-1].size)
            enough = samples >= ENOUGH_SAMPLES and len(seen) >= 2 * max(1, self.workers)
            if enough or len(seen) >= MAX_BATCHES or self.time_is_short():
                break
        if not seen and not epoch:  # a second epoch without batches is LOAD003's
            raise UsersError(
                "The loader gives no batch: is the dataset empty, or smaller than a "
                "batch with drop_last=True?"
            )
        return seen

    def seen(self, raw: Any, records: tuple[SampleRecord, ...] = ()) -> SeenBatch:
        """A batch taken apart."""
        inputs, targets = inputs_and_targets(raw, self.split)
        return SeenBatch(raw, as_array(inputs), as_array(targets), records)

    @property
    def batches(self) -> list[SeenBatch]:
        """The beginning of the first epoch."""
        return self.epochs[0]

    @cached_property
    def eval_batches(self) -> list[SeenBatch]:
        """The beginning of an epoch of the evaluation loader; empty where there is none."""
        batches = () if self.eval_loader is None else batches_of(self.eval_loader)
        return [self.seen(raw) for raw in itertools.islice(batches, len(self.batches))]

    @cached_property
    def at_model(self) -> LoaderSubject | None:
        """Return what enters the model in the user's own steps; None if unknown or unchanged."""
        rows: tuple[list[Any], list[Any]] = [], []
        with contextlib.suppress(UsersError):  # a training that cannot be made: others say so
            rows = self.entered() if self.entered is not None else rows
        made, judged = ([SeenBatch(raw, as_array(x), as_array(y)) for raw, x, y in r] for r in rows)
        known = [[b for b in batches if b.raw is not None] for batches in (made, judged)]
        pairs, others = ([(self.seen(b.raw), b) for b in batches] for batches in known)
        unchanged = pairs and all(
            same_bytes(a.inputs, b.inputs)
            and (b.targets is None or same_bytes(a.targets, b.targets))
            for a, b in pairs + others
        )
        if not made or made[0].inputs is None or unchanged:
            return None
        view = replace(self, entered=None, pairs=pairs, scaled_later="")
        vars(view).update(loader=self.loader, epochs=[made, []], eval_batches=judged)
        return view

    @cached_property
    def eval_loader(self) -> Any:
        """The loader for evaluation; None where there is none."""
        seed_everything(self.seed)
        return self.make_eval and _make(self.make_eval, "make_eval_loader()")

    @cached_property
    def inputs(self) -> Array | None:
        """The inputs of the first batches in one array of floats; None where they do not stack."""
        parts = [b.inputs for b in self.batches if b.inputs is not None]
        numbers = all(part.dtype.kind in "biuf" and part.ndim for part in parts)
        alike = len({part.shape[1:] for part in parts if part.ndim}) == 1
        return np.concatenate(parts) if numbers and alike else None

    @cached_property
    def labels(self) -> Array | None:
        """One label a sample in the order of delivery; None where targets are not of that kind."""
        parts = [b.targets for b in self.batches if b.targets is not None]
        flat = [p.reshape(len(p)) for p in parts if p.ndim and p.size == len(p)]
        return np.concatenate(flat) if flat and len(flat) == len(parts) else None

    @cached_property
    def counted(self) -> list[list[int]]:
        """The sizes of the batches of two epochs; [] for a DataLoader, and where it takes long."""
        loader, sizes = self.fresh(), list[list[int]]()
        for epoch in range(0 if self.is_torch else 2):
            set_epoch(loader, epoch)
            sizes.append([])
            for number, batch in enumerate(batches_of(loader)):
                sizes[-1].append(self.seen(batch).size)
                if number * max(1, sizes[-1][0]) >= MAX_COUNTED or self.time_is_short():
                    return []
        return sizes

    def index_order(self, by_epoch: bool = True, epochs: Sequence[int] = (0, 1)) -> list[Any]:
        """Batches of indices for epochs of a fresh loader; nothing is decoded."""
        loader, orders = self.fresh(), list[Any]()
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        most = min(MAX_INDICES, PASSES * operator.length_hint(loader.dataset, MAX_INDICES))
        for epoch in epochs:
            if by_epoch:
                set_epoch(loader, epoch)
            order, count = list[list[Any]](), 0
            with users_code("The sampler"):
                for entry in sampler:
                    order.append(list(entry) if isinstance(entry, list | tuple) else [entry])
                    count += len(order[-1])
                    if count >= most:
                        break
            orders.append(order)
        return orders


def _make(factory: Callable[..., Any], name: str) -> Any:
    loader = call_with(factory, {}, name)
    kind_of(loader)  # raises a sentence for what cannot be iterated
    return loader


def samplers_of(loader: Any) -> list[Any]:
    """The sampler that a loader iterates, and those inside it."""
    found = [loader.batch_sampler if loader.batch_sampler is not None else loader.sampler]
    while len(found) < 5 and (inner := getattr(found[-1], "sampler", None)) is not None:
        found.append(inner)
    return found


def own_sampler(loader: Any) -> Any:
    """The first sampler that is not torch's; None where all are."""
    found = samplers_of(loader)
    return next((s for s in found if not type(s).__module__.startswith("torch.utils.")), None)


def graph_of(loader: Any) -> list[Any]:
    """The operations of a graph of tf.data; [] of another loader."""
    return list(prefixes(loader)) if kind_of(loader) == "tf" else []


def sample_digests(batch: Any) -> list[str]:
    """One digest for each sample of a batch, over all arrays that have it."""
    size = batch_size(batch)
    return [digest_of(cut_batch(batch, size, slice(i, i + 1))) for i in range(size)]


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell sampler and dataset the epoch, as a loop for several processes does."""
    for name in ("sampler", "batch_sampler", "dataset"):
        setter = getattr(getattr(loader, name, None), "set_epoch", None)
        if callable(setter):
            setter(epoch)


LISTS = ("samples", "imgs", "paths", "files", "image_paths")  # as torchvision has them
MAX_LAYERS = 8


def same_files(ours: Any, theirs: Any, most: int) -> list[tuple[Array, Array]]:
    """(ours, theirs): the images that both datasets' transforms make of the same files."""
    one, two = (
        next((t for x in dataset_layers(d) if callable(t := getattr(x, "transform", None))), None)
        for d in (ours, theirs)
    )
    files = files_of(ours)
    if one is None or two is None or not files:
        return []
    from PIL import Image

    pairs = []
    for file in files[:: max(1, len(files) // most)][:most]:
        with users_code(f"The transform of {file.name}"), Image.open(file) as image:
            whole = image.convert("RGB")
            first, second = as_array(one(whole)), as_array(two(whole))
        if first is None or second is None or first.ndim != 3 or second.ndim != 3:
            return []
        pairs.append((first, second))
    return pairs


def dataset_layers(dataset: Any) -> Iterator[Any]:
    """The dataset and those inside it (`Subset` and the like), up to eight."""
    for _ in range(MAX_LAYERS):
        yield dataset
        dataset = getattr(dataset, "dataset", getattr(dataset, "_input_dataset", None))
        if dataset is None:
            return


def files_of(dataset: Any) -> list[Path]:
    """The files that a dataset lists; [] where it lists none."""
    for layer, name in itertools.product(dataset_layers(dataset), LISTS):
        rows = getattr(layer, name, None)
        if isinstance(rows, list | tuple) and rows:
            heads = [row[0] if isinstance(row, list | tuple) and row else row for row in rows]
            if isinstance(heads[0], str | os.PathLike):
                root = Path(str(getattr(layer, "root", "") or ""))
                paths = [Path(h) if Path(h).is_file() else root / h for h in heads]
                return paths if paths[0].is_file() else []
    return []


LEVELS, MIN_LEVELS = 256, 48
OFF_GRID = 0.02  # of a step: float32 rounding of 256 levels is a thousandth


def byte_step(values: Any) -> float:
    """The distance of two levels where the values are those of a byte, scaled; else 0."""
    found = np.unique(values[np.isfinite(values)].astype(np.float32)).astype(np.float64)
    if not MIN_LEVELS <= len(found) <= LEVELS:
        return 0.0
    least, span = float(np.diff(found).min()), float(found[-1] - found[0])
    count = round(span / least)
    if count >= LEVELS:
        return 0.0
    places = (found - found[0]) / span * count
    return span / count if float(np.abs(places - places.round()).max()) < OFF_GRID else 0.0


# 0..1 and 0..255 are shown by their own scale, anything else stretched over the range of the batch,
# unless mean and deviation are given to undo a normalisation.

MAX_IMAGES, COLUMNS, CELL, CAPTION = 48, 8, 96, 14


def model_grid(subject: LoaderSubject) -> bytes | None:
    """Return the grid of what enters the model; None where that is no images, or without Pillow."""
    try:
        from PIL import Image, ImageDraw
        from PIL.PngImagePlugin import PngInfo

        scale = np.asarray(subject.mean), np.asarray(subject.deviation)
        batches = (subject.at_model or subject).batches
        cells = [cell for batch in batches for cell in _cells(batch, *scale)][:MAX_IMAGES]
    except (ProfileError, ImportError, ValueError):  # no batch, no Pillow, no pixel
        return None
    if not cells:
        return None
    rows = -(-len(cells) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * CELL, rows * (CELL + CAPTION)), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (pixels, caption) in enumerate(cells):
        left, top = number % COLUMNS * CELL, number // COLUMNS * (CELL + CAPTION)
        image = Image.fromarray(pixels).resize((CELL - 4, CELL - 4), Image.Resampling.NEAREST)
        sheet.paste(image, (left + 2, top + 2))
        draw.text((left + 3, top + CELL - 2), caption[:14], fill="black")
    out, mark = io.BytesIO(), PngInfo()
    mark.add_text("Software", "pipeline-profiler")  # so that a later grid replaces this file
    sheet.save(out, "PNG", pnginfo=mark)
    return out.getvalue()


def _cells(batch: SeenBatch, mean: Array, deviation: Array) -> list[tuple[Array, str]]:
    """(pixels, label) of each image of a batch."""
    images, targets = batch.inputs, batch.targets
    if images is None or images.ndim not in (3, 4) or images.dtype.kind not in "biuf":
        return []
    images = images[..., None] if images.ndim == 3 else images
    images = images if images.shape[3] in (1, 3, 4) else images.transpose(0, 2, 3, 1)
    if images.shape[3] not in (1, 3, 4):
        return []
    images = images[..., [0, 0, 0] if images.shape[3] == 1 else [0, 1, 2]].astype(np.float64)
    low, high = float(np.nanmin(images)), float(np.nanmax(images))
    if len(mean) == len(deviation) and len(mean) in (1, 3):
        images = (images * deviation + mean) * 255
    elif low >= 0 and high <= 1:
        images = images * 255
    elif low < 0 or high > 255:
        images = (images - low) / max(high - low, 1e-12) * 255
    labels: Any = [""] * len(images)
    if targets is not None and targets.size == len(images):
        labels = np.ravel(targets)
    pixels = np.nan_to_num(images).clip(0, 255).astype(np.uint8)
    return list(zip(pixels, map(str, labels), strict=True))
