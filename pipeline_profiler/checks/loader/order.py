"""The order of an epoch: whether it is random, whole, and how it ends."""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict
from itertools import chain, pairwise
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import same_bytes
from pipeline_profiler.checks.chance import FAR, neighbour_score, order_score
from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear, wrong
from pipeline_profiler.checks.indexed import made_sample, rows_of
from pipeline_profiler.checks.loader_subject import (
    MAX_INDICES,
    PASSES,
    LoaderSubject,
    SampleRecord,
    SeenBatch,
    decisive,
    graph_of,
    own_sampler,
    probed_loader,
    sample_digests,
    samplers_of,
)
from pipeline_profiler.checks.ranks import source_of
from pipeline_profiler.checks.user_code import seed_everything, users_code
from pipeline_profiler.profiling.adapters.tf_graph import name_of

MIN_SAMPLES = 64  # samples, or labels
SAME_REGION = 0.9  # a buffer of a fifth of the dataset gives about so much
PARTS, SETTER = ("sampler", "batch_sampler", "dataset"), "set_epoch"
LOOP = re.compile(r"^\s*for\s+\w*epoch\w*\s+in\b", re.MULTILINE)
SAME_MATES = 0.5  # share of pairs within a batch that meet again in the next epoch
DRAWS = 4  # samples that are made twice


class Shuffling(Check):
    """A training order that follows the storage, repeats, or comes class by class.

    ## How it decides
    Fails if index order or equal neighbours are 5.5 deviations beyond random permutations, or two
    epochs have the same order. Fails if half of the pairs in a batch meet again in the next epoch,
    or the orders of two epochs of a stream correlate by 0.9 or more. Fails if the order changes
    only with `set_epoch()`, and the file loops over epochs without it.

    ## Limits
    Streams are compared by bytes and labels. At least 64 samples. Weighted sampling passes.
    """

    code = "LOAD002"
    name = "order-not-random"
    causes = (
        "the data are stored class by class and not shuffled",
        "a shuffle buffer that is smaller than the runs of one class, or shards of one class",
    )
    next_step = (
        "Shuffle samples before they are put into batches, anew in each epoch; for streams shuffle "
        "the files once, and use a buffer of a fifth of the dataset or more."
    )

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.evaluation:
            return unclear("The order of a loader for evaluation does not matter.")
        if _drawn_anew(subject):
            return unclear("Each access to a sample draws another one: its index has no meaning.")
        judges = (_judge_set_epoch, _judge_indices) if subject.has_indices else (_judge_epochs,)
        answers = [judge(subject) for judge in (*judges, _judge_labels)]
        nothing = absent("There are neither indices nor labels to judge.")
        return decisive([*(answer for answer in answers if answer is not None), nothing])


def _drawn_anew(subject: LoaderSubject) -> bool:
    """Whether inputs and targets of a sample differ from access to access."""
    dataset = rows_of(subject.loader)
    if dataset is None or len(dataset) < DRAWS:
        return False
    pairs = [[made_sample(subject, dataset, i) for _ in range(2)] for i in range(DRAWS)]
    return not any(same_bytes(a, b) for pair in pairs for a, b in zip(*pair, strict=True))


def _judge_set_epoch(subject: LoaderSubject) -> Answer | None:
    """Judge the order if nobody calls set_epoch(); None where nobody needs to."""
    parts = [getattr(subject.loader, name, None) for name in PARTS]
    kinds = [type(part).__name__ for part in parts if hasattr(part, SETTER)]
    source = source_of([subject.make_loader])
    if not kinds or f".{SETTER}(" in source:
        return None
    first, second = subject.index_order(by_epoch=False)
    if first != second:
        return None
    text = f"Every epoch has the same order unless {kinds[0]}.{SETTER}(epoch) is called"
    if not LOOP.search(source):
        return unclear(f"{text}: whether your loop does so is not seen.")
    return wrong(
        f"{text}, and the file with your loop over epochs never calls it.",
        ["set_epoch is missing"],
        f"Call loader.sampler.{SETTER}(epoch) at the start of each epoch.",
    )


