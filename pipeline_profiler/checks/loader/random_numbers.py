"""Random numbers of a loader: workers that draw alike, one seed that gives other data."""

from __future__ import annotations

from itertools import islice, zip_longest
from typing import Any

from pipeline_profiler.checks.batches import digest_of
from pipeline_profiler.checks.check import Answer, Check, Nearness, absent, passed, unclear, wrong
from pipeline_profiler.checks.loader_subject import LoaderSubject, SampleRecord, own_sampler
from pipeline_profiler.checks.user_code import batches_of
from pipeline_profiler.profiling.adapters import kind_of
from pipeline_profiler.profiling.adapters.tf_graph import name_of, prefixes

OWN = "a generator object made once, in the main process, is copied into every worker"
INIT = "worker_init_fn seeds all workers, or all epochs, with one number"
INSIDE = "a seed is set while a sample is made"


class RandomStreams(Check):
    """Workers, epochs or samples that get the same random numbers.

    ## How it decides
    Reads the state of each random generator before and after each sample, in its worker: `random`,
    numpy, torch, and those of the dataset. Fails if a used generator had the same state in two
    workers, at the start of both epochs, or after samples with different indices. Exact. A loader
    without random numbers passes.

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
            return passed(f"No generator is drawn from while {len(epochs[0])} samples are made.")
        if problems := [text for name in used for text in _problems(name, epochs)]:
            causes = [OWN, INIT, INSIDE] if "dataset" in "".join(problems) else [INIT, INSIDE, OWN]
            if any("in each" in text for text in problems):
                causes = [INSIDE, INIT]
            return wrong(
                f"{'; '.join(problems)}: the same random numbers are used again.",
                causes,
                "Seed it in worker_init_fn from torch.initial_seed() % 2**32, or draw from torch.",
            )
        if fixed := [name for name in used if _seeded_by_index(name, epochs)]:
            return unclear(
                f"{', '.join(fixed)} is seeded from the index of the sample: the same image gets "
                "the same random numbers each epoch. Right for evaluation and for made data, not "
                "for augmentation."
            )
        return passed(
            f"{', '.join(used)}: different in all {max(1, subject.workers)} workers and in both "
            f"epochs, over {len(epochs[0])} samples."
        )


def _problems(name: str, epochs: list[list[SampleRecord]]) -> list[str]:
    now, later = (  # the first state of each worker
        {r.worker: r.before[name] for r in reversed(records) if name in r.used()}
        for records in epochs
    )
    drawn = [r for r in epochs[0] if name in r.used() and r.worker == epochs[0][0].worker]
    found = []
    if len(set(now.values())) < len(now):
        found.append(f"{name} is in the same state in several of {len(now)} workers")
    if now.items() & later.items():
        found.append(f"{name} starts the second epoch in the state of the first")
    if len({str(r.index) for r in drawn}) > 4 and len({r.after[name] for r in drawn}) == 1:
        found.append(f"{name} ends every sample in the same state: it is seeded in each")
    return found


def _seeded_by_index(name: str, epochs: list[list[SampleRecord]]) -> bool:
    now, later = ({str(r.index): r for r in e if name in r.used()} for e in epochs)
    both = [i for i in now if i in later and now[i].before[name] != later[i].before[name]]
    return bool(both) and all(now[i].after[name] == later[i].after[name] for i in both)


BATCHES = 4


class Reproducible(Check):
    """A loader that returns different batches with the same seeds.

    ## How it decides
    Makes the loader twice with one seed (random, numpy, torch) and once with another. Fails if one
    seed gives other bytes in the first four batches. Exact.

    ## Limits
    Inconclusive if the script sets no seed, or draws random numbers before it, or if a script's
    sampler or dataset carry a state from pass to pass. Inconclusive for random numbers in a
    parallel map of tf.data if the targets keep their order.
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
        one, two, other = (_first_digests(subject, seed) for seed in (0, 0, 1))
        if one != two:
            if _drawn_in_parallel(subject):
                return unclear(
                    "After the same seed the same samples come, changed by random numbers that "
                    "tf.data draws in map(..., num_parallel_calls): which sample gets which number "
                    "is up to its threads.",
                    "Where runs must be equal, draw by tf.random.stateless_* from a seed a sample.",
                )
            if subject.has_indices and _goes_on(subject):
                return unclear(
                    "The sampler or the dataset keeps a state, so a second pass is another epoch."
                )
            differ = sum(a != b for a, b in zip_longest(one, two))
            return self.failed(
                f"After the same seed, {differ} of the first {len(one)} batches differ."
            )
        same = f"first {len(one)} batches are equal to the last bit"
        differs = "gives other batches" if one != other else "gives the same batches"
        return self.without_seed(subject, f"the {same}") or passed(
            f"The {same} after one seed; another seed {differs}."
        )


def _first_digests(subject: LoaderSubject, seed: int, of: Any = lambda batch: batch) -> list[str]:
    return [digest_of(of(b)) for b in islice(batches_of(subject.fresh(seed)), BATCHES)]


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
    if not any(name_of(op).startswith("ParallelMap") for op in prefixes(subject.loader)):
        return False
    one, two = (
        _first_digests(subject, 0, lambda batch: subject.seen(batch).targets) for _ in range(2)
    )
    return one == two
