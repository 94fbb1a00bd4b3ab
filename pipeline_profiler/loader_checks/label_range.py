"""LOAD011: labels outside 0 to K-1, or shifted by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

IGNORED = (-100, -1, 255)  # torch's ignore_index, and those of common segmentation sets
LEAST = 64


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
        """Judge least and largest."""
        parts = [b.targets for b in subject.batches if b.targets is not None]
        if not parts or any(p.dtype.kind not in "iu" for p in parts):
            return unclear("The targets are no whole numbers.")
        labels = np.concatenate([p.reshape(-1) for p in parts]).astype(np.int64)
        known = labels[~np.isin(labels, IGNORED)]
        if not len(known):
            return unclear("All targets are of the ignored kind.")
        return _judge(known, _number_of_classes(subject))

    @staticmethod
    def _shifted(classes: int | None, shift: int) -> Any:
        def make() -> Any:
            dataset = ToyImages()
            dataset.labels = dataset.labels + shift
            return toy_loader(dataset)

        return LoaderSubject(make, classes=classes)

    PLANTED = (
        Example("1 to K", lambda: LabelRange._shifted(4, 1)),
        Example("negative", lambda: LabelRange._shifted(None, -3)),
    )
    HEALTHY = (
        Example("0 to K-1", lambda: LabelRange._shifted(4, 0)),
        Example("K is not known", lambda: LabelRange._shifted(None, 1)),
    )


def _number_of_classes(subject: LoaderSubject) -> int | None:
    if subject.classes:
        return subject.classes
    holder: Any = getattr(subject.loader, "dataset", None)
    for _ in range(8):
        names = getattr(holder, "classes", None)
        if isinstance(names, list | tuple) and len(names) > 1:
            return len(names)
        if not hasattr(holder, "dataset"):
            return None
        holder = holder.dataset
    return None


def _judge(labels: Any, classes: int | None) -> Answer:
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
            "Subtract 1." if shifted else "Print the mapping from names to labels of every split.",
            **numbers,
        )
    if classes is None:
        if low > 0 and len(labels) >= LEAST:
            return unclear(
                f"Labels run from {low} to {high}: none is 0 among {len(labels)}.",
                "Say how many classes there are: --classes K.",
                **numbers,
            )
        return passed(f"Labels run from {low} to {high}, none negative.", **numbers)
    return passed(f"Labels run from {low} to {high} of {classes} classes.", **numbers)