def _judge_indices(subject: LoaderSubject) -> Answer | None:
    batches, again = subject.index_order()
    try:
        first = [int(i) for i in chain(*batches)]
    except (TypeError, ValueError):
        return None
    if not MIN_SAMPLES <= len(first) < PASSES * len(set(first)):
        return unclear(f"{len(first)} samples an epoch are too few or too many to judge an order.")
    score, own = order_score(first), own_sampler(subject.loader)
    if abs(score) > FAR:
        return wrong(
            f"The order follows the storage: position and index correlate, {abs(score):.0f} "
            f"deviations from a random order of {len(first)} samples.",
            ["shuffle=False" if own is None else f"{type(own).__name__} returns sorted indices"],
            "Set shuffle=True, or enlarge the buffer; --evaluation if it is for evaluation.",
        )
    if first == list(chain(*again)):
        causes = "a sampler that is seeded in each epoch", "set_epoch is missing", "a fixed list"
        return Shuffling.failed(f"Two epochs have the same order of {len(first)} samples.", *causes)
    batch_of = {index: number for number, batch in enumerate(again) for index in batch}
    pairs = [pair for batch in batches for pair in pairwise(batch)]
    met = sum(batch_of.get(a, -1) == batch_of.get(b, -2) for a, b in pairs)
    once = len(set(first)) == len(first) and len(batches) > 2
    if once and met > SAME_MATES * len(pairs):
        return Shuffling.failed(
            f"{met / len(pairs):.0%} of the pairs in a batch meet again in the next epoch: batches "
            "are shuffled, samples are not.",
            "the batches or shards are shuffled, and not what is in them",
        )
    return passed(
        f"The order of {len(first)} samples is like a random one (score {score:+.1f} deviations) "
        "and differs between epochs."
    )


def _judge_epochs(subject: LoaderSubject) -> Answer | None:
    """Judge the order of a stream in its second epoch against the first, by bytes of samples."""
    first, second = ([d for b in e for d in sample_digests(b.raw)] for e in subject.epochs)
    later = {digest: place for place, digest in enumerate(second)}
    shared = [later[digest] for digest in dict.fromkeys(first) if digest in later]
    if len(shared) < MIN_SAMPLES or len(set(first)) < 0.9 * len(first):
        return None
    share = order_score(shared) / math.sqrt(len(shared) - 1)
    text = f"the orders of two epochs correlate by {share:.3f} over {len(shared)} samples."
    if share < SAME_REGION:
        return (passed if abs(share) < 0.5 else unclear)(f"In the stream, {text}")
    shuffles = [op for op in graph_of(subject.loader) if name_of(op).startswith("Shuffle")]
    if first[: len(shared)] == second[: len(shared)] and not shuffles:
        text = f"Two epochs of the stream have the same order of {len(shared)} samples."
        return unclear(text, f"Right where data are stored in random order. {Shuffling.next_step}")
    buffer = "".join(f" (shuffle({int(op._buffer_size)}))" for op in shuffles[:1])
    return Shuffling.failed(
        f"A sample comes at almost the same place in each epoch{buffer}: {text}",
        "a shuffle buffer much smaller than the dataset",
        "reshuffle_each_iteration=False, or a seed that is set again in each epoch",
    )


def _judge_labels(subject: LoaderSubject) -> Answer | None:
    labels = subject.labels
    if labels is None or len(labels) < MIN_SAMPLES or len(np.unique(labels)) < 2:
        return None
    if labels.dtype.kind == "f" and len(np.unique(labels)) > len(labels) // 2:
        labels = labels > np.median(labels)
    score, share, expected = neighbour_score(labels)
    text = f"{share:.0%} of neighbours have the same label, {expected:.0%} are expected"
    own = subject.has_indices and own_sampler(subject.loader)  # the order in a batch is its own
    if score <= FAR or own:
        return passed(f"{text}.")
    return Shuffling.failed(
        f"{text}: {score:.0f} deviations from a random order of the same labels."
    )


