"""The order of an epoch: whether it is random, whole, and how it ends."""

from __future__ import annotations

import math
import operator
import re
from itertools import chain, pairwise
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import digest_of, inputs_and_targets
from pipeline_profiler.checks.chance import (
    FAR,
    entropy_score,
    neighbour_score,
    order_score,
    trend_score,
)
from pipeline_profiler.checks.check import Answer, Check, Judgement, passed, unclear, wrong
from pipeline_profiler.checks.indexed import rows_of
from pipeline_profiler.checks.loader_subject import (
    MOST_INDICES,
    PASSES,
    LoaderSubject,
    own_sampler,
    probed_loader,
    samplers_of,
    set_epoch,
)
from pipeline_profiler.checks.ranks import sample_digests, source_of
from pipeline_profiler.checks.user_code import batches_of, seed_everything, users_code
from pipeline_profiler.profiling.adapters import kind_of
from pipeline_profiler.profiling.adapters.tf_graph import name_of, prefixes

LEAST = 64  # samples, or labels
SAME_REGION = 0.9  # a buffer of a fifth of the dataset gives about so much
PARTS, SETTER = ("sampler", "batch_sampler", "dataset"), "set_epoch"
LOOP = re.compile(r"^\s*for\s+\w*epoch\w*\s+in\b", re.MULTILINE)
SAME_MATES = 0.5  # share of pairs within a batch that meet again in the next epoch


DRAWS = 4  # samples that are made twice


class Shuffling(Check):
    """A training order that follows the storage, repeats, or comes class by class.

    ## What it does
    Compares the index order, the batches of two epochs, and the labels with random permutations.

    ## Why is this bad
    Batches of one class give gradients that cancel each other and a loss that oscillates.

    ## How it decides
    Fails on any of these:

    - Index order, equal neighbours or batch entropy is 5.5 deviations beyond random permutations.
    - Two epochs have the same order.
    - Half of the pairs in a batch meet again in the next epoch.
    - The orders of two epochs of a stream correlate by 0.9 or more, and differ.
    - The order changes only with `set_epoch()`, and the file loops over epochs without it.

    Inconclusive: equal orders of a stream, fewer than 64 samples, or a needed `set_epoch()` without
    a visible loop. Weighted and balanced sampling pass.

    ## What to do
    Set `shuffle=True`. For streams, use shuffled shards or a buffer larger than the runs of one
    class.

    ## Limits
    Streams have no indices: bytes and labels are compared. Orders by other attributes (scene, hour)
    show only in indices. Evaluation loaders are inconclusive.
    """

    code = "LOAD002"
    name = "order-not-random"

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.evaluation:
            return unclear("The order of a loader for evaluation does not matter.")
        if _drawn_anew(subject):
            return unclear("Each access to a sample draws another one: its index has no meaning.")
        by_index = _judge_indices(subject) if subject.has_indices else _judge_epochs(subject)
        by_label = _judge_labels(subject)
        told = _told_the_epoch(subject) if subject.has_indices else None
        answers = [a for a in (by_index, by_label, told) if a is not None]
        failed, passed, unclear_ = Judgement.FAIL, Judgement.PASS, Judgement.INCONCLUSIVE
        order = (failed, unclear_, passed) if told else (failed, passed, unclear_)
        answers.sort(key=lambda a: order.index(a.judgement))
        return answers[0] if answers else unclear("There are neither indices nor labels to judge.")


def _drawn_anew(subject: LoaderSubject) -> bool:
    """Whether inputs and targets of a sample differ from access to access."""
    dataset = rows_of(subject.loader)
    if dataset is None or len(dataset) < DRAWS:
        return False
    with users_code("The dataset"):
        pairs = [[dataset[index] for _ in range(2)] for index in range(DRAWS)]
    splits = [[inputs_and_targets(sample, subject.split) for sample in pair] for pair in pairs]
    return all(
        digest_of(one[part]) != digest_of(two[part]) for one, two in splits for part in (0, 1)
    )


def _told_the_epoch(subject: LoaderSubject) -> Answer | None:
    """What becomes of the order where nobody calls set_epoch(); None where nobody needs to."""
    sampler = next((p for n in PARTS if hasattr(p := getattr(subject.loader, n, None), SETTER)), 0)
    if not sampler:
        return None
    one, two = subject.index_order(told=False)
    source = source_of([subject.make_loader])
    if one != two or f".{SETTER}(" in source:
        return None
    kind = type(sampler).__name__
    said = f"Every epoch has the same order unless {kind}.{SETTER}(epoch) is called"
    if LOOP.search(source):
        return wrong(
            f"{said}, and the file with your loop over epochs never calls it.",
            ["set_epoch is missing"],
            f"Call loader.sampler.{SETTER}(epoch) at the start of each epoch.",
        )
    return unclear(f"{said}: whether your loop does so is not seen.")


