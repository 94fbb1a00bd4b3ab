"""LOAD001: workers or epochs that draw the same random numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject, SeenBatch
from pipeline_profiler.checking.stream_probe import SampleRecord
from pipeline_profiler.checking.toys import ToyImages, toy_loader


class RandomStreams(Check):
    """Workers, epochs or samples that get the same random numbers.

    ## What it does
    Reads the state of every generator in reach (random, numpy, torch, and generator objects that
    the dataset or its parts hold) before and after each sample, in the worker that makes it.

    ## Why is this bad
    Augmentations that repeat are fewer augmentations: with four workers on one stream, each draw
    is used four times; with a stream that starts again each epoch, the data never change.

    ## How it decides
    Fails where a generator that was drawn from had the same state in two workers, in one worker
    at the start of both epochs, or after samples of different index. Equal states are equal
    numbers, so there is no false alarm by chance. A loader that draws nothing passes.

    ## What to do
    Draw from torch's generator, which is seeded by worker and epoch; or seed generators of your
    own in `worker_init_fn` from `torch.initial_seed()`.

    ## Limits
    torch's DataLoader only. Generators made anew inside a sample, from its index, are not seen;
    global ones seeded from the index are reported as "cannot tell".
    """

    code = "LOAD001"
    name = "repeated-random-numbers"

    def run(self, subject: LoaderSubject) -> Answer:
        """Compare the states."""
        if not subject.is_torch:
            return unclear("Only a DataLoader of torch shows the random numbers of its workers.")
        epochs = [_records(batches) for batches in subject.epochs]
        used = sorted({name for r in epochs[0] for name in r.used()})
        if not used:
            return passed(
                f"No generator is drawn from while samples are made: nothing of the "
                f"{len(epochs[0])} samples is random.",
                samples=len(epochs[0]),
            )
        problems = [text for name in used for text in _problems(name, epochs)]
        if problems:
            return _failed(problems, used, subject.workers)
        fixed = [name for name in used if _seeded_by_index(name, epochs)]
        if fixed:
            return unclear(
                f"{', '.join(fixed)} is seeded from the index of the sample: the same picture gets "
                "the same random numbers each epoch. Right for evaluation and for made data, not "
                "for augmentation.",
                streams=fixed,
            )
        return passed(
            f"{', '.join(used)}: different in all {max(1, subject.workers)} workers and in both "
            f"epochs, over {len(epochs[0])} samples.",
            streams=used,
        )

    @staticmethod
    def _planted_constant() -> Any:
        def seed_all_alike(worker: int) -> None:
            np.random.seed(0)

        return toy_loader(ToyImages(augment=True), num_workers=2, worker_init_fn=seed_all_alike)

    @staticmethod
    def _planted_held() -> Any:
        dataset = ToyImages()
        rng = np.random.default_rng(3)
        dataset.noise = rng  # type: ignore[attr-defined]
        plain = ToyImages.__getitem__

        class Held(ToyImages):
            def __getitem__(self, index: int) -> Any:
                pixels, label = plain(self, index)
                return pixels + rng_of(self).normal(), label

        dataset.__class__ = Held
        return toy_loader(dataset, num_workers=2)

    @staticmethod
    def _planted_sample() -> Any:
        class Reseeded(ToyImages):
            def __getitem__(self, index: int) -> Any:
                random.seed(42)
                pixels, label = super().__getitem__(index)
                return pixels * random.uniform(0.9, 1.1), label

        return toy_loader(Reseeded())

    @staticmethod
    def _healthy() -> Any:
        return toy_loader(ToyImages(augment=True), num_workers=2)

    @staticmethod
    def _by_index() -> Any:
        class ByIndex(ToyImages):
            def __getitem__(self, index: int) -> Any:
                random.seed(index)
                pixels, label = super().__getitem__(index)
                return pixels * random.uniform(0.9, 1.1), label

        return toy_loader(ByIndex())

    PLANTED = (
        Example("workers seeded alike", _planted_constant),
        Example("a generator held by the dataset", _planted_held),
        Example("a seed in each sample", _planted_sample),
    )
    HEALTHY = (
        Example("torch seeds its workers", _healthy),
        Example("nothing random", lambda: toy_loader(ToyImages(), num_workers=2)),
        Example("seeded from the index", _by_index),
    )


def rng_of(dataset: Any) -> np.random.Generator:
    """The generator of the example."""
    generator: np.random.Generator = dataset.noise
    return generator


def _records(batches: list[SeenBatch]) -> list[SampleRecord]:
    return [record for batch in batches for record in batch.records]


def _problems(name: str, epochs: list[list[SampleRecord]]) -> list[str]:
    now, later = (_first_states(name, records) for records in epochs)
    found = []
    if len(now) > 1 and len(set(now.values())) < len(now):
        found.append(f"{name} is in the same state in several of {len(now)} workers")
    both = [worker for worker in now if worker in later]
    if both and any(now[w] == later[w] for w in both):
        found.append(f"{name} starts the second epoch in the state of the first")
    drawn = [r for r in epochs[0] if name in r.used() and r.worker == epochs[0][0].worker]
    after = {r.after[name] for r in drawn}
    if len({str(r.index) for r in drawn}) > 4 and len(after) == 1:
        found.append(f"{name} ends every sample in the same state: it is seeded in each")
    return found


def _first_states(name: str, records: list[SampleRecord]) -> dict[int, str]:
    states: dict[int, str] = {}
    for record in records:
        if name in record.used():
            states.setdefault(record.worker, record.before[name])
    return states


def _seeded_by_index(name: str, epochs: list[list[SampleRecord]]) -> bool:
    now, later = ({str(r.index): r for r in e if name in r.used()} for e in epochs)
    both = [i for i in now if i in later and now[i].before[name] != later[i].before[name]]
    return bool(both) and all(now[i].after[name] == later[i].after[name] for i in both)


def _failed(problems: list[str], used: list[str], workers: int) -> Answer:
    held = any("dataset" in text for text in problems)
    own = "a generator object made once, in the main process, is copied into every worker"
    init = "worker_init_fn seeds all workers, or all epochs, with one number"
    inside = "a seed is set while a sample is made"
    causes = [own, init, inside] if held else [init, inside, own]
    if any("in each" in text for text in problems):
        causes = [inside, init]
    return wrong(
        f"{'; '.join(problems)}: the same random numbers are used again.",
        causes,
        "Seed it in worker_init_fn from torch.initial_seed() % 2**32, or draw from torch.",
        streams=used,
        workers=workers,
    )