MIN_STREAM = 16  # samples of each worker
STEERS = re.compile(r"(set|update|step|next|advance|grow|increase|on)(_(?!epoch)|$)")
LENGTHS = 8  # epochs of a sampler


class Coverage(Check):
    """An epoch that omits samples, repeats them, or differs from its declared length.

    ## How it decides
    Counts the indices of three epochs. Fails if samples have no weight or come in no epoch, batches
    repeat the batch before, or `num_samples` is the number of batches. Fails if two epochs differ
    in length, or `len(loader)` from the number of batches. Fails if over half of the samples of two
    stream workers have equal bytes (after equal seeds if only their labels agree).

    ## Limits
    Inconclusive for samplers that repeat samples or draw them later, and for `SubsetRandomSampler`.
    """

    code = "LOAD003"
    name = "samples-missing-or-twice"
    causes = ("a sampler of one's own, or __len__ of the dataset, that counts wrongly",)
    next_step = "Draw each index of range(len(dataset)), or by a weight a sample: weights[labels]."

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.has_indices:
            return _judge_sampler(subject)
        if not subject.epochs[1]:
            return wrong(
                "The second epoch is empty: the loader can be read once only.",
                ["a generator, or an iterator, instead of a function that makes one"],
                "Return an object whose __iter__ starts again (a class, or a DataLoader over one).",
            )
        if subject.is_torch:
            return _judge_workers(subject)
        if not subject.counted:
            return unclear("The stream is too long or too slow to count two epochs.")
        first, second = map(sum, subject.counted)
        if first != second:
            return self.failed(f"Two epochs give {first} and {second} samples.")
        return passed(f"Two epochs give {first} samples each.")


def _judge_sampler(subject: LoaderSubject) -> Answer:
    loader, orders = subject.loader, subject.index_order()
    with users_code("len(dataset)"):
        total = len(loader.dataset)
    drawn, later = (sum(map(len, order)) for order in orders)
    if not drawn:
        causes = "the dataset found no files", "drop_last=True and fewer samples than one batch"
        return Coverage.failed(f"An epoch has none of {total} samples.", *causes)
    if drawn >= min(MAX_INDICES, PASSES * total):
        return unclear(f"The sampler goes on after {drawn} draws: its epochs have no end.")
    if (found := _judge_weights(loader, total, drawn)) is not None:
        return found
    if drawn != later:
        own = own_sampler(loader)
        meant = hasattr(own, SETTER) or (own is not None and _lengths_drawn(subject))
        text = f"Two epochs differ in length: {drawn} and {later} samples."
        return (unclear if meant else Coverage.failed)(text)
    batches = len(orders[0])
    if (declared := operator.length_hint(loader, batches)) != batches:
        return Coverage.failed(f"len(loader) is {declared}, and an epoch has {batches} batches.")
    return _judge_counts(subject, total, orders)


def _lengths_drawn(subject: LoaderSubject) -> bool:
    """Whether the lengths of epochs rise and fall by less than half: they depend on the draws."""
    lengths = [sum(map(len, order)) for order in subject.index_order(epochs=range(LENGTHS))]
    steps = {b > a for a, b in pairwise(lengths) if a != b}
    return len(steps) > 1 and min(lengths) > max(lengths) / 2


