"""LOAD010: inputs that are constant, or the same for different samples."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from pipeline_profiler.checking.batch_parts import digest_of
from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

LEAST = 8
MOST_CONSTANT, MOST_EQUAL, SOME = 0.2, 0.5, 0.02


class RepeatedPictures(Check):
    """Inputs without content, or one input for many samples.

    ## What it does
    Counts inputs in which all values are equal, and inputs of different index whose bytes agree.

    ## Why is this bad
    A cache with one slot, a buffer that is filled again before it was read, or a failed read that
    returns zeros: the labels go on, the pictures do not.

    ## How it decides
    Fails where more than a fifth of the inputs are constant, or more than half equal another one
    of different index. A dataset may hold copies and empty pictures, so fewer are "cannot tell"
    (from 2 % on); `audit scan` finds these.

    ## What to do
    Compare `dataset[0]` and `dataset[1]`; copy buffers before they are handed on.

    ## Limits
    Without indices (streams), equal inputs count only where their targets differ: a stream may
    repeat a small dataset on purpose, and then the targets repeat with it. Augmented copies differ.
    """

    code = "LOAD010"
    name = "inputs-repeated"

    def run(self, subject: LoaderSubject) -> Answer:
        """Count."""
        inputs = subject.inputs
        if inputs is None or len(inputs) < LEAST or inputs.ndim < 2:
            return unclear("There are fewer than 8 inputs of one shape.")
        flat = inputs.reshape(len(inputs), -1)
        constant = float((flat == flat[:, :1]).all(axis=1).mean()) if flat.shape[1] > 1 else 0.0
        told_apart_by, marks = _marks(subject, len(inputs))
        equal = _equal_share(inputs, marks)
        numbers = {"inputs": len(inputs), "constant": constant, "equal": equal}
        said = (
            f"{constant:.0%} of {len(inputs)} inputs are constant, {equal:.0%} equal an input "
            f"of another {told_apart_by}."
        )
        if constant > MOST_CONSTANT or equal > MOST_EQUAL:
            return wrong(
                said,
                [
                    "reading fails and zeros are returned",
                    "a buffer or cache hands out one picture",
                    "the index is not used",
                ],
                "Compare dataset[0] with dataset[1]; look at --grid.",
                **numbers,
            )
        if constant > SOME or equal > SOME:
            return unclear(
                said, "See which: audit scan FOLDER names copies and empty pictures.", **numbers
            )
        return passed(said, **numbers)

    @staticmethod
    def _planted(kind: str) -> Any:
        dataset = ToyImages()
        if kind == "zeros":
            dataset.pixels[::2] = 0
        else:
            dataset.pixels[:] = dataset.pixels[0]
        return toy_loader(dataset)

    @staticmethod
    def _weighted() -> Any:
        from torch.utils.data import WeightedRandomSampler

        weights = [100.0] * 4 + [1.0] * 60
        return toy_loader(ToyImages(64), sampler=WeightedRandomSampler(weights, 256))

    @staticmethod
    def _stream(labels_go_on: bool) -> Any:
        pictures, labels = ToyImages(16).pixels, np.arange(64) % (4 if labels_go_on else 16)

        def batches() -> Any:
            for start in range(0, 64, 8):
                rows = np.arange(start, start + 8)
                shown = np.zeros_like(rows) if labels_go_on else rows % 16
                yield pictures[shown], labels[rows]

        return list(batches())

    PLANTED = (
        Example("every second is zeros", lambda: RepeatedPictures._planted("zeros")),
        Example("one picture for all", lambda: RepeatedPictures._planted("same")),
        Example("a stream with one buffer", lambda: RepeatedPictures._stream(True)),
    )
    HEALTHY = (
        Example("different ones", lambda: toy_loader(ToyImages())),
        Example("few drawn often", _weighted),
        Example("a stream that repeats a small set", lambda: RepeatedPictures._stream(False)),
    )


def _marks(subject: LoaderSubject, count: int) -> tuple[str, list[str]]:
    """Return what tells samples apart, by name and for each input: the index, or the target."""
    if subject.has_indices:
        found = [str(r.index) for batch in subject.batches for r in batch.records]
        if len(found) == count:
            return "index", found
    labels = subject.labels
    if labels is not None and len(labels) == count:
        return "target", [str(label) for label in labels]
    return "place", [str(number) for number in range(count)]


def _equal_share(inputs: Any, marks: list[str]) -> float:
    """Share of inputs whose bytes are those of an input with another mark."""
    digests = [digest_of(np.ascontiguousarray(picture)) for picture in inputs]
    by_digest: dict[str, set[str]] = defaultdict(set)
    for digest, mark in zip(digests, marks, strict=True):
        by_digest[digest].add(mark)
    return float(np.mean([len(by_digest[digest]) > 1 for digest in digests]))
