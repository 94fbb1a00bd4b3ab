"""Random numbers of a loader: workers that draw alike, one seed that gives other data."""

from __future__ import annotations

import itertools

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.loader_subject import LoaderSubject, SampleRecord, own_sampler
from pipeline_profiler.checks.user_code import batches_of
from pipeline_profiler.profiling.adapters import kind_of
from pipeline_profiler.profiling.adapters.tf_graph import name_of, prefixes


class RandomStreams(Check):
    """Workers, epochs or samples that get the same random numbers.

    ## What it does
    Reads the state of each random generator before and after each sample, in its worker: `random`,
    numpy, torch, and those of the dataset.

    ## Why is this bad
    Repeated random numbers give repeated augmentations. A stream that restarts each epoch never
    changes the data.

    ## How it decides
    Fails if a used generator had the same state in two workers, or at the start of both epochs.
    Fails if it had the same state after samples with different indices. Exact. A loader without
    random numbers passes.

    ## What to do
    Draw from torch's generator, which torch seeds by worker and epoch. Seed other generators in
    `worker_init_fn` from `torch.initial_seed()`.

    ## Limits
    torch's DataLoader only. Generators that a sample creates from its index are not seen. Global
    generators seeded from the index are inconclusive.
    """

    code = "LOAD001"
    name = "repeated-random-numbers"

    def run(self, subject: LoaderSubject) -> Answer:
        if not subject.is_torch:
            return absent("Without a DataLoader of torch no workers have generators of their own.")
        epochs = [[r for batch in batches for r in batch.records] for batches in subject.epochs]
        used = sorted({name for r in epochs[0] for name in r.used()})
        if not used:
            return passed(
                f"No generator is drawn from while samples are made: nothing of the "
                f"{len(epochs[0])} samples is random.",
                samples=len(epochs[0]),
            )
        problems = [text for name in used for text in _problems(name, epochs)]
        if problems:
            return _failed(problems, used, subject.workers)
        fixed = [name for name in used if _seeded_by_index(name, epochs)]
        if fixed:
            return unclear(
                f"{', '.join(fixed)} is seeded from the index of the sample: the same image gets "
                "the same random numbers each epoch. Right for evaluation and for made data, not "
                "for augmentation.",
                streams=fixed,
            )
        return passed(
            f"{', '.join(used)}: different in all {max(1, subject.workers)} workers and in both "
            f"epochs, over {len(epochs[0])} samples.",
            streams=used,
        )


def _problems(name: str, epochs: list[list[SampleRecord]]) -> list[str]:
    now, later = (  # the first state of each worker
        {r.worker: r.before[name] for r in reversed(records) if name in r.used()}
        for records in epochs
    )
    found = []
    if len(now) > 1 and len(set(now.values())) < len(now):
        found.append(f"{name} is in the same state in several of {len(now)} workers")
    both = [worker for worker in now if worker in later]
    if both and any(now[w] == later[w] for w in both):
        found.append(f"{name} starts the second epoch in the state of the first")
    drawn = [r for r in epochs[0] if name in r.used() and r.worker == epochs[0][0].worker]
    after = {r.after[name] for r in drawn}
    if len({str(r.index) for r in drawn}) > 4 and len(after) == 1:
        found.append(f"{name} ends every sample in the same state: it is seeded in each")
    return found


def _seeded_by_index(name: str, epochs: list[list[SampleRecord]]) -> bool:
    now, later = ({str(r.index): r for r in e if name in r.used()} for e in epochs)
    both = [i for i in now if i in later and now[i].before[name] != later[i].before[name]]
    return bool(both) and all(now[i].after[name] == later[i].after[name] for i in both)


