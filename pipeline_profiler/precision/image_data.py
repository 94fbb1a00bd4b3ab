"""Images for the precision sweep: a folder read and augmented as training would.

The dataset is a plain object without torch, so that spawned workers start quickly. A list of files
that is short for the batches in flight is read several times in one epoch. Both frameworks shuffle,
load in parallel and drop the partial batch.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dataset_preflight.foundation.cores import usable_cores
from pipeline_profiler.precision.trainer import Loader, Tensor
from pipeline_profiler.profiling.record.session import ProfileError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from torch.utils.data import DataLoader, Dataset

Pixels: TypeAlias = NDArray[np.float32]

SIDE, PADDING = 32, 4
PREFETCH = 2  # batches a worker
MAX_DEFAULT_WORKERS = 8
EPOCHS_IN_FLIGHT = 4  # an epoch has at least so many times the batches in flight
EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})


@dataclass(frozen=True)
class ImageFolder:
    """Class folders as (image float32 (3, side, side) in [-1, 1], label), with augmentation.

    `length` samples per epoch; sample i is file i modulo the number of files.
    """

    files: list[str]
    labels: list[int]
    side: int
    length: int
    notes: tuple[str, ...]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(set(self.labels))

    def __len__(self) -> int:
        return self.length

    def repeated(self, batch_size: int, workers: int) -> ImageFolder:
        """The dataset with whole passes over its files, long for the batches in flight."""
        least = batch_size * EPOCHS_IN_FLIGHT * max(workers * PREFETCH, 1)
        return replace(self, length=-(-least // len(self.files)) * len(self.files))

    def __getitem__(self, i: int) -> tuple[Pixels, int]:
        from PIL import Image

        at = i % len(self.files)
        # the worker's own seed is mixed in, or every epoch would crop each file the same way
        rng = np.random.default_rng((i, np.random.randint(2**31)))
        wide = self.side + 2 * PADDING
        with Image.open(self.files[at]) as image:
            pixels = np.asarray(_convert_to_rgb(image).resize((wide, wide)), dtype=np.float32)
        y, x = rng.integers(0, 2 * PADDING + 1, 2)
        pixels = pixels[y : y + self.side, x : x + self.side]
        if rng.integers(2):
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)) / 127.5 - 1, self.labels[at]


def find_data(folder: str | None) -> ImageFolder:
    """The given folder of images, else sample_data/train here or beside the package."""
    if folder is not None:
        return read_image_folder(Path(folder))
    for root in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (root / "sample_data" / "train").is_dir():
            return read_image_folder(root / "sample_data" / "train")
    raise ProfileError(
        f"No sample_data/train in {Path.cwd().name}: give --data FOLDER with one folder per class, "
        "or --loader."
    )


def read_image_folder(root: Path, side: int = SIDE) -> ImageFolder:
    """Every readable image in the class folders of `root`; ProfileError where there is none."""
    if not root.is_dir():
        raise ProfileError(f"No folder {root}: give --data a folder with one folder per class.")
    paths = sorted(p for p in root.glob("*/*") if p.suffix.lower() in EXTENSIONS)
    decodable = [path for path in paths if _can_decode(path)]
    if not decodable:
        raise ProfileError(f"No images in the class folders of {root}: give --data another folder.")
    classes = sorted({path.parent.name for path in decodable})
    labels = [classes.index(path.parent.name) for path in decodable]
    counts = f"{len(decodable)} images in {len(classes)} classes"
    notes = [f"data: {counts} of {root.name}, {side}x{side}."]
    if len(paths) > len(decodable):
        notes.append(f"{len(paths) - len(decodable)} files were left out: undecodable.")
    return ImageFolder(list(map(str, decodable)), labels, side, len(decodable), tuple(notes))


def _convert_to_rgb(image: Picture) -> Picture:
    """RGB pixels; transparency of a palette is dropped on purpose, so Pillow need not warn."""
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _can_decode(path: Path) -> bool:
    """True where Pillow decodes the file to its end."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
            _convert_to_rgb(image)
    except Exception:  # noqa: BLE001 - decoders raise anything on damaged bytes
        return False
    return True


def default_workers() -> int:
    """One core stays for the trainer."""
    return min(MAX_DEFAULT_WORKERS, max(1, usable_cores() - 1))


def make_torch_loader(
    data: ImageFolder, batch_size: int, workers: int | None, pin: bool
) -> DataLoader[tuple[Pixels, int]]:
    """A shuffling DataLoader over the dataset; workers stay alive between epochs."""
    import torch
    from torch.utils.data import DataLoader

    count = default_workers() if workers is None else workers
    order = torch.Generator().manual_seed(0)
    return DataLoader(
        # torch asks for __getitem__ alone
        cast("Dataset[tuple[Pixels, int]]", data.repeated(batch_size, count)),
        batch_size,
        shuffle=True,
        num_workers=count,
        drop_last=True,
        pin_memory=pin,
        persistent_workers=count > 0,
        generator=order,
    )


def make_keras_loader(data: ImageFolder, batch_size: int, workers: int | None) -> Loader:
    """A tf.data pipeline over the dataset: shuffled, loaded in parallel, channels last."""
    from pipeline_profiler.precision.backend_keras import import_tensorflow

    tf = import_tensorflow()
    dataset = data.repeated(batch_size, workers or default_workers())
    side = dataset.side

    def load(number: int) -> tuple[Pixels, int]:
        image, label = dataset[int(number)]
        return image.transpose(1, 2, 0), label

    def sample(number: Tensor) -> tuple[Tensor, Tensor]:
        image, label = tf.numpy_function(load, [number], [tf.float32, tf.int64])
        return tf.ensure_shape(image, (side, side, 3)), tf.ensure_shape(label, ())

    plain = tf.autograph.experimental.do_not_convert(sample)
    numbers = tf.data.Dataset.range(len(dataset)).shuffle(len(dataset), seed=0)
    loaded = numbers.map(plain, num_parallel_calls=workers or default_workers())
    batches: Loader = loaded.batch(batch_size, drop_remainder=True).prefetch(2)
    return batches
