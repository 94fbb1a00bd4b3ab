"""Made datasets, loaders and trainings for the examples of checks: small, seeded, learnable."""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.lazy import functional, nn, torch
from pipeline_profiler.checks.loop_facts import LoopFacts
from pipeline_profiler.checks.user_training import Training
from tests.pipeline_profiler.checks.examples import Made

CLASSES, HALF = 4, 4  # half of a side


class ToyRows:
    """Rows of arrays as a map-style dataset."""

    def __init__(self, *columns: Any) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(column[index] for column in self.columns)


class ToyImages:
    """Images of mean 0 and deviation 1, each class with a bright square of its own, on noise.

    augment: adds noise from numpy's global generator; ordered: stored class by class.
    """

    def __init__(
        self, count: int = 256, augment: bool = False, ordered: bool = False, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, CLASSES, count)
        coarse = rng.normal(0, 0.5, (count, 3, HALF, HALF))
        pixels = coarse.repeat(2, axis=2).repeat(2, axis=3)
        pixels += rng.normal(0, 0.2, pixels.shape)
        for number, label in enumerate(labels):
            top, left = HALF * (label // 2), HALF * (label % 2)
            pixels[number, label % 3, top : top + HALF, left : left + HALF] += 2.0
        order: Any = np.argsort(labels, kind="stable") if ordered else slice(None)
        self.pixels: Any = ((pixels - pixels.mean()) / pixels.std()).astype(np.float32)[order]
        self.labels: Any = labels.astype(np.int64)[order]
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        pixels = self.pixels[index]
        if self.augment:
            pixels = pixels + np.random.normal(0, 0.05, pixels.shape).astype(np.float32)
        return pixels, int(self.labels[index])


class ChangedImages(ToyImages):
    """Images that are changed whenever they are read: `change(pixels, label)`."""

    def __init__(self, change: Callable[[Any, int], Any], count: int = 256) -> None:
        super().__init__(count)
        self.change = change

    def __getitem__(self, index: int) -> Any:
        return self.change(*super().__getitem__(index))


def changed_images(pixels: Any = None, labels: Any = None, **options: Any) -> Any:
    """Images of which all pixels or all labels are changed by a function."""
    dataset: Any = ToyImages(**options)
    dataset.pixels = pixels(dataset.pixels) if pixels else dataset.pixels
    dataset.labels = labels(dataset.labels) if labels else dataset.labels
    return dataset


def colour_folder() -> Any:
    """A temporary folder of forty PNG files of random colours, deleted with the object."""
    from PIL import Image

    folder, rng = tempfile.TemporaryDirectory(), np.random.default_rng(0)
    for number in range(40):
        colour = rng.integers(0, 180, (1, 1, 3)) + rng.integers(0, 76, (12, 12, 3))
        Image.fromarray(colour.astype(np.uint8)).save(f"{folder.name}/{number}.png")
    return folder


class ColourFiles:
    """The files of such a folder, each read and changed by `transform`."""

    def __init__(self, folder: Any, transform: Callable[[Any], Any]) -> None:
        self.folder, self.transform = folder, transform
        self.files = sorted(Path(folder.name).glob("*.png"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        return self.transform(Image.open(self.files[index])), 0


def toy_stream(order: Callable[[], Iterable[int]], dataset: Any = None) -> Any:
    """A dataset that is a stream: images in the order that each epoch gives."""

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return map((dataset or ToyImages()).__getitem__, order())

    return Stream()


def toy_told() -> Any:
    """A loader whose order the epoch gives, which no loop here sets."""

    class ByEpoch:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Any:
            return iter(np.random.default_rng(self.epoch).permutation(256).tolist())

        def __len__(self) -> int:
            return 256

    return toy_loader(ToyImages(), sampler=ByEpoch())


def toy_loader(dataset: Any, **options: Any) -> Any:
    """A DataLoader: batches of 16, shuffled, without workers, unless `options` say otherwise."""
    options = {"batch_size": 16, "shuffle": True} | options
    if "sampler" in options or "batch_sampler" in options:
        options.pop("shuffle")
    if "batch_sampler" in options:
        options.pop("batch_size")
    return torch.utils.data.DataLoader(dataset, **options)


def toy_pictures() -> Any:
    """The loader of most examples: images, shuffled."""
    return toy_loader(ToyImages())


def toy_weighted() -> Any:
    """Images of one class come more often than the others, on purpose."""
    weights = np.where(ToyImages().labels == 0, 5.0, 1.0).tolist()
    return toy_loader(ToyImages(), sampler=torch.utils.data.WeightedRandomSampler(weights, 256))


# ---- trainings ----


def toy_net(*last: Any, width: int = 24, classes: int = CLASSES) -> Any:
    """Convolution, batch norm, ReLU, linear; `last` are modules after the outputs."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
        *last,
    )


def toy_around(forward: Callable[[Any, Any], Any], net: Any = None) -> Any:
    """A module with a forward of its own around a network: `forward(net, inputs)`."""

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = toy_net() if net is None else net

        def forward(self, inputs: Any) -> Any:
            return forward(self.net, inputs)

    return Around()


def descent(kind: str, rate: float, **options: Any) -> Callable[[Any], Any]:
    """What makes an optimizer of torch for a model, by its name and learning rate."""

    def make(model: Any) -> Any:
        return getattr(torch.optim, kind)(model.parameters(), lr=rate, **options)

    return make


def warm_up_and_decay(optimizer: Any) -> Any:
    """A schedule of 100 steps: ten up to the rate, the others down to nothing."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda count: min((count + 1) / 10, max(0.0, (100 - count) / 90))
    )


def toy_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
    """A step as users write it."""
    optimizer.zero_grad()
    value = loss(model(batch[0]), batch[1])
    value.backward()
    optimizer.step()
    return value


def toy_training(model: Any = None, loss: Any = None, **parts: Any) -> Training:
    """Adam at 0.003 on shuffled toy pictures; `optimizer` may be a function of the model."""
    model = model if model is not None else toy_net()
    make_optimizer: Callable[..., Any] = parts.pop("optimizer", descent("Adam", 3e-3))
    loader = parts.pop("loader", None) or toy_loader(ToyImages())
    optimizer = make_optimizer(model)
    schedule = parts.pop("schedule", lambda o: None)(optimizer)
    return Training(
        model, loader, loss or nn.CrossEntropyLoss(), optimizer, schedule=schedule, **parts
    )


def loop_seen(**facts: Any) -> Callable[[], Training]:
    """A toy training with these facts of a loop of six steps and two epochs."""
    made = LoopFacts(**{"steps": 6, "epochs": 2, "evaluations": 2, "after_evaluation": 1, **facts})
    return lambda: toy_training(loop=made)


def toy_regression(
    flat: bool = False, scale: float = 1.0, mean: float = 0.0, **parts: Any
) -> Training:
    """Squared error of a target that is nearly linear in eight numbers; `flat`: without an axis."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(0, 1, (256, 8)).astype(np.float32)
    target = (inputs[:, :2].sum(axis=1) + 0.1 * rng.normal(0, 1, 256)) * scale + mean * 1.4
    rows = ToyRows(inputs, target.astype(np.float32).reshape((256,) if flat else (256, 1)))
    model = parts.pop("model", None) or nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    loss = parts.pop("loss", None) or nn.MSELoss()
    return toy_training(model, loss, loader=toy_loader(rows), **parts)


def toy_language(causal: bool = True, ignore: bool = True, ahead: int = 1) -> Training:
    """A one-layer transformer over rows of tokens that count upwards and from 1 again after 8.

    Its target is the token `ahead` positions further on; both are padded with 0 at the end.
    """

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 16)
            self.place = nn.Embedding(12, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
            self.head = nn.Linear(16, 9)

        def forward(self, tokens: Any) -> Any:
            length = tokens.shape[1]
            mask = nn.Transformer.generate_square_subsequent_mask(length) if causal else None
            places = torch.arange(length, device=tokens.device)
            return self.head(self.layer(self.embed(tokens) + self.place(places), src_mask=mask))

    def loss(outputs: Any, targets: Any) -> Any:
        ignored = 0 if ignore else -100
        flat = outputs.reshape(-1, outputs.shape[-1])
        return functional.cross_entropy(flat, targets.reshape(-1), ignore_index=ignored)

    rng = np.random.default_rng(0)
    start, stop = rng.integers(0, 8, 256), rng.integers(5, 13, 256)
    tokens = (start[:, None] + np.arange(12 + ahead)) % 8 + 1
    padded = np.arange(12) >= stop[:, None]
    rows = ToyRows(*(np.where(padded, 0, part) for part in (tokens[:, :12], tokens[:, ahead:])))
    return toy_training(Net(), loss, loader=toy_loader(rows))


HEALTHY_TOYS: dict[str, Made] = {  # that no check of a family may fail
    "LOAD": (("pictures", toy_pictures), ("a weighted sampler", toy_weighted)),
    "TRAIN": (("classes", toy_training), ("numbers", toy_regression), ("tokens", toy_language)),
    "LOG": (),
}