def _failed(problems: list[str], used: list[str], workers: int) -> Answer:
    held = any("dataset" in text for text in problems)
    own = "a generator object made once, in the main process, is copied into every worker"
    init = "worker_init_fn seeds all workers, or all epochs, with one number"
    inside = "a seed is set while a sample is made"
    causes = [own, init, inside] if held else [init, inside, own]
    if any("in each" in text for text in problems):
        causes = [inside, init]
    return wrong(
        f"{'; '.join(problems)}: the same random numbers are used again.",
        causes,
        "Seed it in worker_init_fn from torch.initial_seed() % 2**32, or draw from torch.",
        streams=used,
        workers=workers,
    )


BATCHES = 4


class Reproducible(Check):
    """A loader that returns different batches with the same seeds.

    ## What it does
    Makes the loader twice with one seed (random, numpy, torch) and once with another. Compares the
    bytes of the first batches.

    ## Why is this bad
    Runs that cannot be repeated cannot be compared: the data differ too.

    ## How it decides
    Fails if one seed gives different bytes. Exact. Inconclusive if the script sets no seed, or
    draws random numbers before it, or if a script's sampler or dataset carry a state from pass to
    pass. Inconclusive for random numbers in a parallel map of tf.data if
    the targets keep their order.

    ## Limits
    The first four batches, in one process: effects of the process (hash order of strings) are not
    seen.
    """

    code = "LOAD006"
    name = "not-reproducible"
    nearness = Nearness.EFFECT
    causes = (
        "a generator that takes its seed from the system: default_rng()",
        "threads or processes that deliver in any order",
        "a list of files in the order of the file system, or of a set",
    )
    next_step = "Seed every generator from one number, and sort the files."

    def run(self, subject: LoaderSubject) -> Answer:
        if not subject.made_anew:
            return unclear("The loader cannot be made anew: a second pass is another epoch.")
        one, two, other = (
            [digest_of(b) for b in itertools.islice(batches_of(loader), BATCHES)]
            for loader in map(subject.fresh, (0, 0, 1))
        )
        equal = [a == b for a, b in zip(one, two, strict=False)]
        numbers = {"batches": len(equal), "equal": sum(equal)}
        if len(one) != len(two) or not all(equal):
            if _drawn_in_parallel(subject):
                return unclear(
                    "After the same seed the same samples come, changed by random numbers that "
                    "tf.data draws in map(..., num_parallel_calls): which sample gets which number "
                    "is up to its threads.",
                    "Where runs must be equal, draw by tf.random.stateless_* from a seed a sample.",
                    **numbers,
                )
            if subject.has_indices and _goes_on(subject):
                said = (
                    "The sampler or the dataset keeps a state, so a second pass is another epoch."
                )
                return unclear(said, **numbers)
            return self.failed(
                f"After the same seed, {len(equal) - sum(equal)} of the first {len(equal)} batches "
                "differ.",
                **numbers,
            )
        differs = "gives other batches" if one != other else "gives the same batches"
        same = f"first {len(equal)} batches are equal to the last bit"
        return self.without_seed(subject, f"the {same}", **numbers) or passed(
            f"The {same} after one seed; another seed {differs}.", **numbers
        )


def _goes_on(subject: LoaderSubject) -> bool:
    """Whether one sampler of the user's, or a generator of the dataset, serves all passes."""
    loader = subject.fresh(0)
    if loader.batch_sampler is not subject.fresh(0).batch_sampler:
        return False
    used = (name for b in subject.batches for record in b.records for name in record.used())
    return own_sampler(loader) is not None or any(name.startswith("dataset") for name in used)


def _drawn_in_parallel(subject: LoaderSubject) -> bool:
    """Whether tf.data maps in threads, and the targets come in one order after one seed."""
    if kind_of(subject.loader) != "tf":
        return False
    names = [name_of(operation) for operation in prefixes(subject.loader)]
    if not any(name.startswith("ParallelMap") for name in names):
        return False
    one, two = (
        [
            digest_of(targets)
            for batch in itertools.islice(batches_of(subject.fresh(0)), BATCHES)
            if (targets := subject.seen(batch).targets) is not None
        ]
        for _ in range(2)
    )
    return bool(one) and one == two
