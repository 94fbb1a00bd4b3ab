"""LOAD003: samples that an epoch leaves out or gives twice."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject, set_epoch
from pipeline_profiler.checking.toys import ToyImages, toy_loader
from pipeline_profiler.checking.user_calls import users_code

WITH_REPLACEMENT = ("WeightedRandomSampler",)
LEAST_STREAM = 16  # samples of each worker
CHANCE = 1e-6
MOST_COUNTED = 20_000


class Coverage(Check):
    """An epoch that leaves samples out, gives some twice, or has another length than it says.

    ## What it does
    Counts the indices of two epochs; for a stream, compares what its workers give with each other
    and the number of samples with and without workers.

    ## Why is this bad
    What is left out is never learned or never tested; what comes twice counts twice, and an epoch
    of a stream with four workers that each read all of it is four epochs.

    ## How it decides
    Fails where indices are missing or repeated although the sampler does not draw with
    replacement, where `len(loader)` is not the number of batches, or where workers of a stream
    give the same samples (same bytes, or labels that agree so long that chance does it less than
    once in a million). Counting has no false alarms.

    ## What to do
    In `__iter__` of a stream, take every n-th sample by `get_worker_info()`. Draw without
    replacement, or say that it is meant (WeightedRandomSampler, RandomSampler(replacement=True)).

    ## Limits
    A sampler of one's own that draws with replacement or on a part on purpose is reported as
    "cannot tell" where the counts fit that. Endless streams are seen at their beginning only.
    """

    code = "LOAD003"
    name = "samples-missing-or-twice"

    def run(self, subject: LoaderSubject) -> Answer:
        """Count."""
        if subject.has_indices:
            return _by_index(subject)
        if not subject.epochs[1]:
            return wrong(
                "The second epoch is empty: the loader can be read once only.",
                ["a generator, or an iterator, instead of a function that makes one"],
                "Return an object whose __iter__ starts again (a class, or a DataLoader over one).",
            )
        if subject.is_torch:
            return _by_worker(subject)
        return _by_passes(subject)

    @staticmethod
    def _stream(split: bool) -> Any:
        from torch.utils.data import IterableDataset, get_worker_info

        class Stream(IterableDataset):  # type: ignore[type-arg]
            def __iter__(self) -> Any:
                dataset, info = ToyImages(), get_worker_info()
                start, step = (info.id, info.num_workers) if info and split else (0, 1)
                return (dataset[i] for i in range(start, 256, step))

        return toy_loader(Stream(), shuffle=None, num_workers=2)

    @staticmethod
    def _weighted() -> Any:
        from torch.utils.data import WeightedRandomSampler

        return toy_loader(ToyImages(), sampler=WeightedRandomSampler([1.0] * 256, 256))

    @staticmethod
    def _used_up() -> LoaderSubject:
        return LoaderSubject(lambda: iter(list(toy_loader(ToyImages()))))

    PLANTED = (
        Example("a generator that is used up", _used_up),
        Example("a stream read whole by each worker", lambda: Coverage._stream(False)),
        Example(
            "an index missing, one twice", lambda: toy_loader(ToyImages(), sampler=[*range(255), 7])
        ),
    )
    HEALTHY = (
        Example("shuffled", lambda: toy_loader(ToyImages())),
        Example("a stream divided among workers", lambda: Coverage._stream(True)),
        Example("a weighted sampler", _weighted),
        Example("drop_last", lambda: toy_loader(ToyImages(250), drop_last=True)),
    )


def _by_index(subject: LoaderSubject) -> Answer:
    loader = subject.loader
    with users_code("len(dataset)"):
        total = len(loader.dataset)
    epochs = [list(chain(*order)) for order in subject.index_order(2)]
    counts = Counter(map(str, epochs[0]))
    drawn, unique = len(epochs[0]), len(counts)
    if not drawn:
        return wrong(
            f"An epoch is empty: the sampler takes none of {total} samples.",
            ["the dataset found no files", "drop_last=True and fewer samples than one batch"],
            "Print len(dataset), and the folder it looks in.",
            dataset=total,
        )
    numbers: dict[str, Any] = {"dataset": total, "drawn": drawn, "different": unique}
    declared, batches = _declared(loader), len(subject.index_order(1)[0])
    if declared is not None and declared != batches:
        return _failed(f"len(loader) is {declared}, and an epoch has {batches} batches.", numbers)
    if len(epochs[0]) != len(epochs[1]):
        lengths = f"{len(epochs[0])} and {len(epochs[1])}"
        return _failed(f"Two epochs differ in length: {lengths} samples.", numbers)
    if _replaces(loader):
        return passed(
            f"Drawn with replacement: {drawn} draws give {unique} of {total} samples.", **numbers
        )
    if drawn > unique:
        expected = total * (1 - (1 - 1 / total) ** drawn)
        if abs(unique - expected) < 0.1 * total and drawn - unique > 0.1 * total:
            return unclear(
                f"{drawn} draws give {unique} of {total} samples, as drawing with "
                "replacement does: right if it is meant.",
                **numbers,
            )
        return _failed(f"{drawn - unique} of {drawn} samples of an epoch are repeats.", numbers)
    return _missing(total, drawn, loader, numbers)


def _missing(total: int, drawn: int, loader: Any, numbers: dict[str, Any]) -> Answer:
    missing, size = total - drawn, loader.batch_size or 1
    sampler = getattr(loader, "sampler", None)
    if missing <= 0:
        return passed(f"All {total} samples come once an epoch.", **numbers)
    if missing < size and getattr(loader, "drop_last", False):
        return passed(
            f"{missing} of {total} samples are left out of an epoch by drop_last.", **numbers
        )
    if hasattr(sampler, "num_replicas") or hasattr(sampler, "indices"):
        return unclear(
            f"The sampler takes {drawn} of {total} samples: it is one of a part.", **numbers
        )
    return _failed(f"{missing} of {total} samples ({missing / total:.1%}) never come.", numbers)


def _declared(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _replaces(loader: Any) -> bool:
    sampler = getattr(loader, "sampler", None)
    kinds = [base.__name__ for base in type(sampler).__mro__]
    return any(k in kinds for k in WITH_REPLACEMENT) or bool(getattr(sampler, "replacement", False))


def _failed(text: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text,
        [
            "a sampler of one's own that counts wrongly",
            "__len__ of the dataset does not fit",
            "a range that ends too early",
        ],
        "Count the indices of the sampler: sorted(loader.sampler) should be range(len(dataset)).",
        **numbers,
    )


def _by_worker(subject: LoaderSubject) -> Answer:
    streams: dict[int, list[tuple[str, Any]]] = {}
    for batch in subject.batches:
        for record in batch.records:
            streams.setdefault(record.worker, []).append((record.digest, record.label))
    shortest = min(map(len, streams.values()))
    if len(streams) < 2:
        return passed("The stream is read by one process, so no sample comes twice for it.")
    if shortest < LEAST_STREAM:
        return unclear(f"A worker gave only {shortest} samples: too few to compare workers.")
    rows = [stream[:shortest] for stream in streams.values()]
    digests = [{digest for digest, _ in row} for row in rows]
    shared = len(digests[0] & digests[1]) / len(digests[0])
    if shared > 0.5 or _same_labels(rows[0], rows[1]):
        return wrong(
            f"{len(rows)} workers give the same samples ({shared:.0%} equal bytes among the first "
            f"{shortest}): each reads the whole stream, and an epoch holds everything "
            f"{len(rows)} times.",
            ["__iter__ does not look at get_worker_info()", "the shards are not split by worker"],
            "In __iter__: info = get_worker_info(); take samples info.id::info.num_workers.",
            workers=len(rows),
            shared=round(shared, 3),
        )
    return passed(
        f"The first {shortest} samples of {len(rows)} workers are different ones.",
        workers=len(rows),
    )


def _same_labels(one: list[tuple[str, Any]], two: list[tuple[str, Any]]) -> bool:
    """Whether labels agree longer than chance allows; bytes may differ by augmentation."""
    labels = [label for _, label in one]
    if any(label is None for label in labels) or labels != [label for _, label in two]:
        return False
    agree = sum((count / len(labels)) ** 2 for count in Counter(labels).values())
    return bool(agree ** len(labels) < CHANCE)


def _by_passes(subject: LoaderSubject) -> Answer:
    """Two passes over any iterable, counted."""
    loader = subject.fresh()
    counts = []
    for epoch in range(2):
        set_epoch(loader, epoch)
        count = 0
        for batch in subject.iterate(loader):
            count += subject.seen(batch).size
            if count >= MOST_COUNTED or subject.time_is_short():
                return unclear(f"The stream is longer than {count} samples, so it is not counted.")
        counts.append(count)
    if counts[0] != counts[1]:
        return _failed(f"Two epochs give {counts[0]} and {counts[1]} samples.", {"counts": counts})
    return passed(f"Two epochs give {counts[0]} samples each.", samples=counts[0])
