"""LOAD002: an order that is not random."""

from __future__ import annotations

import math
from itertools import chain, pairwise
from typing import Any

import numpy as np

from pipeline_profiler.adapters import kind_of
from pipeline_profiler.adapters.tf_graph import name_of, prefixes
from pipeline_profiler.checking.chance import FAR, neighbour_score, order_score, trend_score
from pipeline_profiler.checking.chance import entropy_score as batch_entropy_score
from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.rank_shards import sample_digests
from pipeline_profiler.checking.toys import ToyImages, toy_loader

LEAST = 64  # samples, or labels
SAME_REGION = 0.9  # a buffer of a fifth of the dataset gives about so much
SAME_MATES = 0.5  # share of pairs within a batch that meet again in the next epoch


class Shuffling(Check):
    """A training order that still follows the storage, repeats, or comes class by class.

    ## What it does
    Compares the order of indices with random permutations, the batches of two epochs with each
    other, and the labels in the order of delivery with permutations of themselves (equal
    neighbours, entropy in a batch).

    ## Why is this bad
    Batches of one class make gradients that undo each other, batch statistics that no test batch
    has, and a loss that swings with the period of the data.

    ## How it decides
    Fails where the rank correlation of position and stored index, the share of equal neighbours,
    or the loss of entropy in a batch lies 5.5 deviations beyond permutations (a random order does
    once in 10 million), where two epochs have the same order, or where half of the pairs in a
    batch meet again. Of a stream the orders of two epochs are compared, samples known by their
    bytes: it fails where they correlate by 0.9 or more and are not equal (a buffer of less than a
    fifth of the data), and cannot tell where they are equal. With fewer than 64 samples it cannot
    tell. Weighted and balanced sampling pass: the comparison is with permutations of what was
    drawn.

    ## What to do
    `shuffle=True`; for streams a buffer larger than the runs of one class, or shuffled shards.

    ## Limits
    A stream has no indices, so only its labels are judged. Sorted by a thing that no label shows
    (scene, hour) is seen through indices only. A loader for evaluation is not judged.
    """

    code = "LOAD002"
    name = "order-not-random"

    def run(self, subject: LoaderSubject) -> Answer:
        """Judge indices first, then labels."""
        if subject.evaluation:
            return unclear("The order of a loader for evaluation does not matter.")
        by_index = _judge_indices(subject) if subject.has_indices else _judge_epochs(subject)
        by_label = _judge_labels(subject)
        answers = [a for a in (by_index, by_label) if a is not None]
        failed = [a for a in answers if a.judgement == "fail"]
        certain = [a for a in answers if a.judgement == "pass"]
        if failed:
            return failed[0]
        return (certain or answers or [unclear("There are neither indices nor labels to judge.")])[
            0
        ]

    @staticmethod
    def _buffered() -> Any:
        rng = np.random.default_rng(0)
        waiting = list(range(256))
        order = [waiting.pop(int(rng.integers(min(8, len(waiting))))) for _ in range(256)]
        return toy_loader(ToyImages(ordered=True), sampler=order)

    @staticmethod
    def _batches_only() -> Any:
        class Blocks:
            def __iter__(self) -> Any:
                blocks = [list(range(at, at + 16)) for at in range(0, 256, 16)]
                return iter([blocks[i] for i in np.random.permutation(16)])

            def __len__(self) -> int:
                return 16

        return toy_loader(ToyImages(), batch_sampler=Blocks())

    @staticmethod
    def _sorted_stream() -> Any:
        from torch.utils.data import IterableDataset

        class Stream(IterableDataset):  # type: ignore[type-arg]
            def __iter__(self) -> Any:
                dataset = ToyImages(ordered=True)
                return (dataset[i] for i in range(256))

        return toy_loader(Stream(), shuffle=None)

    @staticmethod
    def _weighted() -> Any:
        from torch.utils.data import WeightedRandomSampler

        weights = np.where(ToyImages().labels == 0, 5.0, 1.0)
        return toy_loader(ToyImages(), sampler=WeightedRandomSampler(weights.tolist(), 256))

    @staticmethod
    def _stream() -> Any:
        from torch.utils.data import IterableDataset

        class Stream(IterableDataset):  # type: ignore[type-arg]
            def __iter__(self) -> Any:
                dataset = ToyImages()
                return (dataset[i] for i in range(256))

        return toy_loader(Stream(), shuffle=None)

    @staticmethod
    def _buffered_stream(buffer: int) -> Any:
        from torch.utils.data import IterableDataset

        class Stream(IterableDataset):  # type: ignore[type-arg]
            def __iter__(self) -> Any:
                dataset, waiting = ToyImages(), list(range(256))
                while waiting:
                    chosen = int(np.random.randint(min(buffer, len(waiting))))
                    yield dataset[waiting.pop(chosen)]

        return toy_loader(Stream(), shuffle=None)

    PLANTED = (
        Example("a stream with a buffer of ten", lambda: Shuffling._buffered_stream(10)),
        Example("not shuffled", lambda: toy_loader(ToyImages(), shuffle=False)),
        Example(
            "stored class by class", lambda: toy_loader(ToyImages(ordered=True), shuffle=False)
        ),
        Example("a buffer of eight", _buffered),
        Example("batches shuffled, not samples", _batches_only),
        Example("a stream class by class", _sorted_stream),
    )
    HEALTHY = (
        Example("shuffled", lambda: toy_loader(ToyImages(ordered=True))),
        Example("a weighted sampler", _weighted),
        Example("a stream in random order", _stream),
        Example("a stream with a large buffer", lambda: Shuffling._buffered_stream(200)),
        Example("32 samples", lambda: toy_loader(ToyImages(32))),
    )