def _judge_counts(subject: LoaderSubject, total: int, orders: list[list[list[Any]]]) -> Answer:
    """Judge which samples an epoch draws, and whether other epochs ever draw the rest."""
    unique, drawn = len(set(map(str, chain(*orders[0])))), sum(map(len, orders[0]))
    if drawn == unique == total:
        return passed(f"All {total} samples come once an epoch.")
    text = f"{drawn} draws of an epoch give {unique} of {total} samples"
    samplers, own = samplers_of(subject.loader), own_sampler(subject.loader)
    size = max(map(len, orders[0]))
    drops = any(getattr(s, "drop_last", False) for s in (subject.loader, *samplers))
    if drops and drawn == unique > total - size:
        return passed(f"{text}; drop_last leaves out the others.")
    if any(hasattr(s, "num_replicas") or hasattr(s, "indices") for s in samplers):
        return unclear(f"{text}: it is one of a part.")
    if own is None:
        spread = unique / (total * -math.expm1(-drawn / total))
        zero = not np.asarray(getattr(samplers[-1], "weights", 1)).all()  # a class, or a part
        return (unclear if zero or spread < 0.25 else passed)(f"{text}.")
    sets = [{str(i) for i in chain(*o)} for o in (*orders, *subject.index_order(epochs=(1000,)))]
    never = total - unique
    if sets[0] == sets[1] >= sets[2] and never > 0:
        text = f"{never} of {total} samples ({never / total:.1%}) are never drawn, in any epoch"
        if any(STEERS.match(name) for name in dir(type(own))):
            return unclear(f"{text}, unless the loop changes the sampler.")
        cause = f"{type(own).__name__} draws from {unique} samples"
        return Coverage.failed(f"{text}.", cause, *Coverage.causes)
    again = sum(len({*map(str, a)} & {*map(str, b)}) for a, b in pairwise(orders[0]))
    if 0 < again == drawn - unique > size and orders[0][0] != sorted(orders[0][0]):
        text = f"{again} of {drawn} draws of an epoch repeat a sample of the batch before."
        return Coverage.failed(text, "batches overlap, or come twice")
    return unclear(f"{text}: right if the sampler is to draw so.")