def _judge_indices(subject: LoaderSubject) -> Answer | None:
    batches, again = subject.index_order()
    try:
        first, second = ([int(i) for i in chain(*order)] for order in (batches, again))
    except (TypeError, ValueError):
        return None
    if not LEAST <= len(first) < PASSES * len(set(first)):
        return unclear(f"{len(first)} samples an epoch are too few or too many to judge an order.")
    score, own = order_score(first), own_sampler(subject.loader)
    if abs(score) > FAR:
        return wrong(
            f"The order follows the storage: position and index correlate, {abs(score):.0f} "
            f"deviations from a random order of {len(first)} samples.",
            ["shuffle=False" if own is None else f"{type(own).__name__} returns sorted indices"],
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
    place = {index: number for number, batch in enumerate(again) for index in batch}
    once = len(set(first)) == len(first)
    pairs = [(a, b) for batch in batches for a, b in pairwise(batch) if once and a != b]
    met = [place[a] == place[b] for a, b in pairs if a in place and b in place]
    share = sum(met) / len(met) if met else 0.0
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
        return passed(said, **numbers) if abs(share) < 0.5 else unclear(said, **numbers)
    operations = prefixes(subject.loader) if kind_of(subject.loader) == "tf" else []
    shuffles = [op for op in operations if name_of(op).startswith("Shuffle")]
    if first[: len(shared)] != second[: len(shared)] or shuffles:
        sizes = [int(getattr(op, "_buffer_size", 0) or 0) for op in shuffles]
        buffer = f" (shuffle({sizes[0]}))" if sizes else ""
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
    own = subject.has_indices and own_sampler(subject.loader)  # the order in a batch is its own
    if score > FAR and not own:
        return _clumped(
            f"{share:.0%} of neighbours have the same label, {expected:.0%} are "
            f"expected: {score:.0f} deviations",
            score,
        )
    sizes = [b.size for b in subject.batches]
    parts = np.split(labels, np.cumsum(sizes)[:-1])
    loss, has, should = entropy_score(parts) if len(parts) > 2 else (0.0, 0.0, 0.0)
    # a sampler of the user's that deals so many samples of each chosen class
    counts = {int(n) for part in parts[:-1] for n in np.unique(part, return_counts=True)[1]}
    dealt = own and len(counts) == 1 and max(counts) < sizes[0]
    if loss < -FAR and has < 0.9 * should and not dealt:
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


LEAST_STREAM = 16  # samples of each worker
STEERS = re.compile(r"(set|update|step|next|advance|grow|increase|on)(_(?!epoch)|$)")
MOST_COUNTED, LENGTHS = 20_000, 8  # samples of a stream; epochs of a sampler


class Coverage(Check):
    """An epoch that omits samples, repeats them, or differs from its declared length.

    ## What it does
    Counts the indices of three epochs, and reads the weights of torch's sampler. For a stream,
    compares the samples of its workers, or counts the samples of two passes.

    ## Why is this bad
    Omitted samples are neither trained nor tested. If four workers each read a whole stream, one
    epoch contains four.

    ## How it decides
    Fails if samples have no weight or come in no epoch, or if `num_samples` is the number of
    batches. Fails if batches repeat samples of the batch before, two epochs differ in length, or
    `len(loader)` from the number of batches. Fails if more than half of the samples of two stream
    workers have equal bytes. If only labels agree, both are read again with equal generator states.

    ## What to do
    In `__iter__` of a stream, take every n-th sample by `get_worker_info()`.

    ## Limits
    A custom sampler that repeats samples, draws the others later, or has lengths that rise and fall
    is inconclusive, and so is `SubsetRandomSampler`. Of endless streams the beginning is read.
    """

    code = "LOAD003"
    name = "samples-missing-or-twice"
    causes = ("a sampler of one's own, or __len__ of the dataset, that counts wrongly",)
    next_step = "Draw each index of range(len(dataset)), or by a weight a sample: weights[labels]."

    def run(self, subject: LoaderSubject) -> Answer:
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


def _by_index(subject: LoaderSubject) -> Answer:
    loader = subject.loader
    with users_code("len(dataset)"):
        total = len(loader.dataset)
    orders = subject.index_order()
    drawn, later = (sum(map(len, order)) for order in orders)
    unique = len(set(map(str, chain(*orders[0]))))
    if not drawn:
        said = f"An epoch is empty: the sampler takes none of {total} samples."
        causes = "the dataset found no files", "drop_last=True and fewer samples than one batch"
        return wrong(said, causes, "Print len(dataset), and the folder it looks in.", dataset=total)
    numbers: dict[str, Any] = {"dataset": total, "drawn": drawn, "different": unique}
    if drawn >= min(MOST_INDICES, PASSES * total):
        return unclear(f"The sampler goes on after {drawn} draws: its epochs have no end.")
    if (found := _judge_weights(loader, total, numbers)) is not None:
        return found
    if drawn != later:
        said = f"Two epochs differ in length: {drawn} and {later} samples."
        own = own_sampler(loader)
        meant = hasattr(own, "set_epoch") or (own is not None and _lengths_drawn(subject))
        return (unclear if meant else Coverage.failed)(said, **numbers)
    batches = len(orders[0])
    if (declared := operator.length_hint(loader, batches)) != batches:
        said = f"len(loader) is {declared}, and an epoch has {batches} batches."
        return Coverage.failed(said, **numbers)
    if drawn == unique == total:
        return passed(f"All {total} samples come once an epoch.", **numbers)
    return _judge_counts(subject, total, orders, numbers)


def _lengths_drawn(subject: LoaderSubject) -> bool:
    """Whether the lengths of epochs rise and fall by less than half: they depend on the draws."""
    lengths = [sum(map(len, order)) for order in subject.index_order(epochs=range(LENGTHS))]
    steps = {b > a for a, b in pairwise(lengths) if a != b}
    return len(steps) > 1 and min(lengths) > max(lengths) / 2


def _judge_counts(
    subject: LoaderSubject, total: int, orders: list[list[list[Any]]], numbers: dict[str, Any]
) -> Answer:
    """Judge an epoch that does not draw each sample once: whether others ever draw the rest."""
    loader, drawn, unique = subject.loader, numbers["drawn"], numbers["different"]
    said = f"{drawn} draws of an epoch give {unique} of {total} samples"
    samplers = [loader, *samplers_of(loader)]
    size = max(map(len, orders[0]))
    if drawn == unique > total - size and any(getattr(s, "drop_last", 0) for s in samplers):
        return passed(f"{said}; drop_last leaves out the others.", **numbers)
    if any(hasattr(s, "num_replicas") or hasattr(s, "indices") for s in samplers):
        return unclear(f"{said}: it is one of a part.", **numbers)
    if (own := own_sampler(loader)) is None:
        spread = unique / (total * -math.expm1(-drawn / total))
        zero = not np.asarray(getattr(samplers[-1], "weights", 1)).all()  # a class, or a part
        return (unclear if zero or spread < 0.25 else passed)(f"{said}.", **numbers)
    sets = [{str(i) for i in chain(*o)} for o in (*orders, *subject.index_order(epochs=(1000,)))]
    never = total - len(sets[0])
    if sets[0] == sets[1] >= sets[2] and never > 0:
        said = f"{never} of {total} samples ({never / total:.1%}) are never drawn, in any epoch"
        if any(STEERS.match(name) for name in dir(type(own))):
            return unclear(f"{said}, unless the loop changes the sampler.", **numbers)
        causes = (f"{type(own).__name__} draws from {unique} samples", *Coverage.causes)
        return Coverage.failed(f"{said}.", *causes, never=never, **numbers)
    again = sum(len({*map(str, a)} & {*map(str, b)}) for a, b in pairwise(orders[0]))
    if 0 < again == drawn - unique > size and orders[0][0] != sorted(orders[0][0]):
        said = f"{again} of {drawn} draws of an epoch repeat a sample of the batch before."
        return Coverage.failed(said, "batches overlap, or come twice", **numbers)
    return unclear(f"{said}: right if the sampler is to draw so.", **numbers)


def _judge_weights(loader: Any, total: int, numbers: dict[str, Any]) -> Answer | None:
    """Judge num_samples and weights of torch's samplers; None where nothing is wrong."""
    sampler, drawn, size = samplers_of(loader)[-1], numbers["drawn"], loader.batch_size or 1
    if own_sampler(loader) is not None or not hasattr(sampler, "replacement"):
        return None
    unplanned = size > 7 and drawn % 50 and drawn & (drawn - 1)  # a number that nobody chose
    batches = unplanned and drawn in (total // size, -(-total // size))
    weights = np.asarray(getattr(sampler, "weights", np.ones(total)), np.float64).ravel()
    said = cause = ""
    if (batches or drawn < size <= total / 10) and drawn < total:
        said = f"An epoch draws {drawn} of {total} samples."
        cause = "num_samples counts batches or classes, and not samples"
    if len(weights) < total:
        said = f"The sampler has {len(weights)} weights for {total} samples: the other "
        said += f"{total - len(weights)} samples are never drawn."
        cause = "weights of classes or of another split were given, and not of samples"
    return Coverage.failed(said, cause, **numbers) if said else None


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
    # bytes may differ by augmentation: then what they are without its randomness decides
    labels, others = ([label for _, label in row] for row in rows[:2])
    if shared <= 0.5 and None not in labels and labels == others:
        shared = _shared_when_seeded(subject, shortest)
        if math.isnan(shared):
            return unclear(
                f"{len(rows)} workers give equal labels, and samples that a generator of their own "
                "makes unlike: whether they are the same cannot be seen.",
                "Make the loader without augmentation (a parameter augment=False).",
            )
    if shared > 0.5:
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


def _seeded_alike(worker: int) -> None:
    seed_everything(0)


def _shared_when_seeded(subject: LoaderSubject, shortest: int) -> float:
    """Return the share of equal samples of two equally seeded workers; NaN if no seed counts."""
    clone = probed_loader(subject.fresh())
    clone.__dict__["worker_init_fn"] = _seeded_alike
    one, two = _digests_of_workers(clone, shortest)[:2]
    again = _digests_of_workers(clone, shortest)[0]
    return len(set(one) & set(two)) / len(set(one)) if one == again else math.nan


def _digests_of_workers(probed: Any, count: int) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    for records, _ in batches_of(probed):
        for record in records:
            found.setdefault(record.worker, []).append(record.digest)
        if len(found) > 1 and min(map(len, found.values())) >= count:
            break
    return [found[worker][:count] for worker in sorted(found)]


def _by_passes(subject: LoaderSubject) -> Answer:
    loader = subject.fresh()
    counts = []
    for epoch in range(2):
        set_epoch(loader, epoch)
        count = 0
        for batch in batches_of(loader):
            count += subject.seen(batch).size
            if count >= MOST_COUNTED or subject.time_is_short():
                return unclear(f"The stream is longer than {count} samples, so it is not counted.")
        counts.append(count)
    if counts[0] != counts[1]:
        return Coverage.failed(
            f"Two epochs give {counts[0]} and {counts[1]} samples.", counts=counts
        )
    return passed(f"Two epochs give {counts[0]} samples each.", samples=counts[0])


class LastBatch(Check):
    """The last batch of an epoch, if the dataset is not a multiple of the batch size.

    ## What it does
    Reads the sizes of all batches of an epoch from the sampler or the tf.data graph.

    ## Why is this bad
    With `drop_last`, an evaluation or unshuffled training never sees some samples. A batch of one
    breaks batch norm. A mean over batches weights the last samples differently.

    ## How it decides
    Fails if an evaluation drops samples, or an unshuffled training drops the same samples each
    epoch. Fails if the last training batch has one sample. Reports the bias of a mean over batches:
    |1/batches - r/samples| for a last batch of r.

    ## What to do
    Evaluation: keep the last batch, and weight batches by size (or sum, then divide). Training: set
    `drop_last`.

    ## Limits
    TRAIN024 checks whether your evaluation averages over batches.
    """

    code = "LOAD005"
    name = "last-batch"

    def run(self, subject: LoaderSubject) -> Answer:
        if kind_of(subject.loader) == "tf":
            return _judge_graph(subject)
        if not subject.has_indices:
            return unclear("The sizes of all batches are known for datasets with indices only.")
        first, second = subject.index_order()
        sizes = [len(batch) for batch in first]
        if len(sizes) < 2:
            return unclear(f"An epoch has {len(sizes)} batch.")
        loader = subject.loader
        dropped = len(loader.dataset) - sum(sizes) if getattr(loader, "drop_last", False) else 0
        return _judge(subject, sizes, first == second, dropped)


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
        who = "An evaluation" if subject.evaluation else "Every epoch"
        same = "" if subject.evaluation else " the same"
        return wrong(
            f"{who} leaves out{same} {dropped} of {total} samples ({dropped / total:.1%}).",
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