def _judge_indices(subject: LoaderSubject) -> Answer | None:
    batches, again = subject.index_order(2)
    try:
        first, second = ([int(i) for i in chain(*order)] for order in (batches, again))
    except (TypeError, ValueError):
        return None
    if len(first) < LEAST:
        return unclear(f"{len(first)} samples an epoch are too few to judge an order.")
    score = order_score(first)
    if abs(score) > FAR:
        return wrong(
            f"The order follows the storage: position and index correlate, {abs(score):.0f} "
            f"deviations from a random order of {len(first)} samples.",
            [
                "shuffle=False",
                "a shuffle buffer much smaller than the dataset",
                "a sampler of one's own that sorts",
            ],
            "Set shuffle=True, or enlarge the buffer; --evaluation if it is for evaluation.",
            score=round(score, 1),
            samples=len(first),
        )
    if first == second:
        return wrong(
            f"Two epochs have the same order of {len(first)} samples.",
            ["a sampler that is seeded in each epoch", "set_epoch is missing", "a fixed list"],
            "Let the seed of the sampler depend on the epoch.",
            samples=len(first),
        )
    share = _met_again(batches, again)
    if share > SAME_MATES and len(batches) > 2:
        return wrong(
            f"{share:.0%} of the pairs in a batch meet again in the next epoch: batches are "
            "shuffled, samples are not.",
            ["the batches or shards are shuffled, and not what is in them"],
            "Shuffle the samples before they are put into batches.",
            met_again=round(share, 3),
        )
    return passed(
        f"The order of {len(first)} samples is like a random one (score {score:+.1f} deviations) "
        "and differs between epochs.",
        score=round(score, 2),
        samples=len(first),
    )