def _judge_weights(loader: Any, total: int, drawn: int) -> Answer | None:
    """Judge num_samples and weights of torch's samplers; None where nothing is wrong."""
    sampler, size = samplers_of(loader)[-1], loader.batch_size or 1
    if own_sampler(loader) is not None or not hasattr(sampler, "replacement"):
        return None
    weights = np.asarray(getattr(sampler, "weights", np.ones(total))).size
    if weights < total:
        return Coverage.failed(
            f"The sampler has {weights} weights for {total} samples: the other {total - weights} "
            "samples are never drawn.",
            "weights of classes or of another split were given, and not of samples",
        )
    unplanned = size > 7 and drawn % 50 and drawn & (drawn - 1)  # a number that nobody chose
    batches = unplanned and drawn in (total // size, -(-total // size))
    if (batches or drawn < size <= total / 10) and drawn < total:
        cause = "num_samples counts batches or classes, and not samples"
        return Coverage.failed(f"An epoch draws {drawn} of {total} samples.", cause)
    return None


def _judge_workers(subject: LoaderSubject) -> Answer:
    streams = _streams(subject.batches)
    shortest, count = min(map(len, streams)), len(streams)
    if count < 2:
        return passed("The stream is read by one process, so no sample comes twice for it.")
    if shortest < MIN_STREAM:
        return unclear(f"A worker gave only {shortest} samples: too few to compare workers.")
    shared = _shared_share(streams, shortest)
    labels, others = ([record.label for record in stream[:shortest]] for stream in streams[:2])
    if shared <= 0.5 and None not in labels and labels == others:  # augmented, or other samples
        probed = probed_loader(subject.fresh())
        probed.__dict__["worker_init_fn"] = _seed_alike
        shared = _shared_share(_streams(subject.beginning(probed, 0)), shortest)
        if shared <= 0.5:
            return unclear(
                f"{count} workers give equal labels, and samples that differ after one seed: "
                "whether they are the same cannot be seen.",
                "Make the loader without augmentation (a parameter augment=False).",
            )
    if shared > 0.5:
        return wrong(
            f"{count} workers give the same samples ({shared:.0%} equal bytes among the first "
            f"{shortest}): each reads the whole stream, and an epoch holds everything "
            f"{count} times.",
            ["__iter__ does not look at get_worker_info()", "the shards are not split by worker"],
            "In __iter__: info = get_worker_info(); take samples info.id::info.num_workers.",
        )
    return passed(f"The first {shortest} samples of {count} workers are different ones.")


def _streams(batches: list[SeenBatch]) -> list[list[SampleRecord]]:
    """The records of each worker's samples."""
    streams = defaultdict[int, list[SampleRecord]](list)
    for record in (record for batch in batches for record in batch.records):
        streams[record.worker].append(record)
    return list(streams.values())


def _shared_share(streams: list[list[SampleRecord]], count: int) -> float:
    one, two = ({record.digest for record in stream[:count]} for stream in streams[:2])
    return len(one & two) / len(one)


def _seed_alike(worker: int) -> None:
    seed_everything(0)


class LastBatch(Check):
    """A last batch that is dropped, or has a single sample.

    ## How it decides
    Reads the sizes of all batches of an epoch from the sampler, the tf.data graph, or the loader.
    Fails if an evaluation drops samples, or an unshuffled training drops the same samples each
    epoch. Fails if the last training batch has one sample, which breaks batch norm. Reports the
    bias of a mean over batches: |1/batches - r/samples| for a last batch of r.

    ## Limits
    TRAIN024 checks whether your evaluation averages over batches.
    """

    code = "LOAD005"
    name = "last-batch"

    def run(self, subject: LoaderSubject) -> Answer:
        sizes, same_order, dropped = _epoch_of(subject)
        if len(sizes) < 2:
            return unclear("An epoch has less than two batches, or too many to count.")
        drawn, last, usual = sum(sizes), sizes[-1], max(sizes)
        if dropped > 0 and (subject.evaluation or same_order):
            start = "Every epoch leaves out the same"
            start = "An evaluation leaves out" if subject.evaluation else start
            total = drawn + dropped
            return wrong(
                f"{start} {dropped} of {total} samples ({dropped / total:.1%}).",
                ["drop_last=True (drop_remainder) on a loader that does not shuffle"],
                "Set drop_last=False here, and weight batches by their size.",
            )
        if last == 1 and usual > 1 and not subject.evaluation:
            return wrong(
                f"The last of {len(sizes)} training batches has a single sample: batch norm has no "
                "variance there, and its gradient is that of one sample at the full learning rate.",
                [f"{drawn} samples are one more than a multiple of {usual}"],
                "Set drop_last=True for training.",
            )
        off = abs(1 / len(sizes) - last / drawn)
        return passed(
            f"{len(sizes)} batches of {usual}, the last of {last}; {dropped} samples dropped. A "
            f"mean over batches instead of samples is off by {off:.2%} of the difference between "
            "the last batch and the rest."
        )


def _epoch_of(subject: LoaderSubject) -> tuple[list[int], bool, int]:
    """(sizes of all batches, whether epochs have one order, samples that are dropped)."""
    loader, graph = subject.loader, graph_of(subject.loader)
    if subject.has_indices:
        first, second = subject.index_order()
        sizes, drops = [len(batch) for batch in first], getattr(loader, "drop_last", False)
        return sizes, first == second, len(loader.dataset) - sum(sizes) if drops else 0
    at = next((i for i in range(len(graph) - 1, 0, -1) if "Batch" in name_of(graph[i])), 0)
    total = int(graph[at - 1].cardinality()) if at else 0
    if total <= 0 or not hasattr(graph[at], "_batch_size"):
        return (subject.counted or [[]])[0], False, 0
    size, drops = int(graph[at]._batch_size), bool(graph[at]._drop_remainder)
    sizes = [size] * (total // size) + [total % size] * (total % size > 0 and not drops)
    shuffled = any(name_of(op).startswith("Shuffle") for op in graph[:at])
    return sizes, not shuffled, total % size if drops else 0
