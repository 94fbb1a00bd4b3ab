"""LOAD007: values that are no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader


class Finite(Check):
    """NaN or infinity in inputs or targets.

    ## What it does
    Counts values that are not finite in the first batches, inputs and targets apart.

    ## Why is this bad
    One NaN makes the loss NaN, the gradients NaN, and all weights NaN after one step.

    ## How it decides
    Fails with one such value. Exact.

    ## What to do
    Look at the samples named in the evidence; a division by a deviation of zero is the usual cause.

    ## Limits
    Only the first batches (about 512 samples) are looked at.
    """

    code = "LOAD007"
    name = "not-finite"

    def run(self, subject: LoaderSubject) -> Answer:
        """Count."""
        counts = {"inputs": 0, "targets": 0}
        where: list[str] = []
        looked = 0
        for number, batch in enumerate(subject.batches):
            for part in counts:
                array = getattr(batch, part)
                if array is None or array.dtype.kind != "f":
                    continue
                looked += array.size
                bad = ~np.isfinite(array)
                counts[part] += int(bad.sum())
                rows = bad.reshape(len(array), -1).any(axis=1) if array.ndim else np.array([])
                where += [_name_of(batch, number, int(row)) for row in np.flatnonzero(rows)]
        if not looked:
            return unclear("The loader gives no floating-point numbers.")
        if any(counts.values()):
            return wrong(
                f"{counts['inputs']} values of the inputs and {counts['targets']} of the targets "
                f"are NaN or infinite, in {', '.join(where[:3])}.",
                [
                    "a division by a deviation of zero",
                    "a logarithm of zero",
                    "missing values in a table of targets",
                ],
                "Load these samples by themselves, and guard the division.",
                **counts,
                samples=where[:20],
            )
        return passed(
            f"All {looked:,} values of {len(subject.batches)} batches are finite.", values=looked
        )

    @staticmethod
    def _planted() -> Any:
        dataset = ToyImages()
        dataset.pixels[10, 0, 0, 0] = np.nan
        return toy_loader(dataset)

    PLANTED = (Example("one NaN", _planted),)
    HEALTHY = (Example("none", lambda: toy_loader(ToyImages())),)


def _name_of(batch: Any, number: int, row: int) -> str:
    if batch.records and row < len(batch.records):
        return f"sample {batch.records[row].index}"
    return f"batch {number} row {row}"
