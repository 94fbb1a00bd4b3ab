"""Batches for the precision sweep: an image folder read and augmented as training would, or noise.

The shipped loader reads class folders with Pillow, crops at random and flips, in worker processes:
real loading work on real files. The dataset is a plain object (no torch import), so that spawned
workers start quickly. A short list of files is read several times in one epoch, and says so:
an epoch of three batches would time the start of epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.record.cores import usable_cores
from pipeline_profiler.record.session import ProfileError

SIDE, PADDING = 32, 4
SHORTEST_EPOCH = 4096
EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
MOST_WORKERS = 8


class ImageFolder:
    """Class folders as (image float32 (3, side, side) in [-1, 1], label), with augmentation."""

    def __init__(self, files: list[str], labels: list[int], side: int, length: int) -> None:
        """`length` samples an epoch; sample i is file i modulo the number of files."""
        self.files, self.labels, self.side, self.length = files, labels, side, length

    def __len__(self) -> int:
        """Samples an epoch."""
        return self.length

    def __getitem__(self, i: int) -> tuple[np.ndarray[Any, Any], int]:
        """Decode, resize, pad and crop at random, flip half the time."""
        from PIL import Image

        at = i % len(self.files)
        rng = np.random.default_rng((i, np.random.randint(2**31)))
        wide = self.side + 2 * PADDING
        with Image.open(self.files[at]) as image:
            pixels = np.asarray(_rgb(image).resize((wide, wide)), dtype=np.float32)
        y, x = rng.integers(0, 2 * PADDING + 1, 2)
        pixels = pixels[y : y + self.side, x : x + self.side]
        if rng.integers(2):
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)) / 127.5 - 1, self.labels[at]


class Noise:
    """Random pictures, different ones: where there is no folder of images."""

    def __init__(self, classes: int, side: int, length: int) -> None:
        """`length` samples an epoch."""
        self.classes, self.side, self.length = classes, side, length

    def __len__(self) -> int:
        """Samples an epoch."""
        return self.length

    def __getitem__(self, i: int) -> tuple[np.ndarray[Any, Any], int]:
        """One picture, the same for the same number."""
        rng = np.random.default_rng(i)
        made = rng.standard_normal((3, self.side, self.side), dtype=np.float32)
        return made, int(rng.integers(self.classes))


@dataclass(frozen=True)
class Data:
    """A dataset, how many classes it has, and what to say about it."""

    dataset: Any
    classes: int
    notes: tuple[str, ...]


def find_data(folder: str | None) -> Data:
    """The given folder of images, else sample_data/train here or beside the package, else noise."""
    if folder is not None:
        return image_folder(Path(folder))
    own = Path(__file__).resolve().parents[2]
    for root in (Path.cwd(), own):
        if (root / "sample_data" / "train").is_dir():
            return image_folder(root / "sample_data" / "train")
    return noise(f"no sample_data/train in {Path.cwd().name}: give --data FOLDER for real files")


def noise(reason: str, classes: int = 10, length: int = SHORTEST_EPOCH) -> Data:
    """Random pictures, with the reason."""
    text = f"pictures are random numbers ({reason}); the loader reads and decodes nothing."
    return Data(Noise(classes, SIDE, length), classes, (text,))


def image_folder(root: Path, side: int = SIDE, shortest: int = SHORTEST_EPOCH) -> Data:
    """Every readable image in the class folders of `root`; ProfileError where there is none."""
    if not root.is_dir():
        raise ProfileError(f"No folder {root}: give --data a folder with one folder a class.")
    found = sorted(p for p in root.glob("*/*") if p.suffix.lower() in EXTENSIONS)
    try:
        good = [path for path in found if _readable(path)]
    except ImportError:
        return noise("Pillow is not installed: pip install pillow")
    if not good:
        raise ProfileError(f"No images in the class folders of {root}: give --data another folder.")
    classes = sorted({path.parent.name for path in good})
    labels = [classes.index(path.parent.name) for path in good]
    times = max(1, -(-shortest // len(good)))
    notes = [f"data: {len(good)} images in {len(classes)} classes of {root.name}, {side}x{side}."]
    if len(found) > len(good):
        notes.append(f"{len(found) - len(good)} files were left out: undecodable.")
    if times > 1:
        notes.append(f"The file list is read {times} times an epoch: it is short.")
    dataset = ImageFolder([str(p) for p in good], labels, side, len(good) * times)
    return Data(dataset, len(classes), tuple(notes))


def _rgb(image: Any) -> Any:
    """RGB pixels; transparency of a palette is dropped on purpose, so Pillow need not warn."""
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _readable(path: Path) -> bool:
    """True where Pillow decodes the file to its end."""
    import warnings

    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(path) as image:
            warnings.simplefilter("ignore")
            _rgb(image)
    except ImportError:
        raise
    except Exception:  # noqa: BLE001 - decoders raise anything on damaged bytes
        return False
    return True


def default_workers() -> int:
    """One core stays for the trainer."""
    return min(MOST_WORKERS, max(1, usable_cores() - 1))


def torch_loader(data: Data, batch_size: int, workers: int | None, pin: bool, seed: int = 0) -> Any:
    """A shuffling DataLoader over the dataset; workers stay alive between epochs."""
    import torch
    from torch.utils.data import DataLoader

    count = default_workers() if workers is None else workers
    order = torch.Generator().manual_seed(seed)
    return DataLoader(
        data.dataset,
        batch_size,
        shuffle=True,
        num_workers=count,
        drop_last=True,
        pin_memory=pin,
        persistent_workers=count > 0,
        generator=order,
    )