def _judge_epochs(subject: LoaderSubject) -> Answer | None:
    """The order of a stream in its second epoch against the first, samples known by their bytes."""
    if not all(subject.epochs):
        return None
    first, second = ([d for b in e for d in sample_digests(b.raw)] for e in subject.epochs)
    later = {digest: place for place, digest in enumerate(second)}
    shared = [later[digest] for digest in dict.fromkeys(first) if digest in later]
    if len(shared) < LEAST or len(set(first)) < 0.9 * len(first):
        return None
    share = order_score(shared) / math.sqrt(len(shared) - 1)
    numbers = {"correlation": round(share, 3), "samples": len(shared)}
    if share < SAME_REGION:
        said = f"The orders of two epochs correlate by {share:.2f} over {len(shared)} samples."
        return passed(said, **numbers) if abs(share) < 0.5 else unclear(said, "", **numbers)
    shuffles = [op for op in _operations(subject.loader) if op[0].startswith("Shuffle")]
    if first[: len(shared)] != second[: len(shared)] or shuffles:
        buffer = f" (shuffle({shuffles[0][1]}))" if shuffles else ""
        return wrong(
            f"A sample comes at almost the same place in each epoch{buffer}: the orders of two "
            f"epochs correlate by {share:.3f} over {len(shared)} samples.",
            [
                "a shuffle buffer much smaller than the dataset",
                "reshuffle_each_iteration=False, or a seed that is set again in each epoch",
            ],
            "Enlarge the buffer to a fifth of the dataset or more, or shuffle files first.",
            **numbers,
        )
    return unclear(
        f"Two epochs of the stream have the same order of {len(shared)} samples.",
        "Right where the data are stored in random order; else shuffle files and use a buffer.",
        **numbers,
    )


def _operations(loader: Any) -> list[tuple[str, int]]:
    """(name, buffer size) of the operations of a tf.data graph."""
    if kind_of(loader) != "tf":
        return []
    return [(name_of(op), int(getattr(op, "_buffer_size", 0) or 0)) for op in prefixes(loader)]


def _met_again(batches: list[list[Any]], again: list[list[Any]]) -> float:
    """Share of neighbouring pairs of a batch that are in one batch of the next epoch too."""
    place = {index: number for number, batch in enumerate(again) for index in batch}
    pairs = [(a, b) for batch in batches for a, b in pairwise(batch) if a != b]
    met = [place[a] == place[b] for a, b in pairs if a in place and b in place]
    return sum(met) / len(met) if met else 0.0


def _judge_labels(subject: LoaderSubject) -> Answer | None:
    labels = subject.labels
    if labels is None or len(labels) < LEAST:
        return None
    if labels.dtype.kind == "f" and len(np.unique(labels)) > len(labels) // 2:
        score = trend_score(labels)
        if score > FAR:
            return _clumped(f"Neighbouring targets correlate: {score:.0f} deviations", score)
        return passed(f"Neighbouring targets do not correlate ({score:+.1f} deviations).")
    if len(np.unique(labels)) < 2:
        return None
    score, share, expected = neighbour_score(labels)
    if score > FAR:
        return _clumped(
            f"{share:.0%} of neighbours have the same label, {expected:.0%} are "
            f"expected: {score:.0f} deviations",
            score,
        )
    sizes = [b.size for b in subject.batches]
    parts = np.split(labels, np.cumsum(sizes)[:-1])
    loss, has, should = batch_entropy_score(parts) if len(parts) > 2 else (0.0, 0.0, 0.0)
    if loss < -FAR and has < 0.9 * should:
        return _clumped(
            f"Labels in a batch have an entropy of {has:.2f} nats, {should:.2f} are "
            f"expected: {-loss:.0f} deviations",
            -loss,
        )
    return passed(
        f"{share:.0%} of neighbours have the same label, {expected:.0%} are expected.",
        score=round(score, 2),
    )


def _clumped(text: str, score: float) -> Answer:
    return wrong(
        f"{text} from a random order of the same labels.",
        [
            "the data are stored class by class and not shuffled",
            "a shuffle buffer that is smaller than the runs of one class",
            "shards of one class each",
        ],
        "Shuffle the list of files once before sharding, or enlarge the buffer.",
        score=round(score, 1),
    )
