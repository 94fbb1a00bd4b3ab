"""LOAD006: the same seed that gives another order or other bytes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from pipeline_profiler.checking.batch_parts import digest_of
from pipeline_profiler.checking.check import Answer, Check, Example, passed, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

BATCHES = 4


class Reproducible(Check):
    """A loader that gives other batches although everything was seeded alike.

    ## What it does
    Makes the loader three times: twice after one seed (random, numpy, torch), once after another,
    and compares the bytes of the first batches.

    ## Why is this bad
    A run that cannot be repeated cannot be compared: two changes differ by the data as well.

    ## How it decides
    Fails where one seed gives different bytes. Bytes are compared, so there is no false alarm by
    chance. That another seed gives another order is reported.

    ## What to do
    Sort the list of files; seed generators of your own; keep the order of results of threads.

    ## Limits
    The first four batches. What depends on the process (hash order of strings) is not seen,
    because all three loaders live in this one.
    """

    code = "LOAD006"
    name = "not-reproducible"

    def run(self, subject: LoaderSubject) -> Answer:
        """Compare digests."""
        one, two, other = (_digests(subject, seed) for seed in (0, 0, 1))
        equal = [a == b for a, b in zip(one, two, strict=False)]
        numbers = {"batches": len(equal), "equal": sum(equal)}
        if len(one) != len(two) or not all(equal):
            return wrong(
                f"After the same seed, {len(equal) - sum(equal)} of the first {len(equal)} batches "
                "differ.",
                [
                    "a generator that takes its seed from the system: default_rng()",
                    "threads or processes that deliver in any order",
                    "a list of files in the order of the file system, or of a set",
                ],
                "Seed every generator from one number, and sort the files.",
                **numbers,
            )
        differs = "gives other batches" if one != other else "gives the same batches"
        return passed(
            f"The first {len(equal)} batches are equal to the last bit after one seed; another "
            f"seed {differs}.",
            **numbers,
        )

    @staticmethod
    def _system() -> Any:
        order = np.random.default_rng().permutation(256).tolist()
        return toy_loader(ToyImages(), sampler=order)

    PLANTED = (Example("seeded by the system", _system),)
    HEALTHY = (
        Example(
            "shuffled, augmented, workers",
            lambda: toy_loader(ToyImages(augment=True), num_workers=2),
        ),
        Example("in order", lambda: toy_loader(ToyImages(), shuffle=False)),
    )


def _digests(subject: LoaderSubject, seed: int) -> list[str]:
    loader = subject.fresh(seed)
    return [digest_of(batch) for batch in itertools.islice(subject.iterate(loader), BATCHES)]
