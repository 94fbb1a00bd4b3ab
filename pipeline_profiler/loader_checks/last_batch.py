"""LOAD005: a last, smaller batch that is lost, breaks batch norm, or counts too much."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.adapters import kind_of
from pipeline_profiler.adapters.tf_graph import name_of, prefixes
from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader


class LastBatch(Check):
    """The last batch of an epoch, when the dataset is no multiple of the batch size.

    ## What it does
    Reads the sizes of all batches of an epoch from the sampler, or from a tf.data graph.

    ## Why is this bad
    With drop_last an evaluation never sees some samples, and an unshuffled training never the same
    ones. A batch of one breaks batch norm. A mean over batches gives each sample of a last batch
    of r the weight B/r of any other.

    ## How it decides
    Fails where an evaluation drops samples, an unshuffled training drops the same ones each epoch,
    or the last training batch has one sample. The bias that a mean over batches has is computed
    for a metric that differs by 1 between the last batch and the rest: 1/batches - r/samples.

    ## What to do
    Evaluation: keep the last batch and weight by size (or sum, then divide). Training: drop_last.

    ## Limits
    Whether your evaluation averages batches is seen by check-training (TRAIN024).
    """

    code = "LOAD005"
    name = "last-batch"

    def run(self, subject: LoaderSubject) -> Answer:
        """Judge the sizes."""
        if kind_of(subject.loader) == "tf":
            return _judge_graph(subject)
        if not subject.has_indices:
            return unclear("The sizes of all batches are known for datasets with indices only.")
        first, second = subject.index_order(2)
        sizes = [len(batch) for batch in first]
        if len(sizes) < 2:
            return unclear(f"An epoch has {len(sizes)} batch.")
        loader = subject.loader
        dropped = len(loader.dataset) - sum(sizes) if getattr(loader, "drop_last", False) else 0
        return _judge(subject, sizes, first == second, dropped)

    PLANTED = (
        Example("one sample is left", lambda: toy_loader(ToyImages(257))),
        Example(
            "an evaluation that drops",
            lambda: LoaderSubject(
                lambda: toy_loader(ToyImages(250), shuffle=False, drop_last=True), evaluation=True
            ),
        ),
        Example(
            "the same dropped each epoch",
            lambda: toy_loader(ToyImages(250), shuffle=False, drop_last=True),
        ),
    )
    HEALTHY = (
        Example("a multiple", lambda: toy_loader(ToyImages(256))),
        Example("a partial batch", lambda: toy_loader(ToyImages(250))),
        Example("shuffled, then dropped", lambda: toy_loader(ToyImages(250), drop_last=True)),
    )


def _judge_graph(subject: LoaderSubject) -> Answer:
    """The sizes that batch() of a tf.data graph makes of the samples before it."""
    chain = prefixes(subject.loader)
    at = next((i for i in range(len(chain) - 1, 0, -1) if "Batch" in name_of(chain[i])), None)
    total = int(chain[at - 1].cardinality()) if at else -1
    if at is None or total <= 0 or not hasattr(chain[at], "_batch_size"):
        return unclear("The number of samples before batch() is not known.")
    size, drops = int(chain[at]._batch_size), bool(chain[at]._drop_remainder)
    rest = total % size
    sizes = [size] * (total // size) + ([rest] if rest and not drops else [])
    if len(sizes) < 2:
        return unclear(f"An epoch has {len(sizes)} batch.")
    shuffled = any(name_of(op).startswith("Shuffle") for op in chain[:at])
    return _judge(subject, sizes, not shuffled, rest if drops else 0)


def _judge(subject: LoaderSubject, sizes: list[int], same_order: bool, dropped: int) -> Answer:
    drawn, last, usual = sum(sizes), sizes[-1], max(sizes)
    total = drawn + dropped
    bias = abs(1 / len(sizes) - last / drawn)
    numbers: dict[str, Any] = {"batches": len(sizes), "last": last, "batch_size": usual}
    numbers |= {"dropped": dropped, "bias_of_a_mean_over_batches": round(bias, 6)}
    if dropped > 0 and (subject.evaluation or same_order):
        who = (
            "An evaluation leaves out" if subject.evaluation else "Every epoch leaves out the same"
        )
        return wrong(
            f"{who} {dropped} of {total} samples ({dropped / total:.1%}).",
            ["drop_last=True (drop_remainder) on a loader that does not shuffle"],
            "Set drop_last=False here, and weight batches by their size.",
            **numbers,
        )
    if last == 1 and usual > 1 and not subject.evaluation:
        return wrong(
            f"The last of {len(sizes)} training batches has a single sample: batch norm has no "
            "variance there, and its gradient is that of one sample at the full learning rate.",
            [f"{drawn} samples are one more than a multiple of {usual}"],
            "Set drop_last=True for training.",
            **numbers,
        )
    return passed(
        f"{len(sizes)} batches of {usual}, the last of {last}; {dropped} samples dropped. A mean "
        f"over batches instead of samples is off by {bias:.2%} of the difference between the last "
        "batch and the rest.",
        **numbers,
    )
