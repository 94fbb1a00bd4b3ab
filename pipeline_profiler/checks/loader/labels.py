"""The labels of the first batches: their range, and how many classes they are of."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checks.check import Answer, Check, passed, unclear, wrong
from pipeline_profiler.checks.loader_subject import LoaderSubject, dataset_layers
from pipeline_profiler.checks.toys import ToyImages, toy_loader

IGNORED = (-100, -1, 255)  # torch's ignore_index, and those of common segmentation sets
LEAST_RANGE = 64


class LabelRange(Check):
    """Labels below 0, from K on, or all shifted by one.

    ## What it does
    Least and largest label of the first batches against the number of classes: `--classes`, or the
    dataset's own `classes`.

    ## Why is this bad
    A label of K is an index error on the CPU and garbage on some devices; labels from 1 to K leave
    output 0 without a class.

    ## How it decides
    Fails with a negative label (other than the ignored -100 and -1), one from K on (other than
    255), or a label that is not whole. Exact. Where K is not known and no label is 0 among 64, it
    cannot tell.

    ## What to do
    Subtract 1; or build the mapping from names to numbers once, for all splits.

    ## Limits
    Whole-number targets only; targets of a regression are not judged.
    """

    code = "LOAD011"
    name = "labels-out-of-range"

    def run(self, subject: LoaderSubject) -> Answer:
        parts = [b.targets for b in subject.batches if b.targets is not None]
        if not parts or any(p.dtype.kind not in "iu" for p in parts):
            return unclear("The targets are no whole numbers.")
        labels = np.concatenate([p.reshape(-1) for p in parts]).astype(np.int64)
        labels = labels[~np.isin(labels, IGNORED)]
        if not len(labels):
            return unclear("All targets are of the ignored kind.")
        classes = subject.classes or _declared_classes(subject)
        low, high = int(labels.min()), int(labels.max())
        numbers: dict[str, Any] = {"least": low, "largest": high, "classes": classes or "unknown"}
        beyond = classes is not None and high >= classes
        if low < 0 or beyond:
            shifted = low == 1 and high == classes
            causes = [
                "labels begin at 1" if shifted else "labels come from another mapping of names",
                "the number of classes is too small",
                "a label for 'ignore' that the loss does not know",
            ]
            return wrong(
                f"Labels run from {low} to {high}, and {classes or 'K'} classes allow 0 to "
                f"{classes - 1 if classes else 'K-1'}.",
                causes,
                "Subtract 1."
                if shifted
                else "Print the mapping from names to labels of every split.",
                **numbers,
            )
        if classes is None:
            if low > 0 and len(labels) >= LEAST_RANGE:
                return unclear(
                    f"Labels run from {low} to {high}: none is 0 among {len(labels)}.",
                    "Say how many classes there are: --classes K.",
                    **numbers,
                )
            return passed(f"Labels run from {low} to {high}, none negative.", **numbers)
        return passed(f"Labels run from {low} to {high} of {classes} classes.", **numbers)

    @staticmethod
    def _shifted(classes: int | None, shift: int) -> Any:
        def make() -> Any:
            dataset = ToyImages()
            dataset.labels = dataset.labels + shift
            return toy_loader(dataset)

        return LoaderSubject(make, classes=classes)

    PLANTED = (
        ("1 to K", lambda: LabelRange._shifted(4, 1)),
        ("negative", lambda: LabelRange._shifted(None, -3)),
    )
    HEALTHY = (
        ("0 to K-1", lambda: LabelRange._shifted(4, 0)),
        ("K is not known", lambda: LabelRange._shifted(None, 1)),
    )


def _declared_classes(subject: LoaderSubject) -> int | None:
    for layer in dataset_layers(getattr(subject.loader, "dataset", None)):
        names = getattr(layer, "classes", None)
        if isinstance(names, list | tuple) and len(names) > 1:
            return len(names)
    return None


LEAST_HISTOGRAM = 64


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
    causes = (
        "labels are read from the wrong part of the path or table",
        "only one folder or class was listed",
        "the data are stored class by class and not shuffled",
    )
    next_step = "Print the labels of the dataset: set(label for _, label in dataset)."

    def run(self, subject: LoaderSubject) -> Answer:
        labels = subject.labels
        if labels is None:
            return unclear("Targets are not one value a sample.")
        values, counts = np.unique(labels, return_counts=True)
        if len(labels) < LEAST_HISTOGRAM:
            return unclear(f"{len(labels)} samples are too few for a histogram.")
        most = int(counts.max())
        numbers = {"samples": len(labels), "different": len(values), "most": most}
        if len(values) == 1:
            return self.failed(f"All {len(labels)} samples have the target {values[0]}.", **numbers)
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

    PLANTED = (("one label", _planted),)
    HEALTHY = (("few samples", lambda: toy_loader(ToyImages(16))),)
