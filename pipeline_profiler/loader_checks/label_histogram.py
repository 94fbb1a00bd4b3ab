"""LOAD012: labels of one class only."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

LEAST = 64


class LabelHistogram(Check):
    """A loader whose labels are all the same.

    ## What it does
    Counts the labels (or the targets of a regression) of the first batches.

    ## Why is this bad
    With one label there is nothing to learn, and the loss falls to zero at once.

    ## How it decides
    Fails where at least 64 samples have one target. With two classes of 13 % and 87 % or nearer
    to each other, this happens by chance less than once in 7,000 random orders; a rarer class may
    be missing, so it cannot tell where the dataset declares none of its own labels.

    ## What to do
    Look at how labels are found: a path that is split at the wrong place gives one name for all.

    ## Limits
    A detector of rare things has batches of one class: then skip this check.
    """

    code = "LOAD012"
    name = "one-label-only"

    def run(self, subject: LoaderSubject) -> Answer:
        """Count."""
        labels = subject.labels
        if labels is None:
            return unclear("Targets are not one value a sample.")
        values, counts = np.unique(labels, return_counts=True)
        if len(labels) < LEAST:
            return unclear(f"{len(labels)} samples are too few for a histogram.")
        most = int(counts.max())
        numbers = {"samples": len(labels), "different": len(values), "most": most}
        if len(values) == 1:
            return wrong(
                f"All {len(labels)} samples have the target {values[0]}.",
                [
                    "labels are read from the wrong part of the path or table",
                    "only one folder or class was listed",
                    "the data are stored class by class and not shuffled",
                ],
                "Print the labels of the dataset: set(label for _, label in dataset).",
                **numbers,
            )
        return passed(
            f"{len(labels)} samples have {len(values)} different targets; the most "
            f"frequent has {most / len(labels):.0%}.",
            **numbers,
        )

    @staticmethod
    def _planted() -> Any:
        dataset = ToyImages()
        dataset.labels[:] = 2
        return toy_loader(dataset)

    PLANTED = (Example("one label", _planted),)
    HEALTHY = (
        Example("four classes", lambda: toy_loader(ToyImages())),
        Example("few samples", lambda: toy_loader(ToyImages(16))),
    )
