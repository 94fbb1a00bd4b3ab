"""The shipped loaders over `ImageData`: a torch DataLoader and a tf.data pipeline.

Both shuffle, load in parallel and drop the partial batch, so that the two frameworks are fed alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pipeline_profiler.precision.batches import Loader, Tensor
from pipeline_profiler.precision.image_data import ImageData, Pixels
from pipeline_profiler.precision.trainer_keras import import_tensorflow
from pipeline_profiler.record.cores import usable_cores

if TYPE_CHECKING:
    from torch.utils.data import DataLoader, Dataset

MOST_WORKERS = 8


def default_workers() -> int:
    """One core stays for the trainer."""
    return min(MOST_WORKERS, max(1, usable_cores() - 1))


def make_torch_loader(
    data: ImageData, batch_size: int, workers: int | None, pin: bool, seed: int = 0
) -> DataLoader[tuple[Pixels, int]]:
    """A shuffling DataLoader over the dataset; workers stay alive between epochs."""
    import torch
    from torch.utils.data import DataLoader

    count = default_workers() if workers is None else workers
    order = torch.Generator().manual_seed(seed)
    return DataLoader(
        cast("Dataset[tuple[Pixels, int]]", data.dataset),  # torch asks for __getitem__ alone
        batch_size,
        shuffle=True,
        num_workers=count,
        drop_last=True,
        pin_memory=pin,
        persistent_workers=count > 0,
        generator=order,
    )


def make_keras_loader(data: ImageData, batch_size: int, workers: int | None) -> Loader:
    """A tf.data pipeline over the dataset: shuffled, loaded in parallel, channels last."""
    tf = import_tensorflow()
    dataset, side = data.dataset, data.dataset.side

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
