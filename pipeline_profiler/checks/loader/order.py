"""The order of an epoch: whether it is random, whole, and how it ends."""

from __future__ import annotations

import math
import operator
import re
from itertools import chain, pairwise
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import same_bytes
from pipeline_profiler.checks.chance import (
    FAR,
    entropy_score,
    neighbour_score,
    order_score,
)
from pipeline_profiler.checks.check import Answer, Check, absent, passed, unclear, wrong
from pipeline_profiler.checks.indexed import made_sample, rows_of
from pipeline_profiler.checks.loader_subject import (
    MAX_INDICES,
    PASSES,
    LoaderSubject,
    decisive,
    own_sampler,
    probed_loader,
    samplers_of,
    set_epoch,
)
from pipeline_profiler.checks.ranks import sample_digests, source_of
from pipeline_profiler.checks.user_code import batches_of, seed_everything, users_code
from pipeline_profiler.profiling.adapters import kind_of
from pipeline_profiler.profiling.adapters.tf_graph import name_of, prefixes

MIN_SAMPLES = 64  # samples, or labels
SAME_REGION = 0.9  # a buffer of a fifth of the dataset gives about so much
PARTS, SETTER = ("sampler", "batch_sampler", "dataset"), "set_epoch"
LOOP = re.compile(r"^\s*for\s+\w*epoch\w*\s+in\b", re.MULTILINE)
SAME_MATES = 0.5  # share of pairs within a batch that meet again in the next epoch
DRAWS = 4  # samples that are made twice


class Shuffling(Check):
    """A training order that follows the storage, repeats, or comes class by class.

    ## How it decides
    Fails if index order, equal neighbours or batch entropy are 5.5 deviations beyond random
    permutations, or two epochs have the same order. Fails if half of the pairs in a batch meet
    again in the next epoch, or the orders of two epochs of a stream correlate by 0.9 or more. Fails
    if the order changes only with `set_epoch()`, and the file loops over epochs without it.

    ## Limits
    Streams have no indices: bytes and labels are compared, and equal orders are inconclusive, as
    are fewer than 64 samples. Weighted and balanced sampling pass.
    """

    code = "LOAD002"
    name = "order-not-random"

    def run(self, subject: LoaderSubject) -> Answer:
        if subject.evaluation:
            return unclear("The order of a loader for evaluation does not matter.")
        if _drawn_anew(subject):
            return unclear("Each access to a sample draws another one: its index has no meaning.")
        indexed = subject.has_indices
        by_order = _judge_indices(subject) if indexed else _judge_epochs(subject)
        by_epoch = _judge_set_epoch(subject) if indexed else None
        nothing = absent("There are neither indices nor labels to judge.")
        answers = (by_epoch, by_order, _judge_labels(subject), nothing)
        return decisive([answer for answer in answers if answer is not None])


def _drawn_anew(subject: LoaderSubject) -> bool:
    """Whether inputs and targets of a sample differ from access to access."""
    dataset = rows_of(subject.loader)
    if dataset is None or len(dataset) < DRAWS:
        return False
    pairs = [[made_sample(subject, dataset, i) for _ in range(2)] for i in range(DRAWS)]
    return not any(same_bytes(a, b) for pair in pairs for a, b in zip(*pair, strict=True))


def _judge_set_epoch(subject: LoaderSubject) -> Answer | None:
    """Judge the order if nobody calls set_epoch(); None where nobody needs to."""
    held = [getattr(subject.loader, name, None) for name in PARTS]
    kinds = [type(part).__name__ for part in held if hasattr(part, SETTER)]
    source = source_of([subject.make_loader])
    if not kinds or f".{SETTER}(" in source:
        return None
    one, two = subject.index_order(by_epoch=False)
    if one != two:
        return None
    text = f"Every epoch has the same order unless {kinds[0]}.{SETTER}(epoch) is called"
    if LOOP.search(source):
        return wrong(
            f"{text}, and the file with your loop over epochs never calls it.",
            ["set_epoch is missing"],
            f"Call loader.sampler.{SETTER}(epoch) at the start of each epoch.",
        )
    return unclear(f"{text}: whether your loop does so is not seen.")


def _judge_indices(subject: LoaderSubject) -> Answer | None:
    batches, again = subject.index_order()
    try:
        first, second = ([int(i) for i in chain(*order)] for order in (batches, again))
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
    if first == second:
        return wrong(
            f"Two epochs have the same order of {len(first)} samples.",
            ["a sampler that is seeded in each epoch", "set_epoch is missing", "a fixed list"],
            "Let the seed of the sampler depend on the epoch.",
        )
    batch_of = {index: number for number, batch in enumerate(again) for index in batch}
    once = len(set(first)) == len(first) and len(batches) > 2
    pairs = [(a, b) for batch in batches for a, b in pairwise(batch) if once and a != b]
    met = [batch_of[a] == batch_of[b] for a, b in pairs if {a, b} <= batch_of.keys()]
    share = sum(met) / max(1, len(met))
    if share > SAME_MATES:
        return wrong(
            f"{share:.0%} of the pairs in a batch meet again in the next epoch: batches are "
            "shuffled, samples are not.",
            ["the batches or shards are shuffled, and not what is in them"],
            "Shuffle the samples before they are put into batches.",
        )
    return passed(
        f"The order of {len(first)} samples is like a random one (score {score:+.1f} deviations) "
        "and differs between epochs."
    )


def _judge_epochs(subject: LoaderSubject) -> Answer | None:
    """The order of a stream in its second epoch against the first, samples known by their bytes."""
    first, second = ([d for b in e for d in sample_digests(b.raw)] for e in subject.epochs)
    later = {digest: place for place, digest in enumerate(second)}
    shared = [later[digest] for digest in dict.fromkeys(first) if digest in later]
    if len(shared) < MIN_SAMPLES or len(set(first)) < 0.9 * len(first):
        return None
    share = order_score(shared) / math.sqrt(len(shared) - 1)
    text = f"the orders of two epochs correlate by {share:.3f} over {len(shared)} samples."
    if share < SAME_REGION:
        return (passed if abs(share) < 0.5 else unclear)(f"In the stream, {text}")
    operations = prefixes(subject.loader) if kind_of(subject.loader) == "tf" else []
    shuffles = [op for op in operations if name_of(op).startswith("Shuffle")]
    if first[: len(shared)] != second[: len(shared)] or shuffles:
        sizes = [int(getattr(op, "_buffer_size", 0) or 0) for op in shuffles]
        buffer = f" (shuffle({sizes[0]}))" if sizes else ""
        return wrong(
            f"A sample comes at almost the same place in each epoch{buffer}: {text}",
            [
                "a shuffle buffer much smaller than the dataset",
                "reshuffle_each_iteration=False, or a seed that is set again in each epoch",
            ],
            "Enlarge the buffer to a fifth of the dataset or more, or shuffle files first.",
        )
    return unclear(
        f"Two epochs of the stream have the same order of {len(shared)} samples.",
        "Right where the data are stored in random order; else shuffle files and use a buffer.",
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
    if score > FAR and not own:
        return _clumped(f"{text}: {score:.0f} deviations")
    sizes = [b.size for b in subject.batches]
    parts = np.split(labels, np.cumsum(sizes)[:-1])
    loss, has, should = entropy_score(parts) if len(parts) > 2 else (0.0, 0.0, 0.0)
    # a sampler of the user's that deals so many samples of each chosen class
    counts = {int(n) for part in parts[:-1] for n in np.unique(part, return_counts=True)[1]}
    dealt = own and len(counts) == 1 and max(counts) < sizes[0]
    if loss < -FAR and has < 0.9 * should and not dealt:
        return _clumped(
            f"Labels in a batch have an entropy of {has:.2f} nats, {should:.2f} are "
            f"expected: {-loss:.0f} deviations"
        )
    return passed(f"{text}.")


def _clumped(text: str) -> Answer:
    return wrong(
        f"{text} from a random order of the same labels.",
        [
            "the data are stored class by class and not shuffled",
            "a shuffle buffer that is smaller than the runs of one class, or shards of one class",
        ],
        "Shuffle the list of files once before sharding, or enlarge the buffer.",
    )


MIN_STREAM = 16  # samples of each worker
STEERS = re.compile(r"(set|update|step|next|advance|grow|increase|on)(_(?!epoch)|$)")
MAX_COUNTED, LENGTHS = 20_000, 8  # samples of a stream; epochs of a sampler


class Coverage(Check):
    """An epoch that omits samples, repeats them, or differs from its declared length.

    ## How it decides
    Counts the indices of three epochs. Fails if samples have no weight or come in no epoch, batches
    repeat the batch before, or `num_samples` is the number of batches. Fails if two epochs differ
    in length, or `len(loader)` from the number of batches. Fails if over half of the samples of two
    stream workers have equal bytes, where only labels agree after equal seeds.

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
        return _by_worker(subject) if subject.is_torch else _by_passes(subject)


def _by_index(subject: LoaderSubject) -> Answer:
    loader = subject.loader
    with users_code("len(dataset)"):
        total = len(loader.dataset)
    orders = subject.index_order()
    drawn, later = (sum(map(len, order)) for order in orders)
    unique, batches = len(set(map(str, chain(*orders[0])))), len(orders[0])
    if not drawn:
        text = f"An epoch is empty: the sampler takes none of {total} samples."
        causes = "the dataset found no files", "drop_last=True and fewer samples than one batch"
        return wrong(text, causes, "Print len(dataset), and the folder it looks in.")
    if drawn >= min(MAX_INDICES, PASSES * total):
        return unclear(f"The sampler goes on after {drawn} draws: its epochs have no end.")
    if (found := _judge_weights(loader, total, drawn)) is not None:
        return found
    if drawn != later:
        text = f"Two epochs differ in length: {drawn} and {later} samples."
        own = own_sampler(loader)
        meant = hasattr(own, "set_epoch") or (own is not None and _lengths_drawn(subject))
        return (unclear if meant else Coverage.failed)(text)
    if (declared := operator.length_hint(loader, batches)) != batches:
        return Coverage.failed(f"len(loader) is {declared}, and an epoch has {batches} batches.")
    if drawn == unique == total:
        return passed(f"All {total} samples come once an epoch.")
    return _judge_counts(subject, total, orders, drawn, unique)


def _lengths_drawn(subject: LoaderSubject) -> bool:
    """Whether the lengths of epochs rise and fall by less than half: they depend on the draws."""
    lengths = [sum(map(len, order)) for order in subject.index_order(epochs=range(LENGTHS))]
    steps = {b > a for a, b in pairwise(lengths) if a != b}
    return len(steps) > 1 and min(lengths) > max(lengths) / 2


def _judge_counts(
    subject: LoaderSubject, total: int, orders: list[list[list[Any]]], drawn: int, unique: int
) -> Answer:
    """Judge an epoch that does not draw each sample once: whether others ever draw the rest."""
    text = f"{drawn} draws of an epoch give {unique} of {total} samples"
    samplers = [subject.loader, *samplers_of(subject.loader)]
    size = max(map(len, orders[0]))
    if drawn == unique > total - size and any(getattr(s, "drop_last", 0) for s in samplers):
        return passed(f"{text}; drop_last leaves out the others.")
    if any(hasattr(s, "num_replicas") or hasattr(s, "indices") for s in samplers):
        return unclear(f"{text}: it is one of a part.")
    if (own := own_sampler(subject.loader)) is None:
        spread = unique / (total * -math.expm1(-drawn / total))
        zero = not np.asarray(getattr(samplers[-1], "weights", 1)).all()  # a class, or a part
        return (unclear if zero or spread < 0.25 else passed)(f"{text}.")
    sets = [{str(i) for i in chain(*o)} for o in (*orders, *subject.index_order(epochs=(1000,)))]
    never = total - len(sets[0])
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


def _by_worker(subject: LoaderSubject) -> Answer:
    streams: dict[int, list[tuple[str, Any]]] = {}
    for record in (record for batch in subject.batches for record in batch.records):
        streams.setdefault(record.worker, []).append((record.digest, record.label))
    shortest, count = min(map(len, streams.values())), len(streams)
    if count < 2:
        return passed("The stream is read by one process, so no sample comes twice for it.")
    if shortest < MIN_STREAM:
        return unclear(f"A worker gave only {shortest} samples: too few to compare workers.")
    one, two = list(streams.values())[:2]
    shared = _shared_share([d for d, _ in one[:shortest]], [d for d, _ in two[:shortest]])
    # bytes may differ by augmentation: then what they are without its randomness decides
    labels, others = ([label for _, label in stream[:shortest]] for stream in (one, two))
    if shared <= 0.5 and None not in labels and labels == others:
        shared = _shared_when_seeded(subject, shortest)
        if math.isnan(shared):
            return unclear(
                f"{count} workers give equal labels, and samples that a generator of their own "
                "makes unlike: whether they are the same cannot be seen.",
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


def _shared_share(one: list[str], two: list[str]) -> float:
    return len({*one} & {*two}) / len({*one})


def _seed_alike(worker: int) -> None:
    seed_everything(0)


def _shared_when_seeded(subject: LoaderSubject, shortest: int) -> float:
    """Return the share of equal samples of two equally seeded workers; NaN if no seed counts."""
    clone = probed_loader(subject.fresh())
    clone.__dict__["worker_init_fn"] = _seed_alike
    one, two = _digests_of_workers(clone, shortest)[:2]
    again = _digests_of_workers(clone, shortest)[0]
    return _shared_share(one, two) if one == again else math.nan


def _digests_of_workers(probed: Any, count: int) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    for records, _ in batches_of(probed):
        for record in records:
            found.setdefault(record.worker, []).append(record.digest)
        if len(found) > 1 and min(map(len, found.values())) >= count:
            break
    return [found[worker][:count] for worker in sorted(found)]


def _by_passes(subject: LoaderSubject) -> Answer:
    loader, counts = subject.fresh(), [0, 0]
    for epoch in range(2):
        set_epoch(loader, epoch)
        for batch in batches_of(loader):
            counts[epoch] += subject.seen(batch).size
            if counts[epoch] >= MAX_COUNTED or subject.time_is_short():
                return unclear(f"The stream is longer than {counts[epoch]} samples: not counted.")
    if counts[0] != counts[1]:
        return Coverage.failed(f"Two epochs give {counts[0]} and {counts[1]} samples.")
    return passed(f"Two epochs give {counts[0]} samples each.")


class LastBatch(Check):
    """A last batch that is dropped, or has a single sample.

    ## How it decides
    Reads the sizes of all batches of an epoch from the sampler or the tf.data graph. Fails if an
    evaluation drops samples, or an unshuffled training drops the same samples each epoch. Fails if
    the last training batch has one sample, which breaks batch norm. Reports the bias of a mean over
    batches: |1/batches - r/samples| for a last batch of r.

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
        sizes, loader = [len(batch) for batch in first], subject.loader
        dropped = len(loader.dataset) - sum(sizes) if getattr(loader, "drop_last", False) else 0
        return _judge_last(subject, sizes, first == second, dropped)


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
    shuffled = any(name_of(op).startswith("Shuffle") for op in chain[:at])
    return _judge_last(subject, sizes, not shuffled, rest if drops else 0)


def _judge_last(subject: LoaderSubject, sizes: list[int], same_order: bool, dropped: int) -> Answer:
    if len(sizes) < 2:
        return unclear(f"An epoch has {len(sizes)} batch.")
    drawn, last, usual = sum(sizes), sizes[-1], max(sizes)
    if dropped > 0 and (subject.evaluation or same_order):
        start = (
            "An evaluation leaves out" if subject.evaluation else "Every epoch leaves out the same"
        )
        return wrong(
            f"{start} {dropped} of {drawn + dropped} samples ({dropped / (drawn + dropped):.1%}).",
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
    return passed(
        f"{len(sizes)} batches of {usual}, the last of {last}; {dropped} samples dropped. A mean "
        f"over batches instead of samples is off by {abs(1 / len(sizes) - last / drawn):.2%} of "
        "the difference between the last batch and the rest."
    )
